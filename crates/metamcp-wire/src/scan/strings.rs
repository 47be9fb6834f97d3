//! String tokens, which are most bytes of most messages.
//! Owns: fast scanning of unescaped bytes.      Never: decodes.
//! In: a scanner at a quote.  Out: the scanner past the other quote.
//! Tests: `scan/tests.rs`.

use super::{Defect, Kind, Scanner, Token};

impl<'a> Scanner<'a> {
    /// A string with its quotes.
    #[inline(always)]
    pub(crate) fn string(&mut self) -> Result<Token<'a>, Defect> {
        self.expect(b'"')?;
        let start = self.at;
        self.plain();
        let escaped = self.peek() != b'"';
        if escaped {
            self.rest_of_string()?;
        }
        let inner = self.since(start);
        self.step();
        Ok(Token { inner, escaped })
    }

    /// Goes on to the closing quote of a string that is not plain throughout.
    #[inline(never)]
    fn rest_of_string(&mut self) -> Result<(), Defect> {
        loop {
            match self.peek() {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                _ if self.at >= self.text.len() => return Err(self.defect(Kind::End)),
                _ => return Err(self.defect(Kind::Control)),
            }
            self.plain();
        }
    }

    /// Skips unescaped string bytes.
    #[inline(always)]
    fn plain(&mut self) {
        let mut at = self.at;
        let mut seen = 0;
        // Keys and most values are short: a few 8-byte words find their end without setting up wide loops.
        for _ in 0..SHORT_WORDS {
            let Some(bytes) = self.text.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
                self.seen |= seen;
                self.at = at;
                return self.plain_tail();
            };
            let word = u64::from_le_bytes(*bytes);
            seen |= word;
            let special = special(word);
            if special != 0 {
                self.seen |= seen;
                self.at = at + special.trailing_zeros() as usize / 8;
                return;
            }
            at += 8;
        }
        self.seen |= seen;
        self.at = at;
        self.plain_long();
    }

    /// The same for the last bytes of the text.
    #[inline(never)]
    fn plain_tail(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            if byte < 0x20 || byte == b'"' || byte == b'\\' {
                break;
            }
            self.seen |= u64::from(byte);
            self.at += 1;
        }
    }

    /// The same for long strings, a window at a time so that the second pass finds the bytes in the cache.
    #[inline(never)]
    fn plain_long(&mut self) {
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let window = &rest[..rest.len().min(WINDOW)];
            let end = memchr::memchr2(b'"', b'\\', window);
            let run = &window[..end.unwrap_or(window.len())];
            // Without branches, so that the compiler turns it into wide instructions.
            let (low, high) =
                run.iter().fold((u8::MAX, 0), |(low, high), &byte| (byte.min(low), byte.max(high)));
            self.seen |= u64::from(high);
            if low < 0x20 {
                self.at += run.iter().position(|&byte| byte < 0x20).unwrap_or(0);
                return;
            }
            self.at += run.len();
            if end.is_some() || run.is_empty() {
                return;
            }
        }
    }

    fn escape(&mut self) -> Result<(), Defect> {
        self.step();
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.step(),
            b'u' => {
                self.step();
                for _ in 0..4 {
                    if !self.peek().is_ascii_hexdigit() {
                        return Err(self.bad_escape());
                    }
                    self.step();
                }
            }
            _ => return Err(self.bad_escape()),
        }
        Ok(())
    }

    #[cold]
    fn bad_escape(&self) -> Defect {
        self.defect(if self.at >= self.text.len() { Kind::End } else { Kind::Escape })
    }

    /// Skips past the closing quote of a string that was checked before; false when there is none.
    pub(super) fn skip_string(&mut self) -> bool {
        loop {
            self.plain();
            match self.peek() {
                b'"' => {
                    self.step();
                    return true;
                }
                b'\\' => self.at += 2,
                _ if self.at >= self.text.len() => return false,
                _ => self.step(),
            }
        }
    }
}

/// Words of eight bytes tried before a string counts as long.
const SHORT_WORDS: usize = 6;

/// Bytes of a long string looked at together: they stay in the nearest cache.
pub(super) const WINDOW: usize = 8 * 1024;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
pub(super) const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Marks the bytes of a word that end a run of plain string bytes: `"`, `\` and controls.
/// Only the lowest mark is exact, as a borrow may mark bytes above a true one.
#[inline(always)]
fn special(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(LOW_BITS) & !word;
    let control = word.wrapping_sub(LOW_BITS * 0x20) & !word;
    let quote = zero(word ^ (LOW_BITS * 0x22));
    let backslash = zero(word ^ (LOW_BITS * 0x5c));
    (control | quote | backslash) & HIGH_BITS
}
