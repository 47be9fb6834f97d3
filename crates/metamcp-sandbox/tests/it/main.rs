//! Real workers: what they can do, what they cannot, and how they end.
#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start, wait and measure for themselves"
)]

#[path = "../bodies/sandbox.rs"]
mod bodies;
mod burdens;
mod common;
mod corpus;
mod hostile;
mod language;
mod limits;
mod lives;
mod program;

/// The body of the fuzz target, on a few streams of each direction.
#[test]
fn any_bytes_are_read_without_a_panic() {
    use metamcp_sandbox::protocol::{End, FromWorker, Level, ScriptError, ToWorker};
    let mut stream = vec![3];
    bodies::check(&stream);
    stream.clear();
    FromWorker::Log { level: Level::Warn, text: "a line".into() }.encode(&mut stream);
    FromWorker::Done { end: End::Error(ScriptError::default()), cpu: 1 }.encode(&mut stream);
    ToWorker::Reply { id: 1, answer: Ok("{}".into()) }.encode(&mut stream);
    for cut in 0..stream.len() {
        bodies::check(&stream[..cut]);
        let mut changed = stream.clone();
        changed[cut] ^= 0x55;
        bodies::check(&changed);
    }
}
