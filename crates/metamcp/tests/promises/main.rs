//! What the gateway promises under load and faults, each verified by a test that can fail.
//! Owns: promises about behaviour; the benchmark covers speed.      Never: trusts the gateway's own claims.
//! In: hostile children, signals, corrupt files.  Out: journals and process lists compared with what callers were told.
//! Tests: these.
//!
//! The usual run is scaled down to minutes on two busy cores. `METAMCP_FULL=1` runs the promised numbers,
//! `METAMCP_NIGHTLY=1` more; `METAMCP_SEED` repeats a run. Time is asserted only where the promise is a time, and
//! then against a control measured at the same moment, so that a busy machine does not fail a test.

#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]

mod breaker;
mod cache;
mod crashes;
mod discovery;
mod drain;
mod first_call;
mod floods;
mod history;
mod kill;
#[cfg(target_os = "linux")]
mod limits;
mod pauses;
mod pool;
mod reload;
mod secrets;
mod signals;
mod world;
