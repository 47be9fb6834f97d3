//! A clock that excludes the time in which the process was stopped or frozen, and the clock of the processor.
//! Owns: what counts as a pause, and the only reading of either clock.      Never: sleeps.
//! In: times at which the clock was checked.  Out: time in which the process could run.
//! Tests: below; `metamcp/tests/promises/pauses.rs` stops a gateway and its workers in the middle of scripts.

use std::time::{Duration, Instant};

/// How often the clock is checked while a limit applies: pauses are detected with this precision.
pub(crate) const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A check that is later than this was paused, not only delayed by load.
const MAX_DELAY: Duration = Duration::from_secs(1);

#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// CPU time of this process; `None` if it cannot be read.
#[cfg(unix)]
pub(crate) fn cpu_time() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok().map(Duration::from)
}

#[cfg(windows)]
pub(crate) fn cpu_time() -> Option<Duration> {
    cpu_time_of(&winsafe::HPROCESS::GetCurrentProcess())
}

/// CPU time of another process.
#[cfg(windows)]
pub(crate) fn cpu_time_of(process: &winsafe::HPROCESS) -> Option<Duration> {
    let (_, _, kernel, user) = process.GetProcessTimes().ok()?;
    // Each in units of 100 ns, in two halves.
    let ticks = |time: winsafe::FILETIME| {
        u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
    };
    Some(Duration::from_nanos(ticks(kernel).saturating_add(ticks(user)).saturating_mul(100)))
}

/// The pause between two checks that should be at most an interval apart. All of the gap, since the start of the pause is
/// unknown: a limit may be extended by up to an interval, never shortened.
pub(crate) fn missed(between: Duration) -> Duration {
    if between > CLOCK_CHECK_INTERVAL + MAX_DELAY { between } else { Duration::ZERO }
}

/// Time since a start, without pauses.
#[derive(Debug)]
pub(crate) struct RunClock {
    seen: Instant,
    spent: Duration,
}

impl RunClock {
    pub(crate) fn new(now: Instant) -> RunClock {
        RunClock { seen: now, spent: Duration::ZERO }
    }

    /// Time spent until now. Has to be called every interval.
    pub(crate) fn spent(&mut self, now: Instant) -> Duration {
        let between = now.saturating_duration_since(self.seen);
        self.seen = self.seen.max(now);
        self.spent += between.saturating_sub(missed(between));
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_takes_no_time_and_a_busy_machine_does() {
        let began = now();
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
