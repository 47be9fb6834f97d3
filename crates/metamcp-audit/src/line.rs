//! A line as it is read again: its frame, which is verified byte by byte, and its content, which is queried.
//! Owns: both readings.      Never: takes a line for valid whose bytes are not exactly what a writer makes of it.
//! In: a line without its newline.  Out: `Framed`, `Line`, or nothing.
//! Tests: `tests/damage.rs`.

use metamcp_types::date;
use serde_json::Value;

use crate::entry::Kind;
use crate::head::{Hash, Head};

/// Longest line that is read: values are cut far below this before they are written.
pub const MAX_LINE: usize = 1024 * 1024;

const BEGIN: &[u8] = b"{\"v\":1,\"seq\":";
const PREV: &[u8] = b",\"prev\":\"";
const HASH: &[u8] = b"\",\"hash\":\"";
const END: &[u8] = b"\"}";
/// Bytes from `,"prev"` on.
const TAIL: usize = PREV.len() + 64 + HASH.len() + 64 + END.len();

/// The part of a line that makes the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed {
    /// What it says of itself.
    pub head: Head,
    pub prev: Hash,
    /// Whether its hash is that of its bytes.
    pub is_intact: bool,
}

impl Framed {
    pub fn read(line: &[u8]) -> Option<Framed> {
        let rest = line.strip_prefix(BEGIN)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&rest[..digits]).ok()?;
        let seq: u64 = number.parse().ok()?;
        if number.len() > 1 && number.starts_with('0') {
            return None;
        }
        let at = line.len().checked_sub(TAIL).filter(|at| *at >= BEGIN.len() + digits)?;
        let tail = line[at..].strip_prefix(PREV)?;
        let (prev, tail) = tail.split_at(64);
        let (hash, tail) = tail.strip_prefix(HASH)?.split_at(64);
        if tail != END {
            return None;
        }
        let (prev, hash) = (Hash::from_hex(prev)?, Hash::from_hex(hash)?);
        // Up to and with the quote before `,"hash"`.
        let hashed = &line[..=line.len() - END.len() - 64 - HASH.len()];
        let is_intact = crate::digest(hashed) == hash;
        Some(Framed { head: Head { seq, hash }, prev, is_intact })
    }
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line(pub Value);

impl Line {
    pub fn read(line: &[u8]) -> Option<Line> {
        let line: Value = serde_json::from_slice(line).ok()?;
        (line.get("v")?.as_u64()? == 1).then_some(Line(line))
    }

    pub fn seq(&self) -> u64 {
        self.0["seq"].as_u64().unwrap_or(0)
    }

    /// RFC 3339, as written.
    pub fn time(&self) -> &str {
        self.0["time"].as_str().unwrap_or_default()
    }

    pub fn at_ms(&self) -> Option<u64> {
        date::unix_millis(self.time())
    }

    pub fn kind(&self) -> Option<Kind> {
        Kind::from_word(self.0["kind"].as_str()?)
    }

    pub fn verdict(&self) -> &str {
        self.0["verdict"].as_str().unwrap_or_default()
    }

    /// A text under `who`.
    pub fn who(&self, name: &str) -> &str {
        self.0["who"][name].as_str().unwrap_or_default()
    }

    /// A text under `what`.
    pub fn what(&self, name: &str) -> &str {
        self.0["what"][name].as_str().unwrap_or_default()
    }

    /// A number under `what`.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.0["what"][name].as_u64()
    }
}
