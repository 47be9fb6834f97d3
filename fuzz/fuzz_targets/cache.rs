//! Any cache file is used or put aside, never a panic, never half a list.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metamcp_engine::catalog::schema_cache::fuzz_cache(data));
