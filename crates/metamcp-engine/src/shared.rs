//! What gateways of a fleet have in common beside running servers, each part in a room of its own.
//! Owns: the rooms.      Never: decides who owns a server, sends a secret in clear.
//! In: the bus, and what this gateway knows.  Out: the same, known to all.
//! Tests: `metamcp/tests/fleet`, with a real nats-server.

mod lists;
mod logins;
mod results;

pub use lists::share as share_lists;
pub use logins::FleetLogins;
pub use results::FleetResults;
