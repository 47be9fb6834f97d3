//! How clients reach the gateway.
//! Owns: sessions and their transports.      Never: knows servers or tools.
//! In: bytes of clients.  Out: bytes to them, each message on its lane.
//! Tests: `metamcp/tests/`, with real clients.

pub mod http;
mod project_approval;
pub mod response_streams;
pub mod session;
pub mod stateless;
pub mod stdio;

use std::time::Duration;

use metamcp_calls::shutdown::{Event, Phase, Shutdown};
use tokio::sync::mpsc;

use crate::gateway::Gateway;

pub use session::Session;

/// Why serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its end.
    ClientGone,
    /// A signal asked for it.
    Requested,
}

/// How often it is looked whether calls in flight are done.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Waits until every child is gone and what was learnt is kept. The escalation has begun; `shutdown` knows how many
/// signals it takes to kill what is left.
async fn wind_up(gateway: &Gateway, stop: &mut mpsc::Receiver<()>, mut shutdown: Shutdown) {
    let now = || gateway.router.clock.now();
    let killed = async {
        while shutdown.phase() != Phase::Killing {
            match stop.recv().await {
                Some(()) => shutdown.hear(Event::Signal, now()),
                None => std::future::pending().await,
            };
        }
    };
    let emptied = async {
        tokio::select! {
            () = gateway.router.emptied() => {}
            () = killed => {
                gateway.router.kill_all();
                gateway.router.emptied().await;
            }
        }
    };
    let kept = async {
        if let Some(usage_history) = &gateway.usage_history {
            usage_history.finish().await;
        }
    };
    tokio::join!(emptied, kept);
}
