//! Any bytes are a description of an API or none, and every tool of one takes any arguments or says why not.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metamcp_openapi::fuzz_description(data));
