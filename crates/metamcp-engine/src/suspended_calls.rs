//! Calls that are held open while their client gathers answers, and the seal on the tickets that lead back to them.
//! Owns: the key, the table, its bound.      Never: knows what a held call is, writes it anywhere.
//! In: a call to hold.  Out: a number for its ticket; the call again, for that number.
//! Tests: below, `metamcp/tests/hazards/eras.rs`.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use metamcp_wire::seal::Key;

/// Most calls held at once: each keeps a request of a server open, and a person behind it thinking.
pub const MAX_SUSPENDED: usize = 1024;

/// See the module.
pub struct SuspendedCalls {
    /// The seal of this process: a ticket of another one leads nowhere.
    pub key: Key,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    last: u64,
    calls: HashMap<u64, Arc<dyn Any + Send + Sync>>,
}

impl SuspendedCalls {
    /// Nothing held, under a key of its own.
    pub fn new(key: Key) -> SuspendedCalls {
        SuspendedCalls { key, rows: Mutex::default() }
    }

    /// Holds a call; `None` if too many are held already.
    pub fn suspend(&self, call: Arc<dyn Any + Send + Sync>) -> Option<u64> {
        let mut rows = self.lock();
        if rows.calls.len() >= MAX_SUSPENDED {
            return None;
        }
        rows.last += 1;
        let number = rows.last;
        rows.calls.insert(number, call);
        Some(number)
    }

    /// The held call of that number.
    pub fn find(&self, number: u64) -> Option<Arc<dyn Any + Send + Sync>> {
        self.lock().calls.get(&number).cloned()
    }

    /// It is over.
    pub fn forget(&self, number: u64) {
        let gone = self.lock().calls.remove(&number);
        // Whatever hangs on it ends without the lock.
        drop(gone);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().calls.len()
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_used_twice_and_there_is_a_bound() {
        let suspended_calls = SuspendedCalls::new(Key::new([0; 32]));
        let first = suspended_calls.suspend(Arc::new(1_u8)).unwrap();
        assert!(suspended_calls.find(first).unwrap().is::<u8>());
        suspended_calls.forget(first);
        assert!(suspended_calls.find(first).is_none());
        let rest: Vec<_> =
            (0..MAX_SUSPENDED).map(|_| suspended_calls.suspend(Arc::new(())).unwrap()).collect();
        assert!(!rest.contains(&first));
        assert_eq!(suspended_calls.suspend(Arc::new(())), None);
        assert_eq!(suspended_calls.count(), MAX_SUSPENDED);
    }
}
