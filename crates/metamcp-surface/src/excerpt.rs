//! Excerpts of a long result: a range, a JSON pointer, or the lines that match a word.
//! Owns: how an excerpt is cut and how the rest is described; when a result is too long to show.      Never: stores values.
//! In: a value as text, and which part is wanted; a tool's result.  Out: text; a shorter result.
//! Tests: below and `excerpt/whole.rs`.

mod cut;
mod whole;

use std::fmt::Write;

use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::{MAX_RESULT_DEPTH, check};
use serde_json::Value;

pub use cut::{Excerpt, Gap, SHARE, excerpt};
pub use whole::{cut, preview, shortened, text_chars, value_in};

/// Default length of an excerpt in characters.
pub const DEFAULT_CHARS: usize = 20_000;
/// Most characters of one part. More at once would fill a model's context, which keeping the value was to avoid.
pub const MAX_CHARS: usize = 100_000;
/// Matching lines of one search.
const MAX_LINES: usize = 200;
/// Characters of a line that are shown around a match: a value may be one line of megabytes.
const AROUND: usize = 120;

/// Most members of an object that a description of its shape names.
const SHAPE_NAMES: usize = 20;

/// Which part is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// So many characters from an offset.
    Range {
        /// Characters to skip.
        offset: usize,
        /// Characters wanted.
        length: usize,
    },
    /// What the pointer leads to: all of it, or so many items of a list or characters of a text from an offset.
    Pointer { pointer: String, offset: usize, length: Option<usize> },
    /// Lines with this text in them, whatever their case.
    Grep(String),
}

/// The arguments are no part of anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` must be {expected}")]
pub struct BadPart {
    name: &'static str,
    expected: &'static str,
}

impl Part {
    /// Reads the arguments: `pointer` or `grep`, else `offset` and `length`.
    pub fn decode(arguments: &Value) -> Result<Part, BadPart> {
        let text = |name: &'static str| match &arguments[name] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(BadPart { name, expected: "a string" }),
        };
        let number = |name: &'static str| match &arguments[name] {
            Value::Null => Ok(None),
            value => value
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
                .map(Some)
                .ok_or(BadPart { name, expected: "a whole number, not below 0" }),
        };
        let offset = number("offset")?.unwrap_or(0);
        let length = number("length")?.map(|length| length.clamp(1, MAX_CHARS));
        if let Some(pointer) = text("pointer")? {
            return Ok(Part::Pointer { pointer, offset, length });
        }
        if let Some(word) = text("grep")?.filter(|word| !word.is_empty()) {
            return Ok(Part::Grep(word));
        }
        Ok(Part::Range { offset, length: length.unwrap_or(DEFAULT_CHARS) })
    }

    /// That part of a value, given as JSON. Strings are read as the text they hold.
    pub fn of(&self, json: &str) -> String {
        match self {
            Part::Range { offset, length } => {
                range(&crate::execution::value_text(json), *offset, *length)
            }
            Part::Pointer { pointer, offset, length } => pointed(json, pointer, *offset, *length),
            Part::Grep(word) => grep(&crate::execution::value_text(json), word),
        }
    }
}

fn range(text: &str, offset: usize, length: usize) -> String {
    let count = text.chars().count();
    let from = offset.min(count);
    let until = (from + length).min(count);
    let part: String = text.chars().skip(from).take(until - from).collect();
    if until < count {
        format!("{part}\n[characters {from} to {until} of {count}; go on with offset {until}]")
    } else {
        format!("{part}\n[characters {from} to {until} of {count}; this is the end]")
    }
}

fn pointed(json: &str, pointer: &str, offset: usize, length: Option<usize>) -> String {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    // A text that holds JSON is looked into as well: most tools answer so.
    let inner = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let value = inner.unwrap_or(value);
    match value.pointer(pointer) {
        Some(Value::Array(list)) => items(list, offset, length.unwrap_or(usize::MAX)),
        Some(found) => {
            let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            let length = length.unwrap_or(DEFAULT_CHARS);
            if offset == 0 && text.chars().count() <= length {
                return text;
            }
            range(&text, offset, length)
        }
        None => {
            // The nearest place that exists says what could have been meant.
            let mut parent = pointer;
            let found = loop {
                parent = parent.rsplit_once('/').map_or("", |(parent, _)| parent);
                if let Some(found) = value.pointer(parent) {
                    break found;
                }
                if parent.is_empty() {
                    break &value;
                }
            };
            format!("[nothing at {pointer:?}; {parent:?} holds {}]", shape(found))
        }
    }
}

/// Whole items of a list from an offset on, as many as fit and at least one.
fn items(list: &[Value], offset: usize, most: usize) -> String {
    let (mut shown, mut used) = (Vec::new(), 0);
    for item in list.iter().skip(offset).take(most) {
        let item = item.to_string();
        used += item.chars().count() + 1;
        if used > DEFAULT_CHARS && !shown.is_empty() {
            break;
        }
        shown.push(text::cut(&item, MAX_CHARS).into_owned());
    }
    let (count, from) = (list.len(), offset.min(list.len()));
    let until = from + shown.len();
    let page = format!("[{}]", shown.join(","));
    if from == 0 && until == count {
        page
    } else if until < count {
        format!("{page}\n[items {from} to {until} of {count}; go on with offset {until}]")
    } else {
        format!("{page}\n[items {from} to {until} of {count}; this is the end]")
    }
}

/// A short description of a value's shape.
pub fn shape(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {} items", items.len()),
        Value::Object(map) => {
            let names: Vec<&str> = map.keys().take(SHAPE_NAMES).map(String::as_str).collect();
            let more = if map.len() > names.len() { ", …" } else { "" };
            format!("an object with {}{more}", names.join(", "))
        }
        Value::String(text) => format!("a text of {} characters", text.chars().count()),
        other => other.to_string(),
    }
}

/// The same of a value as it is written, without building it. A text that holds JSON is looked into.
pub fn shape_of(raw: &[u8]) -> String {
    match raw.first() {
        Some(b'[') => format!("an array of {} items", object::elements(raw).count()),
        Some(b'{') => {
            let mut names: Vec<String> = object::members(raw)
                .take(SHAPE_NAMES + 1)
                .map(|(name, _)| text::clean_line(&name, 64).into_owned())
                .collect();
            let more = if names.len() > SHAPE_NAMES { ", …" } else { "" };
            names.truncate(SHAPE_NAMES);
            format!("an object with {}{more}", names.join(", "))
        }
        Some(b'"') => {
            let text = object::text(raw).unwrap_or_default();
            let inner = text.trim().as_bytes();
            if matches!(inner.first(), Some(b'{' | b'[')) && check(inner, MAX_RESULT_DEPTH).is_ok()
            {
                return format!("a text that holds {}", shape_of(inner));
            }
            let lines = memchr::memchr_iter(b'\n', text.as_bytes()).count() + 1;
            format!("a text of {} characters on {lines} lines", text.chars().count())
        }
        _ => String::from_utf8_lossy(raw).into_owned(),
    }
}

fn grep(text: &str, word: &str) -> String {
    let (word, mut found, mut total) = (word.to_lowercase(), String::new(), 0_usize);
    for (number, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        let Some(at) = lower.find(&word) else { continue };
        total += 1;
        if total > MAX_LINES {
            continue;
        }
        let at = lower[..at].chars().count();
        let from = at.saturating_sub(AROUND);
        let shown: String =
            line.chars().skip(from).take(2 * AROUND + word.chars().count()).collect();
        let _infallible = writeln!(found, "{}: {shown}", number + 1);
    }
    let shown = total.min(MAX_LINES);
    let _infallible = write!(found, "[{total} lines match, {shown} shown]");
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(json: &Value, arguments: &Value) -> String {
        Part::decode(arguments).unwrap().of(&json.to_string())
    }

    #[test]
    fn a_range_says_where_it_stands() {
        let text = Value::from("aébcd");
        assert_eq!(
            of(&text, &json!({"offset": 1, "length": 2})),
            "éb\n[characters 1 to 3 of 5; go on with offset 3]"
        );
        assert_eq!(of(&text, &json!({"offset": 9})), "\n[characters 5 to 5 of 5; this is the end]");
    }

    #[test]
    fn a_pointer_looks_into_text_that_is_json() {
        let value = json!({"items": [{"name": "a"}, {"name": "b"}]});
        assert_eq!(of(&value, &json!({"pointer": "/items/1/name"})), "b");
        assert_eq!(
            of(&Value::from(value.to_string()), &json!({"pointer": "/items/0"})),
            r#"{"name":"a"}"#
        );
        assert_eq!(
            of(&value, &json!({"pointer": "/items/7/name"})),
            "[nothing at \"/items/7/name\"; \"/items\" holds an array of 2 items]"
        );
    }

    #[test]
    fn lines_are_found_whatever_their_case() {
        let text = Value::from("one\nTwo words\nthree");
        assert_eq!(of(&text, &json!({"grep": "two"})), "2: Two words\n[1 lines match, 1 shown]");
        let long = Value::from(format!("{}needle{}", "x".repeat(9000), "y".repeat(9000)));
        assert!(of(&long, &json!({"grep": "NEEDLE"})).len() < 400);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let error = Part::decode(&json!({"offset": -1})).unwrap_err();
        assert_eq!(error.to_string(), "`offset` must be a whole number, not below 0");
        assert_eq!(
            Part::decode(&json!({"length": 10_000_000})).unwrap(),
            Part::Range { offset: 0, length: MAX_CHARS }
        );
    }

    proptest! {
        #[test]
        fn ranges_read_one_after_the_other_give_the_whole(text in ".{0,300}", step in 1_usize..50) {
            let json = Value::from(text.clone()).to_string();
            let (mut whole, mut offset) = (String::new(), 0);
            while offset < text.chars().count() {
                let part = Part::Range { offset, length: step }.of(&json);
                whole.push_str(part.rsplit_once('\n').unwrap().0);
                offset += step;
            }
            prop_assert_eq!(whole, text);
        }

        #[test]
        fn no_text_breaks_a_search(text in "\\PC{0,200}", word in "\\PC{1,5}") {
            let json = Value::from(text).to_string();
            Part::Grep(word).of(&json);
        }
    }
}
