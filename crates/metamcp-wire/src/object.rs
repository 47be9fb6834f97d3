//! Reads raw JSON without building it: members, elements, text, and edits that leave all other bytes alone.
//! Owns: decoding of names and strings, edits of single members.      Never: validates what was validated, panics on what was not.
//! In: raw JSON that `Envelope::parse` or `scan::check` accepted.  Out: slices of it, or a new text.
//! Tests: `object/tests.rs`, `tests/differential.rs`.

mod strict;

use std::borrow::Cow;

use crate::scan::{Defect, Kind, Scanner, Token};

pub use strict::{strict_value, unambiguous};

/// The members of an object in order, names decoded, values raw. Empty when `raw` is no object.
pub fn members(raw: &[u8]) -> Members<'_> {
    Members { spans: Spans::new(raw, b'{') }
}

/// The elements of an array in order, raw. Empty when `raw` is no array.
pub fn elements(raw: &[u8]) -> Elements<'_> {
    Elements { spans: Spans::new(raw, b'[') }
}

/// The values of the wanted members of an object.
///
/// A wanted member that occurs twice is a defect, and so is a member that a careless parser would
/// take for a wanted one: a parser behind us must not see another value.
pub fn pick<'a, const N: usize>(
    raw: &'a [u8],
    wanted: [&str; N],
) -> Result<[Option<&'a [u8]>; N], Defect> {
    pick_noting(raw, wanted, |_| ())
}

/// The same, with the name of every other member handed to `other`.
pub fn pick_noting<'a, const N: usize>(
    raw: &'a [u8],
    wanted: [&str; N],
    mut other: impl FnMut(&[u8]),
) -> Result<[Option<&'a [u8]>; N], Defect> {
    let mut found = [None; N];
    let mut spans = Spans::new(raw, b'{');
    if !spans.open {
        return Err(Defect { kind: Kind::NotObject, at: 0 });
    }
    while let Some(span) = spans.next() {
        let defect = |kind| Defect { kind, at: span.start };
        let name = span.name();
        if let Some(index) = wanted.iter().position(|wanted| wanted.as_bytes() == &*name) {
            if found[index].replace(span.value).is_some() {
                return Err(defect(Kind::Duplicate));
            }
        } else if wanted.iter().any(|wanted| looks_like(&name, wanted)) {
            return Err(defect(Kind::LookAlike));
        } else {
            other(&name);
        }
    }
    if spans.broken { Err(Defect { kind: Kind::End, at: raw.len() }) } else { Ok(found) }
}

/// The text of a JSON string; `None` when `raw` is something else.
/// A lone surrogate, which no text can hold, becomes U+FFFD.
pub fn text(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let escaped = memchr::memchr(b'\\', inner).is_some();
    match decoded(Token { inner, escaped }) {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

/// `raw` with the value of every member `key` replaced; unchanged when there is none.
pub fn replace_member(raw: &[u8], key: &str, value: &[u8]) -> Vec<u8> {
    replaced(raw, key, value).0
}

/// `raw` with member `key` set: replaced where it stands, else added as the last. Unchanged when `raw` is no object.
pub fn set_member(raw: &[u8], key: &str, value: &[u8]) -> Vec<u8> {
    let (mut out, hits) = replaced(raw, key, value);
    let spans = Spans::new(raw, b'{');
    if hits > 0 || !spans.open {
        return out;
    }
    let empty = members(raw).next().is_none();
    if let Some(close) = memchr::memrchr(b'}', &out) {
        let tail = out.split_off(close);
        if !empty {
            out.push(b',');
        }
        crate::write::json_string(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value);
        out.extend_from_slice(&tail);
    }
    out
}

/// `raw` without any member `key`, and without the comma that goes with it.
pub fn without_member(raw: &[u8], key: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut kept = 0;
    let mut copied = 0;
    // Where the member before this one ended, so that its comma can go with the member.
    let mut before: Option<usize> = None;
    let mut spans = Spans::new(raw, b'{');
    while let Some(span) = spans.next() {
        if &*span.name() != key.as_bytes() {
            kept += 1;
            before = Some(span.end);
            continue;
        }
        if kept > 0 {
            // Something stays in front: the comma before this member goes.
            let from = before.unwrap_or(span.start);
            out.extend_from_slice(raw.get(copied..from).unwrap_or_default());
            copied = span.end;
            before = Some(span.end);
        } else {
            // Nothing stays in front: the comma behind it goes, with the space up to the next member.
            out.extend_from_slice(raw.get(copied..span.start).unwrap_or_default());
            copied = spans.ahead();
        }
    }
    out.extend_from_slice(raw.get(copied..).unwrap_or_default());
    out
}

/// Whether a careless parser could take `name` for `known` although they differ: letter case (with
/// the two letters that fold to ASCII from outside it) is ignored by some, and a C string ends at a NUL.
pub(crate) fn looks_like(name: &[u8], known: &str) -> bool {
    // Most names differ in length or in the first letter; the rest is for the few that do not.
    if name.len() < known.len() {
        return false;
    }
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let name = name.trim_end_matches('\0');
    let mut left = name.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    });
    let mut right = known.chars().map(|c| c.to_ascii_lowercase());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (a, b) if a != b => return false,
            _ => {}
        }
    }
}

/// What a string token stands for, as UTF-8 bytes.
pub(crate) fn decoded(token: Token<'_>) -> Cow<'_, [u8]> {
    if !token.escaped {
        return Cow::Borrowed(token.inner);
    }
    let mut out = Vec::with_capacity(token.inner.len());
    let mut rest = token.inner;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((&kind, after)) = rest.split_first() else { return Cow::Owned(out) };
        rest = after;
        match kind {
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let mut letter = [0; 4];
                out.extend_from_slice(unit(&mut rest).encode_utf8(&mut letter).as_bytes());
            }
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// The character of a `\u` escape whose digits come next, taking a second escape when the two are a pair.
fn unit(rest: &mut &[u8]) -> char {
    let Some((first, after)) = digits(rest) else { return char::REPLACEMENT_CHARACTER };
    *rest = after;
    if let Some(c) = char::from_u32(first) {
        return c;
    }
    let second = after.strip_prefix(b"\\u").and_then(digits);
    match second {
        Some((second, after)) if first < 0xdc00 && (0xdc00..0xe000).contains(&second) => {
            *rest = after;
            let pair = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        _ => char::REPLACEMENT_CHARACTER,
    }
}

fn digits(rest: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, after) = rest.split_first_chunk::<4>()?;
    let digits = std::str::from_utf8(digits).ok()?;
    Some((u32::from_str_radix(digits, 16).ok()?, after))
}

/// The text with every member `key` replaced, and how many there were.
fn replaced(raw: &[u8], key: &str, value: &[u8]) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(raw.len() + value.len() + key.len() + 4);
    let (mut copied, mut hits) = (0, 0);
    let mut spans = Spans::new(raw, b'{');
    while let Some(span) = spans.next() {
        if &*span.name() == key.as_bytes() {
            out.extend_from_slice(raw.get(copied..span.end - span.value.len()).unwrap_or_default());
            out.extend_from_slice(value);
            copied = span.end;
            hits += 1;
        }
    }
    out.extend_from_slice(raw.get(copied..).unwrap_or_default());
    (out, hits)
}

/// Iterator of [`members`].
#[derive(Debug, Clone)]
pub struct Members<'a> {
    spans: Spans<'a>,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let span = self.spans.next()?;
        let name = match span.name() {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        };
        Some((name, span.value))
    }
}

/// Iterator of [`elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    spans: Spans<'a>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.spans.next()?.value)
    }
}

/// One member or element: where it lies, its name token if it is a member, its raw value.
#[derive(Debug, Clone, Copy)]
struct Span<'a> {
    start: usize,
    end: usize,
    name: Option<Token<'a>>,
    value: &'a [u8],
}

impl<'a> Span<'a> {
    fn name(&self) -> Cow<'a, [u8]> {
        match self.name {
            None => Cow::Borrowed(&[]),
            Some(token) if !token.escaped => Cow::Borrowed(token.inner),
            Some(token) => decoded(token),
        }
    }
}

/// Walks one container. It was validated before, so an invalid text simply ends the walk.
#[derive(Debug, Clone)]
struct Spans<'a> {
    raw: &'a [u8],
    at: usize,
    named: bool,
    open: bool,
    broken: bool,
}

impl<'a> Spans<'a> {
    fn new(raw: &'a [u8], opener: u8) -> Self {
        let at = raw.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let open = raw.get(at) == Some(&opener);
        Spans { raw, at: at + 1, named: opener == b'{', open, broken: false }
    }

    /// Where the next member would start: past the comma and the space around it.
    fn ahead(&self) -> usize {
        let mut at = self.at;
        let space = |at: usize| {
            self.raw
                .get(at..)
                .map_or(0, |r| r.iter().take_while(|b| b.is_ascii_whitespace()).count())
        };
        at += space(at);
        if self.raw.get(at) == Some(&b',') {
            at += 1;
            at += space(at);
            return at;
        }
        self.at
    }

    fn next(&mut self) -> Option<Span<'a>> {
        if !self.open {
            return None;
        }
        let span = self.advance();
        if span.is_none() {
            self.open = false;
        }
        span
    }

    fn advance(&mut self) -> Option<Span<'a>> {
        let mut scanner = Scanner::resume(self.raw, self.at);
        scanner.space();
        if scanner.peek() == b',' {
            scanner.step();
            scanner.space();
        }
        if matches!(scanner.peek(), b'}' | b']') {
            return None;
        }
        self.broken = true;
        let start = scanner.at();
        let name = if self.named { Some(scanner.key().ok()?) } else { None };
        let from = scanner.at();
        if !scanner.skip() {
            return None;
        }
        self.broken = false;
        self.at = scanner.at();
        Some(Span { start, end: self.at, name, value: scanner.since(from) })
    }
}

#[cfg(test)]
mod tests;
