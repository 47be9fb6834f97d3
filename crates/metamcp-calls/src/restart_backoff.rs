//! How often a server may be started: a burst limit against crash loops, and a growing pause after failed starts.
//! Owns: the spawn window, the pause.      Never: starts anything; this is apart from the breaker, which counts calls.
//! In: `spawned(now)`, `start_failed(now)`.  Out: whether a start may happen now, or when.
//! Tests: below.

use std::collections::VecDeque;
use std::time::Duration;

use metamcp_types::moment::Moment;

/// Starts allowed within one window: a server that needs more is in a crash loop.
pub const BURST: usize = 5;
/// The window of the burst limit.
pub const WINDOW: Duration = Duration::from_secs(30);
/// The first pause after a failed start; doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between starts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a start has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Too many starts in a short time.
    CrashLoop {
        /// When the window has room again.
        until: Moment,
    },
    /// The last start failed a moment ago.
    Pausing {
        /// End of the pause.
        until: Moment,
    },
}

#[derive(Debug, Default)]
pub struct RestartBackoff {
    spawns: VecDeque<Moment>,
    failures: u32,
    not_before: Moment,
}

impl RestartBackoff {
    /// Whether a start may happen now.
    pub fn check(&self, now: Moment) -> Result<(), Backoff> {
        if now < self.not_before {
            return Err(Backoff::Pausing { until: self.not_before });
        }
        self.check_burst(now)
    }

    /// The burst limit alone: the one immediate retry of a failed start ignores the pause, never the burst.
    pub fn check_burst(&self, now: Moment) -> Result<(), Backoff> {
        let recent = self.spawns.iter().filter(|&&at| at + WINDOW > now);
        if recent.clone().count() >= BURST {
            let oldest = recent.min().copied().unwrap_or(now);
            return Err(Backoff::CrashLoop { until: oldest + WINDOW });
        }
        Ok(())
    }

    /// Records a start.
    pub fn spawned(&mut self, now: Moment) {
        self.spawns.retain(|&at| at + WINDOW > now);
        self.spawns.push_back(now);
    }

    /// Records that the last start ended as we wished: a process that was idle, or not wanted beyond its one call,
    /// is no sign of a crash loop, however often that happens.
    pub fn retired(&mut self) {
        self.spawns.pop_back();
    }

    /// Records that a start did not lead to a usable connection. `jitter` is between 0 and 1000 thousandths of
    /// the quarter of a pause that is left to chance.
    pub fn start_failed(&mut self, now: Moment, jitter: u32) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause + pause / 4 * jitter.min(1000) / 1000;
    }

    /// Records a start that worked.
    pub fn started(&mut self) {
        self.failures = 0;
        self.not_before = Moment::START;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_spawns_in_thirty_seconds_then_a_crash_loop() {
        let mut restart_backoff = RestartBackoff::default();
        for second in 0..5 {
            let now = Moment::millis(second * 1000);
            assert_eq!(restart_backoff.check(now), Ok(()));
            restart_backoff.spawned(now);
        }
        let until = Moment::START + WINDOW;
        assert_eq!(restart_backoff.check(Moment::millis(5000)), Err(Backoff::CrashLoop { until }));
        assert_eq!(restart_backoff.check(until), Ok(()));
    }

    #[test]
    fn a_start_that_ended_as_we_wished_does_not_count() {
        let mut restart_backoff = RestartBackoff::default();
        for _ in 0..100 {
            assert_eq!(restart_backoff.check(Moment::START), Ok(()));
            restart_backoff.spawned(Moment::START);
            restart_backoff.retired();
        }
        (0..BURST).for_each(|_| restart_backoff.spawned(Moment::START));
        assert!(restart_backoff.check(Moment::START).is_err(), "crashes still do");
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_end_with_success() {
        let mut restart_backoff = RestartBackoff::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            restart_backoff.start_failed(Moment::START, 0);
            let Err(Backoff::Pausing { until }) = restart_backoff.check(Moment::START) else {
                panic!("no pause")
            };
            pauses.push(until.elapsed().as_millis());
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        restart_backoff.started();
        assert_eq!(restart_backoff.check(Moment::START), Ok(()));
    }

    #[test]
    fn jitter_adds_at_most_a_quarter() {
        let mut restart_backoff = RestartBackoff::default();
        restart_backoff.start_failed(Moment::START, 5000);
        assert!(restart_backoff.check(Moment::millis(312)).is_err());
        assert_eq!(restart_backoff.check(Moment::millis(313)), Ok(()));
    }
}
