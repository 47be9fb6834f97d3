//! A JSON Schema as a TypeScript type.

use serde_json::{Map, Value};

use super::comment;
use super::name::{member, quoted};
use crate::signature;
use metamcp_types::text;

/// Longest type in bytes; what would be longer is `any`, with a word that something was cut.
pub(super) const MAX_TYPE_BYTES: usize = 16 * 1024;

/// Objects, arrays and unions inside each other that are spelt out.
const MAX_DEPTH: usize = 6;

/// Schema parts looked at for one type: a hostile schema branches at every level.
const MAX_PARTS: usize = 1_000;

/// Members of one object that are spelt out.
const MAX_MEMBERS: usize = 120;

/// Values of an enumeration and branches of a union that are spelt out.
const MAX_CHOICES: usize = 60;

/// Longest name of a member or text of a literal, in characters.
const MAX_WORD_CHARS: usize = 120;

/// Longest comment behind a member, in characters.
const MAX_COMMENT_CHARS: usize = 90;

/// Members without comments stand on one line up to this width.
const MAX_LINE: usize = 90;

/// Stands for what was left out.
const CUT: &str = "any /* cut */";

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Everything, with the start of each description.
    Comments,
    /// All types, nothing about them.
    Types,
    /// The parameters, with nothing about what is inside them.
    Shallow,
    /// Names of tools only.
    Names,
}

impl Detail {
    pub(super) const ALL: [Detail; 4] =
        [Detail::Comments, Detail::Types, Detail::Shallow, Detail::Names];

    fn depth(self) -> usize {
        match self {
            Detail::Comments | Detail::Types => MAX_DEPTH,
            Detail::Shallow => 1,
            Detail::Names => 0,
        }
    }
}

/// Writes types of one schema.
pub(super) struct Types<'a> {
    root: &'a Value,
    detail: Detail,
    parts: usize,
    bytes: usize,
    /// References being spelt out, so that one inside itself is noticed.
    open: Vec<&'a str>,
}

/// Where a type stands.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    indent: usize,
}

impl<'a> Types<'a> {
    pub(super) fn new(root: &'a Value, detail: Detail) -> Self {
        Self { root, detail, parts: 0, bytes: 0, open: Vec::new() }
    }

    /// `args: { … }`, or nothing for a tool that takes nothing.
    pub(super) fn arguments(&mut self) -> Option<String> {
        let schema = signature::resolved(self.root, self.root);
        let has = |key: &str| {
            schema.get(key).and_then(Value::as_object).is_some_and(|some| !some.is_empty())
        };
        let branches = ["anyOf", "oneOf", "allOf"].iter().any(|key| schema.get(key).is_some());
        if !has("properties")
            && !has("additionalProperties")
            && !has("patternProperties")
            && !branches
        {
            return None;
        }
        let required =
            schema.get("required").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
        let optional = if required || branches { "" } else { "?" };
        if self.detail == Detail::Names {
            return Some(format!("args{optional}: any"));
        }
        Some(format!("args{optional}: {}", self.whole()))
    }

    /// The type of a result.
    pub(super) fn result(&mut self) -> String {
        if self.detail == Detail::Names { "any".to_owned() } else { self.whole() }
    }

    fn whole(&mut self) -> String {
        let place = Place { depth: self.detail.depth(), indent: 1 };
        let text = self.type_of(self.root, place);
        if text.len() > MAX_TYPE_BYTES { CUT.to_owned() } else { text }
    }

    fn type_of(&mut self, schema: &'a Value, place: Place) -> String {
        self.parts += 1;
        if self.parts > MAX_PARTS || self.bytes > MAX_TYPE_BYTES {
            return CUT.to_owned();
        }
        let opened = self.open.len();
        let mut schema = schema;
        while let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            if self.open.contains(&reference) {
                self.open.truncate(opened);
                return "any /* recursive */".to_owned();
            }
            let target = signature::target(self.root, reference);
            let Some(target) = target else { break };
            self.open.push(reference);
            schema = target;
        }
        let text = self.resolved(schema, place);
        self.open.truncate(opened);
        self.bytes += text.len();
        text
    }

    fn resolved(&mut self, schema: &'a Value, place: Place) -> String {
        let fields = match schema {
            Value::Bool(false) => return "never".to_owned(),
            Value::Object(fields) => fields,
            _ => return "any".to_owned(),
        };
        let text = self.all_of(fields, schema, place);
        let nullable = fields.get("nullable").and_then(Value::as_bool) == Some(true);
        if nullable && text != "any" { union(vec![text, "null".to_owned()]) } else { text }
    }

    /// What a schema says itself, and what its branches add.
    fn all_of(
        &mut self,
        fields: &'a Map<String, Value>,
        schema: &'a Value,
        place: Place,
    ) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut add = |text: String| {
            if text != "any" && !parts.contains(&text) {
                parts.push(text);
            }
        };
        add(self.own(fields, schema, place));
        for key in ["allOf", "anyOf", "oneOf"] {
            let Some(branches) = fields.get(key).and_then(Value::as_array) else { continue };
            let mut types: Vec<String> = Vec::new();
            for branch in branches.iter().take(MAX_CHOICES) {
                let text = self.type_of(branch, place);
                if key == "allOf" {
                    add(text);
                } else if !types.contains(&text) {
                    types.push(text);
                }
            }
            if branches.len() > MAX_CHOICES {
                types.push(CUT.to_owned());
            }
            // A branch that only says which members are required tells nothing about types.
            if key != "allOf" && !types.is_empty() && !types.iter().any(|text| text == "any") {
                add(union(types));
            }
        }
        match parts.len() {
            0 => "any".to_owned(),
            1 => parts.remove(0),
            _ => parts.iter().map(|part| bracketed(part)).collect::<Vec<_>>().join(" & "),
        }
    }

    fn own(&mut self, fields: &'a Map<String, Value>, schema: &'a Value, place: Place) -> String {
        if let Some(value) = fields.get("const") {
            return literal(value);
        }
        if let Some(values) = fields.get("enum").and_then(Value::as_array) {
            let mut types: Vec<String> = values.iter().take(MAX_CHOICES).map(literal).collect();
            if values.len() > MAX_CHOICES {
                types.push(format!("any /* {} more */", values.len() - MAX_CHOICES));
            }
            return union(types);
        }
        match fields.get("type") {
            Some(Value::String(name)) => self.named(name, schema, place),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str).take(MAX_CHOICES);
                let types: Vec<String> =
                    names.map(|name| self.named(name, schema, place)).collect();
                union(types)
            }
            _ if fields.contains_key("properties")
                || fields.contains_key("additionalProperties") =>
            {
                self.named("object", schema, place)
            }
            _ if fields.contains_key("items") || fields.contains_key("prefixItems") => {
                self.named("array", schema, place)
            }
            _ => "any".to_owned(),
        }
    }

    fn named(&mut self, name: &str, schema: &'a Value, place: Place) -> String {
        match name {
            "string" | "boolean" | "number" | "null" => name.to_owned(),
            "integer" => "number".to_owned(),
            "object" => self.object(schema, place),
            "array" => self.array(schema, place),
            _ => "any".to_owned(),
        }
    }

    fn object(&mut self, schema: &'a Value, place: Place) -> String {
        let properties =
            schema.get("properties").and_then(Value::as_object).filter(|all| !all.is_empty());
        let Some(inside) = place.deeper() else {
            return if properties.is_some() {
                CUT.to_owned()
            } else {
                "Record<string, any>".to_owned()
            };
        };
        let others = match schema.get("additionalProperties") {
            Some(values @ Value::Object(fields)) if !fields.is_empty() => {
                Some(self.type_of(values, place.inner(inside)))
            }
            _ => None,
        };
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let others = others.or_else(|| {
            let types: Vec<String> = patterns?
                .values()
                .take(MAX_CHOICES)
                .map(|values| self.type_of(values, place.inner(inside)))
                .collect();
            (!types.is_empty()).then(|| union(types))
        });
        match (properties, others) {
            (Some(properties), Some(others)) => {
                // Not an index signature: its type would have to fit the members' own.
                format!(
                    "{} & Record<string, {others}>",
                    self.members(properties, schema, place, inside)
                )
            }
            (Some(properties), None) => self.members(properties, schema, place, inside),
            (None, Some(others)) => format!("Record<string, {others}>"),
            (None, None) => "Record<string, any>".to_owned(),
        }
    }

    /// Required members first; within that, the schema's own order.
    fn members(
        &mut self,
        properties: &'a Map<String, Value>,
        schema: &'a Value,
        place: Place,
        inside: usize,
    ) -> String {
        let required = signature::required(schema, MAX_MEMBERS * 4);
        let mut sorted: Vec<(&'a String, &'a Value)> =
            properties.iter().take(MAX_MEMBERS).collect();
        sorted.sort_by_key(|(name, _)| !required.contains(name.as_str()));
        let mut lines: Vec<(String, String)> = Vec::new();
        for (name, schema) in sorted {
            if name.chars().count() > MAX_WORD_CHARS {
                continue;
            }
            let optional = if required.contains(name.as_str()) { "" } else { "?" };
            let text = self.type_of(schema, Place { depth: inside, indent: place.indent + 1 });
            lines.push((format!("{}{optional}: {text}", member(name)), self.remark(schema)));
        }
        let left_out = properties.len() - lines.len();
        let plain = left_out == 0
            && lines.iter().all(|(line, remark)| remark.is_empty() && !line.contains('\n'))
            && lines.iter().map(|(line, _)| line.len() + 2).sum::<usize>() <= MAX_LINE;
        if plain {
            let lines: Vec<String> = lines.into_iter().map(|(line, _)| line).collect();
            return format!("{{ {} }}", lines.join("; "));
        }
        let indent = "  ".repeat(place.indent);
        let mut text = String::from("{\n");
        for (line, remark) in lines {
            let gap = if remark.is_empty() { "" } else { " // " };
            text.push_str(&format!("{indent}  {line};{gap}{remark}\n"));
        }
        if left_out > 0 {
            text.push_str(&format!("{indent}  // {left_out} more\n"));
        }
        text + &indent + "}"
    }

    /// The start of a member's description, its default and its format, on one line.
    fn remark(&self, schema: &'a Value) -> String {
        if self.detail != Detail::Comments {
            return String::new();
        }
        let target = signature::resolved(self.root, schema);
        let of = |key: &str| schema.get(key).or_else(|| target.get(key));
        let said = of("description").and_then(Value::as_str).unwrap_or_default();
        let mut remark =
            text::first_sentence(&text::clean(said, 4 * MAX_COMMENT_CHARS), MAX_COMMENT_CHARS);
        let mut add = |words: String| {
            let gap = if remark.is_empty() { "" } else { "; " };
            remark.push_str(&format!("{gap}{words}"));
        };
        if let Some(default) = of("default").filter(|value| !value.is_null()) {
            let default = default.to_string();
            if default.len() <= 40 {
                add(format!("default {default}"));
            }
        }
        if let Some(format) = of("format").and_then(Value::as_str) {
            add(format!("format {}", text::clean_line(format, 24)));
        }
        comment(&remark, MAX_COMMENT_CHARS * 2)
    }

    fn array(&mut self, schema: &'a Value, place: Place) -> String {
        let Some(inside) = place.deeper() else { return "any[]".to_owned() };
        let inner = place.inner(inside);
        let items = schema.get("items");
        let tuple = schema.get("prefixItems").or(items).and_then(Value::as_array);
        let Some(tuple) = tuple else {
            return match items {
                Some(items) => format!("{}[]", bracketed(&self.type_of(items, inner))),
                None => "any[]".to_owned(),
            };
        };
        let mut types: Vec<String> =
            tuple.iter().take(MAX_CHOICES).map(|item| self.type_of(item, inner)).collect();
        let rest =
            if schema.get("prefixItems").is_some() { items } else { schema.get("additionalItems") };
        match rest {
            _ if tuple.len() > MAX_CHOICES => types.push("...any[]".to_owned()),
            Some(rest @ Value::Object(_)) => {
                types.push(format!("...{}[]", bracketed(&self.type_of(rest, inner))));
            }
            _ => {}
        }
        format!("[{}]", types.join(", "))
    }
}

impl Place {
    fn deeper(self) -> Option<usize> {
        self.depth.checked_sub(1)
    }

    fn inner(self, depth: usize) -> Place {
        Place { depth, indent: self.indent }
    }
}

fn union(types: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for text in types {
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    match distinct.len() {
        0 => "never".to_owned(),
        1 => distinct.remove(0),
        _ => distinct
            .iter()
            .map(|text| if text.contains(" & ") { format!("({text})") } else { text.clone() })
            .collect::<Vec<_>>()
            .join(" | "),
    }
}

/// In brackets where `[]` or `&` would otherwise bind to a part of it.
fn bracketed(text: &str) -> String {
    let composed = text.contains(" | ") || text.contains(" & ") || text.contains("/*");
    if composed { format!("({text})") } else { text.to_owned() }
}

fn literal(value: &Value) -> String {
    match value {
        Value::String(words) if words.chars().count() > MAX_WORD_CHARS => "string".to_owned(),
        Value::String(words) => quoted(words),
        Value::Array(_) => "any[]".to_owned(),
        Value::Object(_) => "Record<string, any>".to_owned(),
        scalar => scalar.to_string(),
    }
}
