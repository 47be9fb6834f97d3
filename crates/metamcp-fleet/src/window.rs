//! Which calls of each caller were seen, so that a message that comes twice is not run twice.
//! Owns: for each caller the numbers it used last, and what was said to each.      Never: forgets that it forgot.
//! In: numbers.  Out: whether this one is new.
//! Tests: below.
//!
//! A caller numbers its calls upwards. What is below the window was perhaps run and is not run again; nobody can say of
//! it that it was not.

use std::collections::BTreeMap;

use crate::identity::{NodeName, NodeRef, Stamp};
use crate::message::Refusal;

/// What became of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Not seen, and it would be remembered.
    New,
    /// It was accepted.
    Taken,
    /// It was refused, and whoever heard that may have run it elsewhere: it stays refused.
    Refused(Refusal),
    /// Nobody knows any more.
    TooOld,
}

#[derive(Debug, Default)]
struct OfCaller {
    incarnation: Stamp,
    /// Numbers below were seen or will not be taken.
    floor: u64,
    seen: BTreeMap<u64, Option<Refusal>>,
}

/// The windows of all callers.
#[derive(Debug)]
pub struct Windows {
    callers: BTreeMap<NodeName, OfCaller>,
    /// How far behind the highest number a new one may be.
    length: u64,
}

impl Windows {
    pub fn new(length: u64) -> Windows {
        Windows { callers: BTreeMap::new(), length: length.max(1) }
    }

    pub fn look(&self, caller: &NodeRef, number: u64) -> Seen {
        let Some(of) = self.callers.get(&caller.name) else { return Seen::New };
        if of.incarnation > caller.incarnation {
            return Seen::TooOld;
        }
        if of.incarnation < caller.incarnation {
            return Seen::New;
        }
        match of.seen.get(&number) {
            Some(None) => Seen::Taken,
            Some(Some(refusal)) => Seen::Refused(*refusal),
            None if number < of.floor => Seen::TooOld,
            None => Seen::New,
        }
    }

    /// What was said to a new number.
    pub fn remember(&mut self, caller: &NodeRef, number: u64, refusal: Option<Refusal>) {
        if !self.callers.contains_key(&caller.name) {
            self.callers.insert(caller.name.clone(), OfCaller::default());
        }
        let Some(of) = self.callers.get_mut(&caller.name) else { return };
        if of.incarnation < caller.incarnation {
            *of = OfCaller { incarnation: caller.incarnation, ..OfCaller::default() };
        }
        of.seen.insert(number, refusal);
        let floor = number.saturating_sub(self.length - 1);
        if floor > of.floor {
            of.floor = floor;
            of.seen = of.seen.split_off(&floor);
        }
    }

    /// A node nobody has heard of for long: no message of it is under way any more.
    pub fn forget(&mut self, name: &NodeName) {
        self.callers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 16;

    fn caller(revision: u64) -> NodeRef {
        let name = NodeName::parse("a").unwrap();
        NodeRef { name, incarnation: Stamp { bucket: 1, revision } }
    }

    #[test]
    fn a_number_is_new_once() {
        let mut windows = Windows::new(WINDOW);
        assert_eq!(windows.look(&caller(1), 5), Seen::New);
        windows.remember(&caller(1), 5, None);
        windows.remember(&caller(1), 3, Some(Refusal::Full));
        assert_eq!(windows.look(&caller(1), 5), Seen::Taken);
        assert_eq!(windows.look(&caller(1), 3), Seen::Refused(Refusal::Full));
        assert_eq!(windows.look(&caller(1), 4), Seen::New);
    }

    #[test]
    fn what_is_below_the_window_is_neither_new_nor_denied() {
        let mut windows = Windows::new(WINDOW);
        for number in 0..3 * WINDOW {
            windows.remember(&caller(1), number, None);
        }
        assert_eq!(windows.look(&caller(1), 2 * WINDOW - 1), Seen::TooOld);
        assert_eq!(windows.look(&caller(1), 2 * WINDOW), Seen::Taken);
        assert_eq!(windows.callers[&caller(1).name].seen.len() as u64, WINDOW);
    }

    #[test]
    fn a_new_incarnation_begins_anew_and_ends_the_old_one() {
        let mut windows = Windows::new(WINDOW);
        windows.remember(&caller(1), 5, None);
        assert_eq!(windows.look(&caller(2), 5), Seen::New);
        windows.remember(&caller(2), 5, None);
        assert_eq!(windows.look(&caller(1), 6), Seen::TooOld);
    }
}
