//! YAML in which entries are a list and each says its own `name`, edited item by item. To callers it looks like a
//! mapping by these names. Anything else is rejected, never guessed.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::EditError;
use super::yaml::{self, Lines};

/// The key that identifies an item.
const NAME: &str = "name";

/// One item: its lines, and what it says.
struct Item {
    name: String,
    start: usize,
    end: usize,
    value: Map<String, Value>,
}

pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    let (keys, name) = split(path)?;
    set_all(text, keys, &[(name.to_owned(), value.clone())])
}

/// All at once: replaced where they are, the others put behind the last one together.
pub(super) fn set_all(
    text: &str,
    keys: &[&str],
    entries: &[(String, Value)],
) -> Result<String, EditError> {
    let [_] = keys else { return Err(no_entry(keys)) };
    if entries.is_empty() {
        return Ok(text.to_owned());
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let Some(list) = list(text, keys)? else {
        // The key with an empty list, which the next iteration fills.
        return set_all(&yaml::set(text, keys, &Value::Array(Vec::new()))?, keys, entries);
    };
    // `mcpServers: []` becomes a list of lines: only the brackets go.
    if let Some(emptied) = list.emptied {
        return set_all(&emptied, keys, entries);
    }
    let mut written: HashMap<&str, String> = HashMap::new();
    for (name, value) in entries {
        let Value::Object(value) = value else {
            let path = [keys, &[name.as_str()]].concat().join(".");
            return Err(EditError::NotAnObject { path, expected: "an entry" });
        };
        written.insert(name, item(name, value, list.indent, newline));
    }
    let mut replaced = Vec::new();
    for Item { name, start, end, .. } in &list.items {
        if let Some(fresh) = written.get_mut(name.as_str()) {
            replaced.push((*start, *end, std::mem::take(fresh)));
        }
    }
    let fresh: String =
        entries.iter().filter_map(|(name, _)| written.remove(name.as_str())).collect();
    Ok(yaml::spliced(text, &replaced, (list.end, &fresh), newline))
}

pub(super) fn remove(text: &str, path: &[&str]) -> Result<Option<String>, EditError> {
    let (keys, name) = split(path)?;
    let without = remove_all(text, keys, &[name])?;
    Ok((without != text).then_some(without))
}

pub(super) fn remove_all(text: &str, keys: &[&str], names: &[&str]) -> Result<String, EditError> {
    let [_] = keys else { return Err(no_entry(keys)) };
    let Some(list) = list(text, keys)? else { return Ok(text.to_owned()) };
    let names: HashSet<&str> = names.iter().copied().collect();
    let gone: Vec<(usize, usize, String)> = list
        .items
        .iter()
        .filter(|item| names.contains(item.name.as_str()))
        .map(|item| (item.start, item.end, String::new()))
        .collect();
    let without = yaml::spliced(text, &gone, (text.len(), ""), "");
    if gone.is_empty() || gone.len() < list.items.len() {
        return Ok(without);
    }
    // Nothing behind the key would be no list any more.
    let key = &text[..list.key_end];
    Ok(format!("{} []{}", key.trim_end(), &without[list.key_end..]))
}

pub(super) fn read(text: &str, path: &[&str]) -> Result<Option<Value>, EditError> {
    let Some((first, rest)) = path.split_first() else { return yaml::read(text, path) };
    let Some(list) = list(text, &[first])? else { return Ok(None) };
    let mut all: Map<String, Value> =
        list.items.into_iter().map(|item| (item.name, Value::Object(item.value))).collect();
    let mut value = match rest.split_first() {
        None => return Ok(Some(Value::Object(all))),
        Some((name, deeper)) => match all.remove(*name) {
            None => return Ok(None),
            Some(value) => (value, deeper),
        },
    };
    for key in value.1 {
        value.0 = match value.0.get_mut(*key) {
            Some(inner) => inner.take(),
            None => return Ok(None),
        };
    }
    Ok(Some(value.0))
}

pub(super) fn line(text: &str, path: &[&str]) -> Option<usize> {
    let (keys, name) = split(path).ok()?;
    let list = list(text, keys).ok()??;
    let item = list.items.iter().find(|item| item.name == name)?;
    Some(super::line_of(text, item.start))
}

fn split<'a>(path: &'a [&'a str]) -> Result<(&'a [&'a str], &'a str), EditError> {
    match path {
        [_, name] => Ok((&path[..1], name)),
        _ => Err(no_entry(path)),
    }
}

fn no_entry(path: &[&str]) -> EditError {
    EditError::NotAnObject { path: path.join("."), expected: "an entry of the list" }
}

/// The list behind a key.
struct List {
    items: Vec<Item>,
    /// The column of its dashes.
    indent: usize,
    /// Where another item would go.
    end: usize,
    /// Where the line of its key ends, without comment and line break.
    key_end: usize,
    /// The text without its `[]`, if it is written so.
    emptied: Option<String>,
}

fn list(text: &str, keys: &[&str]) -> Result<Option<List>, EditError> {
    let lines = Lines::of(text)?;
    let Some(place) = lines.place(keys[0])? else { return Ok(None) };
    let refuse = |line: usize, what| Err(EditError::Unsupported { line: line + 1, what });
    let key_end = place.value_start;
    match place.value {
        "" => {}
        "[]" => {
            let (items, indent) = (Vec::new(), place.indent);
            let emptied = Some(lines.without_value(place.line));
            return Ok(Some(List { items, indent, end: place.line_end, key_end, emptied }));
        }
        _ => return refuse(place.line, "a list written in one line"),
    }
    let mut items: Vec<Item> = Vec::new();
    let mut names = HashSet::new();
    let mut at = place.first;
    while at < place.end {
        let (line, start, indent, blank) = lines.line(at);
        if blank {
            at += 1;
            continue;
        }
        if indent != place.indent || !yaml::is_item(line) {
            return refuse(at, "this way of writing a list");
        }
        let mut next = at + 1;
        let mut last = at;
        while next < place.end {
            let (_, _, indent, blank) = lines.line(next);
            if !blank && indent <= place.indent {
                break;
            }
            if !blank {
                last = next;
            }
            next += 1;
        }
        let end = lines.start(last + 1);
        let mut value = mapping(&text[start..end], indent, at)?;
        let Some(Value::String(name)) = value.remove(NAME) else {
            return refuse(at, "an item without a name");
        };
        if !names.insert(name.clone()) {
            return Err(EditError::Twice { path: name });
        }
        items.push(Item { name, start, end, value });
        at = last + 1;
    }
    let end = items.last().map_or(place.line_end, |item| item.end);
    Ok(Some(List { items, indent: place.indent, end, key_end, emptied: None }))
}

/// An item read as the mapping it is, with the dash and what stands before it taken away.
fn mapping(item: &str, indent: usize, line: usize) -> Result<Map<String, Value>, EditError> {
    let refuse = |what| EditError::Unsupported { line: line + 1, what };
    let behind = &item[indent + 1..];
    let column = indent + 1 + (behind.len() - behind.trim_start_matches(' ').len());
    let mut plain = String::with_capacity(item.len());
    for (number, whole) in item.split_inclusive('\n').enumerate() {
        let is_blank = whole.trim().is_empty() || whole.trim_start().starts_with('#');
        match whole.get(column..) {
            Some(rest) if number == 0 || whole[..column].trim().is_empty() => plain.push_str(rest),
            _ if is_blank => plain.push('\n'),
            _ => return Err(refuse("this indentation")),
        }
    }
    match yaml::read(&plain, &[]) {
        Ok(Some(Value::Object(all))) => Ok(all),
        Ok(_) => Err(refuse("an item that is no mapping")),
        // The line within the item becomes the line within the file.
        Err(EditError::Unsupported { line: inner, what }) => {
            Err(EditError::Unsupported { line: line + inner, what })
        }
        Err(error) => Err(error),
    }
}

fn item(name: &str, value: &Map<String, Value>, indent: usize, newline: &str) -> String {
    let mut all = Map::new();
    all.insert(NAME.to_owned(), name.into());
    all.extend(value.iter().map(|(key, value)| (key.clone(), value.clone())));
    let block: String =
        all.iter().map(|(key, value)| yaml::entry(key, value, indent + 2, newline)).collect();
    format!("{}- {}", " ".repeat(indent), &block[indent + 2..])
}
