//! Connections to servers: one each, over the transport that its configuration names.
//! Owns: the bytes to and from a server, its process.      Never: decides whether a call is made, retried or refused.
//! In: a server's configuration.  Out: a `Connection`, and what it receives through `Listener`.
//! Tests: `metamcp/tests/`, with real processes.

pub mod connection;
pub mod container_reaper;
pub mod era_cache;
pub mod http;
pub mod instructions_cache;
pub mod launch;
pub mod listing;
pub mod openapi;
pub mod outbound;
pub mod remote;
pub(crate) mod server_cache;
pub mod sse;
pub mod stdio;
pub mod transport;

pub use connection::{Connection, Listener, Reply};
pub use remote::Mirrors;
pub use stdio::installs;
pub use transport::Transport;
