//! How clients reach the gateway.
//! Owns: sessions and their transports.      Never: knows servers or tools.
//! In: bytes of clients.  Out: bytes to them, each message on its lane.
//! Tests: `metamcp/tests/`, with real clients.

pub mod http;
pub mod lanes;
pub mod modern;
pub mod session;
pub mod stdio;

use tokio::sync::mpsc;

use crate::gateway::Gateway;

pub use session::Session;

/// Why serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its end.
    ClientGone,
    /// A signal asked for it.
    Asked,
}

/// Waits until every child is gone and what was learnt is kept. `stop` was heard once before, and the ladder has
/// begun; two more words end it without ceremony.
async fn wind_up(gateway: &Gateway, stop: &mut mpsc::Receiver<()>) {
    let emptied = async {
        tokio::select! {
            () = gateway.router.emptied() => {}
            // The second word finds the ladder already begun; the third has no patience left.
            (Some(()), Some(())) = async { (stop.recv().await, stop.recv().await) } => {
                gateway.router.kill_all();
                gateway.router.emptied().await;
            }
        }
    };
    let kept = async {
        if let Some(habits) = &gateway.habits {
            habits.finish().await;
        }
    };
    tokio::join!(emptied, kept);
}
