//! How clients reach the gateway.
//! Owns: sessions and their transports.      Never: knows servers or tools.
//! In: bytes of clients.  Out: bytes to them, each message on its stream.
//! Tests: `metamcp/tests/`, with real clients.

mod client_roots;
pub mod daemon;
pub mod daemon_status;
pub mod http;
mod project_approval;
pub mod response_streams;
pub mod session;
pub mod stateless;
pub mod stdio;

use std::time::Duration;

use metamcp_calls::shutdown::{Event, Phase, Shutdown};
use tokio::sync::mpsc;

use crate::gateway::Machine;

pub use session::Session;

/// Why serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its end.
    ClientGone,
    /// A signal requested it.
    Requested,
}

/// How often the drain checks whether calls in flight have ended.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Waits until every child is gone and the usage history is saved. The escalation has begun; `shutdown` knows how many
/// signals it takes to kill the rest.
async fn wind_up(machine: &Machine, stop: &mut mpsc::Receiver<()>, mut shutdown: Shutdown) {
    let now = || machine.router.clock.now();
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
            () = machine.router.emptied() => {}
            () = killed => {
                machine.router.kill_all();
                machine.router.emptied().await;
            }
        }
    };
    tokio::join!(emptied, machine.saved());
}
