//! Arbitrary bytes from either side: decoding never panics, and decoded frames encode to the same bytes.

use metamcp_sandbox::protocol::{Frames, FromWorker, ProtocolViolation, ToWorker};

/// Checks one stream, whole and in chunks whose size its first byte determines.
pub(crate) fn check(data: &[u8]) {
    let whole = frames(data, data.len().max(1));
    let step = usize::from(data.first().copied().unwrap_or(1)).max(1);
    assert_eq!(whole, frames(data, step), "pieces of {step}");
    for frame in whole.0.iter().map(Vec::as_slice).chain([data]) {
        if let Ok(message) = FromWorker::decode(frame) {
            let mut out = Vec::new();
            message.encode(&mut out);
            assert_eq!(&out[4..], frame);
        }
        if let Ok(message) = ToWorker::decode(frame) {
            let mut out = Vec::new();
            message.encode(&mut out);
            assert_eq!(&out[4..], frame);
        }
    }
}

/// The frames of a stream that arrives in chunks, and the error that ended it.
fn frames(data: &[u8], step: usize) -> (Vec<Vec<u8>>, Option<ProtocolViolation>) {
    let mut frames = Frames::default();
    let mut seen = Vec::new();
    for piece in data.chunks(step) {
        frames.push(piece);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => seen.push(frame.to_vec()),
                Ok(None) => break,
                Err(violation) => return (seen, Some(violation)),
            }
        }
        assert!(frames.waiting() <= data.len());
    }
    (seen, None)
}
