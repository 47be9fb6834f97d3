//! Any stream of server-sent events in any pieces gives the same events.
#![no_main]

#[path = "../../crates/metamcp-wire/tests/bodies/sse.rs"]
mod sse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sse::check(data));
