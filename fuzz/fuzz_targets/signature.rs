//! Any JSON Schema reads as one short visible line, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metamcp_core::signature::fuzz_signature(data));
