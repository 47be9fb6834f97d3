//! How servers are reached: one connection each, over the pipes of a contained child process.
//! Owns: the bytes to and from a server, its process.      Never: decides whether a call is made, retried or refused.
//! In: a server's configuration.  Out: a `Connection`, and what it says through `Listener`.
//! Tests: `metamcp/tests/`, with real processes.

pub mod connection;
pub mod eras;
pub mod launch;
pub mod listing;

pub use connection::{Connection, Listener, Reply};
