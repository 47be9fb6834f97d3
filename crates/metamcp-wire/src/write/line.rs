//! A message to a server: one line, in which every value from elsewhere is exactly one JSON value.
//!
//! A server reads lines, and an attacker who can end one can begin another: a call that nobody permitted, or the answer to
//! another request. So every part of a message is validated where it is written, whatever was validated before:
//! our own text can only come from the source (`&'static str`), anything else is a number, a string that is escaped
//! here, or JSON that is validated completely. Between its tokens line breaks become spaces. Inside its
//! strings the characters that end a line for some readers (Node's `readline` ends one at U+2028, Python's `splitlines`
//! at U+0085) are escaped.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use super::{json_string, number};
use crate::scan::{Defect, Kind, MAX_RESULT_DEPTH, check};

/// One validated JSON value that every reader sees on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(Bytes);

impl Json {
    /// Validates a value. It is copied only if it has to be changed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(raw: Bytes) -> Result<Json, Defect> {
        check(&raw, MAX_RESULT_DEPTH)?;
        Ok(Json(match unbroken(&raw) {
            Cow::Borrowed(_) => raw,
            Cow::Owned(unbroken) => Bytes::from(unbroken),
        }))
    }

    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// An object up to its last member, so that another can follow, and whether it is empty.
    ///
    /// # Errors
    /// It is no object.
    pub fn opened(self) -> Result<(Bytes, bool), Defect> {
        let range = open(&self.0)?;
        let is_empty = is_empty(&self.0[range.clone()]);
        Ok((self.0.slice(range), is_empty))
    }
}

/// A message as it is being written.
#[derive(Debug)]
pub struct Line<'a> {
    out: &'a mut BytesMut,
    defect: Option<Defect>,
}

impl Line<'_> {
    /// Appends the message that `build` writes, and the end of its line.
    ///
    /// # Errors
    /// Part of it is not valid JSON. Then nothing is appended.
    pub fn append(out: &mut BytesMut, build: impl FnOnce(&mut Line<'_>)) -> Result<(), Defect> {
        Line::part(out, build)?;
        out.put_u8(b'\n');
        Ok(())
    }

    /// Appends a part of a message, of which another part is too long to be copied.
    ///
    /// # Errors
    /// As with [`Line::append`].
    pub fn part(out: &mut BytesMut, build: impl FnOnce(&mut Line<'_>)) -> Result<(), Defect> {
        let start = out.len();
        let mut line = Line { out, defect: None };
        build(&mut line);
        match line.defect {
            None => Ok(()),
            Some(defect) => {
                out.truncate(start);
                Err(defect)
            }
        }
    }

    /// Our own text.
    pub fn text(&mut self, text: &'static str) {
        self.out.put_slice(text.as_bytes());
    }

    /// A whole number.
    pub fn number(&mut self, value: u64) {
        number(self.out, value);
    }

    /// Any text, as a string.
    pub fn string(&mut self, text: &str) {
        if breaks(text.as_bytes()).is_none() {
            return json_string(self.out, text);
        }
        let mut quoted = Vec::with_capacity(text.len() + 16);
        json_string(&mut quoted, text);
        self.out.put_slice(&unbroken(&quoted));
    }

    /// A value from elsewhere.
    pub fn json(&mut self, raw: &[u8]) {
        match check(raw, MAX_RESULT_DEPTH) {
            Ok(()) => self.out.put_slice(&unbroken(raw)),
            Err(defect) => self.refuse(defect),
        }
    }

    /// An object from elsewhere up to its last member, so that another can follow. Returns whether it is empty.
    pub fn open_object(&mut self, raw: &[u8]) -> bool {
        let range = check(raw, MAX_RESULT_DEPTH).and_then(|()| open(raw));
        match range {
            Ok(range) => {
                let inner = &raw[range];
                self.out.put_slice(&unbroken(inner));
                is_empty(inner)
            }
            Err(defect) => {
                self.refuse(defect);
                true
            }
        }
    }

    /// A request with an id of ours.
    pub fn request(&mut self, id: u64, method: &str, params: Option<&[u8]>) {
        self.text("{\"jsonrpc\":\"2.0\",\"id\":");
        self.number(id);
        self.text(",");
        self.call(method, params);
    }

    /// A notification.
    pub fn notification(&mut self, method: &str, params: Option<&[u8]>) {
        self.text("{\"jsonrpc\":\"2.0\",");
        self.call(method, params);
    }

    /// The response to the request whose id was written as `id`.
    pub fn result(&mut self, id: &[u8], result: &[u8]) {
        self.text("{\"jsonrpc\":\"2.0\",\"id\":");
        self.json(id);
        self.text(",\"result\":");
        self.json(result);
        self.text("}");
    }

    /// An error response with an error object from elsewhere.
    pub fn error_raw(&mut self, id: &[u8], error: &[u8]) {
        self.text("{\"jsonrpc\":\"2.0\",\"id\":");
        self.json(id);
        self.text(",\"error\":");
        self.json(error);
        self.text("}");
    }

    /// An error response of our own.
    pub fn error(&mut self, id: &[u8], code: i64, message: &str) {
        self.text("{\"jsonrpc\":\"2.0\",\"id\":");
        self.json(id);
        self.text(",\"error\":{\"code\":");
        if code < 0 {
            self.text("-");
        }
        self.number(code.unsigned_abs());
        self.text(",\"message\":");
        self.string(message);
        self.text("}}");
    }

    fn call(&mut self, method: &str, params: Option<&[u8]>) {
        self.text("\"method\":");
        self.string(method);
        if let Some(params) = params {
            self.text(",\"params\":");
            self.json(params);
        }
        self.text("}");
    }

    fn refuse(&mut self, defect: Defect) {
        self.defect.get_or_insert(defect);
    }
}

/// Where in a checked value an object lies, without the brace that closes it.
fn open(raw: &[u8]) -> Result<std::ops::Range<usize>, Defect> {
    let start = raw.len() - raw.trim_ascii_start().len();
    if raw.get(start) != Some(&b'{') {
        return Err(Defect { kind: Kind::NotObject, at: start });
    }
    let closed = raw.trim_ascii_end();
    let inner = &closed[..closed.len() - 1];
    Ok(start..inner.trim_ascii_end().len().max(start + 1))
}

/// Whether an object that was opened has no member.
fn is_empty(opened: &[u8]) -> bool {
    opened.len() <= 1
}

/// The first byte that may be part of a line terminator.
fn breaks(raw: &[u8]) -> Option<usize> {
    let plain = memchr::memchr2(b'\n', b'\r', raw);
    let wide = memchr::memchr2(0xc2, 0xe2, raw);
    match (plain, wide) {
        (Some(plain), Some(wide)) => Some(plain.min(wide)),
        (one, other) => one.or(other),
    }
}

/// Validated JSON without line terminators. Line breaks occur between tokens, where a space does as well; the
/// others inside strings, where they can be escaped.
fn unbroken(raw: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = breaks(raw) else { return Cow::Borrowed(raw) };
    let mut out = Vec::with_capacity(raw.len() + 16);
    out.extend_from_slice(&raw[..first]);
    let mut rest = &raw[first..];
    while let Some((&byte, after)) = rest.split_first() {
        let (written, taken): (&[u8], usize) = match rest {
            [b'\n' | b'\r', ..] => (b" ", 1),
            [0xc2, 0x85, ..] => (b"\\u0085", 2),
            [0xe2, 0x80, 0xa8, ..] => (b"\\u2028", 3),
            [0xe2, 0x80, 0xa9, ..] => (b"\\u2029", 3),
            _ => {
                out.push(byte);
                rest = after;
                continue;
            }
        };
        out.extend_from_slice(written);
        rest = &rest[taken..];
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Line terminators of any reader.
    const ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

    fn line(build: impl FnOnce(&mut Line<'_>)) -> Result<String, Defect> {
        let mut out = BytesMut::from(&b"before\n"[..]);
        let written = Line::append(&mut out, build);
        let text = String::from_utf8(out[7..].to_vec()).unwrap();
        assert!(out.starts_with(b"before\n"));
        match written {
            Ok(()) => Ok(text),
            Err(defect) => {
                assert_eq!(text, "", "nothing is left of a message that was refused");
                Err(defect)
            }
        }
    }

    #[test]
    fn what_is_no_value_of_json_is_refused_wherever_it_stands() {
        for raw in [
            "",
            " ",
            "{",
            "{}}",
            "{},{}",
            "{}\n{}",
            "{\"a\":1},\"method\":\"x\"",
            "\"a\nb\"",
            "\"a\rb\"",
            "{\"a\":01}",
            "nul",
            "[1,]",
            "{'a':1}",
            "\u{feff}{}",
        ] {
            let raw = raw.as_bytes();
            assert!(line(|line| line.json(raw)).is_err(), "{raw:?}");
            assert!(
                line(|line| {
                    line.open_object(raw);
                })
                .is_err(),
                "{raw:?}"
            );
            assert!(line(|line| line.request(1, "m", Some(raw))).is_err(), "{raw:?}");
            assert!(line(|line| line.notification("m", Some(raw))).is_err(), "{raw:?}");
            assert!(line(|line| line.result(b"1", raw)).is_err(), "{raw:?}");
            assert!(line(|line| line.result(raw, b"{}")).is_err(), "{raw:?}");
            assert!(line(|line| line.error_raw(b"1", raw)).is_err(), "{raw:?}");
            assert!(line(|line| line.error(raw, -1, "m")).is_err(), "{raw:?}");
            assert!(Json::new(Bytes::copy_from_slice(raw)).is_err(), "{raw:?}");
        }
        assert!(line(|line| line.json(b"\"\xff\"")).is_err());
        assert!(
            line(|line| {
                line.open_object(b"[1]");
            })
            .is_err()
        );
        assert!(Json::new(Bytes::from_static(b"[1]")).unwrap().opened().is_err());
    }

    #[test]
    fn a_message_is_one_line_to_every_reader() {
        let params = "{\"a\":\r\n[1,\n2],\n\"b\":\"x\u{2028}y\u{2029}z\u{85}é…\"}\n";
        let written = line(|line| line.request(7, "tools/call", Some(params.as_bytes()))).unwrap();
        assert_eq!(
            written,
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"a\":  [1, 2], \"b\":\"x\\u2028y\\u2029z\\u0085é…\"} }\n"
        );
        let named = line(|line| line.string("a\nb\r\u{2028}\"")).unwrap();
        assert_eq!(named, "\"a\\nb\\r\\u2028\\\"\"\n");
    }

    #[test]
    fn an_object_is_opened_for_one_more_member() {
        for (raw, opened, is_empty) in [
            ("{}", "{", true),
            (" { } ", "{", true),
            ("{\n}", "{", true),
            ("{\"a\":1 }", "{\"a\":1", false),
            ("{\"a\":{}}\n", "{\"a\":{}", false),
        ] {
            let mut was_empty = None;
            let written = line(|line| was_empty = Some(line.open_object(raw.as_bytes()))).unwrap();
            assert_eq!((written.trim_end(), was_empty), (opened, Some(is_empty)), "{raw:?}");
            let long = Json::new(Bytes::copy_from_slice(raw.as_bytes())).unwrap();
            let (bytes, was_empty) = long.opened().unwrap();
            assert_eq!((&*bytes, was_empty), (opened.as_bytes(), is_empty), "{raw:?}");
        }
    }

    #[test]
    fn what_is_clean_already_is_shared() {
        let raw = Bytes::from_static(b"{\"a\":\"b\"}");
        let json = Json::new(raw.clone()).unwrap().into_bytes();
        assert_eq!(json.as_ptr(), raw.as_ptr());
    }

    proptest! {
        /// Whatever bytes are put in: a line of JSON that says the same, or nothing.
        #[test]
        fn any_bytes(raw in prop_oneof![
            "\\PC{0,40}",
            "[\\[\\]{},:\"\\\\ \\r\\nabu0128\u{2028}\u{2029}\u{85}]{0,24}",
        ]) {
            let expected: Result<Value, _> = serde_json::from_str(&raw);
            match line(|line| line.json(raw.as_bytes())) {
                Ok(written) => {
                    let inner = written.strip_suffix('\n').unwrap();
                    prop_assert!(!inner.contains(ENDS), "{}", inner);
                    if let Ok(expected) = expected {
                        prop_assert_eq!(serde_json::from_str::<Value>(inner).unwrap(), expected);
                    }
                }
                Err(_) => prop_assert!(expected.is_err()),
            }
        }

        /// Texts come back as they were.
        #[test]
        fn any_text(text in "[\\PC\\r\\n\u{2028}\u{2029}\u{85}]{0,40}") {
            let written = line(|line| line.string(&text)).unwrap();
            let inner = written.strip_suffix('\n').unwrap();
            prop_assert!(!inner.contains(ENDS), "{}", inner);
            prop_assert_eq!(serde_json::from_str::<Value>(inner).unwrap(), json!(text));
        }
    }
}
