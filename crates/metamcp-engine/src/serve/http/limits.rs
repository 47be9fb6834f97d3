//! Limits per principal, so that no client starves the others: requests in flight, bytes of bodies being read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::access::Principal;
use super::stream::Ticket;

/// Requests one principal may have in flight: more than any client needs, and few enough to leave room for others.
pub(super) const MAX_IN_FLIGHT: usize = 1024;
/// Memory for all bodies being read; more if a single one may exceed an eighth of it.
const MAX_BODIES: usize = 256 * 1024 * 1024;
/// One principal may hold a quarter of what is left free: a fifth of the total if it is alone.
const SHARE: usize = 4;

/// Requests in flight, by principal.
#[derive(Default)]
pub(super) struct InFlight {
    total: AtomicUsize,
    by: Mutex<HashMap<Principal, usize>>,
}

impl InFlight {
    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::Acquire)
    }

    /// Counts `count` requests until the ticket is dropped; `None` above the limit.
    pub(super) fn enter(self: &Arc<Self>, principal: Principal, count: usize) -> Option<Ticket> {
        let mut by = self.by.lock();
        let usage = by.entry(principal).or_default();
        if *usage + count > MAX_IN_FLIGHT {
            return None;
        }
        *usage += count;
        self.total.fetch_add(count, Ordering::AcqRel);
        Some(Arc::new(InFlightGuard { all: Arc::clone(self), principal, count }))
    }
}

struct InFlightGuard {
    all: Arc<InFlight>,
    principal: Principal,
    count: usize,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut by = self.all.by.lock();
        if let Some(usage) = by.get_mut(&self.principal) {
            *usage -= self.count;
            if *usage == 0 {
                by.remove(&self.principal);
            }
        }
        self.all.total.fetch_sub(self.count, Ordering::AcqRel);
    }
}

/// Memory of bodies being read, by principal. Counts bytes received, not announced: a large Content-Length alone reserves
/// nothing.
pub(super) struct Bodies {
    most: usize,
    usage: Mutex<BodyUsage>,
}

#[derive(Default)]
struct BodyUsage {
    total: usize,
    by: HashMap<Principal, usize>,
}

impl Bodies {
    /// For bodies of at most `longest` bytes each.
    pub(super) fn new(longest: usize) -> Bodies {
        Bodies { most: MAX_BODIES.max(longest.saturating_mul(8)), usage: Mutex::default() }
    }

    /// A reservation that is still empty.
    pub(super) fn begin(&self, principal: Principal) -> BodyReservation<'_> {
        BodyReservation { bodies: self, principal, size: 0 }
    }

    fn usage(&self) -> MutexGuard<'_, BodyUsage> {
        self.usage.lock()
    }
}

/// The memory of one body; released when dropped.
pub(super) struct BodyReservation<'a> {
    bodies: &'a Bodies,
    principal: Principal,
    size: usize,
}

impl BodyReservation<'_> {
    /// Reserves more; false if the share is used up. A principal's share shrinks with what is left, so however many take
    /// all they can, the next one finds four times as much as the last of them holds.
    pub(super) fn grow(&mut self, more: usize) -> bool {
        let mut usage = self.bodies.usage();
        let mine = usage.by.get(&self.principal).copied().unwrap_or_default() + more;
        let total = usage.total + more;
        if mine > self.bodies.most.saturating_sub(total) / SHARE {
            return false;
        }
        usage.total = total;
        usage.by.insert(self.principal, mine);
        self.size += more;
        true
    }
}

impl Drop for BodyReservation<'_> {
    fn drop(&mut self) {
        let mut usage = self.bodies.usage();
        usage.total -= self.size;
        if let Some(mine) = usage.by.get_mut(&self.principal) {
            *mine -= self.size;
            if *mine == 0 {
                usage.by.remove(&self.principal);
            }
        }
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
        assert!(all.by.lock().is_empty());
    }

    #[test]
    fn nobody_takes_what_the_next_one_needs() {
        let bodies = Bodies::new(1);
        let mut greedy: Vec<BodyReservation<'_>> = Vec::new();
        for number in 0..6 {
            let mut room = bodies.begin(Principal(number));
            let before = bodies.usage().total;
            while room.grow(1 << 20) {}
            let taken = bodies.usage().total - before;
            let left = MAX_BODIES - bodies.usage().total;
            assert!(taken >= 15 << 20 && taken <= left / SHARE, "{number}: {taken}");
            // Not by another body either.
            assert!(!bodies.begin(Principal(number)).grow(1 << 20));
            greedy.push(room);
        }
        drop(greedy);
        assert_eq!(bodies.usage().total, 0);
        assert!(bodies.usage().by.is_empty());
        assert!(bodies.begin(Principal(1)).grow(MAX_BODIES / 5));
    }

    #[test]
    fn a_body_as_long_as_it_may_be_has_room() {
        let longest = 1 << 30;
        assert!(Bodies::new(longest).begin(Principal(1)).grow(longest));
    }
}
