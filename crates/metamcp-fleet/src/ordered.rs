//! Items in order over a bus that loses, repeats, delays and reorders: numbered, acknowledged, sent again.
//! Owns: what is not acknowledged, what came too early.      Never: knows what an item is.
//! In: items, acknowledgements, the time.  Out: what to send, what has arrived in order.
//! Tests: below.

use std::collections::{BTreeMap, VecDeque};

use metamcp_types::moment::Moment;

use crate::timing::RESEND;

/// Items under way without an acknowledgement; the others wait, so that a slow reader costs the bus no more than this.
pub const IN_FLIGHT: usize = 16;
/// Items of which the sender keeps no more, if they may be dropped.
const MAX_KEPT: usize = 1024;
/// An acknowledgement for every so many items, and for the last one.
const ACK_EVERY: u64 = 8;

/// The sending end.
#[derive(Debug, Clone)]
pub struct Outgoing<T> {
    /// The number of the first of `kept`.
    first: u64,
    kept: VecDeque<T>,
    /// How many of `kept` were sent.
    sent: usize,
    /// When something was last sent, or progress made.
    touched: Moment,
}

impl<T> Default for Outgoing<T> {
    fn default() -> Outgoing<T> {
        Outgoing { first: 0, kept: VecDeque::new(), sent: 0, touched: Moment::START }
    }
}

impl<T: Clone> Outgoing<T> {
    /// One more item. False if it was dropped, because too many are kept already and this one may be.
    pub fn push(&mut self, item: T, may_be_dropped: bool) -> bool {
        let takes = !may_be_dropped || self.kept.len() < MAX_KEPT;
        if takes {
            self.kept.push_back(item);
        }
        takes
    }

    /// What may be sent now, with numbers.
    pub fn ready(&mut self, now: Moment) -> Vec<(u64, T)> {
        let until = self.kept.len().min(IN_FLIGHT);
        if self.sent >= until {
            return Vec::new();
        }
        self.touched = now;
        let from = std::mem::replace(&mut self.sent, until);
        self.numbered(from..until)
    }

    /// What is to be sent again, because no acknowledgement came.
    pub fn overdue(&mut self, now: Moment) -> Vec<(u64, T)> {
        if self.sent == 0 || now.since(self.touched) < RESEND {
            return Vec::new();
        }
        self.touched = now;
        self.numbered(0..self.sent)
    }

    /// Everything before `next` arrived.
    pub fn acknowledged(&mut self, next: u64, now: Moment) {
        let count = usize::try_from(next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        // Nobody acknowledges what was not sent, unless to confuse us.
        if count > 0 && count <= self.sent {
            self.kept.drain(..count);
            self.sent -= count;
            self.first = next;
            self.touched = now;
        }
    }

    /// Whether all of it arrived.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    fn numbered(&self, which: std::ops::Range<usize>) -> Vec<(u64, T)> {
        which.map(|index| (self.first + index as u64, self.kept[index].clone())).collect()
    }
}

/// The receiving end.
#[derive(Debug, Clone)]
pub struct Incoming<T> {
    next: u64,
    early: BTreeMap<u64, T>,
    acknowledged: u64,
}

impl<T> Default for Incoming<T> {
    fn default() -> Incoming<T> {
        Incoming { next: 0, early: BTreeMap::new(), acknowledged: 0 }
    }
}

impl<T> Incoming<T> {
    /// An item arrived. Returns what is in order now.
    pub fn arrived(&mut self, number: u64, item: T) -> Vec<T> {
        if number < self.next {
            // It came before, so the acknowledgement was lost.
            self.acknowledged = 0;
            return Vec::new();
        }
        if number - self.next < IN_FLIGHT as u64 {
            self.early.entry(number).or_insert(item);
        }
        let mut in_order = Vec::new();
        while let Some(item) = self.early.remove(&self.next) {
            self.next += 1;
            in_order.push(item);
        }
        in_order
    }

    /// The acknowledgement to be sent, if one is due: `at_once` after a last item, or because time has passed.
    pub fn acknowledge(&mut self, at_once: bool) -> Option<u64> {
        let news = self.next.saturating_sub(self.acknowledged);
        if news == 0 || (!at_once && news < ACK_EVERY && self.acknowledged > 0) {
            return None;
        }
        self.acknowledged = self.next;
        Some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn items_arrive_in_order_whatever_the_bus_does() {
        // A fixed pattern of losses, repetitions and turns; the simulation has random ones.
        let (mut out, mut into) = (Outgoing::default(), Incoming::default());
        for item in 0..100_u64 {
            out.push(item, false);
        }
        let (mut now, mut got, mut turn) = (Moment::START, Vec::new(), 0_u64);
        while !out.is_empty() {
            now = now + Duration::from_millis(100);
            let mut wave = out.ready(now);
            wave.extend(out.overdue(now));
            wave.reverse();
            for (number, item) in wave {
                turn += 1;
                for _ in 0..[0, 1, 2][usize::try_from(turn % 3).unwrap()] {
                    got.extend(into.arrived(number, item));
                }
            }
            if let Some(next) = into.acknowledge(turn % 2 == 0) {
                out.acknowledged(next, now);
            }
            assert!(turn < 10_000, "it does not end: {got:?}");
        }
        assert_eq!(got, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn both_ends_are_bounded() {
        let mut out = Outgoing::default();
        assert!((0..MAX_KEPT).all(|item| out.push(item, true)));
        assert!(!out.push(0, true), "progress is dropped");
        assert!(out.push(0, false), "a result is not");
        assert_eq!(out.ready(Moment::START).len(), IN_FLIGHT);
        assert!(out.ready(Moment::START).is_empty());
        let mut into = Incoming::default();
        for number in 1..1000 {
            assert!(into.arrived(number, ()).is_empty());
        }
        assert!(into.early.len() < IN_FLIGHT);
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_changes_nothing() {
        let mut out = Outgoing::default();
        out.push(7, false);
        out.acknowledged(1, Moment::START);
        assert_eq!(out.ready(Moment::START), [(0, 7)]);
        out.acknowledged(9, Moment::START);
        assert!(!out.is_empty());
        out.acknowledged(1, Moment::START);
        assert!(out.is_empty());
    }
}
