//! The gateway as a process in front of remote servers: honest ones in every speech, hostile ones item by item, networks
//! that fail, certificates that are wrong, and logins.
//!
//! Servers are real sockets on this machine, and what they count as executed is the truth.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start, wait and measure for themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "the whole binary is a test, which clippy cannot see outside test functions"
)]

mod auth_server;
mod hostile;
mod keyring;
mod login;
mod network;
mod tls;
mod transports;
mod world;
