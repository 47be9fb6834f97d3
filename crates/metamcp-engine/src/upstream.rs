//! How servers are reached: one connection each, over the pipes of a contained child process or over HTTP.
//! Owns: the bytes to and from a server, its process.      Never: decides whether a call is made, retried or refused.
//! In: a server's configuration.  Out: a `Connection`, and what it says through `Listener`.
//! Tests: `metamcp/tests/`, with real processes.

pub mod connection;
pub mod container_reaper;
pub mod era_cache;
pub mod instructions_cache;
pub mod launch;
pub mod listing;
pub mod outbound;
pub mod remote;

pub use connection::{Connection, Listener, Reply};
pub use launch::installs;
pub use remote::Remote;

use std::sync::Arc;

/// What is behind a connection, and how it is ended.
#[derive(Clone)]
pub enum Link {
    /// A process of ours.
    Child(metamcp_child::Handle),
    /// A server elsewhere.
    Remote(Arc<Remote>),
}

impl Link {
    /// Ends it without ceremony.
    pub fn kill_now(&self) {
        match self {
            Link::Child(handle) => handle.kill_now(),
            Link::Remote(remote) => remote.stop(false),
        }
    }

    /// Ends it politely: a process by the ladder, a session by telling its server.
    pub async fn stop(&self) {
        match self {
            Link::Child(handle) => handle.stop(metamcp_child::Escalation::graceful()).await,
            Link::Remote(remote) => remote.stop(true),
        }
    }

    /// A number that moves while whatever is behind it shows life.
    pub fn life(&self) -> u64 {
        match self {
            Link::Child(handle) => handle.activity(),
            Link::Remote(_) => 0,
        }
    }
}
