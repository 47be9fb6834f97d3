//! A strict JSON validator that walks a text once and keeps nothing of it.
//! Owns: the JSON grammar, what is wrong with a text (`Defect`).      Never: builds values, allocates, recurses.
//! In: bytes and a depth limit.  Out: nothing, or the first defect and where it is.
//! Tests: `scan/tests.rs`, `tests/differential.rs`, `fuzz/fuzz_targets/envelope.rs`.

/// Deepest nesting of what we look into ourselves, such as arguments: beyond it nobody honest writes.
pub const MAX_DEPTH: usize = 64;

/// Deepest nesting of what we only pass on: deep results (syntax trees, page snapshots) are honest.
pub const MAX_RESULT_DEPTH: usize = 512;

/// What is wrong with a text, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct Defect {
    /// What is wrong.
    pub kind: Kind,
    /// Offset of the byte where it was noticed.
    pub at: usize,
}

/// The ways in which a text can fail to be JSON, or a JSON text to be a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Kind {
    /// The text ends inside a value.
    #[error("unexpected end")]
    End,
    /// A byte that cannot stand here.
    #[error("unexpected character")]
    Unexpected,
    /// Something follows the value.
    #[error("text after the value")]
    Trailing,
    /// `\` followed by something JSON does not know.
    #[error("invalid escape")]
    Escape,
    /// A control character inside a string.
    #[error("control character in a string")]
    Control,
    /// A number not written the way JSON writes numbers.
    #[error("invalid number")]
    Number,
    /// The text is not UTF-8.
    #[error("invalid UTF-8")]
    Encoding,
    /// Nested beyond the limit.
    #[error("nested too deeply")]
    Depth,
    /// The same member twice in one object.
    #[error("duplicate member")]
    Duplicate,
    /// A member that a careless parser takes for a known one: other case, or a NUL at its end.
    #[error("member that looks like a known one")]
    LookAlike,
    /// More members than a message can have.
    #[error("too many members")]
    Members,
    /// An object was needed.
    #[error("not an object")]
    NotObject,
    /// JSON, but neither an object nor an array: no message.
    #[error("not a message")]
    NotMessage,
    /// No `jsonrpc` member: noise such as a log line rather than a broken message.
    #[error("no jsonrpc member")]
    VersionMissing,
    /// `jsonrpc` is not `"2.0"`.
    #[error("jsonrpc is not \"2.0\"")]
    VersionWrong,
    /// `id` is neither a string nor a number where one is needed.
    #[error("id is neither a string nor a number")]
    Id,
    /// A result without an id.
    #[error("result without an id")]
    IdMissing,
    /// `method` is not a string.
    #[error("method is not a string")]
    Method,
    /// `params` is neither an object nor an array.
    #[error("params is neither an object nor an array")]
    Params,
    /// `error` is not an object.
    #[error("error is not an object")]
    Error,
    /// More than one of `method`, `result` and `error`.
    #[error("more than one of method, result and error")]
    Mixed,
    /// None of `method`, `result` and `error`.
    #[error("none of method, result and error")]
    Shapeless,
    /// A batch without elements.
    #[error("empty batch")]
    BatchEmpty,
    /// A batch with more elements than allowed.
    #[error("too many messages in one batch")]
    BatchLong,
}

impl Kind {
    /// Whether the text is not JSON at all, as opposed to JSON that is no proper message.
    pub fn is_syntax(self) -> bool {
        matches!(
            self,
            Kind::End
                | Kind::Unexpected
                | Kind::Trailing
                | Kind::Escape
                | Kind::Control
                | Kind::Number
                | Kind::Encoding
        )
    }
}

/// Checks that `text` is exactly one JSON value nested at most `depth` levels (at most `MAX_RESULT_DEPTH`).
///
/// Accepts what `serde_json` accepts when it ignores a value: lone surrogates in escapes and numbers
/// of any size are fine, as both are legal JSON that honest servers write.
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

    /// Moves over string bytes that mean themselves.
    #[inline(always)]
    fn plain(&mut self) {
        let mut at = self.at;
        let mut seen = 0;
        // Keys and most values are short: a few words find their end without setting up wide loops.
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

    /// The same for long strings, a window at a time so that the second look finds the bytes near by.
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
        // Each turn stands before a value; the inner loop closes what the value completes.
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

    /// Moves over a value that was checked before; false when the text ends inside it.
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

    fn skip_string(&mut self) -> bool {
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

/// Words of eight bytes tried before a string counts as long.
const SHORT_WORDS: usize = 6;

/// Bytes of a long string looked at together: they stay in the nearest cache.
const WINDOW: usize = 8 * 1024;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

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
