//! TOML: entries inserted with `toml_edit`, which preserves comments and layout, and removed by their lines.

use std::ops::Range;

use serde_json::Value;
use toml_edit::{Array, DocumentMut, ImDocument, Item, Key, Table, TableLike};

use super::{BOM, EditError, dotted, line_of};

pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    let Some((last, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    set_all(text, parents, &[((*last).to_owned(), value.clone())])
}

pub(super) fn set_all(
    text: &str,
    path: &[&str],
    entries: &[(String, Value)],
) -> Result<String, EditError> {
    edited(text, |document| {
        let mut table: &mut dyn TableLike = document.as_table_mut();
        for depth in 0..path.len() {
            let fresh = || {
                let mut table = Table::new();
                // `[mcp_servers]` alone says nothing; its children carry the whole name.
                table.set_implicit(true);
                Item::Table(table)
            };
            let item = table.entry(path[depth]).or_insert_with(fresh);
            table = item.as_table_like_mut().ok_or_else(|| not_a_table(&path[..=depth]))?;
        }
        for (name, value) in entries {
            let mut item = item(value);
            if let (Some(old), Item::Table(new)) =
                (table.get(name).and_then(Item::as_table), &mut item)
            {
                *new.decor_mut() = old.decor().clone();
                // One that came in just now, or that has no header, has no place yet: it goes to the end.
                if let Some(position) = old.position() {
                    new.set_position(position);
                }
            }
            table.insert(name, item);
        }
        Ok(())
    })
}

pub(super) fn remove(text: &str, path: &[&str]) -> Result<Option<String>, EditError> {
    let Some((last, parents)) = path.split_last() else { return Ok(None) };
    let is_there = read(text, parents)?.is_some_and(|table| table.get(last).is_some());
    if is_there { remove_all(text, parents, &[last]).map(Some) } else { Ok(None) }
}

/// What stands above an entry stays: the head of the file, or a server that somebody commented out. Only the reader
/// that knows where each line is can tell it from what is inside.
pub(super) fn remove_all(text: &str, path: &[&str], names: &[&str]) -> Result<String, EditError> {
    let (bom, body) = split(text);
    let document = ImDocument::parse(body).map_err(|error| syntax(body, &error))?;
    let mut parent = document.as_item();
    for depth in 0..path.len() {
        let table = parent.as_table_like().ok_or_else(|| not_a_table(&path[..depth]))?;
        let Some(inner) = table.get(path[depth]) else { return Ok(text.to_owned()) };
        parent = inner;
    }
    let table = match parent {
        Item::Table(table) => table,
        Item::Value(value) if value.is_inline_table() => return remove_inline(text, path, names),
        _ => return Err(not_a_table(path)),
    };
    let mut spans = Vec::new();
    for (key, item) in names.iter().filter_map(|name| table.get_key_value(name)) {
        statements(key, item, &mut spans);
    }
    let mut gone: Vec<Range<usize>> =
        spans.into_iter().map(|span| whole_lines(body, span)).collect();
    gone.sort_by_key(|range| range.start);
    let mut kept = String::with_capacity(text.len());
    kept.push_str(bom);
    let mut from = 0;
    for range in gone {
        // What a header reaches over is given once more by its keys.
        if range.start > from {
            kept.push_str(&body[from..range.start]);
        }
        from = from.max(range.end);
    }
    kept.push_str(&body[from..]);
    Ok(kept)
}

/// Where the headers and the keys of an entry stand; those inside others may be among them.
fn statements(key: &Key, item: &Item, spans: &mut Vec<Range<usize>>) {
    match item {
        Item::None => {}
        Item::Value(value) => {
            if let (Some(key), Some(value)) = (key.span(), value.span()) {
                spans.push(key.start..value.end);
            }
        }
        Item::Table(table) => of_table(table, spans),
        Item::ArrayOfTables(tables) => tables.iter().for_each(|table| of_table(table, spans)),
    }
}

/// A table with a header reaches from that to its last value; one without has only what is in it.
fn of_table(table: &Table, spans: &mut Vec<Range<usize>>) {
    spans.extend(table.span());
    for (name, item) in table {
        if let Some(key) = table.key(name) {
            statements(key, item, spans);
        }
    }
}

/// The lines of a statement. A header takes the empty lines above it along, or, at the top of the file, those below.
fn whole_lines(body: &str, span: Range<usize>) -> Range<usize> {
    let is_blank = |line: &str| line.trim().is_empty();
    let mut start = body[..span.start].rfind('\n').map_or(0, |newline| newline + 1);
    let mut end = body[span.end..].find('\n').map_or(body.len(), |newline| span.end + newline + 1);
    if body[span.start..].starts_with('[') {
        for line in body[..start].split_inclusive('\n').rev().take_while(|line| is_blank(line)) {
            start -= line.len();
        }
        if start == 0 {
            let below = body[end..].split_inclusive('\n').take_while(|line| is_blank(line));
            end += below.map(str::len).sum::<usize>();
        }
    }
    start..end
}

/// Entries of a table in one line, `mcp_servers = { a = { … } }`, have no lines of their own.
fn remove_inline(text: &str, path: &[&str], names: &[&str]) -> Result<String, EditError> {
    edited(text, |document| {
        let mut table: &mut dyn TableLike = document.as_table_mut();
        for depth in 0..path.len() {
            let Some(item) = table.get_mut(path[depth]) else { return Ok(()) };
            table = item.as_table_like_mut().ok_or_else(|| not_a_table(&path[..=depth]))?;
        }
        for name in names {
            table.remove(name);
        }
        Ok(())
    })
}

/// The text with its document changed, and with the mark at its beginning and its own line breaks, which the reader
/// does not keep.
fn edited(
    text: &str,
    change: impl FnOnce(&mut DocumentMut) -> Result<(), EditError>,
) -> Result<String, EditError> {
    let (bom, body) = split(text);
    let mut document = parse(&body.replace("\r\n", "\n"))?;
    change(&mut document)?;
    let after = document.to_string();
    if !body.contains("\r\n") {
        return Ok(format!("{bom}{after}"));
    }
    // Lines before and behind the change are the old ones, so that a file with both kinds of line breaks keeps both.
    let (old, new): (Vec<&str>, Vec<&str>) =
        (body.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let is_same = |(old, new): &(&&str, &&str)| {
        old.len() - usize::from(old.ends_with("\r\n")) == new.len()
            && old.trim_end_matches(['\r', '\n']) == new.trim_end_matches(['\r', '\n'])
    };
    let before = old.iter().zip(&new).take_while(is_same).count();
    let (old_rest, new_rest) = (&old[before..], &new[before..]);
    let behind = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(is_same).count();
    let changed = new_rest[..new_rest.len() - behind].concat().replace('\n', "\r\n");
    let (head, tail) = (old[..before].concat(), old_rest[old_rest.len() - behind..].concat());
    Ok(format!("{bom}{head}{changed}{tail}"))
}

pub(super) fn read(text: &str, path: &[&str]) -> Result<Option<Value>, EditError> {
    let document = parse(split(text).1)?;
    let mut item = document.as_item();
    for key in path {
        match item.as_table_like().and_then(|table| table.get(key)) {
            Some(inner) => item = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(value(item)))
}

pub(super) fn line(text: &str, path: &[&str]) -> Option<usize> {
    let (_, body) = split(text);
    let document = ImDocument::parse(body).ok()?;
    let (last, parents) = path.split_last()?;
    let mut table: &dyn TableLike = document.as_table();
    for key in parents {
        table = table.get(key)?.as_table_like()?;
    }
    let (key, item) = table.get_key_value(last)?;
    let mut spans = Vec::new();
    statements(key, item, &mut spans);
    spans.iter().map(|span| line_of(body, span.start)).min()
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(if text.starts_with(BOM) { BOM.len() } else { 0 })
}

fn parse(body: &str) -> Result<DocumentMut, EditError> {
    body.parse().map_err(|error| syntax(body, &error))
}

fn syntax(body: &str, error: &toml_edit::TomlError) -> EditError {
    EditError::Syntax {
        line: line_of(body, error.span().map_or(0, |span| span.start)),
        message: error.message().lines().collect::<Vec<_>>().join("; "),
    }
}

fn not_a_table(path: &[&str]) -> EditError {
    EditError::NotAnObject { path: dotted(path), expected: "a table" }
}

/// A value as TOML writes it; objects become tables of their own. TOML has no `null`: such keys are skipped.
fn item(value: &Value) -> Item {
    match value {
        Value::Object(object) => {
            let mut table = Table::new();
            let plain = object.iter().filter(|(_, value)| !value.is_object());
            let tables = object.iter().filter(|(_, value)| value.is_object());
            for (key, value) in plain.chain(tables).filter(|(_, value)| !value.is_null()) {
                table.insert(key, item(value));
            }
            Item::Table(table)
        }
        other => Item::Value(plain(other)),
    }
}

fn plain(value: &Value) -> toml_edit::Value {
    match value {
        Value::Null => "".into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => values.iter().map(plain).collect::<Array>().into(),
        Value::Object(object) => {
            let mut table = toml_edit::InlineTable::new();
            for (key, value) in object {
                table.insert(key, plain(value));
            }
            table.into()
        }
    }
}

fn value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => of_value(value),
        Item::Table(table) => {
            Value::Object(table.iter().map(|(key, item)| (key.to_owned(), value(item))).collect())
        }
        Item::ArrayOfTables(tables) => tables
            .iter()
            .map(|table| {
                let named = table.iter().map(|(key, item)| (key.to_owned(), value(item)));
                Value::Object(named.collect())
            })
            .collect(),
    }
}

fn of_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::from(text.value().as_str()),
        toml_edit::Value::Integer(number) => Value::from(*number.value()),
        toml_edit::Value::Float(number) => Value::from(*number.value()),
        toml_edit::Value::Boolean(flag) => Value::from(*flag.value()),
        toml_edit::Value::Datetime(date) => Value::from(date.value().to_string()),
        toml_edit::Value::Array(values) => values.iter().map(of_value).collect(),
        toml_edit::Value::InlineTable(table) => {
            let named = table.iter().map(|(key, value)| (key.to_owned(), of_value(value)));
            Value::Object(named.collect())
        }
    }
}
