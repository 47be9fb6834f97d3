//! Waiting for a condition without a blind sleep.
//! Owns: the one polling loop of the tests.  Never: decides how long is too long; the caller does.
//! In: a deadline and a condition.  Out: whether the condition became true.
//! Tests: below.

use std::thread;
use std::time::{Duration, Instant};

/// Polling interval: short enough to measure 50 ms promises, long enough to cost nothing.
const POLL: Duration = Duration::from_millis(2);

/// Polls `condition` until it holds or `deadline` has passed; returns whether it held.
pub fn eventually(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        // The only sleep in the tests: most conditions they wait for send no notification.
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_looked_at_again() {
        let mut looks = 0;
        assert!(eventually(Duration::from_secs(10), || {
            looks += 1;
            looks == 3
        }));
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_condition_is_looked_at_once_even_without_time() {
        assert!(eventually(Duration::ZERO, || true));
        assert!(!eventually(Duration::ZERO, || false));
    }
}
