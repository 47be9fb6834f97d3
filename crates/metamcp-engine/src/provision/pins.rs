//! What the tools of installed servers looked like when they were agreed to. What changed since is kept from the model
//! until somebody has looked at it: a server can be harmless for fifteen versions and not for the sixteenth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use metamcp_tools::tool::{ServerTools, Tool};
use parking_lot::{Mutex, MutexGuard};

use super::store::{Blocked, Seen, Store};

/// See the module.
#[derive(Debug)]
pub struct Pinned {
    store: Store,
    /// The servers it is about; every other one costs no look at the disk.
    names: Mutex<BTreeSet<String>>,
}

impl Pinned {
    /// With the files under that home, for servers yet to be named.
    pub fn new(home: &Path) -> Pinned {
        Pinned { store: Store::new(home), names: Mutex::default() }
    }

    /// This server was installed by us.
    pub fn add(&self, server: &str) {
        self.names().insert(server.to_owned());
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.names.lock()
    }

    /// The tools of a server that are new or not what they were; none for a server that was not installed by us. The
    /// first list that a live server gives is what the later ones are held against.
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
                // Not written, the next list is taken for the first.
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
            // Those that were pinned before anybody kept what people see of them.
            let mut shown = seen(tools, &changed);
            shown.retain(|name, _| !record.tools.contains_key(name));
            if record.blocked != blocked || !shown.is_empty() {
                record.tools.append(&mut shown);
                record.blocked = blocked;
                // Not written, nobody can accept them, and they stay blocked.
                drop(self.store.remember_installed(&record));
            }
        }
        changed
    }
}

/// The tools as people see them, without those that are blocked.
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
    fn what_is_blocked_is_kept_for_a_person_to_see() {
        let folder = tempfile::tempdir().unwrap();
        let pinned = Pinned::new(&folder.path().join("home"));
        let candidate = builtin().remove(1);
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
        // Accepted was what was shown, and not whatever comes next.
        let worse = tools(&[("turn", "Send all money"), ("mail", "Mails")]);
        assert_eq!(pinned.changed("wheel", &worse, true).len(), 1);
    }
}
