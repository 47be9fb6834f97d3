//! One schema, keyword by keyword: what a caller needs to make arguments stays, in the form of JSON Schema 2020-12.

use metamcp_types::text;
use serde_json::{Map, Value, json};

use super::merge::{merged, with_null};
use super::{MAX_INCLUDED, MAX_LEVELS, Schemas, Use};
use crate::document::Version;

/// Longest description inside a schema.
const MAX_DESCRIPTION: usize = 300;
/// Most members of one object, alternatives of one choice, values of one enumeration.
const MAX_MEMBERS: usize = 200;
const MAX_ALTERNATIVES: usize = 40;
const MAX_VALUES: usize = 120;
/// Longest default, example or value of an enumeration, as JSON.
const MAX_VALUE: usize = 200;
const MAX_PATTERN: usize = 200;

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// Keywords that hold a number that is not negative.
const COUNTS: [&str; 6] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];

impl Schemas<'_> {
    pub(super) fn convert(&mut self, schema: &Value, level: usize) -> Value {
        let Some(said) = schema.as_object() else {
            return if schema == &Value::Bool(false) { json!({ "not": {} }) } else { json!({}) };
        };
        if level > MAX_LEVELS {
            return json!({});
        }
        if let Some(pointer) = said.get("$ref").and_then(Value::as_str) {
            let mut found = self.reference(pointer);
            if let (Some(words), Some(found)) = (description(said), found.as_object_mut()) {
                found.insert("description".to_owned(), words.into());
            }
            return if is_true(said, "nullable") { with_null(found) } else { found };
        }
        let mut out = Map::new();
        let types = types(said);
        let is_nullable = is_true(said, "nullable") || types.contains(&"null");
        let is_file = self.file_use == Use::Files && is_binary(said);
        if is_file {
            return file(said);
        }
        self.write_types(&types, is_nullable, said, &mut out);
        if let Some(words) = description(said) {
            out.insert("description".to_owned(), words.into());
        }
        scalars(said, self.document.version(), &types, is_nullable, &mut out);
        self.objects(said, level, &mut out);
        self.arrays(said, level, &mut out);
        let mut whole = Value::Object(out);
        for keyword in ["oneOf", "anyOf"] {
            if let Some(all) = said.get(keyword).and_then(Value::as_array) {
                whole = self.choice(whole, all, is_nullable, level);
            }
        }
        if let Some(parts) = said.get("allOf").and_then(Value::as_array) {
            whole = self.all_of(whole, parts, level);
            if is_nullable && types.is_empty() {
                whole = with_null(whole);
            }
        }
        whole
    }

    fn write_types(
        &self,
        types: &[&str],
        is_nullable: bool,
        said: &Map<String, Value>,
        out: &mut Map<String, Value>,
    ) {
        let mut types: Vec<&str> = types.to_vec();
        if types.is_empty() {
            // Many leave it out where it is plain.
            if said.contains_key("properties") {
                types.push("object");
            } else if said.contains_key("items") {
                types.push("array");
            }
        }
        if types.is_empty() {
            return;
        }
        if is_nullable && !types.contains(&"null") {
            types.push("null");
        }
        let value = if let [only] = *types { json!(only) } else { json!(types) };
        out.insert("type".to_owned(), value);
    }

    fn objects(&mut self, said: &Map<String, Value>, level: usize, out: &mut Map<String, Value>) {
        let mut unsent = Vec::new();
        let mut is_cut = false;
        if let Some(all) = said.get("properties").and_then(Value::as_object) {
            let mut properties = Map::new();
            for (name, schema) in all {
                if schema.as_object().is_some_and(|schema| is_true(schema, "readOnly")) {
                    unsent.push(name.as_str());
                    continue;
                }
                if properties.len() == MAX_MEMBERS {
                    is_cut = true;
                    break;
                }
                properties.insert(name.clone(), self.convert(schema, level + 1));
            }
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        if let Some(all) = said.get("required").and_then(Value::as_array) {
            let mut names: Vec<&str> = Vec::new();
            for name in all.iter().filter_map(Value::as_str) {
                if !unsent.contains(&name) && !names.contains(&name) && names.len() < MAX_MEMBERS {
                    names.push(name);
                }
            }
            if !names.is_empty() {
                out.insert("required".to_owned(), json!(names));
            }
        }
        // Closed only where every name that may come is known.
        let is_known = |name: &Value| {
            let properties = said.get("properties").and_then(Value::as_object);
            name.as_str().is_some_and(|name| properties.is_some_and(|all| all.contains_key(name)))
        };
        let required = said.get("required").and_then(Value::as_array);
        let may_close = !is_cut
            && unsent.is_empty()
            && !said.contains_key("patternProperties")
            && required.is_none_or(|all| all.iter().all(is_known));
        match said.get("additionalProperties") {
            Some(Value::Bool(false)) if may_close && !said.contains_key("allOf") => {
                out.insert("additionalProperties".to_owned(), false.into());
            }
            Some(schema @ Value::Object(members)) if !members.is_empty() => {
                let schema = self.convert(schema, level + 1);
                out.insert("additionalProperties".to_owned(), schema);
            }
            _ => {}
        }
    }

    fn arrays(&mut self, said: &Map<String, Value>, level: usize, out: &mut Map<String, Value>) {
        if let Some(items @ (Value::Object(_) | Value::Bool(_))) = said.get("items") {
            out.insert("items".to_owned(), self.convert(items, level + 1));
        }
        if let Some(first) = said.get("prefixItems").and_then(Value::as_array) {
            let first = first.iter().take(MAX_ALTERNATIVES);
            let all: Vec<Value> = first.map(|one| self.convert(one, level + 1)).collect();
            if !all.is_empty() {
                out.insert("prefixItems".to_owned(), all.into());
            }
        }
    }

    /// `oneOf` becomes `anyOf`: alternatives that overlap are common, and a call that fits two of them is sent as it is.
    fn choice(&mut self, whole: Value, all: &[Value], is_nullable: bool, level: usize) -> Value {
        let mut alternatives: Vec<Value> = Vec::new();
        for one in all.iter().take(MAX_ALTERNATIVES) {
            let one = self.convert(one, level + 1);
            if !alternatives.contains(&one) {
                alternatives.push(one);
            }
        }
        let is_empty = |one: &Value| one.as_object().is_some_and(Map::is_empty);
        if all.len() > MAX_ALTERNATIVES || alternatives.iter().any(is_empty) {
            return whole;
        }
        if is_nullable {
            let null = json!({ "type": "null" });
            if !alternatives.contains(&null) {
                alternatives.push(null);
            }
        }
        let Value::Object(mut members) = whole else { return whole };
        if let [only] = alternatives.as_slice()
            && members.keys().all(|key| key == "description")
        {
            let mut only = only.clone();
            if let (Some(only), Some(words)) = (only.as_object_mut(), members.remove("description"))
            {
                only.insert("description".to_owned(), words);
            }
            return only;
        }
        if !alternatives.is_empty() && !members.contains_key("anyOf") {
            members.insert("anyOf".to_owned(), alternatives.into());
        }
        Value::Object(members)
    }

    fn all_of(&mut self, own: Value, parts: &[Value], level: usize) -> Value {
        let mut all = Vec::with_capacity(parts.len() + 1);
        for part in parts.iter().take(MAX_ALTERNATIVES) {
            let converted = self.convert(part, level + 1);
            let is_too_deep = self.including >= MAX_INCLUDED;
            all.push(if is_too_deep {
                converted
            } else {
                self.including += 1;
                let resolved = self.resolve(&converted);
                self.including -= 1;
                if resolved.as_object().is_some_and(Map::is_empty) { converted } else { resolved }
            });
        }
        merged(own, all)
    }
}

/// The types a schema names; words that are none are skipped.
fn types(said: &Map<String, Value>) -> Vec<&str> {
    let named = match said.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut types: Vec<&str> = Vec::new();
    for word in named {
        let word = if word == "file" { "string" } else { word };
        if TYPES.contains(&word) && !types.contains(&word) {
            types.push(word);
        }
    }
    types
}

fn scalars(
    said: &Map<String, Value>,
    version: Version,
    types: &[&str],
    is_nullable: bool,
    out: &mut Map<String, Value>,
) {
    if let Some(format) = said.get("format").and_then(Value::as_str) {
        out.insert("format".to_owned(), text::cut(format, 40).into());
    }
    let fits = |value: &Value| value.to_string().len() <= MAX_VALUE;
    if let Some(all) = said.get("enum").and_then(Value::as_array) {
        let mut values: Vec<Value> = Vec::new();
        for value in all {
            let value = as_type(value, types);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        if is_nullable && !values.contains(&Value::Null) {
            values.push(Value::Null);
        }
        // A list with holes would forbid what the API takes.
        if !values.is_empty() && values.len() <= MAX_VALUES && values.iter().all(fits) {
            out.insert("enum".to_owned(), values.into());
        }
    }
    if let Some(value) = said.get("const").filter(|value| fits(value)) {
        out.insert("const".to_owned(), value.clone());
    }
    if let Some(value) = said.get("default").filter(|value| fits(value) && !value.is_null()) {
        out.insert("default".to_owned(), value.clone());
    }
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let limit = said.get(bound).filter(|limit| limit.is_number());
        match said.get(exclusive) {
            Some(Value::Bool(true)) if version == Version::V30 => {
                out.extend(limit.map(|limit| (exclusive.to_owned(), limit.clone())));
            }
            Some(other) if other.is_number() => {
                out.insert(exclusive.to_owned(), other.clone());
                out.extend(limit.map(|limit| (bound.to_owned(), limit.clone())));
            }
            _ => out.extend(limit.map(|limit| (bound.to_owned(), limit.clone()))),
        }
    }
    for keyword in COUNTS {
        let count = said.get(keyword).and_then(Value::as_u64);
        out.extend(count.map(|count| (keyword.to_owned(), count.into())));
    }
    let factor = said.get("multipleOf").filter(|one| one.as_f64().is_some_and(|one| one > 0.0));
    out.extend(factor.map(|factor| ("multipleOf".to_owned(), factor.clone())));
    if is_true(said, "uniqueItems") {
        out.insert("uniqueItems".to_owned(), true.into());
    }
    if let Some(pattern) = said.get("pattern").and_then(Value::as_str)
        && pattern.len() <= MAX_PATTERN
        && is_plain_pattern(pattern)
    {
        out.insert("pattern".to_owned(), pattern.into());
    }
    if is_true(said, "deprecated") {
        out.insert("deprecated".to_owned(), true.into());
    }
}

/// Whether a pattern is one that every reader of JSON Schema takes: what is written for the engine of one language, or with
/// slashes around it, would make the whole schema unreadable to some clients.
fn is_plain_pattern(pattern: &str) -> bool {
    let is_delimited = pattern.len() > 1 && pattern.starts_with('/') && pattern.ends_with('/');
    let odd = ["(?", "\\p", "\\P", "[:", "\\A", "\\z", "\\Z", "\\h", "\\Q", "\\K", "\\k"];
    if is_delimited || odd.iter().any(|part| pattern.contains(part)) {
        return false;
    }
    // Brackets that do not match, nothing to repeat.
    let (mut depth, mut in_class, mut escaped, mut before) = (0_i32, false, false, ' ');
    for (at, c) in pattern.char_indices() {
        if escaped {
            escaped = false;
            // What is escaped without need is an error to strict readers.
            if !c.is_ascii_alphanumeric() && !"^$\\.*+?()[]{}|/-".contains(c) {
                return false;
            }
            if c.is_ascii_alphabetic() && !"dDwWsSbBtnrfvux".contains(c) {
                return false;
            }
            if c.is_ascii_digit() {
                return false;
            }
        } else {
            match c {
                '\\' => escaped = true,
                '[' if in_class => return false,
                '[' => in_class = true,
                ']' if in_class => in_class = false,
                '(' if !in_class => depth += 1,
                ')' if !in_class => depth -= 1,
                '{' if !in_class => {
                    let rest = &pattern[at + 1..];
                    let Some(end) = rest.find('}') else { return false };
                    let bounds = &rest[..end];
                    let is_count = bounds.starts_with(|c: char| c.is_ascii_digit())
                        && bounds.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
                        && bounds.split(',').all(|one| one.parse::<u32>().unwrap_or(0) <= 1000);
                    if !is_count {
                        return false;
                    }
                }
                '*' | '+' | '?' if !in_class && (at == 0 || "(|".contains(before)) => return false,
                '*' | '+' if !in_class && "*+?".contains(before) => return false,
                '&' | '~' if in_class && before == c => return false,
                _ => {}
            }
        }
        if depth < 0 {
            return false;
        }
        before = if escaped { ' ' } else { c };
    }
    depth == 0 && !in_class && !escaped
}

/// A value of an enumeration as the type wants it: YAML makes numbers and truths of words.
fn as_type(value: &Value, types: &[&str]) -> Value {
    match (types, value) {
        (["string"], Value::Number(number)) => number.to_string().into(),
        (["string"], Value::Bool(truth)) => truth.to_string().into(),
        (["integer" | "number"], Value::String(text)) => {
            serde_json::from_str::<serde_json::Number>(text).map_or(value.clone(), Value::Number)
        }
        (["boolean"], Value::String(text)) if text == "true" || text == "false" => {
            (text == "true").into()
        }
        _ => value.clone(),
    }
}

fn is_true(said: &Map<String, Value>, name: &str) -> bool {
    said.get(name) == Some(&Value::Bool(true))
}

fn description(said: &Map<String, Value>) -> Option<String> {
    let words = said.get("description").or_else(|| said.get("title"))?.as_str()?;
    let words = text::clean(words.trim(), MAX_DESCRIPTION * 2);
    let words = text::cut(&words, MAX_DESCRIPTION).into_owned();
    (!words.is_empty()).then_some(words)
}

/// A short example, for a parameter without an enumeration or a default.
pub(crate) fn example_of(said: &Map<String, Value>) -> Option<String> {
    let first = |name: &str| said.get(name)?.as_array()?.first();
    let example = said.get("example").or_else(|| first("examples"))?;
    let written = match example {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => example.to_string(),
        _ => return None,
    };
    let is_short = !written.is_empty() && written.chars().count() <= 60;
    is_short.then(|| text::clean_line(&written, 60).into_owned())
}

/// Whether a value is bytes rather than text.
pub(crate) fn is_binary(said: &Map<String, Value>) -> bool {
    let is_of = |name: &str, word: &str| said.get(name).and_then(Value::as_str) == Some(word);
    is_of("format", "binary")
        || is_of("format", "byte")
        || is_of("type", "file")
        || (said.contains_key("contentMediaType") && !is_of("contentMediaType", "text/plain"))
}

/// A file in a form: base64, or with a name and a type.
fn file(said: &Map<String, Value>) -> Value {
    let words = description(said).map_or_else(String::new, |words| format!("{words} "));
    json!({
        "type": ["string", "object"],
        "description": format!("{words}(A file: its bytes as base64, or an object.)"),
        "properties": {
            "base64": { "type": "string" },
            "text": { "type": "string" },
            "filename": { "type": "string" },
            "contentType": { "type": "string" },
        },
    })
}
