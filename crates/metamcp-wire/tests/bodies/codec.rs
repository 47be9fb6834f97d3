//! Any stream in any pieces: the lines are those of a splitter that sees the whole stream.

use metamcp_wire::envelope::Envelope;
use metamcp_wire::frame::{Line, Lines, skim};

/// The first byte sets the limit, the second how many bytes of what follows are sizes of pieces; the rest is the stream.
pub(crate) fn check(data: &[u8]) {
    let [limit, pieces, rest @ ..] = data else { return };
    let (sizes, stream) = rest.split_at(rest.len().min(usize::from(*pieces)));
    let limit = usize::from(*limit);
    let expected = naive(stream, limit);
    assert_eq!(chunked(stream, limit, sizes), expected, "in pieces of {sizes:?}");
    assert_eq!(chunked(stream, limit, &[1]), expected, "byte by byte");
    assert_eq!(chunked(stream, limit, &[]), expected, "at once");
}

/// The lines of a stream that arrives in pieces of these sizes, over and over.
fn chunked(stream: &[u8], limit: usize, sizes: &[u8]) -> Vec<Line> {
    let mut lines = Lines::new(limit);
    let mut found = Vec::new();
    let mut rest = stream;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |&size| usize::from(size).max(1));
        let (piece, after) = rest.split_at(size.min(rest.len()));
        lines.buffer().extend_from_slice(piece);
        rest = after;
        while let Some(line) = lines.next_line() {
            found.push(line);
        }
    }
    while let Some(line) = lines.finish() {
        found.push(line);
    }
    found
}

/// The same by splitting the whole stream at once.
fn naive(stream: &[u8], limit: usize) -> Vec<Line> {
    stream.split(|&byte| byte == b'\n').filter_map(|line| naive_line(line, limit)).collect()
}

fn naive_line(line: &[u8], limit: usize) -> Option<Line> {
    if line.len() > limit {
        let skim = skim(line);
        let request = skim.has_method();
        let id = skim.into_id();
        let bare = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        match Envelope::parse(bare) {
            Ok(Envelope::Request { id: wanted, .. }) => {
                assert!(request);
                assert!(wanted.raw().len() > 128 || id.as_deref() == Some(wanted.raw()));
            }
            Ok(Envelope::Result { id: wanted, .. } | Envelope::Error { id: Some(wanted), .. }) => {
                assert!(!request);
                assert!(wanted.raw().len() > 128 || id.as_deref() == Some(wanted.raw()));
            }
            Ok(Envelope::Notification { .. }) => assert!(request && id.is_none()),
            Ok(Envelope::Error { id: None, .. } | Envelope::Batch(_)) => assert!(id.is_none()),
            Err(_) => {}
        }
        return Some(Line::Oversize { id, request, length: line.len() as u64 });
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let blank = line.iter().all(|byte| b" \t\r".contains(byte));
    (!blank).then(|| Line::Message(line.to_vec().into()))
}
