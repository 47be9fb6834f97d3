//! Answers to what a script asks about tools, kept while it runs: the same question again costs nothing.

use std::collections::VecDeque;

use metamcp_sandbox::host::Op;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, MutexGuard};

/// Answers kept at most.
const MOST: usize = 32;
/// Bytes of answers and questions kept at most.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct QueryCache {
    entries: Mutex<Entries>,
    turns: Turns<()>,
}

#[derive(Default)]
struct Entries {
    /// Of which state of the catalog.
    generation: u64,
    list: VecDeque<(Op, String, String)>,
    bytes: usize,
}

impl QueryCache {
    /// Whose turn it is to find out what takes long. Only declarations do; a search may have to wait for servers.
    pub(super) async fn turn(&self, op: Op) -> Option<MutexGuard<'_, ()>> {
        match op {
            Op::Types => Some(self.turns.lock().await),
            _ => None,
        }
    }

    /// The answer, if the catalog is still what it was then.
    pub(super) fn known(&self, generation: u64, op: Op, question: &str) -> Option<String> {
        let entries = self.entries.lock();
        let same = |(of, asked, _): &&(Op, String, String)| *of == op && asked == question;
        let found = entries.list.iter().find(same).filter(|_| entries.generation == generation);
        found.map(|(_, _, answer)| answer.clone())
    }

    /// Keeps an answer; the oldest make room.
    pub(super) fn keep(&self, generation: u64, op: Op, question: &str, answer: &str) {
        let mut entries = self.entries.lock();
        if entries.generation != generation {
            *entries = Entries { generation, ..Entries::default() };
        }
        let bytes = question.len() + answer.len();
        if bytes > MOST_BYTES {
            return;
        }
        while entries.list.len() >= MOST || entries.bytes + bytes > MOST_BYTES {
            let Some((_, asked, answer)) = entries.list.pop_front() else { break };
            entries.bytes -= asked.len() + answer.len();
        }
        entries.bytes += bytes;
        entries.list.push_back((op, question.to_owned(), answer.to_owned()));
    }

    /// What was known may have changed.
    pub(super) fn forget(&self) {
        *self.entries.lock() = Entries::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_until_the_catalog_moves_or_a_call_was_made() {
        let answers = QueryCache::default();
        answers.keep(1, Op::Types, "q", "a");
        assert_eq!(answers.known(1, Op::Types, "q").as_deref(), Some("a"));
        assert_eq!(answers.known(1, Op::List, "q"), None);
        assert_eq!(answers.known(2, Op::Types, "q"), None);
        answers.forget();
        assert_eq!(answers.known(1, Op::Types, "q"), None);
    }

    #[test]
    fn what_is_kept_is_bounded_in_number_and_in_bytes() {
        let answers = QueryCache::default();
        for n in 0..100 {
            answers.keep(1, Op::Search, &n.to_string(), "a");
        }
        assert_eq!(answers.known(1, Op::Search, "0"), None);
        assert!(answers.known(1, Op::Search, "99").is_some());
        let long = "x".repeat(MOST_BYTES / 2);
        for n in 0..4 {
            answers.keep(1, Op::List, &n.to_string(), &long);
        }
        let entries = answers.entries.lock();
        assert!(entries.bytes <= MOST_BYTES, "{} bytes in {}", entries.bytes, entries.list.len());
    }
}
