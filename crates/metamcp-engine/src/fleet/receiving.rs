//! What other nodes say, on its way to the state machine.
//! Owns: the subscriptions.      Never: acts on a message.
//! In: the bus.  Out: inputs.
//! Tests: `metamcp/tests/fleet`.

use std::sync::{Arc, Weak};

use metamcp_fleet::identity::NodeRef;
use metamcp_fleet::message::Message;

use super::Fleet;
use super::bus::{Bus, BusError, Heard, Refused, Subscription, Undelivered};
use super::long_calls;
use super::mailbox::Input;
use super::words;
use crate::task;

/// Messages for one node, and what nodes say of themselves.
pub(super) const NODE: &str = "node";

/// Those of one node.
pub(super) const SUBSCRIPTIONS: usize = 2;

pub(super) struct Listening {
    inbox: Subscription,
    all: Subscription,
    undelivered: Undelivered,
}

impl Listening {
    pub(super) async fn begin(bus: &Bus) -> Result<Listening, BusError> {
        let inbox = bus.inbox(NODE).await?;
        let all = bus.listen(NODE).await?;
        let undelivered = bus.undelivered().await?;
        bus.settled().await?;
        Ok(Listening { inbox, all, undelivered })
    }

    pub(super) fn spawn(self, fleet: &Arc<Fleet>, me: &NodeRef) {
        let Listening { inbox, all, mut undelivered } = self;
        for subscription in [inbox, all] {
            task::spawn("fleet inbox", listen(Arc::downgrade(fleet), me.clone(), subscription));
        }
        let weak = Arc::downgrade(fleet);
        task::spawn("fleet undelivered", async move {
            while let Some(number) = undelivered.next().await {
                let Some(fleet) = weak.upgrade() else { return };
                fleet.mailbox.push_slowly(Input::NotDelivered(number)).await;
            }
        });
        let weak = Arc::downgrade(fleet);
        let mut link = fleet.bus.link();
        task::spawn("fleet link", async move {
            let mut was = *link.borrow_and_update();
            while link.changed().await.is_ok() {
                let now = *link.borrow_and_update();
                let Some(fleet) = weak.upgrade() else { return };
                // It may have been away and come back between two looks.
                if was.is_up && (!now.is_up || now.connects != was.connects) {
                    fleet.mailbox.push(Input::Link { is_up: false });
                }
                if now.is_up {
                    fleet.mailbox.push(Input::Link { is_up: true });
                }
                was = now;
            }
        });
    }
}

async fn listen(fleet: Weak<Fleet>, me: NodeRef, mut subscription: Subscription) {
    let Some(mut stopping) = fleet.upgrade().map(|fleet| fleet.is_stopped.subscribe()) else {
        return;
    };
    let mut is_stopped = false;
    loop {
        let heard = tokio::select! {
            heard = subscription.next() => heard,
            () = async { drop(stopping.wait_for(|is_stopped| *is_stopped).await) },
                if !is_stopped =>
            {
                is_stopped = true;
                subscription.stop().await;
                continue;
            }
        };
        let Some(fleet) = fleet.upgrade() else { return };
        let Some(Heard { from, payload, .. }) = heard else {
            fleet.listening.send_modify(|count| *count -= 1);
            return;
        };
        match words::read_message(&from, &payload) {
            Ok((_, Some(to), _)) if to != me.incarnation => {}
            Ok((from, _, Message::Call { number, instance, epoch, body })) => {
                let call = move |body| Message::Call { number, instance, epoch, body };
                match long_calls::opened(&body) {
                    Some(Ok(body)) => {
                        let message = call(body);
                        fleet.mailbox.push_slowly(Input::Heard { from, message }).await;
                    }
                    Some(Err(name)) => {
                        task::spawn("long call", async move {
                            if let Some(body) = long_calls::fetched(&fleet, &name).await {
                                let message = call(body);
                                fleet.mailbox.push_slowly(Input::Heard { from, message }).await;
                            }
                        });
                    }
                    None => subscription.refuse(&from.name, Refused::Content),
                }
            }
            Ok((from, _, message)) => {
                fleet.mailbox.push_slowly(Input::Heard { from, message }).await;
            }
            Err(why) => subscription.refuse(&from, why),
        }
    }
}
