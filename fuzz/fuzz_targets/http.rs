//! Any request is judged and read without a panic, and never let in for a foreign host or page.
#![no_main]

#[path = "../../crates/metamcp-engine/tests/bodies/http.rs"]
mod http;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http::check(data));
