//! When to look at the tree again while it is being killed.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::unistd::Pid;

/// Between two rounds of killing, at first and whenever somebody new turned up.
pub(super) const KILL_ROUND: Duration = Duration::from_millis(4);

/// Between two rounds that find only those who were struck already.
const LONGEST_KILL_ROUND: Duration = Duration::from_millis(16);

/// Reading the tree costs more than a death does, and
/// every shim of a gateway does it at the same moment: a round that found nobody new is followed by a
/// longer pause, one that did by the shortest.
#[derive(Default)]
pub(super) struct KillInterval {
    struck: BTreeSet<Pid>,
    pause: Duration,
}

impl KillInterval {
    pub(super) fn after(&mut self, struck: BTreeSet<Pid>) -> Duration {
        let nobody_new = !struck.is_empty() && struck.is_subset(&self.struck);
        self.pause = if nobody_new { (self.pause * 2).min(LONGEST_KILL_ROUND) } else { KILL_ROUND };
        self.struck = struck;
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nix::unistd::Pid;

    use super::{KILL_ROUND, KillInterval, LONGEST_KILL_ROUND};

    fn pids(raw: &[i32]) -> BTreeSet<Pid> {
        raw.iter().copied().map(Pid::from_raw).collect()
    }

    #[test]
    fn rounds_slow_down_until_somebody_new_turns_up() {
        let mut interval = KillInterval::default();
        assert_eq!(interval.after(pids(&[7, 8])), KILL_ROUND);
        assert_eq!(interval.after(pids(&[7, 8])), KILL_ROUND * 2);
        assert_eq!(interval.after(pids(&[8])), KILL_ROUND * 4);
        assert_eq!(interval.after(pids(&[8, 9])), KILL_ROUND, "9 was forked meanwhile");
        for _ in 0..10 {
            interval.after(pids(&[9]));
        }
        assert_eq!(interval.after(pids(&[9])), LONGEST_KILL_ROUND);
        // Inside a namespace nobody is named, and killing everyone again costs one system call.
        assert_eq!(interval.after(pids(&[])), KILL_ROUND);
    }
}
