//! Fair sharing of slots between principals: all of them for one who is alone, at least one for every other.
//! Owns: who has how many, and who is next.      Never: waits, knows what a slot is for.
//! In: who requests, releases or gives up.  Out: who starts.
//! Tests: below.
//!
//! A slot is held for as long as its holder likes, so fairness about the next one is not enough: four sleeping scripts of
//! one principal would block everybody else for minutes. Beside the slots for whoever comes first there are as many for
//! principals that have none.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Somebody in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

#[derive(Debug)]
pub struct FairShare {
    places: usize,
    taken: usize,
    holds: HashMap<u64, usize>,
    /// By principal, so that the choice is among these and not among all that wait.
    waiting: BTreeMap<u64, VecDeque<Ticket>>,
    last: u64,
}

impl FairShare {
    /// So many places for whoever comes first, at least one.
    pub fn new(places: usize) -> FairShare {
        FairShare {
            places: places.max(1),
            taken: 0,
            holds: HashMap::new(),
            waiting: BTreeMap::new(),
            last: 0,
        }
    }

    /// A place is wanted: it is had at once, or there is a ticket for it.
    ///
    /// # Errors
    /// The ticket. [`FairShare::done`] names it when its turn comes.
    pub fn ask(&mut self, who: u64) -> Result<(), Ticket> {
        // Nobody passes those of his own who were there before.
        if !self.waiting.contains_key(&who) && self.has_room(who) {
            self.take(who);
            return Ok(());
        }
        self.last += 1;
        let ticket = Ticket(self.last);
        self.waiting.entry(who).or_default().push_back(ticket);
        Err(ticket)
    }

    /// A place is free again. Returns those whose turn it is now.
    pub fn done(&mut self, who: u64) -> Vec<Ticket> {
        if let Some(count) = self.holds.get_mut(&who) {
            *count -= 1;
            self.taken -= 1;
            if *count == 0 {
                self.holds.remove(&who);
            }
        }
        let mut next = Vec::new();
        while let Some(who) = self.next() {
            let Some(line) = self.waiting.get_mut(&who) else { break };
            next.extend(line.pop_front());
            if line.is_empty() {
                self.waiting.remove(&who);
            }
            self.take(who);
        }
        next
    }

    /// Somebody in line does not want it any more. False if it was not in line: then it has a place.
    pub fn gave_up(&mut self, who: u64, ticket: Ticket) -> bool {
        let Some(line) = self.waiting.get_mut(&who) else { return false };
        let before = line.len();
        line.retain(|other| *other != ticket);
        let was_in_line = line.len() < before;
        if line.is_empty() {
            self.waiting.remove(&who);
        }
        was_in_line
    }

    /// Who has the fewest, and of these who waits the longest.
    fn next(&self) -> Option<u64> {
        let able = self.waiting.iter().filter(|(who, _)| self.has_room(**who));
        let first = able.min_by_key(|(who, line)| (self.held(**who), line.front().copied()))?;
        Some(*first.0)
    }

    fn has_room(&self, who: u64) -> bool {
        self.taken < self.places || (self.held(who) == 0 && self.taken < 2 * self.places)
    }

    fn held(&self, who: u64) -> usize {
        self.holds.get(&who).copied().unwrap_or(0)
    }

    fn take(&mut self, who: u64) {
        *self.holds.entry(who).or_default() += 1;
        self.taken += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANN: u64 = 1;
    const BOB: u64 = 2;
    const EVE: u64 = 3;

    #[test]
    fn who_is_alone_has_all_and_who_comes_has_one_at_once() {
        let mut fair_share = FairShare::new(4);
        for _ in 0..4 {
            assert_eq!(fair_share.ask(ANN), Ok(()));
        }
        let fifth = fair_share.ask(ANN).unwrap_err();
        assert_eq!(fair_share.ask(BOB), Ok(()), "four sleepers of another keep nobody out");
        let second = fair_share.ask(BOB).unwrap_err();
        assert_eq!(fair_share.ask(EVE), Ok(()));
        // Six are taken of four: two have to end before anybody has a second one.
        assert_eq!(fair_share.done(ANN), []);
        assert_eq!(fair_share.done(EVE), []);
        assert_eq!(fair_share.done(ANN), [second], "who has fewer goes first, whoever came first");
        assert_eq!(fair_share.done(BOB), [fifth]);
    }

    #[test]
    fn one_principal_waits_in_the_order_it_came() {
        let mut fair_share = FairShare::new(1);
        assert_eq!(fair_share.ask(ANN), Ok(()));
        let line: Vec<Ticket> = (0..3).map(|_| fair_share.ask(ANN).unwrap_err()).collect();
        assert!(fair_share.gave_up(ANN, line[1]));
        assert!(!fair_share.gave_up(ANN, line[1]));
        assert_eq!(fair_share.done(ANN), [line[0]]);
        assert!(!fair_share.gave_up(ANN, line[0]), "it has a place");
        assert_eq!(fair_share.done(ANN), [line[2]]);
        assert_eq!(fair_share.done(ANN), []);
        assert_eq!(fair_share.ask(ANN), Ok(()));
    }

    #[test]
    fn there_is_an_end_to_places_for_those_who_come() {
        let mut fair_share = FairShare::new(2);
        for who in 0..4 {
            assert_eq!(fair_share.ask(who), Ok(()));
        }
        let fifth = fair_share.ask(4).unwrap_err();
        assert_eq!(fair_share.done(0), [fifth]);
    }

    proptest! {
        /// Whoever asks and ends in whatever order: never more places than there are, nobody waits who could begin, and
        /// nobody without a place waits while another has two that were had after it asked.
        #[test]
        fn places_are_counted(steps in prop::collection::vec((0_u64..5, any::<bool>()), 1..200)) {
            let mut fair_share = FairShare::new(3);
            let (mut inside, mut asked): (Vec<u64>, HashMap<Ticket, u64>) = (Vec::new(), HashMap::new());
            for (who, asks) in steps {
                if asks {
                    match fair_share.ask(who) {
                        Ok(()) => inside.push(who),
                        Err(ticket) => drop(asked.insert(ticket, who)),
                    }
                } else if let Some(at) = inside.iter().position(|one| *one == who) {
                    inside.swap_remove(at);
                    for ticket in fair_share.done(who) {
                        inside.push(asked.remove(&ticket).unwrap());
                    }
                }
                prop_assert!(inside.len() <= 6);
                prop_assert_eq!(inside.len(), fair_share.taken);
                prop_assert!(asked.values().all(|who| !fair_share.has_room(*who)));
                let waits_with_none = asked.values().any(|who| !inside.contains(who));
                prop_assert!(!waits_with_none || inside.len() == 6);
            }
        }
    }
}
