//! Any source is made runnable or refused, and what is made runnable is JavaScript; never a panic or a hang.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metamcp_script::fuzz_script(data));
