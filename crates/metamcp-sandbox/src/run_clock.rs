//! Pauses: what a process missed while it was stopped or frozen is taken out of the time it measures.
//! Owns: what counts as a pause.      Never: reads a clock, sleeps.
//! In: when somebody looked at the clock.  Out: time in which the process could run.
//! Tests: below; `metamcp/tests/promises/pauses.rs` stops a gateway and its workers in the middle of scripts.

use std::time::{Duration, Instant};

/// How often the clock is looked at while something has a limit: a pause is found to this precision.
pub(crate) const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Who looks so much later than it meant to was not only kept waiting by a busy machine.
const LATE: Duration = Duration::from_secs(1);

/// What was missed between two looks that were meant to be a beat apart at most. All of it, since nobody knows when the
/// pause began: what is limited gets up to a beat more, never less.
pub(crate) fn missed(between: Duration) -> Duration {
    if between > CLOCK_CHECK_INTERVAL + LATE { between } else { Duration::ZERO }
}

/// Time spent since a beginning.
#[derive(Debug)]
pub(crate) struct RunClock {
    seen: Instant,
    spent: Duration,
}

impl RunClock {
    /// It begins.
    pub(crate) fn new(now: Instant) -> RunClock {
        RunClock { seen: now, spent: Duration::ZERO }
    }

    /// How much it is now. Somebody has to ask every beat.
    pub(crate) fn spent(&mut self, now: Instant) -> Duration {
        let between = now.saturating_duration_since(self.seen);
        self.seen = self.seen.max(now);
        self.spent += between - missed(between);
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_takes_no_time_and_a_busy_machine_does() {
        let began = Instant::now();
        let mut run_clock = RunClock::new(began);
        let mut now = began;
        let mut after = |seconds: f64| {
            now += Duration::from_secs_f64(seconds);
            run_clock.spent(now).as_secs_f64()
        };
        let spent = [after(0.5), after(1.0), after(1.9), after(3600.0), after(0.0), after(1.0)];
        assert_eq!(spent, [0.5, 1.5, 3.4, 3.4, 3.4, 4.4]);
        assert_eq!(run_clock.spent(began).as_secs_f64(), 4.4, "an older look changes nothing");
    }
}
