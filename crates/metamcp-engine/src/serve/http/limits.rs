//! What is counted, so that one client cannot take everything: requests under way, bytes of bodies being read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::access::Principal;
use super::stream::Ticket;

/// Requests of one principal that may be under way at once: more than any client has, and few enough that one of them
/// cannot take everything.
pub(super) const MAX_IN_FLIGHT: usize = 1024;
/// Bodies that are being read, together.
const MAX_BODIES: usize = 256 * 1024 * 1024;

/// Requests under way, by principal.
#[derive(Default)]
pub(super) struct InFlight {
    total: AtomicUsize,
    by: Mutex<HashMap<Principal, usize>>,
}

impl InFlight {
    /// All of them.
    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::Acquire)
    }

    /// Counts so many until the ticket is dropped; nothing if there would be too many.
    pub(super) fn enter(self: &Arc<Self>, principal: Principal, count: usize) -> Option<Ticket> {
        let mut by = self.by.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let held = by.entry(principal).or_default();
        if *held + count > MAX_IN_FLIGHT {
            return None;
        }
        *held += count;
        self.total.fetch_add(count, Ordering::AcqRel);
        Some(Box::new(UnderWay { all: Arc::clone(self), principal, count }))
    }
}

/// Counts until it is dropped.
struct UnderWay {
    all: Arc<InFlight>,
    principal: Principal,
    count: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut by = self.all.by.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(held) = by.get_mut(&self.principal) {
            *held -= self.count;
            if *held == 0 {
                by.remove(&self.principal);
            }
        }
        self.all.total.fetch_sub(self.count, Ordering::AcqRel);
    }
}

/// Room for a body while it is read.
pub(super) struct Room<'a> {
    taken: &'a AtomicUsize,
    size: usize,
}

impl<'a> Room<'a> {
    /// Takes so much until it is dropped; nothing if there is not so much.
    pub(super) fn take(taken: &'a AtomicUsize, size: usize) -> Option<Room<'a>> {
        let before = taken.fetch_add(size, Ordering::AcqRel);
        let room = Room { taken, size };
        (before + size <= MAX_BODIES).then_some(room)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.size, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_principal_has_its_own_share() {
        let (me, other) = (Principal(1), Principal(2));
        let all = Arc::new(InFlight::default());
        let first = all.enter(me, MAX_IN_FLIGHT - 1).unwrap();
        let second = all.enter(me, 1).unwrap();
        assert!(all.enter(me, 1).is_none());
        let others = all.enter(other, MAX_IN_FLIGHT).unwrap();
        assert_eq!(all.total(), 2 * MAX_IN_FLIGHT);
        drop(second);
        assert!(all.enter(me, 2).is_none());
        assert!(all.enter(me, 1).is_some());
        drop((first, others));
        assert_eq!(all.total(), 0);
        assert!(all.by.lock().unwrap().is_empty());
    }

    #[test]
    fn room_that_was_not_there_is_not_taken() {
        let taken = AtomicUsize::new(0);
        let most = Room::take(&taken, MAX_BODIES).unwrap();
        assert!(Room::take(&taken, 1).is_none());
        drop(most);
        assert!(Room::take(&taken, 1).is_some());
        assert_eq!(taken.load(Ordering::Acquire), 0);
    }
}
