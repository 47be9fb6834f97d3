//! Fair sharing of slots between principals and their sessions: all of them for one who is alone, at least one for every
//! other.
//! Owns: who has how many, and who is next.      Never: waits, knows what a slot is for.
//! In: who requests, releases or gives up.  Out: who starts.
//! Tests: below.
//!
//! A slot is held for as long as its holder likes, so fairness about the next one is not enough: four sleeping scripts of
//! one client would block everybody else for minutes. Beside the slots for whoever comes first there are as many for
//! sessions that have none, and beyond these as many for principals that have none: a principal who opens many sessions
//! takes nothing from another.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Somebody in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sharer {
    pub principal: u64,
    /// One client of that principal.
    pub session: u64,
}

#[derive(Debug)]
pub struct FairShare {
    places: usize,
    taken: usize,
    /// By principal, and by session.
    of_principals: HashMap<u64, usize>,
    of_sessions: HashMap<Sharer, usize>,
    /// By session, so that the choice is among these and not among all that wait.
    waiting: BTreeMap<Sharer, VecDeque<Ticket>>,
    last: u64,
}

impl FairShare {
    /// So many places for whoever comes first, at least one.
    pub fn new(places: usize) -> FairShare {
        FairShare {
            places: places.max(1),
            taken: 0,
            of_principals: HashMap::new(),
            of_sessions: HashMap::new(),
            waiting: BTreeMap::new(),
            last: 0,
        }
    }

    /// A place is wanted: it is had at once, or there is a ticket for it.
    ///
    /// # Errors
    /// The ticket. [`FairShare::done`] names it when its turn comes.
    pub fn ask(&mut self, who: Sharer) -> Result<(), Ticket> {
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
    pub fn done(&mut self, who: Sharer) -> Vec<Ticket> {
        if let Some(count) = self.of_sessions.get_mut(&who) {
            *count -= 1;
            self.taken -= 1;
            if *count == 0 {
                self.of_sessions.remove(&who);
            }
            if let Some(count) = self.of_principals.get_mut(&who.principal) {
                *count -= 1;
                if *count == 0 {
                    self.of_principals.remove(&who.principal);
                }
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
    pub fn gave_up(&mut self, who: Sharer, ticket: Ticket) -> bool {
        let Some(line) = self.waiting.get_mut(&who) else { return false };
        let before = line.len();
        line.retain(|other| *other != ticket);
        let was_in_line = line.len() < before;
        if line.is_empty() {
            self.waiting.remove(&who);
        }
        was_in_line
    }

    /// Whose principal has the fewest, of these the session with the fewest, and of these who waits the longest.
    fn next(&self) -> Option<Sharer> {
        let able = self.waiting.iter().filter(|(who, _)| self.has_room(**who));
        let first = able.min_by_key(|(who, line)| {
            (self.held_by_principal(**who), self.held(**who), line.front().copied())
        })?;
        Some(*first.0)
    }

    fn has_room(&self, who: Sharer) -> bool {
        let open = match (self.held_by_principal(who), self.held(who)) {
            (0, _) => 3,
            (_, 0) => 2,
            _ => 1,
        };
        self.taken < open * self.places
    }

    fn held(&self, who: Sharer) -> usize {
        self.of_sessions.get(&who).copied().unwrap_or(0)
    }

    fn held_by_principal(&self, who: Sharer) -> usize {
        self.of_principals.get(&who.principal).copied().unwrap_or(0)
    }

    fn take(&mut self, who: Sharer) {
        *self.of_principals.entry(who.principal).or_default() += 1;
        *self.of_sessions.entry(who).or_default() += 1;
        self.taken += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANN: Sharer = of(1, 1);
    const BOB: Sharer = of(2, 1);
    const EVE: Sharer = of(3, 1);

    const fn of(principal: u64, session: u64) -> Sharer {
        Sharer { principal, session }
    }

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
    fn a_second_session_of_one_principal_has_one_at_once() {
        let mut fair_share = FairShare::new(2);
        let [one, two, three] = [of(0, 1), of(0, 2), of(0, 3)];
        assert_eq!((fair_share.ask(one), fair_share.ask(one)), (Ok(()), Ok(())));
        let third = fair_share.ask(one).unwrap_err();
        assert_eq!(fair_share.ask(two), Ok(()), "two sleepers of another client keep nobody out");
        assert_eq!(fair_share.ask(three), Ok(()));
        let second = fair_share.ask(two).unwrap_err();
        let fourth = fair_share.ask(of(0, 4)).unwrap_err();
        assert_eq!(fair_share.done(three), [fourth], "who has none goes first, whoever came first");
        assert_eq!(fair_share.done(of(0, 4)), []);
        assert_eq!(fair_share.done(one), []);
        assert_eq!(fair_share.done(one), [third], "one each, and this one came before");
        assert_eq!(fair_share.done(two), [second]);
    }

    #[test]
    fn many_sessions_of_one_principal_take_nothing_from_another() {
        let mut fair_share = FairShare::new(2);
        for session in 0..4 {
            assert_eq!(fair_share.ask(of(1, session)), Ok(()));
        }
        let fifth = fair_share.ask(of(1, 4)).unwrap_err();
        assert_eq!(fair_share.ask(BOB), Ok(()));
        let second = fair_share.ask(BOB).unwrap_err();
        for (session, next) in [(0, vec![]), (1, vec![fifth]), (2, vec![]), (3, vec![])] {
            assert_eq!(fair_share.done(of(1, session)), next);
        }
        assert_eq!(fair_share.done(of(1, 4)), [second]);
    }

    #[test]
    fn one_session_waits_in_the_order_it_came() {
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
        for who in 0..6 {
            assert_eq!(fair_share.ask(of(who, 1)), Ok(()));
        }
        let seventh = fair_share.ask(of(6, 1)).unwrap_err();
        assert_eq!(fair_share.done(of(0, 1)), [seventh]);
    }

    proptest! {
        /// Whoever asks and ends in whatever order: never more places than there are, nobody waits who could begin, and
        /// nobody without a place waits while there is one for those without.
        #[test]
        fn places_are_counted(steps in prop::collection::vec((0_u64..4, 0_u64..3, any::<bool>()), 1..200)) {
            let mut fair_share = FairShare::new(2);
            let (mut inside, mut asked): (Vec<Sharer>, HashMap<Ticket, Sharer>) = (Vec::new(), HashMap::new());
            for (principal, session, asks) in steps {
                let who = of(principal, session);
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
                prop_assert_eq!(inside.len(), fair_share.of_principals.values().sum::<usize>());
                prop_assert!(asked.values().all(|who| !fair_share.has_room(*who)));
                let has_none = |who: &&Sharer| !inside.contains(who);
                prop_assert!(asked.values().find(has_none).is_none() || inside.len() >= 4);
                let is_absent = |who: &Sharer| inside.iter().all(|one| one.principal != who.principal);
                prop_assert!(!asked.values().any(is_absent) || inside.len() == 6);
            }
        }
    }
}
