//! What gateway and worker say to each other, as frames over one socket.
//! Owns: the bytes of both directions and their bounds.      Never: reads, writes, trusts a length.
//! In: messages, or bytes from the other side.  Out: bytes, or messages.
//! Tests: beside, and `fuzz/fuzz_targets/sandbox.rs`.
