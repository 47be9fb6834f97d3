//! TOML, edited by a reader that keeps comments and layout.

use serde_json::Value;
use toml_edit::{Array, DocumentMut, Item, Table, TableLike};

use super::{EditError, dotted, line_of};

pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    let Some((last, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    set_all(text, parents, &[((*last).to_owned(), value.clone())])
}

pub(super) fn set_all(
    text: &str,
    path: &[&str],
    entries: &[(String, Value)],
) -> Result<String, EditError> {
    let mut document = parse(text)?;
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
        if let (Some(old), Item::Table(new)) = (table.get(name).and_then(Item::as_table), &mut item)
        {
            *new.decor_mut() = old.decor().clone();
            new.set_position(old.position().unwrap_or_default());
        }
        table.insert(name, item);
    }
    Ok(document.to_string())
}

pub(super) fn remove_all(text: &str, path: &[&str], names: &[&str]) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for depth in 0..path.len() {
        let Some(item) = table.get_mut(path[depth]) else { return Ok(text.to_owned()) };
        table = item.as_table_like_mut().ok_or_else(|| not_a_table(&path[..=depth]))?;
    }
    let removed = names.iter().filter(|name| table.remove(name).is_some()).count();
    Ok(if removed == 0 { text.to_owned() } else { document.to_string() })
}

pub(super) fn remove(text: &str, path: &[&str]) -> Result<Option<String>, EditError> {
    let mut document = parse(text)?;
    let Some((last, parents)) = path.split_last() else { return Ok(None) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for depth in 0..parents.len() {
        let Some(item) = table.get_mut(path[depth]) else { return Ok(None) };
        table = item.as_table_like_mut().ok_or_else(|| not_a_table(&path[..=depth]))?;
    }
    Ok(table.remove(last).map(|_| document.to_string()))
}

pub(super) fn read(text: &str, path: &[&str]) -> Result<Option<Value>, EditError> {
    let document = parse(text)?;
    let mut item = document.as_item();
    for key in path {
        match item.as_table_like().and_then(|table| table.get(key)) {
            Some(inner) => item = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(value(item)))
}

fn parse(text: &str) -> Result<DocumentMut, EditError> {
    text.parse().map_err(|error: toml_edit::TomlError| EditError::Syntax {
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        message: error.message().lines().collect::<Vec<_>>().join("; "),
    })
}

fn not_a_table(path: &[&str]) -> EditError {
    EditError::NotAnObject { path: dotted(path), expected: "a table" }
}

/// A value as TOML writes it; objects become tables of their own. TOML has no `null`: such keys are left out.
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
