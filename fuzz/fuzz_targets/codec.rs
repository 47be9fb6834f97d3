//! Any stream in any pieces splits into the same lines.
#![no_main]

#[path = "../../crates/metamcp-wire/tests/bodies/codec.rs"]
mod codec;

libfuzzer_sys::fuzz_target!(|data: &[u8]| codec::check(data));
