//! How much may wait for a server that reads slowly: long messages and short ones are counted apart, so that a long one
//! under way keeps nobody from calling.

use std::collections::VecDeque;

/// Short messages that may wait for a child. Beyond it further calls are refused rather than kept in memory.
const SHORT: u64 = 8 * 1024 * 1024;
/// The same for long ones, beyond the first, which is always taken.
const LONG: u64 = 8 * 1024 * 1024;
/// From this size on a message is long: a thousand short ones of the usual size take less.
const IS_LONG: u64 = 256 * 1024;

/// The long messages that are on their way to one server.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Where in the stream each begins and ends.
    long: VecDeque<(u64, u64)>,
}

impl Backlog {
    /// Whether a message of this size may be put behind what waits. `taken` of `pushed` bytes are with the server.
    pub(crate) fn takes(&mut self, size: u64, taken: u64, pushed: u64) -> bool {
        self.long.retain(|&(_, end)| end > taken);
        let left = |&(start, end): &(u64, u64)| end - start.max(taken);
        let long: u64 = self.long.iter().map(left).sum();
        let short = pushed.saturating_sub(taken).saturating_sub(long);
        if size < IS_LONG { short + size <= SHORT } else { long == 0 || long + size <= LONG }
    }

    /// A message was put behind what waits: from `start` to `end`.
    pub(crate) fn pushed(&mut self, start: u64, end: u64) {
        if end - start >= IS_LONG {
            self.long.push_back((start, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1024 * 1024;

    #[test]
    fn a_long_message_under_way_keeps_no_short_one_waiting() {
        let mut backlog = Backlog::default();
        assert!(backlog.takes(15 * MEGABYTE, 0, 0));
        backlog.pushed(0, 15 * MEGABYTE);
        let mut pushed = 15 * MEGABYTE;
        for _ in 0..1000 {
            assert!(backlog.takes(1000, MEGABYTE, pushed));
            backlog.pushed(pushed, pushed + 1000);
            pushed += 1000;
        }
        assert!(!backlog.takes(15 * MEGABYTE, MEGABYTE, pushed), "one that long is enough");
        assert!(!backlog.takes(MEGABYTE, MEGABYTE, pushed));
        // When most of it is with the server, the next may follow.
        assert!(backlog.takes(MEGABYTE, 14 * MEGABYTE, pushed));
        assert!(backlog.takes(15 * MEGABYTE, pushed, pushed));
    }

    #[test]
    fn short_ones_have_a_bound_of_their_own() {
        let mut backlog = Backlog::default();
        assert!(backlog.takes(1000, 0, SHORT - 1000));
        assert!(!backlog.takes(1001, 0, SHORT - 1000));
        assert!(backlog.takes(1001, 1, SHORT - 1000));
    }
}
