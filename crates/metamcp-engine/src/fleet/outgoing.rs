//! What this node says, in order.
//! Owns: the queue to the bus.      Never: waits on behalf of the state machine; says anything twice.
//! In: messages.  Out: the same on the bus, or the news that a call was not sent.
//! Tests: `metamcp/tests/fleet`.

use std::sync::Arc;

use metamcp_fleet::identity::NodeRef;
use metamcp_fleet::message::Message;
use tokio::sync::{mpsc, oneshot};

use super::Fleet;
use super::long_calls;
use super::mailbox::Input;
use super::receiving::NODE;
use super::words::{self, Body};
use crate::task;

/// Messages that wait for the connection. More are dropped: the protocol says again whatever matters.
const QUEUE: usize = 4096;

enum Order {
    Send { to: Option<NodeRef>, message: Message<Body> },
    Flush(oneshot::Sender<()>),
}

pub(super) struct Outgoing {
    orders: mpsc::Sender<Order>,
}

impl Outgoing {
    pub(super) fn spawn(fleet: &Arc<Fleet>, me: NodeRef) -> Outgoing {
        let (orders, mut waiting) = mpsc::channel(QUEUE);
        let fleet = Arc::downgrade(fleet);
        task::spawn("fleet outgoing", async move {
            while let Some(order) = waiting.recv().await {
                let Some(fleet) = fleet.upgrade() else { return };
                match order {
                    Order::Send {
                        to,
                        message: Message::Call { number, instance, epoch, body },
                    } => {
                        let call = move |body| Message::Call { number, instance, epoch, body };
                        if long_calls::fits(&fleet, &body) {
                            let message = call(long_calls::here(&body));
                            send(&fleet, &me, to, &message).await;
                            continue;
                        }
                        let (fleet, me) = (Arc::clone(&fleet), me.clone());
                        task::spawn("long call", async move {
                            match long_calls::elsewhere(&fleet, &me, number, &body).await {
                                Ok(body) => send(&fleet, &me, to, &call(body)).await,
                                Err(error) => {
                                    tracing::warn!("a long call cannot be sent: {error}");
                                    fleet.mailbox.push(Input::NotDelivered(number));
                                }
                            }
                        });
                    }
                    Order::Send { to, message } => send(&fleet, &me, to, &message).await,
                    Order::Flush(done) => {
                        let flushed = fleet.bus.flush().await;
                        tracing::debug!(is_flushed = flushed.is_ok(), "everything was said");
                        done.send(()).ok();
                    }
                }
            }
        });
        Outgoing { orders }
    }

    /// False if it is not sent, because too much waits.
    pub(super) fn send(&self, to: Option<NodeRef>, message: Message<Body>) -> bool {
        self.orders.try_send(Order::Send { to, message }).is_ok()
    }

    /// `done` hears when everything before has left.
    pub(super) fn flush(&self, done: oneshot::Sender<()>) {
        // Where the queue is full, dropping it says the same.
        drop(self.orders.try_send(Order::Flush(done)));
    }
}

async fn send(fleet: &Fleet, me: &NodeRef, to: Option<NodeRef>, message: &Message<Body>) {
    let bytes = words::message(me, to.as_ref(), message);
    let number = match message {
        Message::Call { number, .. } => Some(*number),
        _ => None,
    };
    let sent = match (&to, number) {
        (None, _) => fleet.bus.broadcast(NODE, &bytes).await,
        (Some(to), None) => fleet.bus.send(&to.name, NODE, &bytes).await,
        (Some(to), Some(number)) => fleet.bus.send_tracked(&to.name, NODE, &bytes, number).await,
    };
    if let Err(error) = sent {
        tracing::debug!("a message to {to:?} was not sent: {error}");
        if let Some(number) = number {
            fleet.mailbox.push(Input::NotDelivered(number));
        }
    }
}
