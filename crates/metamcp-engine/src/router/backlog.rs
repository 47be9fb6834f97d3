//! Backpressure toward a server that reads slowly: long messages and short ones are counted separately, so that a long
//! one in flight does not block other calls.

use std::collections::VecDeque;

/// Bytes of short messages that may be queued for a child. Beyond it calls are refused rather than buffered.
const SHORT: u64 = 8 * 1024 * 1024;
/// The same for long ones, beyond the first, which is always accepted.
const LONG: u64 = 8 * 1024 * 1024;
/// From this size on a message is long: a thousand short ones of the usual size take less.
const IS_LONG: u64 = 256 * 1024;

/// The long messages that are in flight to one server.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Where in the stream each begins and ends.
    long: VecDeque<(u64, u64)>,
}

impl Backlog {
    /// Whether a message of this size may be queued. The server has read `taken` of `pushed` bytes.
    pub(crate) fn takes(&mut self, size: u64, taken: u64, pushed: u64) -> bool {
        self.long.retain(|&(_, end)| end > taken);
        let left = |&(start, end): &(u64, u64)| end - start.max(taken);
        let long: u64 = self.long.iter().map(left).sum();
        let short = pushed.saturating_sub(taken).saturating_sub(long);
        if size < IS_LONG { short + size <= SHORT } else { long == 0 || long + size <= LONG }
    }

    /// A message was queued: from `start` to `end`.
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
        // Once the server has read most of it, the next may follow.
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
