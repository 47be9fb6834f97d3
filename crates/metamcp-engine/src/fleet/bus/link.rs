//! Whether the bus is reached.
//! Owns: the state, and what the bus last complained of.      Never: connects.
//! In: events of the client.  Out: a state to watch; lines in the log.
//! Tests: `metamcp/tests/fleet/messages.rs`.

use std::sync::Arc;

use async_nats::{Event, ServerError};
use metamcp_types::text;
use tokio::sync::watch;

/// The longest complaint of a bus server that is logged.
const MAX_COMPLAINT: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    pub is_up: bool,
    /// How often the bus was reached. What was published before may be lost, and who watches has to look again.
    pub connects: u64,
}

#[derive(Clone)]
pub(super) struct Links {
    state: Arc<watch::Sender<Link>>,
}

impl Default for Links {
    fn default() -> Links {
        Links { state: Arc::new(watch::Sender::new(Link::default())) }
    }
}

impl Links {
    pub(super) fn subscribe(&self) -> watch::Receiver<Link> {
        self.state.subscribe()
    }

    pub(super) fn event(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.state.send_modify(|link| {
                    link.is_up = true;
                    link.connects += 1;
                });
                tracing::info!("the bus is reached");
            }
            Event::Disconnected | Event::Closed => {
                self.state.send_modify(|link| link.is_up = false);
                tracing::warn!("the bus is not reached; the gateway goes on with what it owns");
            }
            Event::ServerError(ServerError::AuthorizationViolation) => {
                tracing::error!(
                    "the bus does not let this gateway in any more: check its credentials and account"
                );
            }
            Event::ServerError(ServerError::Other(complaint)) => {
                let complaint = text::clean(complaint, MAX_COMPLAINT);
                let next = if complaint.to_lowercase().contains("permissions violation") {
                    "; the account of this gateway lacks that permission (docs/fleet.md)"
                } else {
                    ""
                };
                tracing::error!("the bus says: {complaint}{next}");
            }
            Event::ServerError(ServerError::SlowConsumer(_)) | Event::SlowConsumer(_) => {
                tracing::warn!(
                    "messages of the bus were dropped, because they came faster than this gateway reads"
                );
            }
            Event::ClientError(error) => tracing::warn!("the connection to the bus: {error}"),
            Event::LameDuckMode => {
                tracing::info!("a bus server is about to stop; another one is looked for");
            }
            Event::Draining => {}
        }
    }
}
