//! The part of YAML that programs write, edited line by line. Anything else is rejected, never guessed.
//! Supported: block mappings, `- ` lists of scalars, flow lists of scalars, `{}`, quoted and plain scalars, comments.
//!
//! Written by hand because crates that read YAML write it anew, without its comments. `yaml-edit` keeps them, and is 14,000
//! lines to understand all of YAML, where 700 that refuse the rest are safer with somebody else's file; `SAMPLES` and
//! `never_panics` in `edit/tests.rs` try them.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::EditError;

/// Deeper is not written by the programs whose files these are.
const DEEPEST: usize = 16;

pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    let Some((last, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    set_all(text, parents, &[((*last).to_owned(), value.clone())])
}

/// All at once: replaced where they are, the others put behind the last one together.
pub(super) fn set_all(
    text: &str,
    path: &[&str],
    entries: &[(String, Value)],
) -> Result<String, EditError> {
    let entries: Map<String, Value> = entries.iter().cloned().collect();
    if entries.is_empty() {
        return Ok(text.to_owned());
    }
    let lines = lines(text)?;
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut block = Block { first: 0, end: lines.len(), indent: 0 };
    for (depth, key) in path.iter().enumerate() {
        let Some(at) = find(&lines, &block, key)? else {
            let nested = |inner, key: &&str| {
                Value::Object([((*key).to_owned(), inner)].into_iter().collect())
            };
            let rest = path[depth + 1..].iter().rev().fold(Value::Object(entries), nested);
            let fresh = entry(key, &rest, block.indent, newline);
            return Ok(spliced(text, &[], (offset(text, &lines, block.end), &fresh), newline));
        };
        let inner = children(&lines, at, block.end, block.indent);
        match lines[at].value {
            "" => refuse_strangers(&lines, &inner)?,
            "{}" => {
                // `extensions: {}` becomes a block: only the braces go.
                let entries: Vec<(String, Value)> = entries.into_iter().collect();
                return set_all(&without_value(text, &lines[at]), path, &entries);
            }
            _ => {
                return Err(EditError::Unsupported {
                    line: at + 1,
                    what: "a mapping written in one line",
                });
            }
        }
        block = inner;
    }
    let there = keys(&lines, &block, |key| entries.contains_key(key))?;
    let replaced: Vec<(usize, usize, String)> = there
        .iter()
        .map(|&(at, key)| {
            let end = children(&lines, at, block.end, block.indent).end;
            let fresh = entry(key, &entries[key], block.indent, newline);
            (lines[at].start, offset(text, &lines, end), fresh)
        })
        .collect();
    let there: HashSet<&str> = there.into_iter().map(|(_, key)| key).collect();
    let fresh: String = entries
        .iter()
        .filter(|(key, _)| !there.contains(key.as_str()))
        .map(|(key, value)| entry(key, value, block.indent, newline))
        .collect();
    Ok(spliced(text, &replaced, (offset(text, &lines, block.end), &fresh), newline))
}

pub(super) fn remove(text: &str, path: &[&str]) -> Result<Option<String>, EditError> {
    let Some((last, parents)) = path.split_last() else { return Ok(None) };
    let without = remove_all(text, parents, &[last])?;
    Ok((without.len() < text.len()).then_some(without))
}

pub(super) fn remove_all(text: &str, path: &[&str], names: &[&str]) -> Result<String, EditError> {
    let lines = lines(text)?;
    let mut block = Block { first: 0, end: lines.len(), indent: 0 };
    for key in path {
        let Some(at) = find(&lines, &block, key)? else { return Ok(text.to_owned()) };
        block = children(&lines, at, block.end, block.indent);
    }
    let names: HashSet<&str> = names.iter().copied().collect();
    let mut gone = Vec::new();
    for (at, _) in keys(&lines, &block, |key| names.contains(key))? {
        let end = children(&lines, at, block.end, block.indent).end;
        gone.push((lines[at].start, offset(text, &lines, end), String::new()));
    }
    Ok(spliced(text, &gone, (text.len(), ""), ""))
}

pub(super) fn read(text: &str, path: &[&str]) -> Result<Option<Value>, EditError> {
    let lines = lines(text)?;
    let mut block = Block { first: 0, end: lines.len(), indent: 0 };
    for (depth, key) in path.iter().enumerate() {
        let Some(at) = find(&lines, &block, key)? else { return Ok(None) };
        if depth + 1 == path.len() {
            return value_at(&lines, at, block.end, block.indent, depth).map(Some);
        }
        block = children(&lines, at, block.end, block.indent);
    }
    mapping(&lines, &block, 0).map(Some)
}

pub(super) fn line(text: &str, path: &[&str]) -> Option<usize> {
    let lines = lines(text).ok()?;
    let mut block = Block { first: 0, end: lines.len(), indent: 0 };
    let mut found = None;
    for key in path {
        let at = find(&lines, &block, key).ok()??;
        found = Some(at + 1);
        block = children(&lines, at, block.end, block.indent);
    }
    found
}

/// One line: where it starts, its indentation, and its key and value where it has them.
struct Line<'t> {
    text: &'t str,
    start: usize,
    indent: usize,
    /// Nothing but space or a comment.
    blank: bool,
    key: Option<String>,
    value: &'t str,
    /// Where the value starts, or would: behind the colon of the key.
    value_start: usize,
}

/// A text by lines, for those who edit what is below one of its keys in their own way.
pub(super) struct Lines<'t> {
    text: &'t str,
    lines: Vec<Line<'t>>,
}

/// Where a key of the outermost mapping stands, and what is below it.
pub(super) struct Place<'t> {
    pub(super) line: usize,
    /// Where the value in the key's own line starts, or would.
    pub(super) value_start: usize,
    pub(super) value: &'t str,
    /// Where the next line starts.
    pub(super) line_end: usize,
    /// The lines below it.
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) indent: usize,
}

impl<'t> Lines<'t> {
    pub(super) fn of(text: &'t str) -> Result<Lines<'t>, EditError> {
        Ok(Lines { text, lines: lines(text)? })
    }

    pub(super) fn place(&self, key: &str) -> Result<Option<Place<'t>>, EditError> {
        let all = Block { first: 0, end: self.lines.len(), indent: 0 };
        let Some(at) = find(&self.lines, &all, key)? else { return Ok(None) };
        let block = children(&self.lines, at, all.end, all.indent);
        let line = &self.lines[at];
        Ok(Some(Place {
            line: at,
            value_start: line.value_start,
            value: line.value,
            line_end: self.start(at + 1),
            first: block.first,
            end: block.end,
            indent: block.indent,
        }))
    }

    /// A line: its text, where it starts, its indentation, whether nothing is in it.
    pub(super) fn line(&self, at: usize) -> (&'t str, usize, usize, bool) {
        let line = &self.lines[at];
        (line.text, line.start, line.indent, line.blank)
    }

    /// The whole text, but for the value in that line.
    pub(super) fn without_value(&self, at: usize) -> String {
        without_value(self.text, &self.lines[at])
    }

    /// Where a line starts; behind the last, where the text ends.
    pub(super) fn start(&self, at: usize) -> usize {
        offset(self.text, &self.lines, at)
    }
}

/// Some lines below one key.
struct Block {
    first: usize,
    end: usize,
    indent: usize,
}

fn lines(text: &str) -> Result<Vec<Line<'_>>, EditError> {
    let mut start = 0;
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (number, whole) in text.split_inclusive('\n').enumerate() {
        let body = whole.trim_end_matches(['\n', '\r']);
        let rest = body.trim_start_matches(' ');
        let (indent, blank) =
            (body.len() - rest.len(), rest.trim().is_empty() || rest.starts_with('#'));
        let refuse = |what| Err(EditError::Unsupported { line: number + 1, what });
        if !blank && rest.starts_with('\t') {
            return refuse("indentation by tabs");
        }
        if !blank && indent == 0 && (rest.starts_with("---") || rest.starts_with("...")) {
            let first = lines.iter().all(|line| line.blank);
            if !first || rest.trim() != "---" {
                return refuse("a file of several documents");
            }
            let (key, value, value_start) = (None, "", start + body.len());
            lines.push(Line { text: body, start, indent, blank: true, key, value, value_start });
            start += whole.len();
            continue;
        }
        let (key, behind) = match (blank, split_key(rest)) {
            (false, Some((key, behind))) => (Some(key), behind),
            _ => (None, rest),
        };
        let value = uncommented(behind.trim());
        let gap = if value.is_empty() { 0 } else { behind.len() - behind.trim_start().len() };
        let value_start = start + (body.len() - behind.len()) + gap;
        lines.push(Line { text: body, start, indent, blank, key, value, value_start });
        start += whole.len();
    }
    Ok(lines)
}

/// A line without its value: what stands behind it, a comment or nothing, follows the colon.
fn without_value(text: &str, line: &Line<'_>) -> String {
    let (end, line_end) = (line.value_start + line.value.len(), line.start + line.text.len());
    let behind = text[end..line_end].trim();
    let gap = if behind.is_empty() { "" } else { " " };
    let key = text[..line.value_start].trim_end();
    format!("{key}{gap}{behind}{}", &text[line_end..])
}

/// The key of `key: value`, and what is behind the colon; `None` for a line that is something else.
fn split_key(rest: &str) -> Option<(String, &str)> {
    if rest.starts_with(['-', '[', '{', '?', '&', '*', '!', '|', '>']) && !rest.starts_with("-_") {
        return None;
    }
    let (key, after) = match rest.chars().next()? {
        quote @ ('"' | '\'') => {
            let end = rest[1..].find(quote)? + 1;
            (rest[1..end].to_owned(), &rest[end + 1..])
        }
        _ => {
            let end = rest.find(": ").or_else(|| rest.strip_suffix(':').map(str::len))?;
            (rest[..end].trim_end().to_owned(), &rest[end..])
        }
    };
    let value = after.strip_prefix(':')?;
    (value.is_empty() || value.starts_with(' ')).then_some((key, value))
}

/// A value without the comment behind it.
fn uncommented(value: &str) -> &str {
    if value.starts_with(['"', '\'']) {
        let quote = value.as_bytes()[0];
        let end = closing(value, quote).map_or(value.len(), |end| end + 1);
        return &value[..end];
    }
    if value.starts_with('#') {
        return "";
    }
    value.find(" #").map_or(value, |at| &value[..at]).trim_end()
}

/// Where a quoted scalar ends.
fn closing(value: &str, quote: u8) -> Option<usize> {
    let bytes = value.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote && quote == b'\'' && bytes.get(at + 1) == Some(&b'\'') => at += 1,
            byte if byte == quote => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

fn find(lines: &[Line<'_>], block: &Block, key: &str) -> Result<Option<usize>, EditError> {
    Ok(keys(lines, block, |one| one == key)?.first().map(|(at, _)| *at))
}

/// The lines of a block with the keys that are wanted, each key once.
fn keys<'l>(
    lines: &'l [Line<'_>],
    block: &Block,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(usize, &'l str)>, EditError> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for (at, line) in lines.iter().enumerate().take(block.end).skip(block.first) {
        let Some(key) = line.key.as_deref().filter(|_| !line.blank && line.indent == block.indent)
        else {
            continue;
        };
        if !is_wanted(key) {
            continue;
        }
        if !seen.insert(key) {
            return Err(EditError::Twice { path: key.to_owned() });
        }
        found.push((at, key));
    }
    Ok(found)
}

/// Whether a line begins an item of a list. Other space than blanks is no indentation.
pub(super) fn is_item(line: &str) -> bool {
    line.trim_start_matches(' ').starts_with("- ")
}

/// The lines below the key at `at`, without what is blank behind them.
fn children(lines: &[Line<'_>], at: usize, limit: usize, indent: usize) -> Block {
    let mut end = at + 1;
    let mut inner = None;
    for (number, line) in lines.iter().enumerate().take(limit).skip(at + 1) {
        if line.blank {
            continue;
        }
        // A list may stand at the indentation of its own key.
        let is_item = line.indent == indent && is_item(line.text);
        if line.indent <= indent && !is_item {
            break;
        }
        inner.get_or_insert(line.indent);
        end = number + 1;
    }
    Block { first: at + 1, end, indent: inner.unwrap_or(indent + 2) }
}

/// An entry is only put among entries: beside a list, or lines that are neither, it would mean something else.
fn refuse_strangers(lines: &[Line<'_>], block: &Block) -> Result<(), EditError> {
    let is_strange = |line: &Line<'_>| {
        let is_beside = line.indent == block.indent && line.key.is_none();
        !line.blank && (is_beside || line.indent < block.indent)
    };
    match (block.first..block.end).find(|&at| is_strange(&lines[at])) {
        Some(at) => {
            Err(EditError::Unsupported { line: at + 1, what: "something else than a mapping" })
        }
        None => Ok(()),
    }
}

fn offset(text: &str, lines: &[Line<'_>], line: usize) -> usize {
    lines.get(line).map_or(text.len(), |line| line.start)
}

/// The text with some parts of it replaced, in their order, and `fresh` put in behind them at `at`, in a line of its
/// own.
pub(super) fn spliced(
    text: &str,
    parts: &[(usize, usize, String)],
    (at, fresh): (usize, &str),
    newline: &str,
) -> String {
    let mut edited = String::with_capacity(text.len() + fresh.len());
    let mut copied = 0;
    for (start, end, part) in parts {
        edited.push_str(&text[copied..*start]);
        edited.push_str(part);
        copied = *end;
    }
    edited.push_str(&text[copied..at]);
    if !fresh.is_empty() && !edited.is_empty() && !edited.ends_with('\n') {
        edited.push_str(newline);
    }
    edited.push_str(fresh);
    edited.push_str(&text[at..]);
    edited
}

pub(super) fn entry(key: &str, value: &Value, indent: usize, newline: &str) -> String {
    let pad = " ".repeat(indent);
    let key = scalar(&Value::from(key));
    match value {
        Value::Object(object) if !object.is_empty() => {
            let inner: String =
                object.iter().map(|(key, value)| entry(key, value, indent + 2, newline)).collect();
            format!("{pad}{key}:{newline}{inner}")
        }
        Value::Array(values) if !values.is_empty() => {
            let items: String =
                values.iter().map(|value| format!("{pad}- {}{newline}", scalar(value))).collect();
            format!("{pad}{key}:{newline}{items}")
        }
        Value::Object(_) => format!("{pad}{key}: {{}}{newline}"),
        Value::Array(_) => format!("{pad}{key}: []{newline}"),
        plain => format!("{pad}{key}: {}{newline}", scalar(plain)),
    }
}

/// Plain where every reader of YAML agrees that it is a string, else as JSON, which YAML reads too.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./@".contains(c))
                && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                    .contains(&text.to_ascii_lowercase().as_str());
            if plain { text.clone() } else { value.to_string() }
        }
        other => other.to_string(),
    }
}

fn mapping(lines: &[Line<'_>], block: &Block, depth: usize) -> Result<Value, EditError> {
    let mut object = Map::new();
    let mut at = block.first;
    while at < block.end {
        let line = &lines[at];
        if line.blank {
            at += 1;
            continue;
        }
        let refuse = |what| Err(EditError::Unsupported { line: at + 1, what });
        if depth > DEEPEST {
            return refuse("nesting this deep");
        }
        let (true, Some(key)) = (line.indent == block.indent, &line.key) else {
            return refuse("this way of writing a mapping");
        };
        let value = value_at(lines, at, block.end, block.indent, depth)?;
        if object.insert(key.clone(), value).is_some() {
            return Err(EditError::Twice { path: key.clone() });
        }
        at = children(lines, at, block.end, block.indent).end;
    }
    Ok(Value::Object(object))
}

fn value_at(
    lines: &[Line<'_>],
    at: usize,
    limit: usize,
    indent: usize,
    depth: usize,
) -> Result<Value, EditError> {
    let line = &lines[at];
    let refuse = |what| EditError::Unsupported { line: at + 1, what };
    if !line.value.is_empty() {
        return flow(line.value).ok_or_else(|| refuse("this way of writing a value"));
    }
    let block = children(lines, at, limit, indent);
    let inner = lines[block.first..block.end].iter().filter(|line| !line.blank);
    let inner: Vec<&Line<'_>> = inner.collect();
    if inner.is_empty() {
        return Ok(Value::Null);
    }
    if inner.iter().all(|line| is_item(line.text)) {
        let items = inner.iter().map(|line| {
            let item = line.text[line.indent + 1..].trim();
            let is_mapping = split_key(item).is_some() && !item.starts_with(['"', '\'']);
            if is_mapping { None } else { flow(uncommented(item)) }
        });
        let items: Option<Vec<Value>> = items.collect();
        return items.map(Value::from).ok_or_else(|| refuse("a list of other things than scalars"));
    }
    mapping(lines, &block, depth + 1)
}

/// A value in one line: a scalar, a flow list of scalars, or an empty mapping. Nothing at all is `null`.
fn flow(text: &str) -> Option<Value> {
    match text {
        "" => return Some(Value::Null),
        "{}" => return Some(Value::Object(Map::new())),
        "[]" => return Some(Value::Array(Vec::new())),
        "~" | "null" => return Some(Value::Null),
        "true" => return Some(true.into()),
        "false" => return Some(false.into()),
        _ => {}
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        // JSON is YAML, and the only flow list whose commas are told apart with certainty.
        let json: Option<Value> = serde_json::from_str(text).ok();
        return json
            .filter(|value| value.as_array().is_some_and(|all| all.iter().all(is_plain)))
            .or_else(|| {
                let words = inner.split(',').map(str::trim);
                let plain = words.clone().all(|word| {
                    !word.is_empty() && !word.contains(['"', '\'', '[', '{', ':', '#', '&', '*'])
                });
                plain.then(|| words.map(|word| flow(word).unwrap_or_default()).collect())
            });
    }
    match text.as_bytes()[0] {
        b'"' => serde_json::from_str(text).ok(),
        b'\'' => {
            let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
            Some(inner.replace("''", "'").into())
        }
        b'{' | b'[' | b'&' | b'*' | b'!' | b'|' | b'>' | b'%' | b'@' | b'`' => None,
        _ => {
            let number: Option<i64> = text.parse().ok();
            Some(number.map_or_else(|| text.into(), Value::from))
        }
    }
}

fn is_plain(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}
