//! Values too long to show, kept for a while under a handle.
//! Owns: the values, their age, how much they may take.      Never: shows them, writes them anywhere.
//! In: bytes of JSON.  Out: a handle, and the bytes again.
//! Tests: below; `metamcp/tests/hazards/scripts.rs`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

/// How long a value is kept. A conversation comes back to a result within minutes, if at all.
const KEPT: Duration = Duration::from_secs(30 * 60);
/// All values together. The oldest go first.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct Results {
    kept: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    handle: String,
    value: Bytes,
    since: Instant,
}

impl Results {
    /// Keeps a value and says under which handle.
    pub fn put(&self, value: Bytes) -> String {
        self.put_at(value, Instant::now())
    }

    fn put_at(&self, value: Bytes, now: Instant) -> String {
        // Unguessable, so that one client's values are not found by counting.
        let handle = format!("r{:016x}", getrandom::u64().unwrap_or_default());
        let mut kept = self.lock();
        kept.retain(|one| now.duration_since(one.since) < KEPT);
        kept.push_back(Kept { handle: handle.clone(), value, since: now });
        while kept.len() > 1 && kept.iter().map(|one| one.value.len()).sum::<usize>() > MAX_BYTES {
            kept.pop_front();
        }
        handle
    }

    /// The value of a handle, unless it is unknown, too old or gave way to others.
    pub fn read(&self, handle: &str) -> Option<Bytes> {
        self.read_at(handle, Instant::now())
    }

    fn read_at(&self, handle: &str, now: Instant) -> Option<Bytes> {
        let kept = self.lock();
        let found = kept.iter().find(|one| one.handle == handle)?;
        (now.duration_since(found.since) < KEPT).then(|| found.value.clone())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_until_it_is_old() {
        let (results, now) = (Results::default(), Instant::now());
        let handle = results.put_at(Bytes::from_static(b"[1]"), now);
        assert_eq!(results.read_at(&handle, now).unwrap(), "[1]");
        assert_eq!(results.read_at(&handle, now + KEPT), None);
        assert_eq!(results.read_at("r0", now), None);
    }

    #[test]
    fn the_oldest_make_room_and_the_newest_stays_whatever_its_size() {
        let (results, now) = (Results::default(), Instant::now());
        let first = results.put_at(Bytes::from(vec![b' '; MAX_BYTES / 2]), now);
        let second = results.put_at(Bytes::from(vec![b' '; MAX_BYTES / 2]), now);
        assert!(results.read_at(&first, now).is_some());
        let third = results.put_at(Bytes::from(vec![b' '; MAX_BYTES + 1]), now);
        assert_eq!((results.read_at(&first, now), results.read_at(&second, now)), (None, None));
        assert!(results.read_at(&third, now).is_some());
    }
}
