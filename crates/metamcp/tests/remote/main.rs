//! The gateway as a process in front of remote servers: correct ones with every transport, hostile ones case by case,
//! networks that fail, invalid certificates, and logins.
//!
//! Servers are real sockets on this machine, and their execution counts are the ground truth.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start, wait and measure for themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "the whole binary is a test, which clippy cannot see outside test functions"
)]

mod audited;
mod auth_server;
mod hostile;
mod keyring;
mod login;
mod network;
mod openapi;
mod tls;
mod transports;
mod world;
