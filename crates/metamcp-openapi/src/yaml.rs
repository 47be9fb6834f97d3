//! YAML as JSON text, event by event: nothing of it is ever a tree, and what its aliases may repeat is bounded.
//! Owns: which plain words are numbers, anchors, merge keys.      Never: makes anything but JSON of it.
//! In: YAML.  Out: one JSON value as text, or what is wrong, with line and column.
//! Tests: below, `tests/documents.rs`.

use std::collections::HashMap;
use std::ops::Range;

use metamcp_types::text;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use crate::document::{DescriptionError, MAX_DOCUMENT};

/// Deeper than any description; JSON is not read deeper either.
const MAX_DEPTH: usize = 120;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Sequence,
    /// Where the next event is a key.
    Key,
    Value,
    /// The value of `<<`, whose members become those of the mapping.
    Merged,
}

struct Level {
    inside: Inside,
    is_first: bool,
    anchor: usize,
    begin: usize,
}

struct Writer {
    out: String,
    levels: Vec<Level>,
    anchors: HashMap<usize, Range<usize>>,
    is_done: bool,
}

/// Translates one document.
pub(crate) fn to_json(written: &str) -> Result<String, DescriptionError> {
    let mut writer = Writer {
        out: String::with_capacity(written.len()),
        levels: Vec::new(),
        anchors: HashMap::new(),
        is_done: false,
    };
    for event in Parser::new_from_str(written) {
        let (event, span) = event.map_err(|error| {
            let mark = error.marker();
            let place = format!("line {}, column {}", mark.line(), mark.col() + 1);
            let reason = text::clean_line(error.info(), 120).into_owned();
            DescriptionError::new(place, format!("it is not YAML: {reason}"))
        })?;
        if writer.is_done {
            break;
        }
        writer.event(event).map_err(|message| at(span, message))?;
        if writer.out.len() > MAX_DOCUMENT {
            return Err(at(span, "its aliases repeat too much of it"));
        }
    }
    if writer.out.is_empty() {
        return Err(DescriptionError::new("", "it is empty"));
    }
    Ok(writer.out)
}

fn at(span: Span, message: &str) -> DescriptionError {
    let place = format!("line {}, column {}", span.start.line(), span.start.col() + 1);
    DescriptionError::new(place, message)
}

impl Writer {
    fn event(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::Scalar(said, style, anchor, tag) => {
                let is_text =
                    style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
                if self.is_key() {
                    let is_merge = !is_text && said == "<<";
                    return self.key(&said, is_merge);
                }
                if self.inside() == Some(Inside::Merged) {
                    // An empty merge adds nothing.
                    self.ended();
                    return Ok(());
                }
                let begin = self.before();
                self.scalar(&said, is_text);
                self.after(anchor, begin);
            }
            Event::SequenceStart(anchor, _) => self.open(Inside::Sequence, anchor)?,
            Event::MappingStart(anchor, _) => self.open(Inside::Key, anchor)?,
            Event::SequenceEnd => self.close(']')?,
            Event::MappingEnd => self.close('}')?,
            Event::Alias(anchor) => self.alias(anchor)?,
            Event::DocumentEnd => self.is_done = true,
            _ => {}
        }
        Ok(())
    }

    fn inside(&self) -> Option<Inside> {
        self.levels.last().map(|level| level.inside)
    }

    fn is_key(&self) -> bool {
        self.inside() == Some(Inside::Key)
    }

    fn key(&mut self, said: &str, is_merge: bool) -> Result<(), &'static str> {
        let Some(level) = self.levels.last_mut() else { return Err("a key outside of a mapping") };
        if is_merge {
            level.inside = Inside::Merged;
            return Ok(());
        }
        if !std::mem::replace(&mut level.is_first, false) {
            self.out.push(',');
        }
        level.inside = Inside::Value;
        self.text(said);
        self.out.push(':');
        Ok(())
    }

    /// Puts a comma where one belongs; returns where the value begins.
    fn before(&mut self) -> usize {
        if let Some(level) = self.levels.last_mut()
            && level.inside == Inside::Sequence
            && !std::mem::replace(&mut level.is_first, false)
        {
            self.out.push(',');
        }
        self.out.len()
    }

    fn after(&mut self, anchor: usize, begin: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, begin..self.out.len());
        }
        self.ended();
    }

    fn ended(&mut self) {
        if let Some(level) = self.levels.last_mut()
            && matches!(level.inside, Inside::Value | Inside::Merged)
        {
            level.inside = Inside::Key;
        }
    }

    fn open(&mut self, inside: Inside, anchor: usize) -> Result<(), &'static str> {
        match self.inside() {
            Some(Inside::Key) => return Err("a key that is not a word"),
            Some(Inside::Merged) => return Err("`<<` is read with an alias only"),
            _ => {}
        }
        if self.levels.len() >= MAX_DEPTH {
            return Err("it is nested too deep");
        }
        let begin = self.before();
        self.out.push(if inside == Inside::Sequence { '[' } else { '{' });
        self.levels.push(Level { inside, is_first: true, anchor, begin });
        Ok(())
    }

    fn close(&mut self, bracket: char) -> Result<(), &'static str> {
        let Some(level) = self.levels.pop() else { return Err("an end without a beginning") };
        self.out.push(bracket);
        self.after(level.anchor, level.begin);
        Ok(())
    }

    fn alias(&mut self, anchor: usize) -> Result<(), &'static str> {
        let Some(range) = self.anchors.get(&anchor).cloned() else {
            return Err("an alias of what it stands in, or of nothing");
        };
        if self.out.len() + range.len() > MAX_DOCUMENT {
            return Err("its aliases repeat too much of it");
        }
        match self.inside() {
            Some(Inside::Key) => {
                let Ok(word) = serde_json::from_str::<String>(&self.out[range]) else {
                    return Err("a key that is not a word");
                };
                self.key(&word, false)
            }
            Some(Inside::Merged) => {
                let value = self.out[range].to_owned();
                let Some(inner) = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))
                else {
                    return Err("`<<` with what is no mapping");
                };
                if let Some(level) = self.levels.last_mut()
                    && !inner.is_empty()
                {
                    if !std::mem::replace(&mut level.is_first, false) {
                        self.out.push(',');
                    }
                    self.out.push_str(inner);
                }
                self.ended();
                Ok(())
            }
            _ => {
                self.before();
                self.out.extend_from_within(range);
                self.ended();
                Ok(())
            }
        }
    }

    fn text(&mut self, said: &str) {
        self.out.push_str(&serde_json::Value::from(said).to_string());
    }

    /// A plain word by the core schema of YAML 1.2: `yes` and dates are text.
    fn scalar(&mut self, said: &str, is_text: bool) {
        if is_text {
            return self.text(said);
        }
        match said {
            "" | "~" | "null" | "Null" | "NULL" => self.out.push_str("null"),
            "true" | "True" | "TRUE" => self.out.push_str("true"),
            "false" | "False" | "FALSE" => self.out.push_str("false"),
            _ => match number(said) {
                Some(number) => self.out.push_str(&number),
                None => self.text(said),
            },
        }
    }
}

/// A number as JSON writes it.
fn number(said: &str) -> Option<String> {
    let bare = said.strip_prefix(['+', '-']).unwrap_or(said);
    if !bare.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = said.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).ok().map(|number| number.to_string());
        }
    }
    // As it stands, so that no digit is lost.
    let plain = said.strip_prefix('+').unwrap_or(said);
    if serde_json::from_str::<serde_json::Number>(plain).is_ok() {
        return Some(plain.to_owned());
    }
    let is_decimal = bare.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let number: f64 = said.parse().ok().filter(|number: &f64| is_decimal && number.is_finite())?;
    serde_json::Number::from_f64(number).map(|number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_becomes_json() {
        for (yaml, json) in [
            ("a: 1\nb: [x, 'y', \"z\"]", r#"{"a":1,"b":["x","y","z"]}"#),
            (
                "200:\n  a: yes\n  b: true\n  c: ~\n  d:",
                r#"{"200":{"a":"yes","b":true,"c":null,"d":null}}"#,
            ),
            (
                "v: 3.10\nd: 2020-01-01\nh: 0x1F\np: +5\nf: .5\ns: '7'\nn: 007\ni: .inf",
                r#"{"v":3.10,"d":"2020-01-01","h":31,"p":5,"f":0.5,"s":"7","n":7.0,"i":".inf"}"#,
            ),
            (
                "a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2\nd: [*x, *x]",
                r#"{"a":{"k":1},"b":{"k":1},"c":{"k":1,"l":2},"d":[{"k":1},{"k":1}]}"#,
            ),
            ("t: |\n  one\n  two\n", "{\"t\":\"one\\ntwo\\n\"}"),
            ("- a\n-\n  - b\n", r#"["a",["b"]]"#),
            ("? a\n: b", r#"{"a":"b"}"#),
            ("a: !!str 5", r#"{"a":"5"}"#),
            ("a: 1\n---\nb: 2", r#"{"a":1}"#),
        ] {
            assert_eq!(to_json(yaml).as_deref(), Ok(json), "{yaml}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_place() {
        for (yaml, place) in [
            ("a: b: c", "line 1, column 5"),
            ("a: [1, 2", "line 2"),
            ("a: *nothing", "line 1, column 4"),
            ("[a]: b\n", "line 1"),
            ("? {a: 1}\n: b", "line 1, column 3"),
            ("a: &x [*x]", "line 1, column 8"),
        ] {
            let error = to_json(yaml).unwrap_err();
            assert!(error.place.starts_with(place), "{yaml}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(to_json(&deep).is_err());
    }

    #[test]
    fn aliases_of_aliases_are_bounded() {
        let mut yaml = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
        for level in 1..12 {
            let before = format!("*a{},", level - 1).repeat(9);
            yaml.push_str(&format!("a{level}: &a{level} [{}]\n", before.trim_end_matches(',')));
        }
        let error = to_json(&yaml).unwrap_err();
        assert!(error.to_string().contains("aliases repeat too much"), "{error}");
    }
}
