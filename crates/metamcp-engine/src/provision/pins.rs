//! What the tools of installed servers looked like when they were agreed to. What changed since is kept from the model
//! until somebody has looked at it: a server can be harmless for fifteen versions and not for the sixteenth.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use metamcp_core::tool::ServerTools;

use super::store::Store;

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
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools of a server that are new or not what they were; none for a server that was not installed by us. The
    /// first list that a live server gives is what the later ones are held against.
    pub fn changed(&self, server: &str, tools: &ServerTools, is_live: bool) -> BTreeSet<String> {
        if !self.names().contains(server) {
            return BTreeSet::new();
        }
        let found = self.store.records().into_iter().find(|record| record.plan.server == server);
        let Some(mut record) = found else { return BTreeSet::new() };
        let now =
            tools.tools.iter().map(|tool| (tool.name.to_string(), tool.fingerprint.to_string()));
        if record.pins.is_empty() {
            if is_live {
                record.pins = now.collect();
                // Not written, the next list is taken for the first.
                drop(self.store.remember_installed(&record));
            }
            return BTreeSet::new();
        }
        now.filter(|(name, print)| record.pins.get(name) != Some(print))
            .map(|(name, _)| name)
            .collect()
    }
}
