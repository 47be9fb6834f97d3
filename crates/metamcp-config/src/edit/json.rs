//! JSON with comments, edited by the spans that `jsonc-parser` finds: values, commas and comments.
//!
//! Why not by its own editor (`cst`): it drops the comment beside an entry that goes, and spreads an object of one line over
//! several (`an_entry_goes_and_nothing_else_with_it`, `a_new_entry_goes_behind_the_last_and_nothing_else_moves`); and each
//! edit walks all entries, so that 3,000 put into a file of 3,000 took 69 s in a build of tests, where this takes 0.2 s.

use jsonc_parser::ast::{Object, ObjectProp, Value as Node};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, parse_to_ast};
use serde_json::Value;

use super::{BOM, EditError, dotted, line_of};
use crate::config::DIALECT;

/// What files without any indentation of their own get.
const USUAL_INDENT: &str = "  ";

pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    let (bom, body) = split(text);
    let Some(source) = parse(body)? else {
        return Ok(format!("{bom}{}\n", rendered(&nested(path, value), "", &Style::of(body))));
    };
    let style = Style::of(body);
    let mut object = object_at(&source.root, &[])?;
    for (depth, key) in path.iter().enumerate() {
        let (here, rest) = (&path[..=depth], &path[depth + 1..]);
        match property(object, here)? {
            Some((_, found)) if rest.is_empty() => {
                let range = found.value.range();
                let indent = leading(body, found.range.start);
                let fresh = rendered(value, indent, &style);
                return Ok(spliced(text, body, &[(range.start, range.end, fresh)]));
            }
            Some((_, found)) => object = object_at(&found.value, here)?,
            None => {
                let edits = insertions(&source, object, &[(key, &nested(rest, value))], &style);
                return Ok(spliced(text, body, &edits));
            }
        }
    }
    Err(EditError::NotAnObject { path: String::new(), expected: "a path" })
}

/// All at once: replaced where they are, the others put behind the last one together.
pub(super) fn set_all(
    text: &str,
    path: &[&str],
    entries: &[(String, Value)],
) -> Result<String, EditError> {
    let (_, body) = split(text);
    let Some((first, rest)) = entries.split_first() else { return Ok(text.to_owned()) };
    let begun = |text: &str| {
        let all = set(text, &[path, &[first.0.as_str()]].concat(), &first.1)?;
        set_all(&all, path, rest)
    };
    let Some(source) = parse(body)? else { return begun(text) };
    let mut object = object_at(&source.root, &[])?;
    for depth in 0..path.len() {
        match property(object, &path[..=depth])? {
            Some((_, found)) => object = object_at(&found.value, &path[..=depth])?,
            None => return begun(text),
        }
    }
    if object.properties.is_empty() {
        return begun(text);
    }
    let style = Style::of(body);
    let mut edits = Vec::new();
    let mut fresh = Vec::new();
    let there = by_name(object);
    for (name, value) in entries {
        match there.get(name.as_str()).map(Vec::as_slice) {
            None => fresh.push((name.as_str(), value)),
            Some([at]) => {
                let found = &object.properties[*at];
                let range = found.value.range();
                let value = rendered(value, leading(body, found.range.start), &style);
                edits.push((range.start, range.end, value));
            }
            Some(_) => {
                return Err(EditError::Twice { path: dotted(&[path, &[name.as_str()]].concat()) });
            }
        }
    }
    edits.extend(insertions(&source, object, &fresh, &style));
    edits.sort_by_key(|(start, ..)| *start);
    Ok(spliced(text, body, &edits))
}

pub(super) fn remove_all(text: &str, path: &[&str], names: &[&str]) -> Result<String, EditError> {
    let (_, body) = split(text);
    let Some(source) = parse(body)? else { return Ok(text.to_owned()) };
    let mut object = object_at(&source.root, &[])?;
    for depth in 0..path.len() {
        match property(object, &path[..=depth])? {
            Some((_, found)) => object = object_at(&found.value, &path[..=depth])?,
            None => return Ok(text.to_owned()),
        }
    }
    let there = by_name(object);
    let mut gone = std::collections::BTreeSet::new();
    for name in names {
        match there.get(name).map(Vec::as_slice) {
            None => {}
            Some([at]) => {
                gone.insert(*at);
            }
            Some(_) => return Err(EditError::Twice { path: dotted(&[path, &[*name]].concat()) }),
        }
    }
    let mut edits = Vec::new();
    let mut before = None;
    for &at in &gone {
        // The comma that would be left over at the end is that of the last one to stay.
        before = at.checked_sub(1).filter(|at| !gone.contains(at)).or(before);
        edits.extend(removal(&source, object, before, &object.properties[at]));
    }
    edits.sort_by_key(|(start, end, _)| (*start, *end));
    edits.dedup();
    Ok(spliced(text, body, &edits))
}

fn by_name<'n>(object: &'n Object<'_>) -> std::collections::HashMap<&'n str, Vec<usize>> {
    let mut all: std::collections::HashMap<&str, Vec<usize>> = std::collections::HashMap::new();
    for (at, one) in object.properties.iter().enumerate() {
        all.entry(one.name.as_str()).or_default().push(at);
    }
    all
}

pub(super) fn remove(text: &str, path: &[&str]) -> Result<Option<String>, EditError> {
    let (_, body) = split(text);
    let Some(source) = parse(body)? else { return Ok(None) };
    let Some((_, parents)) = path.split_last() else { return Ok(None) };
    let mut object = object_at(&source.root, &[])?;
    for depth in 0..parents.len() {
        match property(object, &path[..=depth])? {
            Some((_, found)) => object = object_at(&found.value, &path[..=depth])?,
            None => return Ok(None),
        }
    }
    Ok(property(object, path)?.map(|(index, found)| {
        spliced(text, body, &removal(&source, object, index.checked_sub(1), found))
    }))
}

pub(super) fn read(text: &str, path: &[&str]) -> Result<Option<Value>, EditError> {
    let (_, body) = split(text);
    let Some(source) = parse(body)? else { return Ok(None) };
    let mut node = &source.root;
    for depth in 0..path.len() {
        match property(object_at(node, &path[..depth])?, &path[..=depth])? {
            Some((_, found)) => node = &found.value,
            None => return Ok(None),
        }
    }
    Ok(Some(to_value(node)))
}

pub(super) fn line(text: &str, path: &[&str]) -> Option<usize> {
    let (_, body) = split(text);
    let source = parse(body).ok()??;
    let (mut node, mut start) = (&source.root, 0);
    for depth in 0..path.len() {
        let (_, found) =
            property(object_at(node, &path[..depth]).ok()?, &path[..=depth]).ok()??;
        (node, start) = (&found.value, found.range.start);
    }
    Some(line_of(body, start))
}

fn to_value(node: &Node<'_>) -> Value {
    match node {
        Node::StringLit(text) => Value::from(text.value.as_ref()),
        Node::NumberLit(number) => {
            serde_json::from_str(number.value).unwrap_or_else(|_| Value::from(number.value))
        }
        Node::BooleanLit(flag) => Value::from(flag.value),
        Node::NullKeyword(_) => Value::Null,
        Node::Array(array) => array.elements.iter().map(to_value).collect(),
        Node::Object(object) => {
            let named = object.properties.iter();
            Value::Object(
                named.map(|one| (one.name.as_str().to_owned(), to_value(&one.value))).collect(),
            )
        }
    }
}

fn split(text: &str) -> (&str, &str) {
    match text.strip_prefix(BOM) {
        Some(body) => (BOM, body),
        None => ("", text),
    }
}

/// A text, read.
struct Source<'a> {
    body: &'a str,
    root: Node<'a>,
    /// In the order in which they stand.
    commas: Vec<usize>,
    comments: Vec<Range>,
}

/// The same dialect as the reader of the configuration: comments and trailing commas, nothing looser.
fn parse(body: &str) -> Result<Option<Source<'_>>, EditError> {
    let collected = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
    let parsed = parse_to_ast(body, &collected, &DIALECT).map_err(|error| EditError::Syntax {
        line: line_of(body, error.range().start),
        message: error.kind().to_string().to_lowercase(),
    })?;
    let Some(root) = parsed.value else {
        if body.trim().is_empty() {
            return Ok(None);
        }
        // Comments without a value: whatever they say would be lost in a file written anew.
        return Err(EditError::Syntax {
            line: 1,
            message: "there is no value, only comments".into(),
        });
    };
    let mut source = Source { body, root, commas: Vec::new(), comments: Vec::new() };
    for token in parsed.tokens.into_iter().flatten() {
        match token.token {
            Token::Comma => source.commas.push(token.range.start),
            Token::CommentLine(_) | Token::CommentBlock(_) => source.comments.push(token.range),
            _ => {}
        }
    }
    Ok(Some(source))
}

impl Source<'_> {
    /// The first comma between `from`, where a value ends, and `to`.
    fn comma_after(&self, from: usize, to: usize) -> Option<usize> {
        let next = self.commas.partition_point(|at| *at < from);
        self.commas.get(next).copied().filter(|at| *at < to)
    }

    /// Behind the last comment that begins in the line of `from`, where no value is any more before `to`.
    fn line_end(&self, from: usize, to: usize) -> usize {
        let mut kept = from;
        let next = self.comments.partition_point(|comment| comment.start < from);
        for comment in &self.comments[next..] {
            if comment.start >= to || self.body[kept..comment.start].contains('\n') {
                break;
            }
            kept = comment.end;
            if self.body[comment.start..comment.end].contains('\n') {
                break;
            }
        }
        kept
    }
}

fn object_at<'n, 'a>(node: &'n Node<'a>, path: &[&str]) -> Result<&'n Object<'a>, EditError> {
    match node {
        Node::Object(object) => Ok(object),
        _ => {
            let path = if path.is_empty() { "the file".to_owned() } else { dotted(path) };
            Err(EditError::NotAnObject { path, expected: "an object" })
        }
    }
}

/// The property named by the last key of `path`.
fn property<'n, 'a>(
    object: &'n Object<'a>,
    path: &[&str],
) -> Result<Option<(usize, &'n ObjectProp<'a>)>, EditError> {
    let Some(key) = path.last() else { return Ok(None) };
    let mut named =
        object.properties.iter().enumerate().filter(|(_, one)| one.name.as_str() == *key);
    let found = named.next();
    match named.next() {
        Some(_) => Err(EditError::Twice { path: dotted(path) }),
        None => Ok(found),
    }
}

/// How this file is laid out.
struct Style {
    unit: String,
    newline: &'static str,
}

impl Style {
    fn of(body: &str) -> Style {
        let newline = if body.contains("\r\n") { "\r\n" } else { "\n" };
        let indents = body.lines().filter_map(|line| {
            let rest = line.trim_start_matches([' ', '\t']);
            (rest.starts_with('"') && rest.len() < line.len())
                .then(|| &line[..line.len() - rest.len()])
        });
        let unit = indents.min_by_key(|indent| indent.len()).unwrap_or(USUAL_INDENT).to_owned();
        Style { unit, newline }
    }
}

/// A value as people write it: objects over several lines, lists of plain values in one.
fn rendered(value: &Value, indent: &str, style: &Style) -> String {
    let Style { unit, newline } = style;
    let inner = format!("{indent}{unit}");
    let lines = |open: char, entries: Vec<String>, close: char| {
        let entries = entries.join(&format!(",{newline}{inner}"));
        format!("{open}{newline}{inner}{entries}{newline}{indent}{close}")
    };
    match value {
        Value::Object(object) if !object.is_empty() => {
            let entry = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), rendered(value, &inner, style))
            };
            lines('{', object.iter().map(entry).collect(), '}')
        }
        Value::Array(values)
            if values.iter().any(|value| value.is_object() || value.is_array()) =>
        {
            lines('[', values.iter().map(|value| rendered(value, &inner, style)).collect(), ']')
        }
        _ => in_line(value),
    }
}

/// A value in one line.
fn in_line(value: &Value) -> String {
    match value {
        Value::Object(object) if !object.is_empty() => {
            let entry = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), in_line(value))
            };
            format!("{{ {} }}", object.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(in_line).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

fn nested(path: &[&str], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, key| {
        Value::Object(std::iter::once(((*key).to_owned(), inner)).collect())
    })
}

/// A part of the text and what goes in its place.
type Edit = (usize, usize, String);

fn spliced(text: &str, body: &str, edits: &[Edit]) -> String {
    let offset = text.len() - body.len();
    let mut edited = text[..offset].to_owned();
    let mut copied = 0;
    for (start, end, fresh) in edits {
        edited.push_str(&body[copied..*start]);
        edited.push_str(fresh);
        copied = *end;
    }
    edited.push_str(&body[copied..]);
    edited
}

/// New entries behind the last one, or alone.
fn insertions(
    source: &Source<'_>,
    object: &Object<'_>,
    entries: &[(&str, &Value)],
    style: &Style,
) -> Vec<Edit> {
    if entries.is_empty() {
        return Vec::new();
    }
    let (body, close) = (source.body, object.range.end - 1);
    let all = |indent: &str| -> String {
        let one = |(key, value): &(&str, &Value)| {
            format!("{}: {}", Value::from(*key), rendered(value, indent, style))
        };
        let between = format!(",{}{indent}", style.newline);
        entries.iter().map(one).collect::<Vec<_>>().join(&between)
    };
    let Some(last) = object.properties.last() else {
        let outer = leading(body, object.range.start);
        let inner = format!("{outer}{}", style.unit);
        let kept = object.range.start + 1 + body[object.range.start + 1..close].trim_end().len();
        let fresh = format!("{0}{inner}{1}{0}{outer}", style.newline, all(&inner));
        return vec![(kept, close, fresh)];
    };
    let end = last.range.end;
    let comma = source.comma_after(end, close);
    let after = comma.map_or(end, |at| at + 1);
    let tail = if comma.is_some() { "," } else { "" };
    let mut edits = Vec::new();
    if comma.is_none() {
        edits.push((end, end, ",".to_owned()));
    }
    match own_line(body, last.range.start) {
        Some(indent) => {
            let at = source.line_end(after, close);
            let fresh = format!("{}{indent}{}{tail}", style.newline, all(indent));
            edits.push((at, at, fresh));
        }
        None => {
            let one = |(key, value): &(&str, &Value)| {
                format!("{}: {}", Value::from(*key), in_line(value))
            };
            let all = entries.iter().map(one).collect::<Vec<_>>().join(", ");
            edits.push((after, after, format!(" {all}{tail}")));
        }
    }
    edits
}

/// `before` is the property in front of it that stays, if one does.
fn removal(
    source: &Source<'_>,
    object: &Object<'_>,
    before: Option<usize>,
    found: &ObjectProp<'_>,
) -> Vec<Edit> {
    let (body, close) = (source.body, object.range.end - 1);
    let (mut start, mut end) = (found.range.start, found.range.end);
    let mut edits = Vec::new();
    match source.comma_after(end, close) {
        Some(comma) if body[end..comma].trim().is_empty() => end = comma + 1,
        Some(comma) => edits.push((comma, comma + 1, String::new())),
        None => {
            let before = before.map(|index| &object.properties[index]);
            let comma = before.and_then(|before| source.comma_after(before.range.end, start));
            edits.extend(comma.map(|comma| (comma, comma + 1, String::new())));
        }
    }
    let rest = &body[end..close];
    let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
    if own_line(body, start).is_some() && rest[blank..].starts_with('\n') {
        start -= leading(body, start).len();
        end += blank + 1;
    } else {
        end += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }
    edits.push((start, end, String::new()));
    edits.sort_by_key(|(start, ..)| *start);
    edits
}

/// The whitespace at the beginning of the line that holds `at`.
fn leading(body: &str, at: usize) -> &str {
    let line = body[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let rest = body[line..].trim_start_matches([' ', '\t']);
    &body[line..body.len() - rest.len()]
}

/// The indentation, if nothing else stands before `at` in its line.
fn own_line(body: &str, at: usize) -> Option<&str> {
    let indent = leading(body, at);
    let line = body[..at].rfind('\n')? + 1;
    (line + indent.len() == at).then_some(indent)
}
