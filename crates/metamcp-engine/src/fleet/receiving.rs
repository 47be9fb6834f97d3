//! What other nodes say, on its way to the state machine.
//! Owns: the subscriptions.      Never: acts on a message.
//! In: the bus.  Out: inputs.
//! Tests: `metamcp/tests/fleet`.

use std::sync::{Arc, Weak};

use metamcp_fleet::identity::NodeRef;

use super::Fleet;
use super::bus::{Bus, BusError, Heard, Subscription, Undelivered};
use super::mailbox::Input;
use super::words;
use crate::task;

/// Messages for one node, and what nodes say of themselves.
pub(super) const NODE: &str = "node";

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
        bus.flush().await?;
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
    loop {
        let heard = tokio::select! {
            heard = subscription.next() => heard,
            () = async { drop(stopping.wait_for(|is_stopped| *is_stopped).await) } => {
                subscription.stop().await;
                None
            }
        };
        let (Some(Heard { from, payload, .. }), Some(fleet)) = (heard, fleet.upgrade()) else {
            return;
        };
        match words::read_message(&from, &payload) {
            Ok((from, to, message)) => {
                if to.is_none_or(|to| to == me.incarnation) {
                    fleet.mailbox.push_slowly(Input::Heard { from, message }).await;
                }
            }
            Err(why) => subscription.refuse(&from, why),
        }
    }
}
