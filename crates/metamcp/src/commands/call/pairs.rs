//! Arguments as people type them: `key=value`, `key:=JSON`, `key=@FILE`, converted to the types of the tool's schema.
//! Text that fits no type of the schema stays text: the validation that follows reports what is wrong.

use anyhow::Context;
use serde_json::{Map, Value};

use crate::console;
use crate::exit::{OrMisuse, misuse};
use crate::render::visible;

/// How many references of a schema are followed; more means a cycle.
const MOST_REFERENCES: usize = 16;

/// The pairs of a command line, with the contents of the files they name.
#[derive(Debug, Default)]
pub(super) struct Pairs(Vec<(String, Given)>);

#[derive(Debug)]
enum Given {
    /// Converted according to the schema.
    Text(String),
    /// Used unchanged: `:=`.
    Json(Value),
    /// The contents of a file, always text whatever they look like.
    Content(String),
}

impl Pairs {
    /// Parses pairs and reads their files.
    pub(super) fn read(words: &[String]) -> anyhow::Result<Pairs> {
        words.iter().map(|word| pair(word)).collect::<anyhow::Result<_>>().map(Pairs)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Merges the pairs into the arguments of a call; on a conflict the pair wins.
    pub(super) fn into_object(
        self,
        schema: Option<&Value>,
        into: &mut Map<String, Value>,
    ) -> anyhow::Result<()> {
        let mut given: Vec<(Vec<String>, Vec<Given>)> = Vec::new();
        for (key, value) in self.0 {
            let path = path(&key, schema);
            match given.iter_mut().find(|(known, _)| *known == path) {
                Some((_, all)) => all.push(value),
                None => given.push((path, vec![value])),
            }
        }
        for (path, values) in given {
            let root = SchemaPart::root(schema);
            let schema = path.iter().fold(root, |at, key| at?.property(key));
            let value = made(&path.join("."), values, schema)?;
            put(into, &path, value)?;
        }
        Ok(())
    }
}

fn pair(word: &str) -> anyhow::Result<(String, Given)> {
    let form = || {
        misuse(format!(
            "`{}` is not an argument; write key=value, key:=JSON or key=@FILE",
            visible(word)
        ))
    };
    let (key, value) = word.split_once('=').ok_or_else(form)?;
    let (key, is_json) = match key.strip_suffix(':') {
        Some(key) => (key, true),
        None => (key, false),
    };
    if key.is_empty() {
        return Err(form());
    }
    let (text, is_content) = match value.strip_prefix('@') {
        Some(rest) if rest.starts_with('@') => (rest.to_owned(), false),
        Some(file) => (content(file)?, true),
        None => (value.to_owned(), false),
    };
    let given = match (is_json, is_content) {
        (true, _) => {
            let broken = || format!("the value of `{}` is not JSON", visible(key));
            Given::Json(serde_json::from_str(&text).with_context(broken).or_misuse()?)
        }
        (false, true) => Given::Content(text),
        (false, false) => Given::Text(text),
    };
    Ok((key.to_owned(), given))
}

fn content(file: &str) -> anyhow::Result<String> {
    if file == "-" {
        return console::read_stdin().context("cannot read stdin");
    }
    console::read_file(file.as_ref())
        .with_context(|| {
            format!("cannot read {}; a string that begins with @ is written @@", visible(file))
        })
        .or_misuse()
}

/// The path of a key: `a.b` is a member of an object, unless the tool has an argument of that exact name.
fn path(key: &str, schema: Option<&Value>) -> Vec<String> {
    let root = SchemaPart::root(schema);
    let is_known = |name: &str| root.is_some_and(|root| root.property(name).is_some());
    match key.split_once('.') {
        Some((first, rest)) if !is_known(key) && !first.is_empty() && !rest.is_empty() => {
            if root.is_some() && !is_known(first) {
                return vec![key.to_owned()];
            }
            key.split('.').map(str::to_owned).collect()
        }
        _ => vec![key.to_owned()],
    }
}

/// Sets a value at a path, creating objects on the way.
fn put(into: &mut Map<String, Value>, path: &[String], value: Value) -> anyhow::Result<()> {
    match path {
        [] => Ok(()),
        [key] => {
            into.insert(key.clone(), value);
            Ok(())
        }
        [key, rest @ ..] => {
            let inner = into.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
            match inner.as_object_mut() {
                Some(inner) => put(inner, rest, value),
                None => Err(misuse(format!(
                    "`{}` is given as an object and as something else",
                    visible(key)
                ))),
            }
        }
    }
}

/// The value of a key that was given once or several times.
fn made(key: &str, values: Vec<Given>, schema: Option<SchemaPart<'_>>) -> anyhow::Result<Value> {
    let is_list = schema.is_some_and(|schema| schema.takes("array"));
    let only_list = is_list && schema.is_some_and(|schema| !schema.takes("string"));
    if values.len() > 1 && !is_list && schema.is_some_and(|schema| !schema.types().is_empty()) {
        return Err(misuse(format!(
            "`{}` is given {} times but takes one value",
            visible(key),
            values.len()
        )));
    }
    if values.len() > 1 {
        let items = schema.and_then(SchemaPart::items);
        return Ok(values.into_iter().map(|value| one(value, items)).collect());
    }
    let Some(value) = values.into_iter().next() else { return Ok(Value::Null) };
    if !only_list {
        return Ok(one(value, schema));
    }
    // A list of one value, unless it is written as a list.
    match value {
        Given::Json(value) => Ok(value),
        Given::Text(text) if text.trim_start().starts_with('[') => {
            Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
        }
        value => Ok(vec![one(value, schema.and_then(SchemaPart::items))].into()),
    }
}

/// One value, converted to a type its schema accepts.
fn one(given: Given, schema: Option<SchemaPart<'_>>) -> Value {
    let text = match given {
        Given::Json(value) => return value,
        Given::Content(text) => return Value::String(text),
        Given::Text(text) => text,
    };
    let Some(schema) = schema else { return Value::String(text) };
    let Ok(value) = serde_json::from_str::<Value>(&text) else { return Value::String(text) };
    let is_taken = match &value {
        Value::Number(_) => schema.takes("number") || schema.takes("integer"),
        Value::Bool(_) => schema.takes("boolean"),
        Value::Object(_) => schema.takes("object"),
        Value::Array(_) => schema.takes("array"),
        Value::Null => schema.takes("null") && !schema.takes("string"),
        // The quotes are part of the text.
        Value::String(_) => false,
    };
    // A string in the schema's `enum` or `const` is text, even if it looks like a number.
    let is_named = schema.texts().any(|known| known == text);
    if is_taken && !is_named { value } else { Value::String(text) }
}

/// Part of a schema, and the root that its references resolve against.
#[derive(Debug, Clone, Copy)]
struct SchemaPart<'a> {
    whole: &'a Value,
    part: &'a Value,
}

impl<'a> SchemaPart<'a> {
    fn root(schema: Option<&'a Value>) -> Option<SchemaPart<'a>> {
        schema.map(|whole| SchemaPart { whole, part: whole })
    }

    /// The schema itself and everything it refers to or chooses from.
    fn all(self) -> Vec<&'a Value> {
        let (mut all, mut next) = (Vec::new(), vec![self.part]);
        while let Some(part) = next.pop().filter(|_| all.len() < MOST_REFERENCES) {
            all.push(part);
            let reference = part["$ref"].as_str().and_then(|at| at.strip_prefix('#'));
            next.extend(reference.and_then(|at| self.whole.pointer(at)));
            for choice in ["anyOf", "oneOf", "allOf"] {
                next.extend(part[choice].as_array().into_iter().flatten());
            }
        }
        all
    }

    fn types(self) -> Vec<&'a str> {
        let named = |part: &'a Value| -> Vec<&'a str> {
            match &part["type"] {
                Value::String(one) => vec![one.as_str()],
                Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
                _ => part["enum"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .chain(part.get("const"))
                    .map(word)
                    .collect(),
            }
        };
        self.all().into_iter().flat_map(named).collect()
    }

    /// Whether values of a type fit. A schema without a type accepts all.
    fn takes(self, word: &str) -> bool {
        let types = self.types();
        types.is_empty() || types.contains(&word)
    }

    /// The strings it allows by `enum` or `const`.
    fn texts(self) -> impl Iterator<Item = &'a str> {
        let of = |part: &'a Value| {
            part["enum"].as_array().into_iter().flatten().chain(part.get("const"))
        };
        self.all().into_iter().flat_map(of).filter_map(Value::as_str)
    }

    fn items(self) -> Option<SchemaPart<'a>> {
        let part = self.all().into_iter().find_map(|part| part.get("items"))?;
        Some(SchemaPart { part, ..self })
    }

    fn property(self, name: &str) -> Option<SchemaPart<'a>> {
        let part = self.all().into_iter().find_map(|part| part["properties"].get(name))?;
        Some(SchemaPart { part, ..self })
    }
}

fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "head": { "type": "integer" },
                "ratio": { "anyOf": [{ "type": "number" }, { "type": "null" }] },
                "deep": { "type": "boolean", "default": false },
                "tags": { "type": "array", "items": { "type": "string" } },
                "ids": { "type": "array", "items": { "type": "integer" } },
                "either": { "type": ["string", "number"] },
                "level": { "enum": ["1", "high"] },
                "options": { "$ref": "#/$defs/options" },
                "a.b": { "type": "integer" },
                "any": {},
            },
            "$defs": { "options": { "type": "object", "properties": { "depth": { "type": "integer" } } } },
        })
    }

    fn read(words: &[&str], schema: Option<&Value>) -> Result<Value, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let mut into = Map::new();
        let read = Pairs::read(&words).and_then(|pairs| pairs.into_object(schema, &mut into));
        read.map(|()| into.into()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn values_become_what_the_schema_wants() {
        let schema = schema();
        for (words, expected) in [
            (&["path=notes.md", "head=10"][..], json!({ "path": "notes.md", "head": 10 })),
            (&["path=10"], json!({ "path": "10" })),
            (&["path="], json!({ "path": "" })),
            (&["path=a=b"], json!({ "path": "a=b" })),
            (&["path=@@home"], json!({ "path": "@home" })),
            (&["path=\"quoted\""], json!({ "path": "\"quoted\"" })),
            (&["head=ten"], json!({ "head": "ten" })),
            (&["head=-3"], json!({ "head": -3 })),
            (&["ratio=0.5"], json!({ "ratio": 0.5 })),
            (&["ratio=null"], json!({ "ratio": null })),
            (&["deep=true"], json!({ "deep": true })),
            (&["deep=yes"], json!({ "deep": "yes" })),
            (&["tags=a", "tags=1"], json!({ "tags": ["a", "1"] })),
            (&["tags=a"], json!({ "tags": ["a"] })),
            (&["tags=[\"a\", \"b\"]"], json!({ "tags": ["a", "b"] })),
            (&["ids=1", "ids=2"], json!({ "ids": [1, 2] })),
            (&["either=5"], json!({ "either": 5 })),
            (&["level=1"], json!({ "level": "1" })),
            (&["options.depth=2"], json!({ "options": { "depth": 2 } })),
            (&["options={\"depth\": 2}"], json!({ "options": { "depth": 2 } })),
            (&["a.b=2"], json!({ "a.b": 2 })),
            (&["x.y=2"], json!({ "x.y": "2" })),
            (&["any=2"], json!({ "any": 2 })),
            (&["head:=\"10\""], json!({ "head": "10" })),
            (&["tags:=[1]"], json!({ "tags": [1] })),
        ] {
            assert_eq!(read(words, Some(&schema)).as_ref(), Ok(&expected), "{words:?}");
        }
    }

    #[test]
    fn without_a_schema_a_value_is_a_text() {
        for (words, expected) in [
            (&["n=1"][..], json!({ "n": "1" })),
            (&["n:=1"], json!({ "n": 1 })),
            (&["n=1", "n=2"], json!({ "n": ["1", "2"] })),
            (&["a.b=x", "a.c:=true"], json!({ "a": { "b": "x", "c": true } })),
        ] {
            assert_eq!(read(words, None).as_ref(), Ok(&expected), "{words:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_says_so() {
        let schema = schema();
        let told = |words: &[&str]| read(words, Some(&schema)).expect_err("a mistake");
        for (words, part) in [
            (&["notes.md"][..], "`notes.md` is not an argument; write key=value"),
            (&["=x"], "is not an argument"),
            (&["head:=ten"], "the value of `head` is not JSON"),
            (&["path=@/nowhere/at/all"], "cannot read /nowhere/at/all"),
            (&["path=a", "path=b"], "`path` is given 2 times but takes one value"),
            (&["options=x", "options.depth=1"], "as an object and as something else"),
        ] {
            let told = told(words);
            assert!(told.contains(part), "{words:?}: {told}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_comes_to_an_end() {
        let schema = json!({ "properties": { "x": { "$ref": "#/properties/x" } } });
        assert_eq!(read(&["x=1"], Some(&schema)), Ok(json!({ "x": 1 })));
    }

    #[test]
    fn files_are_texts_whatever_is_in_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "42").unwrap();
        let at = file.path().display();
        let (schema, text, json) = (schema(), format!("head=@{at}"), format!("head:=@{at}"));
        assert_eq!(read(&[&text], Some(&schema)), Ok(json!({ "head": "42" })));
        assert_eq!(read(&[&json], Some(&schema)), Ok(json!({ "head": 42 })));
    }
}
