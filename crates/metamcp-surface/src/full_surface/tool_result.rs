//! A server's result as a value: its structured content, else its text, as JSON where it is JSON.

use std::borrow::Cow;

use metamcp_wire::object;
use metamcp_wire::scan::{MAX_RESULT_DEPTH, check};
use metamcp_wire::write::{json_string, one_line};
use serde_json::Value;

use metamcp_types::text;

/// Longest message of a tool that is repeated in an error.
const MAX_MESSAGE: usize = 2_000;
/// Structured content up to this length is compared with the text beside it; a longer one is not worth it.
const MAX_COMPARED: usize = 64 * 1024;
/// Longest number that a text is taken for: more digits would not come back as they were.
const MAX_NUMBER: usize = 15;

/// What a result says.
#[derive(Debug)]
pub struct ToolResult<'a> {
    /// The value, as JSON on one line.
    pub structured: Cow<'a, [u8]>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
    /// Structured content as it came, if there is any.
    pub content: Option<&'a [u8]>,
    /// Whether the value is all there is: no pictures, no second text, nothing about the result.
    pub is_plain: bool,
    /// Parts that are no text, raw.
    pub others: Vec<&'a [u8]>,
    texts: Vec<Cow<'a, str>>,
}

impl ToolResult<'_> {
    /// What a failed tool says, on as many lines as it likes.
    pub fn message(&self) -> String {
        let joined = self.texts.join("\n");
        let said = text::clean(joined.trim(), MAX_MESSAGE);
        if said.is_empty() { "it did not say why".to_owned() } else { said.into_owned() }
    }
}

/// Reads a result.
pub fn read(result: &[u8]) -> ToolResult<'_> {
    let (mut content, mut structured, mut is_error, mut is_plain) = (None, None, false, true);
    for (name, value) in object::members(result) {
        match &*name {
            "content" if content.is_none() => content = Some(value),
            "structuredContent" if structured.is_none() => structured = Some(value),
            "isError" => is_error = value == b"true",
            "resultType" => {}
            _ => is_plain = false,
        }
    }
    let structured = structured.filter(|raw| *raw != b"null");
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for part in object::elements(content.unwrap_or(b"[]")) {
        match text_of(part) {
            Some((said, is_bare)) => {
                texts.push(said);
                is_plain &= is_bare;
            }
            None => {
                others.push(part);
                is_plain = false;
            }
        }
    }
    let value = match (structured, texts.as_slice()) {
        (Some(raw), texts) => {
            is_plain = is_plain && texts.iter().all(|text| is_same(raw, text));
            one_line(raw)
        }
        (None, []) => {
            is_plain = is_plain && content.is_some();
            Cow::Borrowed(&b"null"[..])
        }
        (None, [one]) => Cow::Owned(value_of(one)),
        (None, many) => {
            is_plain = false;
            Cow::Owned(value_of(&many.join("\n")))
        }
    };
    ToolResult { structured: value, is_error, content: structured, is_plain, others, texts }
}

/// The text of a part, and whether nothing else is said about it.
fn text_of(part: &[u8]) -> Option<(Cow<'_, str>, bool)> {
    let (mut is_text, mut said, mut is_bare) = (false, None, true);
    for (name, value) in object::members(part) {
        match &*name {
            "type" => is_text = value == b"\"text\"",
            "text" => said = object::text(value),
            _ => is_bare = false,
        }
    }
    Some((said.filter(|_| is_text)?, is_bare))
}

/// A text as JSON: as the value it is written as, else as itself.
fn value_of(said: &str) -> Vec<u8> {
    let trimmed = said.trim();
    let json = match trimmed.as_bytes().first() {
        Some(b'{' | b'[' | b'"' | b't' | b'f' | b'n') => {
            check(trimmed.as_bytes(), MAX_RESULT_DEPTH).is_ok()
        }
        // What would not come back as it is written, such as `007` or 20 digits, stays text.
        Some(b'-' | b'0'..=b'9') => {
            let number = trimmed.parse::<f64>().ok().filter(|_| trimmed.len() <= MAX_NUMBER);
            number.is_some_and(|number| number.to_string() == trimmed)
        }
        _ => false,
    };
    if json {
        return one_line(trimmed.as_bytes()).into_owned();
    }
    let mut out = Vec::with_capacity(said.len() + 2);
    json_string(&mut out, said);
    out
}

/// Whether a text only repeats structured content, as servers do for clients that do not read it.
fn is_same(raw: &[u8], said: &str) -> bool {
    if said.as_bytes() == raw {
        return true;
    }
    if raw.len() > MAX_COMPARED || said.len() > 2 * MAX_COMPARED {
        return false;
    }
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    parse(said.as_bytes()).is_some_and(|said| Some(said) == parse(raw))
}
