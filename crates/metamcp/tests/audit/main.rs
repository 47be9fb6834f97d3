//! The audit log as real processes leave it: every kind of event, full disks, kills.
//! Owns: what stands in the log after something happened.      Never: looks into a process.
//! In: gateways, daemons and commands with the log switched on.  Out: the files in the home, and what the commands say of them.
//! Tests: these.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]

mod commands;
mod full_disk;
mod kills;
mod lines;
mod logged;
