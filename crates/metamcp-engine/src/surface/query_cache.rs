//! A cache of a script's catalog queries while it runs.

use std::collections::VecDeque;

use metamcp_sandbox::host::Op;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, MutexGuard};

/// Most cached queries.
const MOST: usize = 32;
/// Most bytes of queries and responses.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct QueryCache {
    entries: Mutex<Entries>,
    computing: Turns<()>,
}

#[derive(Default)]
struct Entries {
    /// The state of the catalog they are valid for.
    generation: u64,
    list: VecDeque<(Op, String, String)>,
    bytes: usize,
}

impl QueryCache {
    /// One expensive computation at a time. Only declarations are; a search may have to wait for servers.
    pub(super) async fn turn(&self, op: Op) -> Option<MutexGuard<'_, ()>> {
        match op {
            Op::Types => Some(self.computing.lock().await),
            _ => None,
        }
    }

    /// The cached response, if the catalog has not changed since.
    pub(super) fn get(&self, generation: u64, op: Op, query: &str) -> Option<String> {
        let entries = self.entries.lock();
        let same = |(of, cached, _): &&(Op, String, String)| *of == op && cached == query;
        let found = entries.list.iter().find(same).filter(|_| entries.generation == generation);
        found.map(|(_, _, response)| response.clone())
    }

    /// Stores a response and evicts the oldest.
    pub(super) fn put(&self, generation: u64, op: Op, query: &str, response: &str) {
        let mut entries = self.entries.lock();
        if entries.generation != generation {
            *entries = Entries { generation, ..Entries::default() };
        }
        let bytes = query.len() + response.len();
        if bytes > MOST_BYTES {
            return;
        }
        while entries.list.len() >= MOST || entries.bytes + bytes > MOST_BYTES {
            let Some((_, old_query, old_response)) = entries.list.pop_front() else { break };
            entries.bytes -= old_query.len() + old_response.len();
        }
        entries.bytes += bytes;
        entries.list.push_back((op, query.to_owned(), response.to_owned()));
    }

    pub(super) fn clear(&self) {
        *self.entries.lock() = Entries::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_cached_until_the_catalog_changes_or_a_call_is_made() {
        let cache = QueryCache::default();
        cache.put(1, Op::Types, "q", "a");
        assert_eq!(cache.get(1, Op::Types, "q").as_deref(), Some("a"));
        assert_eq!(cache.get(1, Op::List, "q"), None);
        assert_eq!(cache.get(2, Op::Types, "q"), None);
        cache.clear();
        assert_eq!(cache.get(1, Op::Types, "q"), None);
    }

    #[test]
    fn the_cache_is_bounded_in_number_and_in_bytes() {
        let cache = QueryCache::default();
        for n in 0..100 {
            cache.put(1, Op::Search, &n.to_string(), "a");
        }
        assert_eq!(cache.get(1, Op::Search, "0"), None);
        assert!(cache.get(1, Op::Search, "99").is_some());
        let long = "x".repeat(MOST_BYTES / 2);
        for n in 0..4 {
            cache.put(1, Op::List, &n.to_string(), &long);
        }
        let entries = cache.entries.lock();
        assert!(entries.bytes <= MOST_BYTES, "{} bytes in {}", entries.bytes, entries.list.len());
    }
}
