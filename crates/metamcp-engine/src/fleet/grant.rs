//! What this node may do for one instance it owns, looked up by every call without a lock of the state machine.
//! Owns: until when bytes may leave for its process.      Never: prolongs itself.
//! In: what `Node` holds.  Out: yes or no, with a fresh look at the clock.
//! Tests: below.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use metamcp_fleet::identity::{InstanceId, Stamp};
use metamcp_types::moment::Moment;

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
}

impl Grant {
    pub(super) fn new(instance: InstanceId, epoch: Stamp, until: Moment, now: Moment) -> Grant {
        let (until, used) = (AtomicU64::new(millis(until)), AtomicU64::new(millis(now)));
        Grant { instance, epoch, until, state: AtomicU8::new(OPEN), used }
    }

    /// Whether a new call may be given to the process.
    pub fn is_open(&self, now: Moment) -> bool {
        let is_open = self.state.load(Ordering::Acquire) == OPEN && self.lasts(now);
        if is_open {
            self.used.store(millis(now), Ordering::Relaxed);
        }
        is_open
    }

    /// Whether this node may act for the instance: bytes may leave for its process, and what the process says counts.
    pub fn may_act(&self, now: Moment) -> bool {
        self.state.load(Ordering::Acquire) != LOST && self.lasts(now)
    }

    pub fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) == LOST
    }

    /// For how long no call was given to it.
    pub fn unused(&self, now: Moment) -> Duration {
        now.since(Moment::millis(self.used.load(Ordering::Relaxed)))
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

    #[test]
    fn nothing_is_done_after_its_time_whatever_else_is_known() {
        let (start, end) = (Moment::millis(1_000), Moment::millis(9_000));
        let grant = Grant::new(InstanceId(1), Stamp::default(), end, start);
        assert!(grant.is_open(start) && grant.may_act(Moment::millis(8_999)));
        assert!(!grant.is_open(end) && !grant.may_act(end));
        grant.prolong(Moment::millis(20_000));
        assert!(grant.is_open(end));
        grant.close();
        assert!(!grant.is_open(end) && grant.may_act(end), "what was begun goes on");
        grant.lose();
        grant.close();
        grant.prolong(Moment::millis(90_000));
        assert!(!grant.may_act(end) && grant.is_lost(), "what was lost stays lost");
    }
}
