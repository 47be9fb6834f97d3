//! How clients reach the gateway.
//! Owns: sessions and their transports.      Never: knows servers or tools.
//! In: bytes of clients.  Out: bytes to them, each message on its lane.
//! Tests: `metamcp/tests/`, with real clients.

pub mod http;
pub mod lanes;
pub mod session;
pub mod stdio;

pub use session::Session;
