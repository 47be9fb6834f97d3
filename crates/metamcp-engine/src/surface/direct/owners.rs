//! Which server listed a URI or a prompt, and which elements were skipped in lists.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use metamcp_calls::pool::ServerId;
use metamcp_surface::direct::fit::InvalidElement;
use metamcp_surface::direct::{Kind, template};
use metamcp_types::text;

use crate::router::Entry;
use crate::surface::Surface;

/// Most URIs and names in the table. Beyond it the table is cleared, and filled again by the next lists.
const MAX_OWNERS: usize = 20_000;
/// Most templates: every URI that was not listed is matched against each of them.
const MAX_TEMPLATES: usize = 2_000;
/// Most servers per URI. Hardly any is listed by two; the rest are found by trying them.
const MAX_LISTERS: usize = 8;
/// Most skipped elements that are logged.
const MAX_LOGGED: usize = 1_000;

/// See the module.
#[derive(Default)]
pub(in crate::surface) struct Owners {
    /// The servers that listed it, in order: if one is disabled, the next has it.
    uris: HashMap<String, Vec<ServerId>>,
    templates: HashMap<String, Vec<ServerId>>,
    prompts: HashMap<String, (ServerId, Arc<str>)>,
    logged: HashSet<(ServerId, String)>,
}

impl Owners {
    /// A server listed this URI or URI template.
    pub(super) fn listed(&mut self, kind: Kind, key: String, server: ServerId) {
        let (map, most) = match kind {
            Kind::Templates => (&mut self.templates, MAX_TEMPLATES),
            _ => (&mut self.uris, MAX_OWNERS),
        };
        if map.len() >= most {
            map.clear();
        }
        // The first of several servers in the configuration has it, whichever list came first.
        let listers = map.entry(key).or_default();
        if let Err(position) = listers.binary_search(&server) {
            listers.insert(position, server);
            listers.truncate(MAX_LISTERS);
        }
    }

    /// A server listed this prompt, which clients see under that name.
    pub(super) fn listed_prompt(&mut self, name: String, server: ServerId, prompt: String) {
        if self.prompts.len() >= MAX_OWNERS {
            self.prompts.clear();
        }
        self.prompts.entry(name).or_insert_with(|| (server, prompt.into()));
    }

    /// The server of a URI: the one that listed it, else the one whose template matches it best.
    pub(super) fn of_uri(
        &self,
        uri: &str,
        is_there: impl Fn(ServerId) -> bool,
    ) -> Option<ServerId> {
        let first = |listers: &Vec<ServerId>| listers.iter().copied().find(|one| is_there(*one));
        let listed = |map: &HashMap<String, Vec<ServerId>>| map.get(uri).and_then(first);
        listed(&self.uris).or_else(|| listed(&self.templates)).or_else(|| {
            let fitting = self.templates.iter().filter_map(|(template, listers)| {
                Some((template::fits(template, uri)?, first(listers)?))
            });
            let best = fitting.max_by_key(|(fixed, server)| (*fixed, std::cmp::Reverse(*server)));
            best.map(|(_, server)| server)
        })
    }

    /// The server of a prompt, and its name there.
    pub(super) fn of_prompt(&self, name: &str) -> Option<(ServerId, Arc<str>)> {
        self.prompts.get(name).cloned()
    }
}

impl Surface {
    pub(super) fn owners(&self) -> parking_lot::MutexGuard<'_, Owners> {
        self.owners.lock()
    }

    /// Logs once per element that it is skipped in lists because clients would reject it.
    pub(super) fn log_skipped(&self, entry: &Entry, what: &str, key: &str, why: InvalidElement) {
        let mut owners = self.owners();
        if owners.logged.len() >= MAX_LOGGED
            || !owners.logged.insert((entry.id, format!("{what} {key}")))
        {
            return;
        }
        drop(owners);
        let key = text::clean_line(key, 100);
        let line = format!(
            "the {what} {key:?} of the server {:?} is skipped in lists in direct mode: {why}",
            entry.name
        );
        tracing::warn!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_server_that_lists_a_uri_has_it_and_templates_come_after() {
        let mut owners = Owners::default();
        let of = |owners: &Owners, uri: &str| owners.of_uri(uri, |_| true);
        assert_eq!(of(&owners, "memo://two/1"), None);
        owners.listed(Kind::Templates, "memo://{any}".to_owned(), ServerId(0));
        owners.listed(Kind::Templates, "memo://two/{id}".to_owned(), ServerId(2));
        assert_eq!(of(&owners, "memo://two/1"), Some(ServerId(2)), "the better template");
        assert_eq!(of(&owners, "memo://one/1"), Some(ServerId(0)));
        assert_eq!(of(&owners, "memo://two/{id}"), Some(ServerId(2)), "the template itself");
        owners.listed(Kind::Resources, "memo://two/1".to_owned(), ServerId(3));
        assert_eq!(of(&owners, "memo://two/1"), Some(ServerId(3)), "a listing comes first");
        owners.listed(Kind::Resources, "memo://two/1".to_owned(), ServerId(1));
        owners.listed(Kind::Resources, "memo://two/1".to_owned(), ServerId(4));
        assert_eq!(of(&owners, "memo://two/1"), Some(ServerId(1)));
        let without = owners.of_uri("memo://two/1", |server| server != ServerId(1));
        assert_eq!(without, Some(ServerId(3)), "a server that is not there leaves it to the next");
        let without = owners.of_uri("memo://two/1", |server| server == ServerId(2));
        assert_eq!(without, Some(ServerId(2)), "then to whose template fits");
        for number in 0..20 {
            owners.listed(Kind::Resources, "memo://many".to_owned(), ServerId(number));
            owners.listed(Kind::Templates, "memo://{many}".to_owned(), ServerId(number));
        }
        let most = owners.uris.values().chain(owners.templates.values()).map(Vec::len).max();
        assert_eq!(most, Some(MAX_LISTERS));
    }
}
