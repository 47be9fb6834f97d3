//! Clients, connectors and the user's daemon, as real processes.
//! Owns: what a client sees while daemons come and go.      Never: looks into a process.
//! In: stand-ins for the daemon, real ones, signals, folders that will not do.  Out: what clients and daemons heard.
//! Tests: these.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]

mod admin;
mod apart;
mod calls;
mod commands;
mod connector_death;
mod connector_refusals;
mod connector_relay;
mod connector_start;
mod crowd;
mod fairness;
mod handover;
mod http;
mod kills;
mod listening;
mod page;
mod questions;
mod reload;
mod stand_in;
mod top;
