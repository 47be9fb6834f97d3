//! Limits how many scripts run at once; `metamcp_calls::fair_share` decides whose is next.

use std::collections::HashMap;
use std::sync::Arc;

use metamcp_calls::fair_share::{FairShare, Sharer, Ticket};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub(super) struct ScriptQueue(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    fair_share: FairShare,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
}

/// The right to run a script, or a place in the queue for it. Dropping it lets the next one run.
#[derive(Debug)]
pub(super) struct ScriptPermit {
    script_queue: Arc<ScriptQueue>,
    who: Sharer,
    ticket: Option<Ticket>,
}

impl ScriptQueue {
    pub(super) fn new(places: usize) -> Arc<ScriptQueue> {
        Arc::new(ScriptQueue(Mutex::new(Queue {
            fair_share: FairShare::new(places),
            waiting: HashMap::new(),
        })))
    }

    /// Waits until this session may run a script.
    pub(super) async fn acquire(self: &Arc<ScriptQueue>, who: Sharer) -> ScriptPermit {
        let mut permit = ScriptPermit { script_queue: Arc::clone(self), who, ticket: None };
        let granted = {
            let mut queue = self.lock();
            queue.fair_share.ask(who).err().map(|ticket| {
                let (grant, granted) = oneshot::channel();
                queue.waiting.insert(ticket, grant);
                permit.ticket = Some(ticket);
                granted
            })
        };
        if let Some(granted) = granted {
            // The sender is used once it is out of the table, or dropped with the table.
            drop(granted.await);
        }
        permit
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock()
    }
}

impl Drop for ScriptPermit {
    fn drop(&mut self) {
        let mut queue = self.script_queue.lock();
        if let Some(ticket) = self.ticket
            && queue.fair_share.gave_up(self.who, ticket)
        {
            queue.waiting.remove(&ticket);
            return;
        }
        for next in queue.fair_share.done(self.who) {
            if let Some(grant) = queue.waiting.remove(&next) {
                // A permit dropped at this moment passes its turn on.
                grant.send(()).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Two clients of one user.
    const ANN: Sharer = Sharer { principal: 0, session: 1 };
    const BOB: Sharer = Sharer { principal: 0, session: 2 };

    #[test]
    fn a_turn_that_is_given_up_goes_to_the_next() {
        let script_queue = ScriptQueue::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(script_queue.acquire(ANN)).poll(&mut context) else {
            panic!("waits")
        };
        let mut second = Box::pin(script_queue.acquire(ANN));
        let mut third = Box::pin(script_queue.acquire(ANN));
        let mut fourth = Box::pin(script_queue.acquire(ANN));
        for waits in [&mut second, &mut third, &mut fourth] {
            assert!(waits.as_mut().poll(&mut context).is_pending());
        }
        // While four of one client are there, another begins at once.
        assert!(pin!(script_queue.acquire(BOB)).poll(&mut context).is_ready());
        drop(second);
        drop(first);
        // Granted, but dropped before it was polled.
        drop(third);
        assert!(fourth.as_mut().poll(&mut context).is_ready());
    }
}
