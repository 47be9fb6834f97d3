//! Turns of scripts: who may run one now, as `core::shares` decides it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metamcp_core::shares::{Shares, Ticket};
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub(super) struct Turns(Mutex<Line>);

#[derive(Debug)]
struct Line {
    shares: Shares,
    called: HashMap<Ticket, oneshot::Sender<()>>,
}

/// A turn, or a place in line for one; the end of it is the next one's.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    who: u64,
    ticket: Option<Ticket>,
}

impl Turns {
    pub(super) fn new(places: usize) -> Arc<Turns> {
        Arc::new(Turns(Mutex::new(Line { shares: Shares::new(places), called: HashMap::new() })))
    }

    /// Waits for a turn of this principal's.
    pub(super) async fn turn(self: &Arc<Turns>, who: u64) -> Turn {
        let mut turn = Turn { turns: Arc::clone(self), who, ticket: None };
        let called = {
            let mut line = self.lock();
            line.shares.ask(who).err().map(|ticket| {
                let (call, called) = oneshot::channel();
                line.called.insert(ticket, call);
                turn.ticket = Some(ticket);
                called
            })
        };
        if let Some(called) = called {
            // Whoever calls it takes it out of the table first, so it is called or dropped with the table.
            drop(called.await);
        }
        turn
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = self.turns.lock();
        if let Some(ticket) = self.ticket
            && line.shares.gave_up(self.who, ticket)
        {
            line.called.remove(&ticket);
            return;
        }
        for next in line.shares.done(self.who) {
            if let Some(call) = line.called.remove(&next) {
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
        let turns = Turns::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(turns.turn(ANN)).poll(&mut context) else { panic!("waits") };
        let mut second = Box::pin(turns.turn(ANN));
        let mut third = Box::pin(turns.turn(ANN));
        let mut fourth = Box::pin(turns.turn(ANN));
        for waits in [&mut second, &mut third, &mut fourth] {
            assert!(waits.as_mut().poll(&mut context).is_pending());
        }
        // While four of one principal are there, another begins at once.
        assert!(pin!(turns.turn(BOB)).poll(&mut context).is_ready());
        drop(second);
        drop(first);
        // Called, and gone before it looked.
        drop(third);
        assert!(fourth.as_mut().poll(&mut context).is_ready());
    }
}
