//! A tool's parameters in one line, the way a programmer would write them.
//! Owns: how a JSON Schema reads as a type.      Never: checks arguments, follows a reference off the schema.
//! In: a tool, or a name and its input schema.  Out: `read_file(path: string, head?: number)`.
//! Tests: `signature/tests.rs`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::tool::Tool;
use metamcp_types::text;

#[cfg(test)]
mod tests;

/// Longest signature in characters; what does not fit is counted instead.
pub const MAX_CHARS: usize = 300;

/// Longest type of a result.
const MAX_RESULT_TYPE: usize = 160;

/// The same for one tool that was asked for by its name.
pub const MAX_DETAIL_CHARS: usize = 1_200;

/// Nested objects, arrays and references that are spelt out.
const MAX_DEPTH: usize = 3;

/// Values of an enumeration and branches of a union that are spelt out.
const MAX_CHOICES: usize = 6;

/// Members of a nested object that are spelt out.
const MAX_MEMBERS: usize = 8;

/// Longest literal or name.
const MAX_LITERAL: usize = 32;

/// Schema parts looked at for one signature: a hostile schema branches at every level.
const MAX_PARTS: usize = 400;

/// The tool's signature; computed on first use.
pub fn signature(tool: &Tool) -> String {
    tool.signature().to_owned()
}

/// The signature of a tool called `name` that takes `schema`.
pub fn of_schema(name: &str, schema: Option<&Value>) -> String {
    within(name, schema, MAX_CHARS)
}

/// The same, at most so many characters long: the more, the more of what is inside the parameters is spelt out.
pub fn within(name: &str, schema: Option<&Value>, max_chars: usize) -> String {
    let Some(schema) = schema else { return format!("{name}()") };
    // Spelt out as far as it fits, then with less and less inside the parameters.
    for depth in (0..=MAX_DEPTH).rev() {
        let parameters = Writer::new(schema, depth).parameters();
        let whole = format!("{name}({})", parameters.join(", "));
        if whole.chars().count() <= max_chars {
            return whole;
        }
        if depth == 0 {
            return shortened(name, &parameters, max_chars);
        }
    }
    format!("{name}()")
}

/// What a tool returns as a type, if its schema says more than that it is something: `{content: string}`.
pub fn result_type(schema: &Value) -> Option<String> {
    let fits = |depth| {
        let written = Writer::new(schema, depth).type_of(schema, depth);
        (written.chars().count() <= MAX_RESULT_TYPE).then_some(written)
    };
    let written = (1..=MAX_DEPTH).rev().find_map(fits)?;
    (!matches!(written.as_str(), "any" | "object" | "array" | "{}")).then_some(written)
}

/// What fuzzing runs: any schema, as a whole and as a parameter, reads as one short visible line.
#[doc(hidden)]
pub fn fuzz_signature(data: &[u8]) {
    let Ok(schema) = serde_json::from_slice::<Value>(data) else { return };
    let mut inside = Map::new();
    inside.insert("properties".to_owned(), Value::Object(Map::from_iter([("a".into(), schema)])));
    let inside = Value::Object(inside);
    for schema in [&inside["properties"]["a"], &inside] {
        let returns = result_type(schema).unwrap_or_default();
        assert!(returns.chars().count() <= MAX_RESULT_TYPE, "too long: {returns}");
        assert!(!returns.chars().any(|c| c.is_control() || text::is_hidden(c)), "{returns:?}");
        let line = of_schema("tool", Some(schema));
        assert!(line.chars().count() <= MAX_CHARS, "too long: {line}");
        assert!(!line.chars().any(|c| c.is_control() || text::is_hidden(c)), "unseen: {line:?}");
        assert!(line.starts_with("tool(") && line.ends_with(')'), "not a signature: {line}");
    }
}

/// As many whole parameters as fit and the number of the others.
fn shortened(name: &str, parameters: &[String], max_chars: usize) -> String {
    let mut line = format!("{}(", text::cut(name, max_chars - 16));
    let mut used = line.chars().count();
    for (index, parameter) in parameters.iter().enumerate() {
        let rest = format!("…+{}", parameters.len() - index);
        let length = parameter.chars().count() + 2;
        if used + length + rest.chars().count() + 1 > max_chars {
            line.push_str(&rest);
            break;
        }
        line.push_str(parameter);
        if index + 1 < parameters.len() {
            line.push_str(", ");
        }
        used += length;
    }
    line.push(')');
    line
}

struct Writer<'a> {
    root: &'a Value,
    depth: usize,
    parts: usize,
}

impl<'a> Writer<'a> {
    fn new(root: &'a Value, depth: usize) -> Self {
        Self { root, depth, parts: 0 }
    }

    /// Required parameters first; within that, the schema's own order.
    fn parameters(&mut self) -> Vec<String> {
        let schema = self.resolved(self.root);
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return match schema.get("additionalProperties") {
                Some(Value::Object(_)) => vec![format!("[key]: {}", self.member_type(schema))],
                _ => Vec::new(),
            };
        };
        self.members(properties, schema, self.depth, usize::MAX)
    }

    /// Up to `limit` members, and the names of the required ones looked for in proportion.
    fn members(
        &mut self,
        properties: &'a Map<String, Value>,
        schema: &'a Value,
        depth: usize,
        limit: usize,
    ) -> Vec<String> {
        let required = required(schema, limit.saturating_mul(4));
        let is_required = |(name, _): &(&'a String, &'a Value)| required.contains(name.as_str());
        let first = properties.iter().filter(|member| is_required(member)).take(limit);
        let second = properties.iter().filter(|member| !is_required(member)).take(limit);
        let mut members: Vec<String> = first
            .map(|(name, member)| format!("{}: {}", word(name), self.type_of(member, depth)))
            .collect();
        for (name, member) in second.take(limit - members.len()) {
            let default = member.get("default").filter(|value| !value.is_null()).and_then(literal);
            let default = default.map(|value| format!(" = {value}")).unwrap_or_default();
            members.push(format!("{}?: {}{default}", word(name), self.type_of(member, depth)));
        }
        members
    }

    fn member_type(&mut self, schema: &'a Value) -> String {
        match schema.get("additionalProperties") {
            Some(values) => self.type_of(values, self.depth.saturating_sub(1)),
            None => "any".to_owned(),
        }
    }

    fn type_of(&mut self, schema: &'a Value, depth: usize) -> String {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return "any".to_owned();
        }
        let schema = self.resolved(schema);
        if let Some(value) = schema.get("const") {
            return literal(value).unwrap_or_else(|| "const".to_owned());
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return choices(values);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(branches) = schema.get(keyword).and_then(Value::as_array) {
                return self.union(branches.iter(), branches.len(), depth);
            }
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.named(name, schema, depth),
            Some(Value::Array(names)) => {
                let mut types: Vec<String> = Vec::new();
                for name in names.iter().filter_map(Value::as_str).take(MAX_CHOICES) {
                    push_new(&mut types, self.named(name, schema, depth));
                }
                types.join("|")
            }
            _ if schema.get("properties").is_some() => self.named("object", schema, depth),
            _ if schema.get("items").is_some() => self.named("array", schema, depth),
            _ => match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([only]) => self.type_of(only, depth),
                Some(_) => "object".to_owned(),
                None => "any".to_owned(),
            },
        }
    }

    fn named(&mut self, name: &str, schema: &'a Value, depth: usize) -> String {
        match name {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "string" | "number" | "integer" | "boolean" | "null" => name.to_owned(),
            _ => "any".to_owned(),
        }
    }

    fn object(&mut self, schema: &'a Value, depth: usize) -> String {
        let Some(inside) = depth.checked_sub(1) else { return "object".to_owned() };
        match schema.get("properties").and_then(Value::as_object) {
            Some(properties) if !properties.is_empty() => {
                let mut members = self.members(properties, schema, inside, MAX_MEMBERS + 1);
                if members.len() > MAX_MEMBERS {
                    members.truncate(MAX_MEMBERS);
                    members.push("…".to_owned());
                }
                format!("{{{}}}", members.join(", "))
            }
            _ => match schema.get("additionalProperties") {
                Some(values @ Value::Object(_)) => {
                    format!("{{[key]: {}}}", self.type_of(values, inside))
                }
                _ => "object".to_owned(),
            },
        }
    }

    fn array(&mut self, schema: &'a Value, depth: usize) -> String {
        let Some(inside) = depth.checked_sub(1) else { return "array".to_owned() };
        let tuple =
            schema.get("prefixItems").or_else(|| schema.get("items")).and_then(Value::as_array);
        if let Some(items) = tuple {
            let mut types: Vec<String> =
                items.iter().take(MAX_MEMBERS).map(|item| self.type_of(item, inside)).collect();
            if items.len() > MAX_MEMBERS {
                types.push("…".to_owned());
            }
            return format!("[{}]", types.join(", "));
        }
        match schema.get("items") {
            Some(items) => {
                let item = self.type_of(items, inside);
                if item.contains('|') && !item.starts_with(['{', '[']) {
                    format!("({item})[]")
                } else {
                    format!("{item}[]")
                }
            }
            None => "array".to_owned(),
        }
    }

    fn union(
        &mut self,
        branches: impl Iterator<Item = &'a Value>,
        count: usize,
        depth: usize,
    ) -> String {
        let mut types: Vec<String> = Vec::new();
        for branch in branches.take(MAX_CHOICES) {
            push_new(&mut types, self.type_of(branch, depth));
        }
        if count > MAX_CHOICES {
            types.push("…".to_owned());
        }
        if types.is_empty() { "any".to_owned() } else { types.join("|") }
    }

    fn resolved(&self, schema: &'a Value) -> &'a Value {
        resolved(self.root, schema)
    }
}

/// Follows references within the schema; a chain of them ends.
pub(crate) fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..8 {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return schema };
        let Some(target) = target(root, reference) else { return schema };
        schema = target;
    }
    schema
}

/// What a reference within the schema points at.
pub(crate) fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer))
}

/// The names a schema requires, the first `limit` of them.
pub(crate) fn required(schema: &Value, limit: usize) -> HashSet<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().take(limit).filter_map(Value::as_str).collect()
}

fn push_new(types: &mut Vec<String>, one: String) {
    if !types.contains(&one) {
        types.push(one);
    }
}

fn choices(values: &[Value]) -> String {
    let mut shown: Vec<String> = values
        .iter()
        .take(MAX_CHOICES)
        .map(|value| literal(value).unwrap_or_else(|| "object".to_owned()))
        .collect();
    if values.len() > MAX_CHOICES {
        shown.push("…".to_owned());
    }
    if shown.is_empty() { "never".to_owned() } else { shown.join("|") }
}

/// A scalar as JSON, cleaned and short; nothing for what is not a scalar.
fn literal(value: &Value) -> Option<String> {
    match value {
        Value::String(words) => {
            Some(Value::from(text::clean_line(words, MAX_LITERAL).as_ref()).to_string())
        }
        Value::Array(items) if items.is_empty() => Some("[]".to_owned()),
        Value::Array(_) | Value::Object(_) => None,
        scalar => Some(scalar.to_string()),
    }
}

/// A parameter's name: bare where it reads as an identifier, quoted where it does not.
fn word(name: &str) -> String {
    let clean = text::clean_line(name, MAX_LITERAL * 2);
    let plain =
        clean.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '@'));
    if plain && !clean.is_empty() {
        clean.into_owned()
    } else {
        Value::from(clean.as_ref()).to_string()
    }
}
