//! Calls that are suspended while their clients gather input, and the key that seals their resume tokens.
//! Owns: the key, the table, its bound.      Never: knows what a call is, writes it anywhere.
//! In: a call to suspend.  Out: a number for its resume token; the call again, for that number.
//! Tests: below, `metamcp/tests/hazards/eras.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use metamcp_wire::seal::Key;
use parking_lot::{Mutex, MutexGuard};

use crate::clock::{Clock, unix_millis};
use crate::cluster_key::Keyring;

/// Most suspended calls: each has an open request at a server, and a person who has to answer.
const MAX_SUSPENDED: usize = 1024;

/// See the module. All sessions of a listener share one: a client may retry over another connection.
pub struct SuspendedCalls<C> {
    /// The key of this process: tokens of another one are invalid.
    own: Key,
    /// In a fleet: the key of all its gateways.
    keyring: Option<Arc<Keyring>>,
    rows: Mutex<Rows<C>>,
}

struct Rows<C> {
    last: u64,
    calls: HashMap<u64, Arc<C>>,
}

impl<C> SuspendedCalls<C> {
    /// An empty table, with a random key unless a fleet shares one.
    pub fn new(keyring: Option<Arc<Keyring>>) -> Arc<SuspendedCalls<C>> {
        let mut seal = [0; 32];
        // With a guessable key a client could answer for another one.
        getrandom::fill(&mut seal).expect("the system has randomness");
        let rows = Mutex::new(Rows { last: 0, calls: HashMap::new() });
        Arc::new(SuspendedCalls { own: Key::new(seal), keyring, rows })
    }

    /// The key of resume tokens.
    pub(super) fn key(&self) -> Key {
        self.keyring.as_ref().map_or_else(|| self.own.clone(), |keyring| keyring.resume_key())
    }

    /// The process in which its calls are suspended.
    pub(super) fn gateway(&self) -> u64 {
        self.keyring.as_ref().map_or(0, |keyring| keyring.gateway())
    }

    /// The time by which resume tokens expire: gateways of a fleet share only that of day.
    pub(super) fn now(&self, clock: Clock) -> u64 {
        if self.keyring.is_some() { unix_millis() } else { clock.now_ms() }
    }

    /// Adds a call; `None` if there are too many already.
    pub(super) fn suspend(&self, call: Arc<C>) -> Option<u64> {
        let mut rows = self.lock();
        if rows.calls.len() >= MAX_SUSPENDED {
            return None;
        }
        rows.last += 1;
        let number = rows.last;
        rows.calls.insert(number, call);
        Some(number)
    }

    pub(super) fn find(&self, number: u64) -> Option<Arc<C>> {
        self.lock().calls.get(&number).cloned()
    }

    /// Removes a call that ended.
    pub(super) fn forget(&self, number: u64) {
        let removed = self.lock().calls.remove(&number);
        // Dropped without the lock: its server requests settle then.
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, Rows<C>> {
        self.rows.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_used_twice_and_there_is_a_bound() {
        let suspended_calls = SuspendedCalls::new(None);
        let first = suspended_calls.suspend(Arc::new(1)).unwrap();
        assert_eq!(suspended_calls.find(first).as_deref(), Some(&1));
        suspended_calls.forget(first);
        assert!(suspended_calls.find(first).is_none());
        let rest: Vec<_> =
            (0..MAX_SUSPENDED).map(|_| suspended_calls.suspend(Arc::new(2)).unwrap()).collect();
        assert!(!rest.contains(&first));
        assert_eq!(suspended_calls.suspend(Arc::new(3)), None);
        suspended_calls.forget(rest[0]);
        assert!(suspended_calls.suspend(Arc::new(4)).is_some());
    }
}
