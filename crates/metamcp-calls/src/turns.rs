//! A queue that serves its lanes in turns, first come first served within a lane.
//! Owns: who waits, and whose turn it is.      Never: knows what waits, waits itself.
//! In: items with their lane, usually a session.  Out: the next one, in O(log n).
//! Tests: `turns/tests.rs`, against a naive model.
//!
//! First come first served over all lets one client's thousand calls stand in front of another's first. Here a lane that
//! waits is passed over at most once by each other one.

use std::collections::BTreeMap;

/// The place of one item in a queue. Never given twice by the same queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    lane: u64,
    number: u64,
}

impl Ticket {
    pub fn lane(self) -> u64 {
        self.lane
    }
}

#[derive(Clone, Debug)]
struct Lane<T> {
    /// Its key in the order of turns.
    turn: u64,
    items: BTreeMap<u64, T>,
}

#[derive(Clone, Debug)]
pub struct Turns<T> {
    /// Only those with something that waits.
    lanes: BTreeMap<u64, Lane<T>>,
    /// The lanes, the next one first.
    order: BTreeMap<u64, u64>,
    /// What had its turn already and has to go once more, with its lane.
    ahead: BTreeMap<u64, (u64, T)>,
    len: usize,
    last: u64,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Turns {
            lanes: BTreeMap::new(),
            order: BTreeMap::new(),
            ahead: BTreeMap::new(),
            len: 0,
            last: 0,
        }
    }
}

/// Whether a lane with `own` of the `waiting` items may add one to a queue that holds `bound` at most. A lane has at most
/// three items for each place left, so one that is alone fills three quarters, and there is always room for another.
pub fn has_room(bound: usize, waiting: usize, own: usize) -> bool {
    own < bound.saturating_sub(waiting).saturating_mul(3)
}

impl<T> Turns<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many items of a lane wait.
    pub fn waiting_of(&self, lane: u64) -> usize {
        let ahead = self.ahead.values().filter(|waits| waits.0 == lane).count();
        ahead + self.lanes.get(&lane).map_or(0, |lane| lane.items.len())
    }

    /// The lanes with something that waits; one may be named twice.
    pub fn lanes(&self) -> impl Iterator<Item = u64> + '_ {
        self.ahead.values().map(|waits| waits.0).chain(self.order.values().copied())
    }

    /// Puts an item at the end of its lane. A lane that had nothing waits for all others to have had a turn.
    pub fn push(&mut self, lane: u64, item: T) -> Ticket {
        let number = self.number();
        let waits = self.lanes.entry(lane).or_insert_with(|| {
            self.order.insert(number, lane);
            Lane { turn: number, items: BTreeMap::new() }
        });
        waits.items.insert(number, item);
        self.len += 1;
        Ticket { lane, number }
    }

    /// Puts an item before all that were pushed, behind what was put there before: it had its turn.
    pub fn push_ahead(&mut self, lane: u64, item: T) -> Ticket {
        let number = self.number();
        self.ahead.insert(number, (lane, item));
        self.len += 1;
        Ticket { lane, number }
    }

    /// The item whose turn it is.
    pub fn next(&self) -> Option<(Ticket, &T)> {
        self.next_where(|_| true)
    }

    /// The item whose turn it is among those that can go now. A lane in which none can keeps its turn.
    pub fn next_where(&self, can_go: impl Fn(&T) -> bool) -> Option<(Ticket, &T)> {
        let ahead = self.ahead.iter().find(|(_, waits)| can_go(&waits.1));
        if let Some((&number, (lane, item))) = ahead {
            return Some((Ticket { lane: *lane, number }, item));
        }
        self.order.values().find_map(|&lane| {
            let (&number, item) = self.lanes.get(&lane)?.items.iter().find(|one| can_go(one.1))?;
            Some((Ticket { lane, number }, item))
        })
    }

    /// An item goes: its lane has had its turn.
    pub fn take(&mut self, ticket: Ticket) -> Option<T> {
        let from_lane = !self.ahead.contains_key(&ticket.number);
        let item = self.remove(ticket)?;
        let turn = self.number();
        if from_lane && let Some(lane) = self.lanes.get_mut(&ticket.lane) {
            self.order.remove(&lane.turn);
            lane.turn = turn;
            self.order.insert(turn, ticket.lane);
        }
        Some(item)
    }

    /// Takes the item whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let (ticket, _) = self.next()?;
        self.take(ticket)
    }

    /// An item waits no longer. Its lane keeps its turn while it has others.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        if let Some((_, item)) = self.ahead.remove(&ticket.number) {
            self.len -= 1;
            return Some(item);
        }
        let lane = self.lanes.get_mut(&ticket.lane)?;
        let item = lane.items.remove(&ticket.number)?;
        self.len -= 1;
        if lane.items.is_empty() {
            self.order.remove(&lane.turn);
            self.lanes.remove(&ticket.lane);
        }
        Some(item)
    }

    /// All that waits, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let ahead = self.ahead.values().map(|waits| &waits.1);
        ahead.chain(self.lanes.values().flat_map(|lane| lane.items.values()))
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

#[cfg(test)]
mod tests;
