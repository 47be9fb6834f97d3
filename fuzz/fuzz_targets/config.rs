//! Any `.mcp.json` is read or refused, never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metamcp_config::config::fuzz_config(data));
