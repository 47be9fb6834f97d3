//! Any history between the eras leaves no request without its one answer.
#![no_main]

#[path = "../../crates/metamcp-wire/tests/bodies/bridge.rs"]
mod bridge;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridge::check(data));
