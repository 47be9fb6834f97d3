//! Applies withdrawals of a registry to the installed servers.

use std::path::Path;

use metamcp_provisioning::provision::Source;

use super::registry::RegistryCache;
use super::store::{Record, Store};

/// Whether a server from this registry is installed.
pub(super) fn concerns(home: &Path, base: &str) -> bool {
    Store::new(home).records().iter().any(|record| is_of(record, base))
}

/// Withholds the servers that the registry withdrew, and notifies running gateways.
pub(super) fn apply(home: &Path, cache: &RegistryCache) {
    let store = Store::new(home);
    let mut is_news = false;
    for record in store.records().iter().filter(|record| is_of(record, cache.base())) {
        let Some(why) = cache.against(&record.plan.candidate) else { continue };
        let name = &record.plan.server;
        match store.quarantine(record, &why) {
            Ok(false) => {}
            Ok(true) => {
                is_news = true;
                tracing::warn!("{name:?} is withheld: {why}");
            }
            Err(error) => {
                let words = format!("{name:?} should be withheld ({why}), but: {error}");
                tracing::error!("{words}");
            }
        }
    }
    if is_news {
        store.tell_gateways();
    }
}

fn is_of(record: &Record, base: &str) -> bool {
    matches!(&record.plan.source, Source::Registry(own) if own == base)
}
