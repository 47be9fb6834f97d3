//! The gateway as a process between a client and children that are hostile, or merely broken.
//!
//! `matrix` checks every hazard of the chaos child against its expectation; each other module is named after a hazard
//! and prevents regressions. Children are real processes, and their journals are the ground truth.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start, wait and measure for themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "the whole binary is a test, which clippy cannot see outside test functions"
)]

mod apps;
mod burdens;
mod cancel;
mod crash;
mod direct;
mod eras;
mod evict;
mod fidelity;
#[cfg(target_os = "linux")]
mod frames;
mod gateway;
mod identity;
mod ids;
mod lines;
mod listing;
mod logging;
mod matrix;
mod progress;
mod scripts;
mod server_requests;
mod shutdown;
mod slow;
mod surroundings;
mod tasks;
