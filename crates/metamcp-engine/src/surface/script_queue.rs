//! Turns of scripts: who may run one now, as `core::fair_share` decides it.

use std::collections::HashMap;
use std::sync::Arc;

use metamcp_calls::fair_share::{FairShare, Ticket};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub(super) struct ScriptQueue(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    fair_share: FairShare,
    called: HashMap<Ticket, oneshot::Sender<()>>,
}

/// A turn, or a place in line for one; the end of it is the next one's.
#[derive(Debug)]
pub(super) struct ScriptPermit {
    script_queue: Arc<ScriptQueue>,
    who: u64,
    ticket: Option<Ticket>,
}

impl ScriptQueue {
    pub(super) fn new(places: usize) -> Arc<ScriptQueue> {
        Arc::new(ScriptQueue(Mutex::new(Queue {
            fair_share: FairShare::new(places),
            called: HashMap::new(),
        })))
    }

    /// Waits for a turn of this principal's.
    pub(super) async fn acquire(self: &Arc<ScriptQueue>, who: u64) -> ScriptPermit {
        let mut permit = ScriptPermit { script_queue: Arc::clone(self), who, ticket: None };
        let called = {
            let mut queue = self.lock();
            queue.fair_share.ask(who).err().map(|ticket| {
                let (call, called) = oneshot::channel();
                queue.called.insert(ticket, call);
                permit.ticket = Some(ticket);
                called
            })
        };
        if let Some(called) = called {
            // Whoever calls it takes it out of the table first, so it is called or dropped with the table.
            drop(called.await);
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
            queue.called.remove(&ticket);
            return;
        }
        for next in queue.fair_share.done(self.who) {
            if let Some(call) = queue.called.remove(&next) {
                // One that stopped waiting at this moment gives its turn back as it goes.
                call.send(()).ok();
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

    const ANN: u64 = 1;
    const BOB: u64 = 2;

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
        // While four of one principal are there, another begins at once.
        assert!(pin!(script_queue.acquire(BOB)).poll(&mut context).is_ready());
        drop(second);
        drop(first);
        // Called, and gone before it looked.
        drop(third);
        assert!(fourth.as_mut().poll(&mut context).is_ready());
    }
}
