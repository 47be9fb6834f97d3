//! Real processes under real supervision. Everything waits for a condition with a deadline; nothing sleeps for a guess.

#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]

mod children;
mod containment;
mod isolation;
mod process_sandbox;
mod shutdown;
mod support;
