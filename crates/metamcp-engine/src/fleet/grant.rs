//! What this node may do for one instance it owns, looked up by every call without a lock of the state machine.
//! Owns: until when bytes may leave for its process.      Never: prolongs itself.
//! In: what `Node` holds.  Out: yes or no, with a fresh look at the clock.
//! Tests: below.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use metamcp_fleet::identity::{InstanceId, Stamp};
use metamcp_types::moment::Moment;

use crate::clock::Clock;

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const LOST: u8 = 2;

#[derive(Debug)]
pub struct Grant {
    pub instance: InstanceId,
    pub epoch: Stamp,
    /// In milliseconds, rounded down: by the lease as it stands.
    until: AtomicU64,
    state: AtomicU8,
    used: AtomicU64,
    clock: Clock,
}

impl Grant {
    pub(super) fn new(instance: InstanceId, epoch: Stamp, until: Moment, clock: Clock) -> Grant {
        let used = AtomicU64::new(millis(clock.with_pauses()));
        let until = AtomicU64::new(millis(until));
        Grant { instance, epoch, until, state: AtomicU8::new(OPEN), used, clock }
    }

    /// Whether a new call may be given to the process.
    pub fn is_open(&self) -> bool {
        let now = self.clock.with_pauses();
        let is_open = self.state.load(Ordering::Acquire) == OPEN && self.lasts(now);
        if is_open {
            self.used.store(millis(now), Ordering::Relaxed);
        }
        is_open
    }

    /// Whether this node may act for the instance: bytes may leave for its process, and what the process says counts.
    pub fn may_act(&self) -> bool {
        self.state.load(Ordering::Acquire) != LOST && self.lasts(self.clock.with_pauses())
    }

    pub fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) == LOST
    }

    /// For how long no call was given to it.
    pub fn unused(&self) -> Duration {
        self.clock.with_pauses().since(Moment::millis(self.used.load(Ordering::Relaxed)))
    }

    pub(super) fn prolong(&self, until: Moment) {
        self.until.store(millis(until), Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.state.fetch_max(CLOSING, Ordering::AcqRel);
    }

    pub(super) fn lose(&self) {
        self.state.store(LOST, Ordering::Release);
    }

    fn lasts(&self, now: Moment) -> bool {
        millis(now) < self.until.load(Ordering::Acquire)
    }
}

fn millis(moment: Moment) -> u64 {
    u64::try_from(moment.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn nothing_is_done_after_its_time_whatever_else_is_known() {
        let clock = Clock::start();
        let until = |seconds| clock.with_pauses() + SECOND * seconds;
        let grant = Grant::new(InstanceId(1), Stamp::default(), until(8), clock);
        assert!(grant.is_open() && grant.may_act());
        // The whole process sleeps, which other clocks of this gateway do not count.
        tokio::time::advance(SECOND * 8).await;
        assert!(!grant.is_open() && !grant.may_act());
        grant.prolong(until(8));
        assert!(grant.is_open());
        grant.close();
        assert!(!grant.is_open() && grant.may_act(), "what was begun goes on");
        grant.lose();
        grant.close();
        grant.prolong(until(80));
        assert!(!grant.may_act() && grant.is_lost(), "what was lost stays lost");
    }
}
