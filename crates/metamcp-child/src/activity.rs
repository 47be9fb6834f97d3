//! Whether a process tree is doing anything, to distinguish a slow installer from a hung one.
//! Owns: one counter per child.      Never: decides how much is enough.
//! In: CPU ticks, bytes read and written, bytes on stderr.  Out: a counter that changes with activity.
//! Tests: below, `tests/it/children.rs`.

use std::collections::BTreeMap;

use crate::processes;

/// CPU ticks (of 10 ms) that count as activity. An idle runtime with timers uses less in a minute or so.
const TICKS: u64 = 5;

/// Bytes through system calls that count as activity, more than a timer's wakeups cause.
const IO_BYTES: u64 = 16 * 1024;

/// What a tree has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) ticks: u64,
    pub(crate) io_bytes: u64,
    pub(crate) stderr_bytes: u64,
}

/// The counter and the usage at its last change.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    counter: u64,
    at: Usage,
    pids: BTreeMap<i32, Usage>,
}

impl Activity {
    /// Measures everything below `root` and returns the counter.
    pub(crate) fn look(&mut self, root: i32, stderr_bytes: u64) -> u64 {
        self.moved(processes::usage_below(root), stderr_bytes)
    }

    /// A new or ended process counts as activity; so does enough usage by the others.
    fn moved(&mut self, now: BTreeMap<i32, Usage>, stderr_bytes: u64) -> u64 {
        let sum = |field: fn(&Usage) -> u64| now.values().map(field).sum::<u64>();
        let usage = Usage { ticks: sum(|u| u.ticks), io_bytes: sum(|u| u.io_bytes), stderr_bytes };
        let same_processes = now.keys().eq(self.pids.keys());
        let used = usage.ticks.saturating_sub(self.at.ticks) >= TICKS
            || usage.io_bytes.saturating_sub(self.at.io_bytes) >= IO_BYTES
            || usage.stderr_bytes != self.at.stderr_bytes;
        if !same_processes || used {
            self.counter += 1;
            self.at = usage;
            self.pids = now;
        }
        self.counter
    }
}

#[cfg(test)]
mod tests {
    use super::{Activity, Usage};
    use std::collections::BTreeMap;

    fn tree(entries: &[(i32, u64, u64)]) -> BTreeMap<i32, Usage> {
        let usage = |&(pid, ticks, io_bytes)| (pid, Usage { ticks, io_bytes, stderr_bytes: 0 });
        entries.iter().map(usage).collect()
    }

    #[test]
    fn work_moves_the_counter_and_idling_does_not() {
        let mut activity = Activity::default();
        let first = activity.moved(tree(&[(1, 3, 100)]), 0);
        assert_eq!(activity.moved(tree(&[(1, 4, 900)]), 0), first, "timers");
        assert_eq!(activity.moved(tree(&[(1, 8, 900)]), 0), first + 1, "processor");
        assert_eq!(activity.moved(tree(&[(1, 8, 90_000)]), 0), first + 2, "download");
        assert_eq!(activity.moved(tree(&[(1, 8, 90_000)]), 1), first + 3, "a dot on stderr");
        assert_eq!(
            activity.moved(tree(&[(1, 8, 90_000), (2, 0, 0)]), 1),
            first + 4,
            "a new process"
        );
        assert_eq!(activity.moved(tree(&[(1, 8, 90_000)]), 1), first + 5, "which ended");
        assert_eq!(activity.moved(tree(&[(1, 8, 90_000)]), 1), first + 5);
    }
}
