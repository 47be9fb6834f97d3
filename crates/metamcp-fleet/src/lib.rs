//! A fleet: many gateways that share servers, on a bus that loses, repeats and delays. One state machine per gateway,
//! [`node::Node`], says what to do; the engine does it.
//! Pure: no I/O, no clock, no environment. The protocol and its reasons: docs/design/0012-a-fleet.md.

pub mod directory;
pub mod drain;
pub mod identity;
pub mod lease;
pub mod message;
pub mod node;
pub mod ordered;
pub mod placement;
pub mod routing;
pub mod serving;
pub mod timing;
pub mod window;
