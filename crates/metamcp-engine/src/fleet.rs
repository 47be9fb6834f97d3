//! This gateway as one of many: the bus between them, and what the state machine of `metamcp-fleet` decides, done.
//! Owns: the connection to the bus.      Never: decides what a node does; knows how a server is called.
//! In: settings.  Out: the bus.
//! Tests: `metamcp/tests/fleet`.

pub mod bus;
pub mod operator;
