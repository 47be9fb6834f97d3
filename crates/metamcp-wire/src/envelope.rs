//! One line as a JSON-RPC message: its kind, its id, and its parts as raw slices.
//! Owns: message kinds, ids.      Never: parses params or results, copies them.
//! In: one line.  Out: `Envelope`, or the `Defect` that makes it none.
//! Tests: `envelope/tests.rs`, `tests/differential.rs`, `fuzz/fuzz_targets/envelope.rs`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::object::{decoded, looks_like, text};
use crate::scan::{Defect, Kind, MAX_RESULT_DEPTH, Scanner};

/// Most messages in one batch: far beyond any client, and it bounds the responses we must collect.
pub const MAX_BATCH: usize = 1000;

/// Most members of a message: six are known, and storing the others must cost little for a hostile line.
pub const MAX_MEMBERS: usize = 256;

/// A message, its parts borrowed from the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope<'a> {
    Request {
        id: Id<'a>,
        method: Cow<'a, str>,
        /// An object or an array; absent when it was `null`.
        params: Option<&'a [u8]>,
    },
    Notification {
        method: Cow<'a, str>,
        /// An object or an array; absent when it was `null`.
        params: Option<&'a [u8]>,
    },
    Result {
        id: Id<'a>,
        result: &'a [u8],
    },
    /// An error response; without an id the request could not be parsed.
    Error {
        id: Option<Id<'a>>,
        error: &'a [u8],
    },
    /// Several messages at once, as revision 2025-03-26 allowed; each is valid JSON but not yet a message.
    Batch(Vec<&'a [u8]>),
}

impl<'a> Envelope<'a> {
    /// Parses one line, validating all of it in one pass.
    pub fn parse(line: &'a [u8]) -> Result<Self, Defect> {
        let mut scanner = Scanner::new(line);
        scanner.space();
        match scanner.peek() {
            b'{' => {
                let parts = Parts::read(&mut scanner)?;
                scanner.end()?;
                parts.envelope()
            }
            b'[' => {
                let elements = batch(&mut scanner)?;
                scanner.end()?;
                match elements.len() {
                    0 => Err(Defect { kind: Kind::BatchEmpty, at: 0 }),
                    1..=MAX_BATCH => Ok(Envelope::Batch(elements)),
                    _ => Err(Defect { kind: Kind::BatchLong, at: 0 }),
                }
            }
            _ => {
                scanner.scalar()?;
                scanner.end()?;
                Err(Defect { kind: Kind::NotMessage, at: 0 })
            }
        }
    }
}

/// The id of a request, as the JSON text of a string or a number: equal ids are equal texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id<'a> {
    raw: &'a [u8],
}

impl<'a> Id<'a> {
    /// The id written as `raw`, if that is a JSON string or number.
    pub fn new(raw: &'a [u8]) -> Option<Self> {
        if !matches!(raw.first(), Some(b'"' | b'-' | b'0'..=b'9')) {
            return None;
        }
        let mut scanner = Scanner::new(raw);
        scanner.scalar().ok()?;
        (scanner.at() == raw.len()).then_some(())?;
        scanner.end().ok()?;
        Some(Id { raw })
    }

    /// The JSON text, to be written back unchanged.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The number, if it is written as a plain integer: our ids are, and `1.0` or `"1"` is not one of them.
    pub fn as_u64(&self) -> Option<u64> {
        if self.raw.len() > 20 {
            return None;
        }
        self.raw.iter().try_fold(0_u64, |sum, byte| match byte {
            b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
            _ => None,
        })
    }

    /// The text, if it is a string.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        text(self.raw)
    }
}

/// The known members of a message.
const NAMES: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The members as found, before the kind is decided.
#[derive(Debug, Default)]
struct Parts<'a> {
    version: Option<Part<'a>>,
    id: Option<Part<'a>>,
    method: Option<Part<'a>>,
    params: Option<Part<'a>>,
    result: Option<Part<'a>>,
    error: Option<Part<'a>>,
    /// The first defect of the members. Reported last, because a text that is not JSON, or not
    /// JSON-RPC, is better described by that.
    defect: Option<Defect>,
}

#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    at: usize,
    raw: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(scanner: &mut Scanner<'a>) -> Result<Self, Defect> {
        let mut parts = Parts::default();
        let mut others = BTreeSet::new();
        scanner.step();
        scanner.space();
        if scanner.peek() == b'}' {
            scanner.step();
            return Ok(parts);
        }
        loop {
            let at = scanner.at();
            let key = scanner.key()?;
            let start = scanner.at();
            scanner.value(MAX_RESULT_DEPTH)?;
            let part = Part { at: start, raw: scanner.since(start) };
            let name = if key.escaped { decoded(key) } else { Cow::Borrowed(key.inner) };
            if let Some(slot) = parts.slot(&name) {
                if slot.replace(part).is_some() {
                    parts.blame(Kind::Duplicate, at);
                }
            } else if NAMES.iter().any(|known| looks_like(&name, known)) {
                parts.blame(Kind::LookAlike, at);
            } else if others.len() >= MAX_MEMBERS {
                parts.blame(Kind::Members, at);
            } else if !others.insert(name) {
                parts.blame(Kind::Duplicate, at);
            }
            scanner.space();
            if scanner.peek() == b'}' {
                scanner.step();
                return Ok(parts);
            }
            scanner.expect(b',')?;
            scanner.space();
        }
    }

    #[inline]
    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<Part<'a>>> {
        match name {
            b"jsonrpc" => Some(&mut self.version),
            b"id" => Some(&mut self.id),
            b"method" => Some(&mut self.method),
            b"params" => Some(&mut self.params),
            b"result" => Some(&mut self.result),
            b"error" => Some(&mut self.error),
            _ => None,
        }
    }

    #[cold]
    fn blame(&mut self, kind: Kind, at: usize) {
        self.defect.get_or_insert(Defect { kind, at });
    }

    fn envelope(self) -> Result<Envelope<'a>, Defect> {
        let Some(version) = self.version else {
            return Err(Defect { kind: Kind::VersionMissing, at: 0 });
        };
        if let Some(defect) = self.defect {
            return Err(defect);
        }
        if version.raw != b"\"2.0\"" && text(version.raw).as_deref() != Some("2.0") {
            return Err(version.defect(Kind::VersionWrong));
        }
        match (self.method, self.result, self.error) {
            (Some(method), None, None) => {
                let name = text(method.raw).ok_or(method.defect(Kind::Method))?;
                let params = self.params.map(Part::params).transpose()?.flatten();
                Ok(match self.id {
                    None => Envelope::Notification { method: name, params },
                    Some(id) => Envelope::Request { id: id.id()?, method: name, params },
                })
            }
            (None, Some(result), None) => {
                let id = self.id.ok_or(result.defect(Kind::IdMissing))?.id()?;
                Ok(Envelope::Result { id, result: result.raw })
            }
            (None, None, Some(error)) => {
                if error.raw.first() != Some(&b'{') {
                    return Err(error.defect(Kind::Error));
                }
                let id = self.id.filter(|id| id.raw != b"null").map(Part::id).transpose()?;
                Ok(Envelope::Error { id, error: error.raw })
            }
            (None, None, None) => Err(Defect { kind: Kind::Shapeless, at: 0 }),
            (_, Some(part), _) | (_, _, Some(part)) => Err(part.defect(Kind::Mixed)),
        }
    }
}

impl<'a> Part<'a> {
    fn defect(&self, kind: Kind) -> Defect {
        Defect { kind, at: self.at }
    }

    fn id(self) -> Result<Id<'a>, Defect> {
        match self.raw.first() {
            Some(b'"' | b'-' | b'0'..=b'9') => Ok(Id { raw: self.raw }),
            _ => Err(self.defect(Kind::Id)),
        }
    }

    fn params(self) -> Result<Option<&'a [u8]>, Defect> {
        match self.raw.first() {
            Some(b'{' | b'[') => Ok(Some(self.raw)),
            Some(b'n') => Ok(None),
            _ => Err(self.defect(Kind::Params)),
        }
    }
}

/// The elements of the array that starts here. One more than allowed is kept to detect too many.
fn batch<'a>(scanner: &mut Scanner<'a>) -> Result<Vec<&'a [u8]>, Defect> {
    let mut elements = Vec::new();
    scanner.step();
    scanner.space();
    if scanner.peek() == b']' {
        scanner.step();
        return Ok(elements);
    }
    loop {
        let start = scanner.at();
        scanner.value(MAX_RESULT_DEPTH)?;
        if elements.len() <= MAX_BATCH {
            elements.push(scanner.since(start));
        }
        scanner.space();
        if scanner.peek() == b']' {
            scanner.step();
            return Ok(elements);
        }
        scanner.expect(b',')?;
        scanner.space();
    }
}

#[cfg(test)]
mod tests;
