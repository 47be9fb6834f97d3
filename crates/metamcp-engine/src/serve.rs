//! How clients reach the gateway.
//! Owns: sessions and their transports.      Never: knows servers or tools.
//! In: bytes of a client.  Out: bytes to it, one writer each.
//! Tests: `metamcp/tests/`, with real clients.

pub mod session;
pub mod stdio;

pub use session::Session;
