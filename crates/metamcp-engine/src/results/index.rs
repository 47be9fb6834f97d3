//! The index of stored values: their order, and the bytes of each principal and of each of its sessions. No operation
//! slows down with their number.
//!
//! Where there are too many, the principal with the most loses first, and of its sessions the one with the most: neither
//! does a principal gain by opening sessions, nor does one client's flood evict what another just stored. What sessions
//! left behind that have ended counts as of one session.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Entry, Place};

/// Most values of one principal. A script can store two thousand in a moment; no conversation uses so many.
pub(super) const MAX_VALUES: usize = 10_000;

/// The session that values of ended ones count for.
const ENDED: u64 = u64::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ResultIndex {
    last: u64,
    entries: BTreeMap<u64, Entry>,
    by_handle: HashMap<String, u64>,
    shares: HashMap<u64, Share>,
    /// All bytes, and those in memory.
    all: Sizes,
    memory: Sizes,
}

/// The values of one principal, by session.
#[derive(Debug, Default)]
struct Share {
    sessions: HashMap<u64, Held>,
    /// How many there are, all bytes, and those in memory.
    count: Sizes,
    all: Sizes,
    memory: Sizes,
}

/// The values of one session: all, and those in memory.
#[derive(Debug, Default)]
struct Held {
    all: BTreeSet<u64>,
    memory: BTreeSet<u64>,
}

impl Share {
    /// The oldest value of the session that has the most of what is counted.
    fn oldest(&self, counted: &Sizes) -> Option<u64> {
        self.sessions.get(&counted.largest()?)?.all.first().copied()
    }
}

/// Bytes by principal or session, ordered so that the largest is found at once.
#[derive(Debug, Default)]
struct Sizes {
    total: usize,
    of: HashMap<u64, usize>,
    by_size: BTreeSet<(usize, u64)>,
}

impl Sizes {
    fn change(&mut self, who: u64, add: usize, take: usize) {
        let before = self.of.get(&who).copied().unwrap_or(0);
        let now = before + add - take;
        self.total = self.total + add - take;
        self.by_size.remove(&(before, who));
        if now == 0 {
            self.of.remove(&who);
        } else {
            self.of.insert(who, now);
            self.by_size.insert((now, who));
        }
    }

    /// What was counted for one counts for another.
    fn rename(&mut self, who: u64, to: u64) {
        let size = self.of.get(&who).copied().unwrap_or(0);
        self.change(who, 0, size);
        self.change(to, size, 0);
    }

    fn largest(&self) -> Option<u64> {
        self.by_size.last().map(|(_, who)| *who)
    }
}

impl ResultIndex {
    /// Adds a value in memory.
    pub(super) fn put(&mut self, one: Entry) {
        self.last += 1;
        let (who, session, at) = (one.owner.principal, one.owner.session, self.last);
        self.all.change(who, one.bytes, 0);
        self.memory.change(who, one.bytes, 0);
        let share = self.shares.entry(who).or_default();
        share.count.change(session, 1, 0);
        share.all.change(session, one.bytes, 0);
        share.memory.change(session, one.bytes, 0);
        let held = share.sessions.entry(session).or_default();
        held.all.insert(at);
        held.memory.insert(at);
        self.by_handle.insert(one.handle.clone(), at);
        self.entries.insert(at, one);
    }

    pub(super) fn find(&self, handle: &str) -> Option<&Entry> {
        self.entries.get(self.by_handle.get(handle)?)
    }

    /// When the oldest was stored.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(_, one)| one.since)
    }

    /// Evicts expired values, one of a principal with too many, and while the total exceeds `most`, those of the principal
    /// with the most bytes: each time the oldest of its session with the most. The newest stays, and so do the values of
    /// principals below their share.
    pub(super) fn clear_out(&mut self, now: Instant, age: Duration, most: usize) -> Vec<Entry> {
        let mut gone = Vec::new();
        while let Some((&at, _)) =
            self.entries.first_key_value().filter(|(_, one)| now.duration_since(one.since) >= age)
        {
            gone.extend(self.take(at));
        }
        let newest = self.last;
        if let Some(share) =
            self.entries.get(&newest).and_then(|one| self.shares.get(&one.owner.principal))
            && share.count.total > MAX_VALUES
        {
            let oldest = share.oldest(&share.count);
            gone.extend(oldest.and_then(|at| self.take(at)));
        }
        while self.all.total > most {
            let largest = self.all.largest().and_then(|who| self.shares.get(&who));
            let Some(at) = largest.and_then(|share| share.oldest(&share.all)) else { break };
            if at == newest {
                break;
            }
            gone.extend(self.take(at));
        }
        gone
    }

    /// The values that have to move to disk while memory holds more than `most`: of the principal with the most bytes
    /// there, and its session with the most, the oldest; never the newest.
    pub(super) fn leave(&mut self, most: usize) -> Vec<(String, Bytes)> {
        let mut leaving = Vec::new();
        while self.memory.total > most {
            let Some(who) = self.memory.largest() else { break };
            let Some(share) = self.shares.get_mut(&who) else { break };
            let Some(session) = share.memory.largest() else { break };
            let Some(held) = share.sessions.get_mut(&session) else { break };
            let Some(&at) = held.memory.first().filter(|at| **at != self.last) else { break };
            held.memory.remove(&at);
            let Some(one) = self.entries.get_mut(&at) else { break };
            share.memory.change(session, 0, one.bytes);
            self.memory.change(who, 0, one.bytes);
            if let Place::Memory(bytes) = &one.place {
                let bytes = bytes.clone();
                leaving.push((one.handle.clone(), bytes.clone()));
                one.place = Place::Leaving(bytes);
            }
        }
        leaving
    }

    /// A session has ended. Its values can still be read, and count as of all ended ones.
    pub(super) fn end_session(&mut self, principal: u64, session: u64) {
        let Some(share) = self.shares.get_mut(&principal) else { return };
        let Some(mut held) = share.sessions.remove(&session) else { return };
        for sizes in [&mut share.count, &mut share.all, &mut share.memory] {
            sizes.rename(session, ENDED);
        }
        for at in &held.all {
            if let Some(one) = self.entries.get_mut(at) {
                one.owner.session = ENDED;
            }
        }
        let ended = share.sessions.entry(ENDED).or_default();
        ended.all.append(&mut held.all);
        ended.memory.append(&mut held.memory);
    }

    /// A value was written to disk. False if it was evicted meanwhile.
    pub(super) fn has_left(&mut self, handle: &str) -> bool {
        let one = self.by_handle.get(handle).and_then(|at| self.entries.get_mut(at));
        let is_stored = one.is_some();
        if let Some(one) = one {
            one.place = Place::Disk;
        }
        is_stored
    }

    pub(super) fn remove(&mut self, handle: &str) {
        if let Some(&at) = self.by_handle.get(handle) {
            self.take(at);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = ResultIndex { last: self.last, ..ResultIndex::default() };
    }

    fn take(&mut self, at: u64) -> Option<Entry> {
        let one = self.entries.remove(&at)?;
        let (who, session) = (one.owner.principal, one.owner.session);
        self.by_handle.remove(&one.handle);
        self.all.change(who, 0, one.bytes);
        if let Some(share) = self.shares.get_mut(&who) {
            share.count.change(session, 0, 1);
            share.all.change(session, 0, one.bytes);
            if let Some(held) = share.sessions.get_mut(&session) {
                held.all.remove(&at);
                if held.memory.remove(&at) {
                    share.memory.change(session, 0, one.bytes);
                    self.memory.change(who, 0, one.bytes);
                }
                if held.all.is_empty() {
                    share.sessions.remove(&session);
                }
            }
            if share.sessions.is_empty() {
                self.shares.remove(&who);
            }
        }
        Some(one)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use super::super::Owner;
    use super::*;

    const AGE: Duration = Duration::from_mins(1);

    fn put(index: &mut ResultIndex, who: u64, name: &str, bytes: usize, since: Instant) {
        put_in(index, (who, 0), name, bytes, since);
    }

    fn put_in(
        index: &mut ResultIndex,
        (principal, session): (u64, u64),
        name: &str,
        bytes: usize,
        since: Instant,
    ) {
        index.put(Entry {
            handle: name.to_owned(),
            owner: Owner { principal, session, ..Owner::default() },
            since,
            bytes,
            value: 0..bytes,
            place: Place::Memory(Bytes::from(vec![b'1'; bytes])),
        });
    }

    fn names(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|one| one.handle.as_str()).collect()
    }

    #[test]
    fn only_the_principal_with_the_most_bytes_is_evicted() {
        let (mut index, now) = (ResultIndex::default(), Instant::now());
        put(&mut index, 1, "a", 30, now);
        for n in 0..4 {
            put(&mut index, 2, &format!("b{n}"), 30, now);
            let gone = index.clear_out(now, AGE, 100);
            assert_eq!(names(&gone), if n < 2 { vec![] } else { vec![format!("b{}", n - 2)] });
        }
        assert!(index.find("a").is_some(), "the oldest of all, of a principal with few bytes");
        // A value above the total limit stays while it is the newest.
        put(&mut index, 3, "c", 500, now);
        assert_eq!(names(&index.clear_out(now, AGE, 100)), [""; 0]);
        put(&mut index, 1, "d", 1, now);
        assert_eq!(names(&index.clear_out(now, AGE, 100)), ["c"]);
    }

    #[test]
    fn of_a_principals_sessions_the_one_with_the_most_loses_first() {
        let (mut index, now) = (ResultIndex::default(), Instant::now());
        put_in(&mut index, (0, 1), "mine", 30, now);
        for n in 0..40 {
            put_in(&mut index, (0, 2), &format!("flood{n}"), 30, now);
            index.clear_out(now, AGE, 100);
            assert!(index.leave(80).iter().all(|(handle, _)| handle != "mine"));
        }
        assert!(index.find("mine").is_some_and(|one| matches!(one.place, Place::Memory(_))));
        // Another principal with less than all of these is not touched, whatever one session of theirs has.
        put_in(&mut index, (7, 3), "theirs", 40, now);
        index.clear_out(now, AGE, 100);
        assert!(index.find("theirs").is_some() && index.find("mine").is_some());
    }

    #[test]
    fn what_ended_sessions_left_goes_before_what_a_session_has() {
        let (mut index, now) = (ResultIndex::default(), Instant::now());
        put_in(&mut index, (0, 1), "mine", 40, now);
        for session in 2..6 {
            put_in(&mut index, (0, session), &format!("of{session}"), 20, now);
            index.end_session(0, session);
            index.clear_out(now, AGE, 100);
        }
        let kept = |name: &str| index.find(name).is_some();
        assert!(kept("mine") && kept("of5") && kept("of4") && kept("of3") && !kept("of2"));
        index.end_session(0, 1);
        index.end_session(0, 99);
        index.end_session(8, 1);
        assert_eq!((index.all.total, index.shares[&0].sessions.len()), (100, 1));
        index.clear_out(now + AGE, AGE, 100);
        assert_eq!((index.all.total, index.memory.total, index.shares.len()), (0, 0, 0));
    }

    #[test]
    fn the_session_with_the_most_values_loses_one() {
        let (mut index, now) = (ResultIndex::default(), Instant::now());
        put_in(&mut index, (0, 1), "mine", 1, now);
        for n in 0..MAX_VALUES {
            put_in(&mut index, (0, 2), &n.to_string(), 1, now);
            index.clear_out(now, AGE, usize::MAX);
        }
        assert!(index.find("mine").is_some() && index.find("0").is_none());
        assert_eq!(index.iter().count(), MAX_VALUES);
    }

    #[test]
    fn the_number_of_values_per_principal_is_bounded() {
        let (mut index, now) = (ResultIndex::default(), Instant::now());
        put(&mut index, 1, "other", 1, now);
        for n in 0..MAX_VALUES + 3 {
            put(&mut index, 2, &n.to_string(), 1, now);
            index.clear_out(now, AGE, usize::MAX);
        }
        assert_eq!(index.iter().count(), MAX_VALUES + 1);
        assert!(index.find("other").is_some() && index.find("2").is_none());
        assert!(index.find("3").is_some());
        assert_eq!(names(&index.clear_out(now + AGE, AGE, usize::MAX)).len(), MAX_VALUES + 1);
        assert_eq!((index.all.total, index.memory.total, index.shares.len()), (0, 0, 0));
        assert_eq!((index.by_handle.len(), index.all.by_size.len()), (0, 0));
    }

    #[test]
    fn the_oldest_of_the_largest_principal_moves_to_disk() {
        let (mut index, now) = (ResultIndex::default(), Instant::now());
        put(&mut index, 1, "a", 10, now);
        put(&mut index, 2, "b", 40, now);
        put(&mut index, 2, "c", 40, now);
        let left = |left: Vec<(String, Bytes)>| -> Vec<String> {
            left.into_iter().map(|(handle, _)| handle).collect()
        };
        assert_eq!(left(index.leave(60)), ["b"]);
        assert!(matches!(index.find("b").unwrap().place, Place::Leaving(_)));
        assert!(index.has_left("b") && !index.has_left("x"));
        assert!(matches!(index.find("b").unwrap().place, Place::Disk));
        put(&mut index, 1, "d", 90, now);
        assert_eq!(left(index.leave(60)), ["a"], "and the newest stays");
        index.remove("b");
        index.remove("d");
        assert_eq!((index.all.total, index.memory.total), (50, 40));
    }
}
