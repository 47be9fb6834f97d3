//! One timer per connection, shared by all its timeouts. A connection waits for one thing at a time, a head or a response,
//! and nearly every wait ends long before its deadline: a timer for each would be inserted into the runtime's timer wheel
//! and removed again with every request. This one stays in the wheel; when it fires, the current deadline is compared.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;

/// See the module. Clones share the timer.
#[derive(Clone, Default)]
pub struct ConnectionTimer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Set to fire no later than the current deadline.
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    /// The waker registered with it.
    wakes: Option<Waker>,
}

impl ConnectionTimer {
    /// Awaits a future with a timeout; `None` if that comes first. For the connection's task only: there is one waker.
    pub async fn within<F: Future>(&self, patience: Duration, waited: F) -> Option<F::Output> {
        let mut until = None;
        self.wait(waited, || *until.get_or_insert_with(|| clock::instant() + patience)).await
    }

    /// The same, with a deadline.
    pub async fn before<F: Future>(&self, until: Instant, waited: F) -> Option<F::Output> {
        self.wait(waited, || until).await
    }

    async fn wait<F: Future>(
        &self,
        waited: F,
        mut until: impl FnMut() -> Instant,
    ) -> Option<F::Output> {
        let mut waited = std::pin::pin!(waited);
        poll_fn(|cx| match waited.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_until(until(), cx).map(|()| None),
        })
        .await
    }

    fn poll_until(&self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        let State { timer, wakes } = &mut *state;
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if timer.deadline() > until {
            timer.as_mut().reset(until);
            *wakes = None;
        }
        // It is set, and this waker is registered.
        if wakes.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) && !timer.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            if timer.as_mut().poll(cx).is_pending() {
                *wakes = Some(cx.waker().clone());
                return Poll::Pending;
            }
            *wakes = None;
            if clock::instant() >= until {
                return Poll::Ready(());
            }
            // It fired for an earlier wait, which is over.
            timer.as_mut().reset(until);
        }
    }

    /// The timer that hyper waits for request heads with. `first` is the deadline of the first head, where somebody
    /// has waited for it before hyper does.
    pub(super) fn heads(self, first: Option<Instant>) -> Heads {
        Heads { connection_timer: self, first: Mutex::new(first) }
    }
}

impl std::fmt::Debug for ConnectionTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionTimer")
    }
}

/// One wait of hyper's for a head.
struct Wait {
    connection_timer: ConnectionTimer,
    until: Instant,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.connection_timer.poll_until(self.until, cx)
    }
}

impl Sleep for Wait {}

/// See `ConnectionTimer::heads`.
pub(super) struct Heads {
    connection_timer: ConnectionTimer,
    first: Mutex<Option<Instant>>,
}

impl Timer for Heads {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until((clock::instant() + duration).into_std())
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        let first = self.first.lock().take();
        let until = Instant::from_std(deadline);
        let until = first.map_or(until, |first| first.min(until));
        Box::pin(Wait { connection_timer: self.connection_timer.clone(), until })
    }

    fn now(&self) -> std::time::Instant {
        clock::instant().into_std()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_limit_whatever_was_waited_for_before() {
        let connection_timer = ConnectionTimer::default();
        for seconds in [30, 15, 30, 1, 60] {
            let began = Instant::now();
            assert_eq!(
                connection_timer.within(seconds * SECOND, sleep(SECOND / 2)).await,
                Some(())
            );
            assert_eq!(connection_timer.within(seconds * SECOND, pending::<()>()).await, None);
            assert_eq!(began.elapsed().as_secs(), u64::from(seconds), "{seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_needs_no_timer_and_what_comes_late_is_late() {
        let connection_timer = ConnectionTimer::default();
        assert_eq!(connection_timer.within(SECOND, ready(7)).await, Some(7));
        assert!(connection_timer.0.lock().timer.is_none());
        assert_eq!(connection_timer.within(SECOND, sleep(2 * SECOND)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_that_end_in_time_leave_the_timer_where_it_is() {
        let connection_timer = ConnectionTimer::default();
        let set = |connection_timer: &ConnectionTimer| {
            connection_timer.0.lock().timer.as_ref().map(|timer| timer.deadline())
        };
        assert_eq!(connection_timer.within(30 * SECOND, sleep(SECOND)).await, Some(()));
        let first = set(&connection_timer);
        for _ in 0..5 {
            assert_eq!(connection_timer.within(30 * SECOND, sleep(SECOND)).await, Some(()));
        }
        assert!(first.is_some() && set(&connection_timer) == first);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_head_is_late_when_it_was_waited_for_before() {
        let heads = ConnectionTimer::default().heads(Some(Instant::now() + 7 * SECOND));
        for seconds in [7, 30, 30] {
            let began = Instant::now();
            heads.sleep_until((began + 30 * SECOND).into_std()).await;
            assert_eq!(began.elapsed(), seconds * SECOND);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_task_that_waits_is_the_one_that_is_woken() {
        let connection_timer = ConnectionTimer::default();
        assert_eq!(connection_timer.within(30 * SECOND, sleep(SECOND)).await, Some(()));
        let own = connection_timer.clone();
        let waiting = tokio::spawn(async move { own.within(SECOND, pending::<()>()).await });
        assert_eq!(waiting.await.unwrap(), None);
    }
}
