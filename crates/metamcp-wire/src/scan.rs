//! A strict JSON validator: one pass, nothing stored.
//! Owns: the JSON grammar, `Defect`.      Never: builds values, allocates, recurses.
//! In: bytes and a depth limit.  Out: nothing, or the first defect and where it is.
//! Tests: `scan/tests.rs`, `tests/differential.rs`, `fuzz/fuzz_targets/envelope.rs`.
//!
//! Written by hand because a gateway that parses a message differently from the server behind it can be bypassed, and
//! `serde_json` accepts duplicate names; models of an SDK cost ten to thirty times the CPU time of a call
//! (docs/design/0002-own-wire.md).

#![expect(clippy::inline_always, reason = "measured: every byte of every message passes here")]

mod defect;
mod strings;

pub use defect::{Defect, Kind};
use strings::HIGH_BITS;

/// Deepest nesting of what we parse ourselves, such as arguments: more than anybody needs.
pub const MAX_DEPTH: usize = 64;

/// Deepest nesting of what we only pass on: deep results (syntax trees, page snapshots) are legitimate.
pub const MAX_RESULT_DEPTH: usize = 512;

/// Checks that `text` is exactly one JSON value nested at most `depth` levels (at most `MAX_RESULT_DEPTH`).
///
/// Accepts what `serde_json` accepts when it ignores a value: lone surrogates in escapes and numbers
/// of any size are fine, as both are legal JSON that real servers write.
pub fn check(text: &[u8], depth: usize) -> Result<(), Defect> {
    let mut scanner = Scanner::new(text);
    scanner.space();
    scanner.value(depth)?;
    scanner.end()
}

/// A position in a text, moved forward over whole tokens that it checks.
#[derive(Debug, Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// All bytes of all strings or-ed together: a high bit means that UTF-8 has to be checked.
    seen: u64,
}

/// A string token: the text between the quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) inner: &'a [u8],
    pub(crate) escaped: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Scanner { text, at: 0, seen: 0 }
    }

    /// A scanner that goes on at `at`.
    pub(crate) fn resume(text: &'a [u8], at: usize) -> Self {
        Scanner { text, at, seen: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The bytes from `start` to the current position.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The byte here, or NUL at the end: NUL is valid nowhere, so the two fall together until an error is made.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    #[inline(always)]
    pub(crate) fn step(&mut self) {
        self.at += 1;
    }

    pub(crate) fn defect(&self, kind: Kind) -> Defect {
        Defect { kind, at: self.at }
    }

    /// The defect of a byte that cannot stand here.
    #[cold]
    pub(crate) fn unexpected(&self) -> Defect {
        self.defect(if self.at >= self.text.len() { Kind::End } else { Kind::Unexpected })
    }

    #[inline(always)]
    pub(crate) fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.step();
        }
    }

    #[inline(always)]
    pub(crate) fn expect(&mut self, byte: u8) -> Result<(), Defect> {
        if self.peek() != byte {
            return Err(self.unexpected());
        }
        self.step();
        Ok(())
    }

    /// Only space may follow, and the text must have been UTF-8.
    pub(crate) fn end(&mut self) -> Result<(), Defect> {
        self.space();
        if self.at < self.text.len() {
            return Err(self.defect(Kind::Trailing));
        }
        self.encoding()
    }

    /// Bytes beyond ASCII are rejected outside strings by the grammar, so a text whose strings are
    /// ASCII needs no second pass.
    fn encoding(&self) -> Result<(), Defect> {
        if self.seen & HIGH_BITS == 0 {
            return Ok(());
        }
        match std::str::from_utf8(self.text) {
            Ok(_) => Ok(()),
            Err(error) => Err(Defect { kind: Kind::Encoding, at: error.valid_up_to() }),
        }
    }

    pub(crate) fn number(&mut self) -> Result<(), Defect> {
        if self.peek() == b'-' {
            self.step();
        }
        match self.peek() {
            b'0' => self.step(),
            b'1'..=b'9' => self.digits()?,
            _ => return Err(self.bad_number()),
        }
        if self.peek().is_ascii_digit() {
            return Err(self.bad_number());
        }
        if self.peek() == b'.' {
            self.step();
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.step();
            if matches!(self.peek(), b'+' | b'-') {
                self.step();
            }
            self.digits()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn digits(&mut self) -> Result<(), Defect> {
        if !self.peek().is_ascii_digit() {
            return Err(self.bad_number());
        }
        while self.peek().is_ascii_digit() {
            self.step();
        }
        Ok(())
    }

    #[cold]
    fn bad_number(&self) -> Defect {
        self.defect(if self.at >= self.text.len() { Kind::End } else { Kind::Number })
    }

    /// `true`, `false` or `null`.
    #[inline]
    pub(crate) fn literal(&mut self) -> Result<(), Defect> {
        let word: &[u8] = match self.peek() {
            b't' => b"true",
            b'f' => b"false",
            b'n' => b"null",
            _ => return Err(self.unexpected()),
        };
        for &byte in word {
            self.expect(byte)?;
        }
        Ok(())
    }

    /// Anything but an object or an array.
    #[inline]
    pub(crate) fn scalar(&mut self) -> Result<(), Defect> {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.literal(),
        }
    }

    /// One whole value, starting here, nested at most `depth` levels.
    pub(crate) fn value(&mut self, depth: usize) -> Result<(), Defect> {
        if !matches!(self.peek(), b'{' | b'[') {
            return self.scalar();
        }
        let mut open = Open::new(depth.min(MAX_RESULT_DEPTH));
        // Each iteration starts before a value; the inner loop closes what the value completes.
        'value: loop {
            match self.peek() {
                b'{' => {
                    open.push(true).map_err(|kind| self.defect(kind))?;
                    self.step();
                    self.space();
                    if self.peek() != b'}' {
                        self.key()?;
                        continue 'value;
                    }
                }
                b'[' => {
                    open.push(false).map_err(|kind| self.defect(kind))?;
                    self.step();
                    self.space();
                    if self.peek() != b']' {
                        continue 'value;
                    }
                }
                _ => {
                    self.scalar()?;
                    self.space();
                }
            }
            loop {
                match self.peek() {
                    b',' => {
                        self.step();
                        self.space();
                        if open.object {
                            self.key()?;
                        }
                        continue 'value;
                    }
                    b'}' if open.object => {}
                    b']' if !open.object => {}
                    _ => return Err(self.unexpected()),
                }
                self.step();
                if open.pop() {
                    return Ok(());
                }
                self.space();
            }
        }
    }

    /// Skips a value that was checked before; false when the text ends inside it.
    pub(crate) fn skip(&mut self) -> bool {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                b'"' => {
                    self.step();
                    if !self.skip_string() {
                        return false;
                    }
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.step();
                }
                b'}' | b']' => {
                    let Some(less) = depth.checked_sub(1) else { return false };
                    depth = less;
                    self.step();
                }
                _ if depth == 0 => {
                    let start = self.at;
                    while self.peek().is_ascii_alphanumeric()
                        || matches!(self.peek(), b'+' | b'-' | b'.')
                    {
                        self.step();
                    }
                    return self.at > start;
                }
                0 if self.at >= self.text.len() => return false,
                _ => {
                    self.step();
                    continue;
                }
            }
            if depth == 0 {
                return true;
            }
        }
    }

    /// A member's name and colon, with the space around them.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Token<'a>, Defect> {
        let key = self.string()?;
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(key)
    }
}

/// The containers open at a position: one bit each, so that hostile nesting costs neither stack nor heap.
struct Open {
    /// Whether the innermost one is an object.
    object: bool,
    depth: usize,
    limit: usize,
    kinds: [u64; MAX_RESULT_DEPTH / 64],
}

impl Open {
    #[inline]
    fn new(limit: usize) -> Self {
        Open { object: false, depth: 0, limit, kinds: [0; MAX_RESULT_DEPTH / 64] }
    }

    #[inline]
    fn push(&mut self, object: bool) -> Result<(), Kind> {
        if self.depth >= self.limit {
            return Err(Kind::Depth);
        }
        let bit = 1 << (self.depth % 64);
        let word = &mut self.kinds[self.depth / 64];
        *word = if object { *word | bit } else { *word & !bit };
        self.object = object;
        self.depth += 1;
        Ok(())
    }

    /// Leaves the innermost container; true when it was the last.
    #[inline]
    fn pop(&mut self) -> bool {
        self.depth -= 1;
        let Some(below) = self.depth.checked_sub(1) else { return true };
        self.object = self.kinds[below / 64] & (1 << (below % 64)) != 0;
        false
    }
}

#[cfg(test)]
mod tests;
