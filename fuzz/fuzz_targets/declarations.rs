//! Any JSON Schema is declared within its bound, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metamcp_core::declarations::fuzz_declarations(data));
