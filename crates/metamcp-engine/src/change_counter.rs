//! A counter that only grows, and waiters that are woken in order of arrival.
//! Owns: the count and the waiters.      Never: loses a step between check and wait.
//! In: steps.  Out: wake-ups.
//! Tests: below. `tokio::sync::watch` does the same, but wakes in random order, and callers served first come, first
//! served must keep their order here too.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub struct ChangeCounter {
    count: AtomicU64,
    moved: Notify,
}

impl ChangeCounter {
    /// The current count.
    pub fn now(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    pub fn step(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.moved.notify_waiters();
    }

    /// Raises the count to `count`, if it is lower.
    pub fn reach(&self, count: u64) {
        self.count.fetch_max(count, Ordering::Release);
        self.moved.notify_waiters();
    }

    /// Waits until the count is at least this.
    pub async fn reached(&self, count: u64) {
        loop {
            // Registered before the check, so that a step after it is not lost.
            let moved = self.moved.notified();
            if self.now() >= count {
                return;
            }
            moved.await;
        }
    }

    /// Waits for a step after `seen`, and updates it.
    pub async fn moved_on(&self, seen: &mut u64) {
        self.reached(*seen + 1).await;
        *seen = self.now();
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_in_order_of_arrival() {
        let progress = Arc::new(ChangeCounter::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..100)
            .map(|number| {
                let (progress, order) = (Arc::clone(&progress), Arc::clone(&order));
                tokio::spawn(async move {
                    progress.reached(2).await;
                    order.lock().push(number);
                })
            })
            .collect();
        everybody_runs().await;
        progress.step();
        everybody_runs().await;
        assert!(order.lock().is_empty());
        progress.reach(5);
        for task in waiting {
            task.await.unwrap();
        }
        assert!(order.lock().is_sorted());
    }

    /// The runtime runs some dozens of tasks before it returns to the one that yields.
    async fn everybody_runs() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_step_between_check_and_wait_is_not_lost() {
        let progress = ChangeCounter::default();
        let mut seen = progress.now();
        progress.step();
        progress.step();
        progress.moved_on(&mut seen).await;
        assert_eq!(seen, 2);
    }
}
