//! The only clock of the engine.
//! Owns: the start of the process, and the time it was suspended.      Never: decides anything.
//! In: nothing.  Out: `Moment`s for the core, `Instant`s for sleeping.
//! Tests: below, and through everything that waits.

use std::future::Future;
#[cfg(feature = "fleet")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metamcp_types::moment::Moment;
use metamcp_types::suspend_clock::{BEAT, ClockReader, SuspendAwareClock};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Converts instants to the time since the start, without suspensions of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// One for the life of the process: every copy of the clock refers to it.
    suspends: &'static Mutex<SuspendAwareClock>,
    /// Of the machine as a whole, the same way.
    #[cfg(feature = "fleet")]
    paused: &'static MachinePauses,
}

/// Time in which the machine itself stood still, suspended or paused by what runs it: no clock of its own counts that, but
/// the time of day is put right afterwards.
#[cfg(feature = "fleet")]
#[derive(Debug)]
struct MachinePauses {
    /// The time of day at the start.
    began: u64,
    /// By how much it has run ahead since, in milliseconds. It only grows: a time of day that is set back says nothing.
    ahead: AtomicU64,
}

/// How much the time of day is set right in passing, without a pause.
#[cfg(feature = "fleet")]
const CORRECTION: u64 = 2_000;

impl Clock {
    pub fn start() -> Clock {
        Clock {
            start: instant(),
            suspends: Box::leak(Box::default()),
            #[cfg(feature = "fleet")]
            paused: Box::leak(Box::new(MachinePauses {
                began: unix_millis(),
                ahead: AtomicU64::new(0),
            })),
        }
    }

    pub fn now(self) -> Moment {
        // Read under the lock: a reading from before a suspension must not come after one from behind it.
        let mut suspends = self.suspends();
        suspends.now(self.raw())
    }

    /// The present with suspensions of the process and of the machine: for what others count too, such as a lease. A time of
    /// day that is set ahead looks like a pause, which costs leases and gives none away.
    #[cfg(feature = "fleet")]
    pub fn with_pauses(self) -> Moment {
        let raw = self.start.elapsed();
        let pauses = self.paused;
        let counted = u64::try_from(raw.as_millis()).unwrap_or(u64::MAX);
        let ahead = unix_millis().saturating_sub(pauses.began).saturating_sub(counted);
        let known = pauses.ahead.load(Ordering::Relaxed);
        let ahead = if ahead > known + CORRECTION {
            pauses.ahead.fetch_max(ahead, Ordering::Relaxed).max(ahead)
        } else {
            known
        };
        Moment::after_start(raw + Duration::from_millis(ahead))
    }

    /// Milliseconds since the start, for what travels as a number.
    pub fn now_ms(self) -> u64 {
        u64::try_from(self.now().elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// When to wake for a moment, if there is no suspension before. For a moment that never comes, a year from now, which a
    /// timer accepts.
    pub fn instant(self, moment: Moment) -> Instant {
        const YEAR: Duration = Duration::from_hours(365 * 24);
        self.start + self.suspends().raw(moment).elapsed().min(YEAR)
    }

    /// Waits for a moment, not counting suspensions.
    pub async fn sleep_until(self, moment: Moment) {
        loop {
            tokio::time::sleep_until(self.instant(moment)).await;
            if self.now() >= moment {
                return;
            }
        }
    }

    /// The result of `work`, unless it takes longer than `limit`, not counting suspensions.
    pub async fn timeout<T>(self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let end = self.now() + limit;
        tokio::select! {
            // A result is used, however late it is.
            biased;
            value = work => Some(value),
            () = self.sleep_until(end) => None,
        }
    }

    /// For the one task that reads the clock regularly while `watched`: when to read it next, with nothing to do before
    /// `wake`. A later reading then reveals a suspension.
    pub(crate) fn next_look(self, wake: Moment, watched: bool) -> Instant {
        let wake = self.instant(wake);
        let next = if watched { wake.min(instant() + BEAT) } else { wake };
        self.suspends().sleeps_until(ClockReader::Calls, self.raw_of(next));
        next
    }

    /// Nobody reads the clock regularly any more.
    pub(crate) fn unwatched(self) {
        self.suspends().sleeps_until(ClockReader::Calls, Moment::NEVER);
    }

    /// Sleeps so long, and detects a suspension of the process at the end. One at a time.
    pub(crate) async fn doze(self, length: Duration) {
        let until = instant() + length;
        self.suspends().sleeps_until(ClockReader::Sessions, self.raw_of(until));
        tokio::time::sleep_until(until).await;
        // Reading the clock detects it.
        self.now();
        self.suspends().sleeps_until(ClockReader::Sessions, Moment::NEVER);
    }

    fn raw_of(self, instant: Instant) -> Moment {
        Moment::after_start(instant.duration_since(self.start))
    }

    fn raw(self) -> Moment {
        Moment::after_start(self.start.elapsed())
    }

    fn suspends(self) -> MutexGuard<'static, SuspendAwareClock> {
        self.suspends.lock()
    }
}

/// The present, for what sleeps, or measures what sleeps: where a test pauses time, this stands still too.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub fn instant() -> Instant {
    Instant::now()
}

/// The present of the machine, which no test pauses: for what threads measure, and times that are shown.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub fn std_instant() -> std::time::Instant {
    std::time::Instant::now()
}

/// The time of day, only for what is sent to a collector.
#[cfg(feature = "otlp")]
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn system_time() -> SystemTime {
    SystemTime::now()
}

/// Wall time, only for what is written to disk.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub fn unix_millis() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_suspension_does_not_shorten_a_wait() {
        let clock = Clock::start();
        clock.next_look(Moment::NEVER, true);
        let waiting = clock.timeout(5 * SECOND, std::future::pending::<()>());
        let mut waiting = std::pin::pin!(waiting);
        assert!(tokio::time::timeout(SECOND / 2, &mut waiting).await.is_err());
        // As if the whole process had been suspended for an hour.
        tokio::time::advance(3600 * SECOND).await;
        let woken = clock.now();
        // Nobody reads the clock regularly here.
        clock.unwatched();
        assert!(woken < Moment::millis(2_000), "{woken:?}");
        assert!(tokio::time::timeout(4 * SECOND, &mut waiting).await.is_err(), "time is left");
        assert!(waiting.await.is_none());
    }
}
