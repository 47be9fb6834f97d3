//! Any JSON Schema is declared within its bound, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metamcp_tools::declarations::fuzz_declarations(data));
