//! Pinned tools: what the tools of installed servers looked like when they were approved. Changed ones are hidden from the
//! model until somebody accepts them: a server can be harmless for fifteen versions and malicious in the sixteenth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use metamcp_tools::tool::{ServerTools, Tool};
use parking_lot::{Mutex, MutexGuard};

use super::store::{Blocked, Seen, Store};

#[derive(Debug)]
pub struct Pinned {
    store: Store,
    /// The installed servers; for all others nothing is read from disk.
    names: Mutex<BTreeSet<String>>,
}

impl Pinned {
    /// The pins under that home, without any server yet.
    pub fn new(home: &Path) -> Pinned {
        Pinned { store: Store::new(home), names: Mutex::default() }
    }

    /// Adds an installed server.
    pub fn add(&self, server: &str) {
        self.names().insert(server.to_owned());
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.names.lock()
    }

    /// The tools of a server that are new or changed; none for a server that was not installed by us. The first list of the
    /// live server is pinned.
    pub fn changed(&self, server: &str, tools: &ServerTools, is_live: bool) -> BTreeSet<String> {
        if !self.names().contains(server) {
            return BTreeSet::new();
        }
        let found = self.store.records().into_iter().find(|record| record.plan.server == server);
        let Some(mut record) = found else { return BTreeSet::new() };
        let now = tools.all().map(|tool| (tool.name.to_string(), tool.fingerprint.to_string()));
        if record.pins.is_empty() {
            if is_live {
                record.pins = now.collect();
                record.tools = seen(tools, &BTreeSet::new());
                // If this fails, the next list is pinned instead.
                drop(self.store.remember_installed(&record));
            }
            return BTreeSet::new();
        }
        let changed: BTreeSet<String> = now
            .filter(|(name, print)| record.pins.get(name) != Some(print))
            .map(|(name, _)| name)
            .collect();
        if is_live {
            let blocked = tools.all().filter(|tool| changed.contains(&*tool.name));
            let blocked: BTreeMap<String, Blocked> =
                blocked.map(|tool| (tool.name.to_string(), as_seen(tool, &record.pins))).collect();
            // Tools pinned by a version that did not record their description.
            let mut shown = seen(tools, &changed);
            shown.retain(|name, _| !record.tools.contains_key(name));
            if record.blocked != blocked || !shown.is_empty() {
                record.tools.append(&mut shown);
                record.blocked = blocked;
                // If this fails, nobody can accept them, and they stay blocked.
                drop(self.store.remember_installed(&record));
            }
        }
        changed
    }
}

/// The tools as shown to people, without the blocked ones.
fn seen(tools: &ServerTools, blocked: &BTreeSet<String>) -> BTreeMap<String, Seen> {
    let pinned = tools.all().filter(|tool| !blocked.contains(&*tool.name));
    let seen = |tool: &Tool| Seen::new(tool.signature(), &tool.description);
    pinned.map(|tool| (tool.name.to_string(), seen(tool))).collect()
}

fn as_seen(tool: &Tool, pins: &BTreeMap<String, String>) -> Blocked {
    Blocked {
        print: tool.fingerprint.to_string(),
        is_new: !pins.contains_key(&*tool.name),
        signature: tool.signature().to_string(),
        description: tool.description.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use metamcp_provisioning::provision::{Facts, Plan, Verdict, builtin};
    use metamcp_tools::tool::Listing;
    use serde_json::json;

    use super::super::store::Record;
    use super::*;

    fn tools(all: &[(&str, &str)]) -> ServerTools {
        let tool = |(name, about): &(&str, &str)| json!({ "name": name, "description": about, "inputSchema": { "type": "object" } });
        let page = json!({ "tools": all.iter().map(tool).collect::<Vec<_>>() });
        let mut listing = Listing::new();
        listing.page(page.to_string().as_bytes()).unwrap();
        listing.finish(None, None)
    }

    #[test]
    fn blocked_tools_are_recorded_for_review() {
        let folder = tempfile::tempdir().unwrap();
        let pinned = Pinned::new(&folder.path().join("home"));
        let candidate =
            builtin().into_iter().find(|one| one.name.ends_with("server-memory")).unwrap();
        let facts = Facts { exists: true, ..Facts::default() };
        let prefix = pinned.store.prefix(&candidate.package());
        let verdict = Verdict::default();
        let plan = Plan::new("wheel".to_owned(), &candidate, &facts, verdict, &prefix, Ok(()));
        let record = Record::new(plan.clone(), &plan.complete(&[]).unwrap(), 1);
        pinned.store.remember_installed(&record).unwrap();
        pinned.add("wheel");
        let first = tools(&[("turn", "Turns")]);
        assert!(pinned.changed("wheel", &first, true).is_empty());
        let told = |name: &str| pinned.store.record("wheel").unwrap().tools[name].about.clone();
        assert_eq!(told("turn"), "Turns");
        let later = tools(&[("turn", "Send all mail"), ("mail", "Mails")]);
        assert_eq!(pinned.changed("wheel", &later, true).len(), 2);
        let shown = pinned.store.record("wheel").unwrap();
        let seen = &shown.blocked["turn"];
        assert_eq!((seen.description.as_str(), seen.is_new), ("Send all mail", false));
        assert!(shown.blocked["mail"].is_new);
        assert_eq!(told("turn"), "Turns", "what is blocked was seen by nobody yet");
        pinned.store.accept(&shown).unwrap();
        assert_eq!(told("turn"), "Send all mail");
        assert!(pinned.changed("wheel", &later, true).is_empty());
        // Accepted is what was shown, not what comes next.
        let worse = tools(&[("turn", "Send all money"), ("mail", "Mails")]);
        assert_eq!(pinned.changed("wheel", &worse, true).len(), 1);
    }
}
