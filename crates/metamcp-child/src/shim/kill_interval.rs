//! When to read the process tree again while it is being killed.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::unistd::Pid;

/// Interval at first and whenever new processes turned up.
pub(super) const MIN_KILL_INTERVAL: Duration = Duration::from_millis(4);

/// Longest interval, when only known processes are found.
const MAX_KILL_INTERVAL: Duration = Duration::from_millis(16);

/// Reading the tree costs more than killing, and
/// every shim of a gateway does it at the same moment: the interval grows while nobody new
/// is found, and is reset otherwise.
#[derive(Default)]
pub(super) struct KillInterval {
    struck: BTreeSet<Pid>,
    pause: Duration,
}

impl KillInterval {
    pub(super) fn after(&mut self, struck: BTreeSet<Pid>) -> Duration {
        let nobody_new = !struck.is_empty() && struck.is_subset(&self.struck);
        self.pause =
            if nobody_new { (self.pause * 2).min(MAX_KILL_INTERVAL) } else { MIN_KILL_INTERVAL };
        self.struck = struck;
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nix::unistd::Pid;

    use super::{KillInterval, MAX_KILL_INTERVAL, MIN_KILL_INTERVAL};

    fn pids(raw: &[i32]) -> BTreeSet<Pid> {
        raw.iter().copied().map(Pid::from_raw).collect()
    }

    #[test]
    fn the_interval_grows_until_a_new_process_turns_up() {
        let mut interval = KillInterval::default();
        assert_eq!(interval.after(pids(&[7, 8])), MIN_KILL_INTERVAL);
        assert_eq!(interval.after(pids(&[7, 8])), MIN_KILL_INTERVAL * 2);
        assert_eq!(interval.after(pids(&[8])), MIN_KILL_INTERVAL * 4);
        assert_eq!(interval.after(pids(&[8, 9])), MIN_KILL_INTERVAL, "9 was forked meanwhile");
        for _ in 0..10 {
            interval.after(pids(&[9]));
        }
        assert_eq!(interval.after(pids(&[9])), MAX_KILL_INTERVAL);
        // Inside a namespace nobody is named, and killing everyone again costs one system call.
        assert_eq!(interval.after(pids(&[])), MIN_KILL_INTERVAL);
    }
}
