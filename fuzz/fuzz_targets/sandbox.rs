//! Any bytes from a worker or from the gateway are read without a panic, the same in pieces as whole.
#![no_main]

#[path = "../../crates/metamcp-sandbox/tests/bodies/sandbox.rs"]
mod sandbox;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbox::check(data));
