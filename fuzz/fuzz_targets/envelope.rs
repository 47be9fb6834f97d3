//! Any text is read the way `serde_json` reads it.
#![no_main]

#[path = "../../crates/metamcp-wire/tests/bodies/envelope.rs"]
mod envelope;

libfuzzer_sys::fuzz_target!(|data: &[u8]| envelope::check(data));
