//! Finds the id of a message that is too long to store, while its bytes are discarded.
//! Owns: a scanner of an object's top level.      Never: stores more than an id, validates the rest.
//! In: all bytes of the line in pieces.  Out: the id, and whether there is a method.
//! Tests: `frame/tests.rs`.

use memchr::memchr2;

use crate::envelope::Id;
use crate::object::decoded;
use crate::scan::Token;

/// Longest id stored: our ids are numbers, and a UUID takes 38 bytes.
const MAX_ID: usize = 128;

/// Longest name stored: `method` with every letter written as `\u....`, and the closing quote.
const MAX_NAME: usize = 37;

/// Bytes of a string looked at one by one before the wide search starts.
const NEAR: usize = 8;

/// The top-level `id` of `line`, for a line that was refused as a message but may still answer a call.
pub fn skim(line: &[u8]) -> Skim {
    let mut skim = Skim::default();
    skim.feed(line);
    skim
}

/// A push automaton over one line.
#[derive(Debug, Default)]
pub struct Skim {
    state: State,
    /// Open containers; the members of interest are at depth one.
    depth: u64,
    in_value: bool,
    /// Whether the value here is the one of `id`.
    is_id: bool,
    name: Text<MAX_NAME>,
    value: Text<MAX_ID>,
    /// What is being copied besides being walked over.
    copying: Copying,
    ids: Found,
    method: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the opening brace.
    #[default]
    Start,
    Between,
    InString,
    /// Behind a backslash in a string.
    Escaped,
    /// The object is closed, or there never was one.
    Over,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Copying {
    #[default]
    Nothing,
    Name,
    Value,
}

#[derive(Debug, Default)]
enum Found {
    #[default]
    None,
    One(Vec<u8>),
    /// Two ids, or an invalid one: it is ambiguous which call was meant.
    Unclear,
}

impl Skim {
    /// Walks over the next bytes of the line.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            match self.state {
                State::Start => {
                    rest = after;
                    self.start(byte);
                }
                State::Between if self.depth > 1 => rest = self.inside(rest),
                State::Between => {
                    rest = after;
                    self.between(byte);
                }
                State::InString => rest = self.string(rest),
                State::Escaped => {
                    rest = after;
                    self.copy(&[byte]);
                    self.state = State::InString;
                }
                State::Over => return,
            }
        }
    }

    /// Whether the line has a top-level `method`.
    pub fn has_method(&self) -> bool {
        self.method
    }

    /// The JSON text of the only top-level `id`, if it is a string or a number.
    pub fn into_id(mut self) -> Option<Vec<u8>> {
        // A number may have been cut off by the end of the line, and then it may be another number.
        if self.copying == Copying::Value {
            self.ids = Found::Unclear;
        }
        match self.ids {
            Found::One(id) => Some(id),
            Found::None | Found::Unclear => None,
        }
    }

    fn start(&mut self, byte: u8) {
        match byte {
            // White space, or the bytes of a byte order mark.
            b' ' | b'\t' | b'\r' | 0xef | 0xbb | 0xbf => {}
            b'{' => {
                self.depth = 1;
                self.state = State::Between;
            }
            _ => self.state = State::Over,
        }
    }

    /// Walks over a value below the top level, up to its end or to a string; what is left.
    fn inside<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut depth = self.depth;
        let stop = bytes.iter().position(|&byte| match byte {
            b'"' => true,
            b'{' | b'[' => {
                depth += 1;
                false
            }
            b'}' | b']' => {
                depth -= 1;
                depth == 1
            }
            _ => false,
        });
        self.depth = depth;
        let Some(stop) = stop else { return &[] };
        if bytes[stop] == b'"' {
            self.state = State::InString;
        }
        &bytes[stop + 1..]
    }

    /// Walks over a string up to its end; what is left.
    fn string<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut at = 0;
        let (walked, closed) = loop {
            let rest = bytes.get(at..).unwrap_or_default();
            // Escapes come in crowds, and the wide search is slow to start.
            let near = rest.iter().take(NEAR).position(|byte| matches!(byte, b'"' | b'\\'));
            let Some(stop) = near.or_else(|| memchr2(b'"', b'\\', rest)) else {
                // The second byte of an escape may be yet to come.
                if at > bytes.len() {
                    self.state = State::Escaped;
                }
                break (bytes.len(), false);
            };
            at += stop + 1;
            if rest[stop] == b'"' {
                break (at, true);
            }
            at += 1;
        };
        let (run, rest) = bytes.split_at(walked);
        self.copy(run);
        if closed {
            self.close_string();
        }
        rest
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.state = State::InString;
                if !self.in_value {
                    self.name.clear();
                    self.copying = Copying::Name;
                } else if self.is_id {
                    self.copying = Copying::Value;
                    self.copy(b"\"");
                }
            }
            b':' => {
                self.in_value = true;
                self.value.clear();
                self.is_id = self.name.is("id");
                self.method |= self.name.is("method");
            }
            b',' => {
                self.end_value();
                self.in_value = false;
            }
            b'{' | b'[' => {
                if self.in_value && self.is_id {
                    self.ids = Found::Unclear;
                }
                self.depth += 1;
            }
            b'}' | b']' => {
                self.end_value();
                self.state = State::Over;
            }
            b' ' | b'\t' | b'\r' => self.end_value(),
            _ if self.in_value && self.is_id => {
                self.copying = Copying::Value;
                self.copy(&[byte]);
            }
            _ => {}
        }
    }

    fn close_string(&mut self) {
        self.state = State::Between;
        if self.copying == Copying::Name {
            self.name.text.pop();
            self.copying = Copying::Nothing;
        }
    }

    fn copy(&mut self, bytes: &[u8]) {
        match self.copying {
            Copying::Nothing => {}
            Copying::Name => self.name.push(bytes),
            Copying::Value => self.value.push(bytes),
        }
    }

    fn end_value(&mut self) {
        if self.copying != Copying::Value {
            return;
        }
        self.copying = Copying::Nothing;
        // A second one starts from nothing, and is one too many.
        let whole = !self.value.overflown && Id::new(&self.value.text).is_some();
        let unseen = matches!(self.ids, Found::None);
        let text = std::mem::take(&mut self.value.text);
        self.ids = if whole && unseen { Found::One(text) } else { Found::Unclear };
    }
}

/// Bytes kept up to a limit.
#[derive(Debug, Default)]
struct Text<const LIMIT: usize> {
    text: Vec<u8>,
    overflown: bool,
}

impl<const LIMIT: usize> Text<LIMIT> {
    fn push(&mut self, bytes: &[u8]) {
        if self.overflown || self.text.len() + bytes.len() > LIMIT {
            self.overflown = true;
        } else {
            self.text.extend_from_slice(bytes);
        }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.overflown = false;
    }

    fn is(&self, name: &str) -> bool {
        let token = Token { inner: &self.text, escaped: self.text.contains(&b'\\') };
        !self.overflown && &*decoded(token) == name.as_bytes()
    }
}
