//! A clock without suspensions: time in which the process was stopped or frozen does not count against deadlines.
//! Owns: how much time was suspended.      Never: reads a clock, sleeps.
//! In: what the clock says, and until when the process means to sleep.  Out: moments that stand still through a pause.
//! Tests: below; `tests/sim.rs` pauses the gateway in the middle of everything; `metamcp/tests/promises` stops it.

use std::time::Duration;

use crate::moment::Moment;

/// How often somebody looks at the clock while something has a deadline: a pause is found to this precision.
pub const BEAT: Duration = Duration::from_secs(1);
/// A sleeper that wakes so much later than it meant to was not only kept waiting by a busy machine.
const LATE: Duration = Duration::from_secs(1);

/// Who looks at the clock regularly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockReader {
    /// Who ends overdue calls: often, while there are any.
    Calls,
    /// Who ends sessions nobody uses: now and then, always.
    Sessions,
}

#[derive(Debug, Clone, Copy)]
pub struct SuspendAwareClock {
    /// When the clock was last looked at, by the clock itself.
    seen: Moment,
    /// When each who looks regularly looks next; never for one who does not.
    due: [Moment; 2],
    missed: Duration,
}

impl Default for SuspendAwareClock {
    fn default() -> SuspendAwareClock {
        SuspendAwareClock { seen: Moment::START, due: [Moment::NEVER; 2], missed: Duration::ZERO }
    }
}

impl SuspendAwareClock {
    /// The moment it is, when the clock says `raw`.
    pub fn now(&mut self, raw: Moment) -> Moment {
        let due = self.due[0].min(self.due[1]);
        if due != Moment::NEVER && raw > due + LATE {
            // It ran when it last looked, and no longer than to the look that did not come.
            let until = due.max(self.seen);
            self.missed += raw.since(until) + until.since(self.seen).min(BEAT);
            for due in self.due.iter_mut().filter(|due| **due <= raw) {
                *due = raw + BEAT;
            }
        }
        self.seen = self.seen.max(raw);
        self.at(raw)
    }

    /// One of those who look regularly sleeps until then, or until something happens: it looks at the clock by then.
    pub fn sleeps_until(&mut self, who: ClockReader, raw: Moment) {
        self.due[who as usize] = raw;
    }

    /// What the clock will say at a moment, if nothing more is missed.
    pub fn raw(&self, moment: Moment) -> Moment {
        moment + self.missed
    }

    fn at(&self, raw: Moment) -> Moment {
        Moment::after_start(raw.since(Moment::START + self.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment::millis(seconds * 1000)
    }

    #[test]
    fn a_pause_takes_no_time() {
        let mut suspend_clock = SuspendAwareClock::default();
        assert_eq!(suspend_clock.now(at(10)), at(10));
        suspend_clock.sleeps_until(ClockReader::Calls, at(11));
        let deadline = suspend_clock.now(at(10)) + 5 * SECOND;
        // Stopped for an hour: whoever looks first finds it, and everybody after it sees the same.
        let woken = suspend_clock.now(at(3610));
        assert_eq!(woken, at(10));
        assert_eq!(suspend_clock.now(at(3611)), at(11));
        assert_eq!(suspend_clock.raw(deadline), at(3615));
    }

    #[test]
    fn a_busy_machine_and_a_long_sleep_are_no_pause() {
        let mut suspend_clock = SuspendAwareClock::default();
        suspend_clock.sleeps_until(ClockReader::Calls, at(300));
        assert_eq!(suspend_clock.now(at(300)), at(300));
        suspend_clock.sleeps_until(ClockReader::Calls, at(301));
        assert_eq!(suspend_clock.now(Moment::millis(301_900)), Moment::millis(301_900));
        // One who promised nothing is never late.
        let mut suspend_clock = SuspendAwareClock::default();
        assert_eq!(suspend_clock.now(at(9999)), at(9999));
    }

    #[test]
    fn of_a_long_sleep_only_what_came_after_it_is_missed() {
        let mut suspend_clock = SuspendAwareClock::default();
        suspend_clock.sleeps_until(ClockReader::Calls, at(300));
        assert_eq!(suspend_clock.now(at(400)), at(299));
    }

    #[test]
    fn whoever_looks_first_is_the_one_who_is_late() {
        let mut suspend_clock = SuspendAwareClock::default();
        suspend_clock.sleeps_until(ClockReader::Sessions, at(60));
        assert_eq!(suspend_clock.now(at(10)), at(10));
        suspend_clock.sleeps_until(ClockReader::Calls, at(11));
        assert_eq!(suspend_clock.now(at(1010)), at(10), "calls are waited for");
        suspend_clock.sleeps_until(ClockReader::Calls, Moment::NEVER);
        suspend_clock.sleeps_until(ClockReader::Sessions, at(1070));
        assert_eq!(suspend_clock.now(at(5000)), at(69), "nothing but sessions is there");
    }

    #[test]
    fn moments_never_go_back() {
        let mut suspend_clock = SuspendAwareClock::default();
        let (mut raw, mut last) = (0_u64, Moment::START);
        let mut seed = 7_u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match seed >> 62 {
                0 => {
                    let who =
                        [ClockReader::Calls, ClockReader::Sessions][usize::from(seed & 1024 > 0)];
                    suspend_clock.sleeps_until(who, Moment::millis(raw + (seed >> 40) % 1000));
                }
                1 => raw += (seed >> 40) % 100_000,
                _ => raw += (seed >> 40) % 700,
            }
            let now = suspend_clock.now(Moment::millis(raw));
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
    }
}
