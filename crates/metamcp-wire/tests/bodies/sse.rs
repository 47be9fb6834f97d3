//! Any stream in any pieces: the events are those of a reader that sees the whole stream.

use bytes::Bytes;
use metamcp_wire::sse::{Event, Events};

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

type Seen = (Vec<Event>, Option<String>, Option<u64>);

fn chunked(stream: &[u8], limit: usize, sizes: &[u8]) -> Seen {
    let mut events = Events::new(limit);
    let mut found = Vec::new();
    let mut rest = stream;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |&size| usize::from(size).max(1));
        let (piece, after) = rest.split_at(size.min(rest.len()));
        events.push(piece);
        rest = after;
        found.extend(std::iter::from_fn(|| events.next_event()));
    }
    (found, events.last_id().map(str::to_owned), events.retry())
}

/// The same with everything at hand: lines first, then fields, then events.
fn naive(stream: &[u8], limit: usize) -> Seen {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines = vec![Vec::new()];
    let mut before = 0;
    for &byte in stream {
        match byte {
            b'\n' if before == b'\r' => {}
            b'\n' | b'\r' => lines.push(Vec::new()),
            byte => lines.last_mut().expect("there is always a last line").push(byte),
        }
        before = byte;
    }
    // What follows the last end of a line has not come yet.
    lines.pop();
    let (mut found, mut id, mut retry) = (Vec::new(), None, None);
    let (mut data, mut kind) = (Vec::<Vec<u8>>::new(), String::new());
    for line in lines {
        if line.is_empty() {
            let joined = data.join(&b'\n');
            if joined.len() > limit {
                found.push(Event::Oversize { bytes: joined.len() as u64 });
            } else if !joined.is_empty() {
                found.push(Event::Message { kind: kind.clone(), data: Bytes::from(joined) });
            }
            (data, kind) = (Vec::new(), String::new());
            continue;
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = match colon {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => data.push(value.to_vec()),
            _ if line.len() > 2048 => {}
            b"event" if value.len() > 128 => "?".clone_into(&mut kind),
            b"event" => kind = String::from_utf8_lossy(value).into_owned(),
            b"id" if value.len() <= 1024 && value.iter().all(|&byte| byte >= b' ') => {
                if let Ok(text) = std::str::from_utf8(value) {
                    id = Some(text.to_owned()).filter(|text| !text.is_empty());
                }
            }
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let text = std::str::from_utf8(value).expect("digits are text");
                retry = text.parse().ok().or(retry);
            }
            _ => {}
        }
    }
    (found, id, retry)
}
