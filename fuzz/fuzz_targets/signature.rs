//! Any JSON Schema reads as one short visible line, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metamcp_tools::signature::fuzz_signature(data));
