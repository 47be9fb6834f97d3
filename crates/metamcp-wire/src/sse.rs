//! An incremental parser of server-sent events.
//! Owns: lines, fields and the limit of one event.      Never: reads anything, interprets an event.
//! In: bytes of a stream.  Out: `Event`s in order; also the last id and the reconnection delay.
//! Tests: below; `tests/differential.rs` and `fuzz/` compare it with a parser of the whole stream.
//!
//! Written by hand because the stream is untrusted: the memory it can take is bounded, field by field, and only an event
//! that is too long is dropped. `sse-stream`, which the SDK uses, has no limit.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

/// Longest id stored: it goes back into a header.
const MAX_ID: usize = 1024;
/// Longest event type stored; the protocol has two short ones.
const MAX_KIND: usize = 128;
/// Longest field name, with its colon: a longer one is unknown, and not stored.
const MAX_OTHER: usize = 2048;
/// The byte order mark.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// With data.
    Message {
        /// Its type; empty stands for `message`.
        kind: String,
        /// Its lines of data, joined.
        data: Bytes,
    },
    /// Longer than the limit; its data was discarded.
    Oversize { bytes: u64 },
}

#[derive(Debug)]
pub struct Events {
    limit: usize,
    found: VecDeque<Event>,
    /// The current line so far; of a data line only what comes before its value.
    line: Vec<u8>,
    kind_of_line: LineKind,
    data: BytesMut,
    has_data: bool,
    /// The length of the data, including what was discarded.
    length: u64,
    kind: String,
    last_id: Option<String>,
    retry: Option<u64>,
    /// A line ended with CR: an LF that follows belongs to it.
    after_return: bool,
    /// Nothing has come yet but maybe a part of the byte order mark.
    opening: Option<usize>,
}

/// The kind of the current line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Open,
    /// Data, after the colon, and after the one space behind it once something has come.
    Data {
        begun: bool,
    },
    /// To be ignored.
    Ignored,
}

impl Events {
    /// One event may have this many bytes of data.
    pub fn new(limit: usize) -> Events {
        Events {
            limit,
            found: VecDeque::new(),
            line: Vec::new(),
            kind_of_line: LineKind::Open,
            data: BytesMut::new(),
            has_data: false,
            length: 0,
            kind: String::new(),
            last_id: None,
            retry: None,
            after_return: false,
            opening: Some(0),
        }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, mut piece: &[u8]) {
        while let (Some(seen), Some(&byte)) = (self.opening, piece.first()) {
            if MARK[seen] == byte {
                piece = &piece[1..];
                self.opening = Some(seen + 1).filter(|&seen| seen < MARK.len());
            } else {
                self.opening = None;
                self.text(&MARK[..seen]);
            }
        }
        while !piece.is_empty() {
            if std::mem::take(&mut self.after_return) && piece[0] == b'\n' {
                piece = &piece[1..];
                continue;
            }
            match memchr2(b'\n', b'\r', piece) {
                Some(end) => {
                    self.text(&piece[..end]);
                    self.after_return = piece[end] == b'\r';
                    piece = &piece[end + 1..];
                    self.end_line();
                }
                None => {
                    self.text(piece);
                    return;
                }
            }
        }
    }

    /// The next complete event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.found.pop_front()
    }

    /// The id of the newest event that had one, with or without data.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The reconnection delay that the server asks for, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    fn text(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            match self.kind_of_line {
                LineKind::Ignored => return,
                LineKind::Data { begun } => {
                    if !begun {
                        self.kind_of_line = LineKind::Data { begun: true };
                        text = text.strip_prefix(b" ").unwrap_or(text);
                    }
                    return self.more_data(text);
                }
                LineKind::Open => {
                    // Up to the colon of `data:` byte by byte, so that a long value is never stored twice.
                    let room = b"data:".len().saturating_sub(self.line.len()).max(1);
                    let (head, rest) = text.split_at(room.min(text.len()));
                    self.line.extend_from_slice(head);
                    text = rest;
                    if self.line.starts_with(b":") || self.line.len() > MAX_OTHER {
                        self.line.clear();
                        self.kind_of_line = LineKind::Ignored;
                    } else if self.line == b"data:" {
                        self.line.clear();
                        self.begin_data();
                        self.kind_of_line = LineKind::Data { begun: false };
                    } else if self.line.len() > b"data:".len() {
                        let room = MAX_OTHER + 1 - self.line.len().min(MAX_OTHER);
                        let (head, rest) = text.split_at(room.min(text.len()));
                        self.line.extend_from_slice(head);
                        text = rest;
                    }
                }
            }
        }
    }

    fn begin_data(&mut self) {
        if self.has_data {
            self.more_data(b"\n");
        }
        self.has_data = true;
    }

    fn more_data(&mut self, text: &[u8]) {
        self.length += text.len() as u64;
        if self.length > self.limit as u64 {
            self.data = BytesMut::new();
        } else {
            self.data.extend_from_slice(text);
        }
    }

    fn end_line(&mut self) {
        let kind = std::mem::replace(&mut self.kind_of_line, LineKind::Open);
        if kind != LineKind::Open {
            return;
        }
        if self.line.is_empty() {
            return self.end_event();
        }
        let line = std::mem::take(&mut self.line);
        if line.len() > MAX_OTHER {
            return;
        }
        let (name, value) = match memchr::memchr(b':', &line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => self.begin_data(),
            b"event" => {
                let known = value.len() <= MAX_KIND;
                self.kind =
                    if known { String::from_utf8_lossy(value).into_owned() } else { "?".into() };
            }
            b"id" => {
                let fits = value.len() <= MAX_ID && value.iter().all(|&byte| byte >= b' ');
                if let (true, Ok(id)) = (fits, std::str::from_utf8(value)) {
                    self.last_id = Some(id.to_owned()).filter(|id| !id.is_empty());
                }
            }
            b"retry" => {
                let digits = std::str::from_utf8(value).ok();
                let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                self.retry = digits.and_then(|text| text.parse().ok()).or(self.retry);
            }
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let (kind, data) = (std::mem::take(&mut self.kind), self.data.split().freeze());
        let length = std::mem::take(&mut self.length);
        self.has_data = false;
        if length > self.limit as u64 {
            self.found.push_back(Event::Oversize { bytes: length });
        } else if !data.is_empty() {
            self.found.push_back(Event::Message { kind, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stream: &[u8]) -> (Vec<Event>, Option<String>, Option<u64>) {
        let mut events = Events::new(64);
        events.push(stream);
        let found = std::iter::from_fn(|| events.next_event()).collect();
        (found, events.last_id().map(str::to_owned), events.retry())
    }

    fn message(kind: &str, data: &str) -> Event {
        Event::Message { kind: kind.to_owned(), data: Bytes::copy_from_slice(data.as_bytes()) }
    }

    #[test]
    fn events_as_the_standard_has_them() {
        for (stream, expected) in [
            ("data: x\n\n", vec![message("", "x")]),
            ("data:x\r\rdata:  y\r\n\r\n", vec![message("", "x"), message("", " y")]),
            ("\u{feff}event: endpoint\ndata: /m\n\n", vec![message("endpoint", "/m")]),
            ("data: a\ndata\ndata: b\n\n", vec![message("", "a\n\nb")]),
            (": ping\n\n:\n\n", vec![]),
            ("id: 7\ndata:\n\n", vec![]),
            ("data: cut off\n", vec![]),
            ("event: x\n\ndata: y\n\n", vec![message("", "y")]),
            ("nonsense\ndatax: 1\n\ndata: z\n\n", vec![message("", "z")]),
        ] {
            assert_eq!(all(stream.as_bytes()).0, expected, "{stream:?}");
        }
    }

    #[test]
    fn ids_and_pauses_stand_beside_the_events() {
        let (_, id, retry) = all(b"id: 1\nretry: 250\n\nid: a\0b\nretry: 5s\ndata: x\n\n");
        assert_eq!((id.as_deref(), retry), (Some("1"), Some(250)));
        assert_eq!(all(b"id: 1\n\nid\n\n").1, None);
    }

    #[test]
    fn oversized_events_are_counted_and_dropped() {
        let mut events = Events::new(64);
        for _ in 0..1000 {
            events.push(b"data: 0123456789\n");
        }
        assert!(events.data.capacity() < 4096);
        events.push(b"\ndata: y\n\n");
        assert_eq!(events.next_event(), Some(Event::Oversize { bytes: 1000 * 11 - 1 }));
        assert_eq!(events.next_event(), Some(message("", "y")));
        events.push(&vec![b'x'; 100_000]);
        assert!(events.line.capacity() < 10_000);
    }
}
