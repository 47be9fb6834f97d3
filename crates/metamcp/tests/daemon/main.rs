//! Clients, connectors and the user's daemon, as real processes.
//! Owns: what a client sees while daemons come and go.      Never: looks into a process.
//! In: stand-ins for the daemon, real ones, signals, folders that will not do.  Out: what clients and daemons heard.
//! Tests: these.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]

mod commands;
mod connector_death;
mod connector_refusals;
mod connector_relay;
mod connector_start;
mod stand_in;
mod kills;
mod apart;
mod crowd;
mod fairness;
mod http;
mod listening;
mod questions;
