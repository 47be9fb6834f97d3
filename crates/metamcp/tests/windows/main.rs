//! The program on Windows, as a person and a client use it: on that system, or under Wine by `cargo xtask test --windows`.
//!
//! What needs other programs finds them in `PATH`, or by variables, which that command sets: `TEST_NODE` is a folder with
//! `node.exe`, `TEST_PYTHON` one with `python.exe`, `TEST_HOSTILE` the program of the child tests; `TEST_KILLS` is how often
//! the gateway is killed; `TEST_WINE` is set where this is not Windows.

#![cfg(windows)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]
#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]

mod clients;
#[cfg(feature = "hardened")]
mod code;
mod commands;
mod containment;
mod daemon;
mod servers;
mod signals;
mod world;
