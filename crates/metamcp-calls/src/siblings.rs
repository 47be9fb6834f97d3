//! Which of several instances of one server takes a call, and when another one is wanted.
//! Owns: the choice.      Never: starts one, counts them, knows which session may use which.
//! In: the load of each, how many are allowed, whether the pool has a free slot.  Out: `Choice`.
//! Tests: below.
//!
//! A server that takes one call at a time may have siblings, each with a [`crate::pool::ServerId`], queue and breaker of its
//! own. Calls go to the first with room, so that those behind it fall idle and are closed by the pool's ordinary rule.

use crate::dispatch::ServerPolicy;
use crate::pool::Keep;

/// How busy one sibling is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// It is connecting or live.
    pub is_up: bool,
    /// Requests that it works on.
    pub in_flight: u32,
    /// Calls that wait for it.
    pub queued: u32,
    /// Requests it takes at once.
    pub max_in_flight: u32,
    /// A call would be let in: its breaker is closed, or due for a probe, and no pause is in force.
    pub admits: bool,
}

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To the sibling at this index.
    Use(usize),
    /// To a new one.
    Start,
}

impl Load {
    fn has_room(&self) -> bool {
        self.is_up && self.in_flight.saturating_add(self.queued) < self.max_in_flight
    }

    /// The smaller, the sooner a call is served. One that is down takes a slot, perhaps somebody's, so only one of them is
    /// to stand in line for that.
    fn wait(&self) -> (u8, u32) {
        let rank = match (self.is_up, self.queued) {
            (true, _) => 0,
            (false, 1..) => 1,
            (false, 0) => 2,
        };
        (rank, self.in_flight.saturating_add(self.queued))
    }
}

/// One with room; else one more where that costs nobody a connection; else the shortest queue. One that lets no call in is
/// chosen only if none does, and is no reason to start another: the same program would fail there too.
pub fn choose(siblings: &[Load], allowed: u32, has_free_slot: bool) -> Choice {
    let able = || siblings.iter().enumerate().filter(|(_, load)| load.admits);
    if let Some((index, _)) = able().find(|(_, load)| load.has_room()) {
        return Choice::Use(index);
    }
    let may_add = siblings.len() < usize::try_from(allowed.max(1)).unwrap_or(usize::MAX);
    if has_free_slot && able().next().is_some() {
        if let Some((index, _)) = able().find(|(_, load)| !load.is_up && load.queued == 0) {
            return Choice::Use(index);
        }
        if may_add {
            return Choice::Start;
        }
    }
    match able().min_by_key(|(_, load)| load.wait()) {
        Some((index, _)) => Choice::Use(index),
        None if siblings.is_empty() => Choice::Start,
        None => Choice::Use(0),
    }
}

/// The policy of the sibling at this index. All but the first are there for as long as they are needed, whatever is said
/// of their server.
pub fn policy(of: ServerPolicy, index: usize) -> ServerPolicy {
    match (index, of.keep) {
        (0, _) => of,
        (_, Keep::Alive) => ServerPolicy { keep: Keep::UntilTimeout, vital: false, ..of },
        (_, Keep::UntilTimeout | Keep::Ephemeral) => ServerPolicy { vital: false, ..of },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Load =
        Load { is_up: true, in_flight: 0, queued: 0, max_in_flight: 1, admits: true };
    const BUSY: Load = Load { in_flight: 1, ..IDLE };
    const DOWN: Load = Load { is_up: false, ..IDLE };
    const BROKEN: Load = Load { admits: false, ..IDLE };

    fn queue(queued: u32) -> Load {
        Load { queued, ..BUSY }
    }

    #[test]
    fn the_first_with_room_then_one_more_then_the_shortest_queue() {
        let starting = Load { queued: 1, in_flight: 0, ..IDLE };
        let in_line = Load { queued: 2, ..DOWN };
        for (siblings, allowed, free, expected) in [
            (&[][..], 4, true, Choice::Start),
            (&[], 0, false, Choice::Start),
            (&[DOWN], 4, true, Choice::Use(0)),
            (&[DOWN], 4, false, Choice::Use(0)),
            (&[BUSY, IDLE, IDLE], 4, true, Choice::Use(1)),
            (&[BUSY, BUSY], 4, true, Choice::Start),
            (&[starting], 4, true, Choice::Start),
            (&[BUSY, BUSY], 4, false, Choice::Use(0)),
            (&[BUSY, BUSY], 2, true, Choice::Use(0)),
            (&[BUSY], 0, true, Choice::Use(0)),
            (&[queue(3), queue(1), queue(2)], 3, true, Choice::Use(1)),
            // One that was closed when it fell idle is started again before there is a new one.
            (&[BUSY, DOWN], 4, true, Choice::Use(1)),
            (&[queue(5), DOWN], 4, false, Choice::Use(0)),
            (&[DOWN, in_line], 4, false, Choice::Use(1)),
            // A breaker that lets nothing through.
            (&[BROKEN, queue(9)], 2, false, Choice::Use(1)),
            (&[BROKEN, queue(9)], 2, true, Choice::Use(1)),
            (&[BROKEN, queue(9)], 3, true, Choice::Start),
            (&[BROKEN, DOWN], 2, false, Choice::Use(1)),
            (&[BROKEN, BROKEN], 4, true, Choice::Use(0)),
        ] {
            assert_eq!(choose(siblings, allowed, free), expected, "{siblings:?} {allowed} {free}");
        }
    }

    /// Over every combination of three siblings: what must never happen does not.
    #[test]
    fn every_combination() {
        let mut loads = Vec::new();
        for number in 0..32_u32 {
            loads.push(Load {
                is_up: number & 1 > 0,
                in_flight: (number >> 1) & 1,
                queued: (number >> 2) & 1,
                max_in_flight: 1 + ((number >> 3) & 1),
                admits: number & 16 > 0,
            });
        }
        for (first, second, third) in loads.iter().flat_map(|first| {
            loads.iter().flat_map(|second| loads.iter().map(|third| (*first, *second, *third)))
        }) {
            let siblings = [first, second, third];
            for (allowed, free) in [(3, true), (3, false), (4, true), (4, false)] {
                let told = format!("{siblings:?} {allowed} {free}");
                match choose(&siblings, allowed, free) {
                    Choice::Start => {
                        assert!(allowed == 4 && free, "{told}");
                        assert!(
                            !siblings.iter().any(|load| load.admits && load.has_room()),
                            "{told}"
                        );
                        assert!(siblings.iter().any(|load| load.admits), "{told}");
                    }
                    Choice::Use(index) => {
                        let chosen = siblings[index];
                        let better = |load: &Load| load.admits && load.has_room();
                        assert!(
                            chosen.admits || !siblings.iter().any(|load| load.admits),
                            "{told}"
                        );
                        assert!(better(&chosen) || !siblings.iter().any(better), "{told}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_the_first_is_kept_alive() {
        let kept = ServerPolicy { keep: Keep::Alive, vital: true, ..ServerPolicy::default() };
        assert_eq!(policy(kept, 0), kept);
        assert_eq!(policy(kept, 1), ServerPolicy::default());
        let ephemeral = ServerPolicy { keep: Keep::Ephemeral, ..kept };
        assert_eq!(policy(ephemeral, 2).keep, Keep::Ephemeral);
    }
}
