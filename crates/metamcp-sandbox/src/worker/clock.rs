//! Time in the worker: the CPU clock, which is limited, and timers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::run_clock;

/// CPU time of this process since a script began.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuClock {
    began: u64,
    limit: u64,
}

impl CpuClock {
    pub(super) fn start(limit: u64) -> CpuClock {
        CpuClock { began: now(), limit }
    }

    pub(super) fn used(self) -> u64 {
        now().saturating_sub(self.began)
    }

    pub(super) fn is_over(self) -> bool {
        self.used() > self.limit
    }
}

/// CPU time in microseconds. 0 if the clock cannot be read; the gateway reads it as well.
fn now() -> u64 {
    let used = run_clock::cpu_time().unwrap_or_default();
    u64::try_from(used.as_micros()).unwrap_or(u64::MAX)
}

/// The smallest page size of any supported machine.
#[cfg(target_os = "linux")]
const PAGE: usize = 4096;

/// Memory this process has touched so far, by minor page faults. The lockdown disables huge pages, so each
/// fault is one page.
#[cfg(target_os = "linux")]
pub(super) fn touched() -> usize {
    use nix::sys::resource::{UsageWho, getrusage};
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        usize::try_from(usage.minor_page_faults()).unwrap_or(0).saturating_mul(PAGE)
    })
}

/// Longer than any run.
const FAR: Duration = Duration::from_hours(24);

/// Timers that are set, the next one first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: BTreeSet<(Instant, u32)>,
    by_number: std::collections::BTreeMap<u32, Instant>,
    last: u32,
}

impl Timers {
    pub(super) fn start(&mut self, milliseconds: f64) -> u32 {
        let delay = Duration::try_from_secs_f64(milliseconds.max(0.0) / 1000.0).unwrap_or(FAR);
        let at = run_clock::now() + delay.min(FAR);
        // Never reused within a run: 4 billion timers take longer than any limit.
        self.last = self.last.wrapping_add(1);
        self.set.insert((at, self.last));
        self.by_number.insert(self.last, at);
        self.last
    }

    pub(super) fn stop(&mut self, number: u32) {
        if let Some(at) = self.by_number.remove(&number) {
            self.set.remove(&(at, number));
        }
    }

    /// Postpones all of them.
    pub(super) fn put_off(&mut self, by: Duration) {
        if by.is_zero() {
            return;
        }
        for at in self.by_number.values_mut() {
            *at += by;
        }
        self.set = self.by_number.iter().map(|(number, at)| (*at, *number)).collect();
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.set.first().map(|&(at, _)| at)
    }

    pub(super) fn take_due(&mut self) -> Option<u32> {
        let &(at, number) = self.set.first()?;
        if at > run_clock::now() {
            return None;
        }
        self.stop(number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_that_are_put_off_keep_their_order_and_can_be_stopped() {
        let mut timers = Timers::default();
        let [second, first, stopped] = [60_000.0, 1.0, 2.0].map(|after| timers.start(after));
        let due = timers.next().unwrap();
        timers.put_off(Duration::from_hours(1));
        assert_eq!(timers.next(), Some(due + Duration::from_hours(1)));
        assert_eq!(timers.take_due(), None);
        timers.stop(stopped);
        let left: Vec<u32> = timers.set.iter().map(|(_, number)| *number).collect();
        assert_eq!(left, [first, second]);
    }
}
