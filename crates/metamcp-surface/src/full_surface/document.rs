//! `describe_tool` at three levels of detail: summary, schema, everything known.

use serde_json::{Map, Value, json};

use crate::direct;
use metamcp_search::search::Hit;
use metamcp_tools::tool::Tool;
use metamcp_types::text;

/// Longest short description.
const SHORT: usize = 120;
/// Addresses taken from a description.
const MAX_REFS: usize = 5;
/// Longest address.
const MAX_REF: usize = 300;
/// Parameters of a schema that are listed.
const MAX_LISTED: usize = 200;

/// Level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Id, name and a short description.
    Summary,
    /// The definition as well, and what of its schema matters for a call.
    Schema,
    /// Notes, examples and addresses as well.
    Full,
}

/// A tool and what is known beside its definition.
#[derive(Debug, Clone, Copy)]
pub struct Documented<'a> {
    pub hit: &'a Hit,
    /// Tags of its server, from the configuration.
    pub tags: &'a [String],
    /// What the operator says the server is for.
    pub about: Option<&'a str>,
    /// Arguments the operator gives as examples.
    pub configured: &'a [Value],
    /// The shape of arguments that worked, as a JSON Schema.
    pub used: Option<&'a Value>,
}

/// One example of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// Where it comes from.
    pub title: &'static str,
    /// What to make of it.
    pub description: &'static str,
    /// The arguments: an object.
    pub args: Value,
}

impl Example {
    fn to_json(&self) -> Value {
        json!({ "title": self.title, "description": self.description, "args": self.args })
    }
}

/// The summary of a tool.
pub fn summary(hit: &Hit, tags: &[String]) -> Value {
    let tool = hit.tool();
    let said = match &tool.title {
        Some(title) if tool.description.is_empty() => title,
        _ => &tool.description,
    };
    json!({
        "id": hit.id(),
        "name": &*tool.name,
        "namespace": &*hit.server,
        "shortDescription": text::clean_line(said, SHORT),
        "tags": all_tags(tool, tags),
    })
}

/// The answer of `describe_tool`.
pub fn describe(tool: &Documented<'_>, level: Level, max_examples: usize) -> Value {
    let mut answer = json!({
        "summary": summary(tool.hit, tool.tags),
        "tool": null,
        "schemaInfo": null,
        "notes": [],
        "examples": [],
        "refs": [],
        "error": null,
    });
    if level == Level::Summary {
        return answer;
    }
    let definition = tool.hit.tool();
    answer["tool"] = definition_of(definition);
    answer["schemaInfo"] = schema_info(&schema(definition));
    if level == Level::Full {
        answer["notes"] = notes(tool).into();
        answer["examples"] = as_json(&examples(tool, max_examples));
        answer["refs"] = refs(&definition.description).into();
    }
    answer
}

/// The answer of `list_tool_examples`.
pub fn list_examples(tool: &Documented<'_>, max: usize) -> Value {
    json!({ "examples": as_json(&examples(tool, max)), "error": null })
}

/// Examples that are really there, the most trustworthy first: of the operator, of the schema, of calls that worked.
pub fn examples(tool: &Documented<'_>, max: usize) -> Vec<Example> {
    let definition = tool.hit.tool();
    let mut found: Vec<Example> = Vec::new();
    let mut add = |title, description, args: Value, is_checked: bool| {
        let fits = !is_checked || definition.checker().check(&args).is_ok();
        if args.is_object() && fits && !found.iter().any(|known| known.args == args) {
            found.push(Example { title, description, args });
        }
    };
    for args in tool.configured {
        add("From the configuration", "Given by whoever runs this gateway.", args.clone(), false);
    }
    let schema = schema(definition);
    for args in schema["examples"].as_array().into_iter().flatten() {
        add("From the schema", "Given by the server.", args.clone(), true);
    }
    if let Some(args) = from_properties(&schema) {
        add(
            "From the schema",
            "Put together from examples and defaults of the server.",
            args,
            true,
        );
    }
    if let Some(args) = tool.used.and_then(placeholders) {
        add(
            "Used before",
            "The shape of arguments that worked here; no values are stored.",
            args,
            false,
        );
    }
    found.truncate(max);
    found
}

fn as_json(examples: &[Example]) -> Value {
    examples.iter().map(Example::to_json).collect()
}

fn all_tags(tool: &Tool, tags: &[String]) -> Vec<String> {
    let hints = tool.hints;
    let said = [
        (hints.read_only, "read-only"),
        (hints.destructive, "destructive"),
        (hints.idempotent, "idempotent"),
    ];
    let said = said.iter().filter(|(hint, _)| *hint == Some(true)).map(|(_, word)| *word);
    let mut all: Vec<String> =
        tags.iter().map(|tag| text::clean_line(tag, SHORT).into_owned()).collect();
    all.extend(said.map(str::to_owned));
    all.dedup();
    all
}

/// The definition as it may be shown: what the protocol knows, its descriptions cleaned.
pub fn definition_of(tool: &Tool) -> Value {
    let raw: Value = serde_json::from_str(&direct::cleaned(tool.raw())).unwrap_or_default();
    let mut shown = Map::new();
    shown.insert("name".into(), (*tool.name).into());
    if let Some(title) = &tool.title {
        shown.insert("title".into(), (**title).into());
    }
    shown.insert("description".into(), (*tool.description).into());
    for key in ["inputSchema", "outputSchema", "annotations"] {
        if let Some(value) = raw.get(key).filter(|value| !value.is_null()) {
            shown.insert(key.into(), value.clone());
        }
    }
    Value::Object(shown)
}

fn schema(tool: &Tool) -> Value {
    tool.input_schema().and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default()
}

fn schema_info(schema: &Value) -> Value {
    let (mut defaults, mut types) = (Map::new(), Map::new());
    for (name, property) in properties(schema) {
        if let Some(default) = property.get("default") {
            defaults.insert(name.clone(), default.clone());
        }
        types.insert(name.clone(), type_of(property).into());
    }
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .take(MAX_LISTED)
        .collect();
    json!({ "required": required, "defaults": defaults, "types": types })
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten().take(MAX_LISTED)
}

fn type_of(property: &Value) -> String {
    match &property["type"] {
        Value::String(one) => text::clean_line(one, SHORT).into_owned(),
        Value::Array(several) => {
            let words: Vec<&str> = several.iter().filter_map(Value::as_str).collect();
            text::clean_line(&words.join("|"), SHORT).into_owned()
        }
        _ if property["enum"].is_array() => "enum".to_owned(),
        _ => "any".to_owned(),
    }
}

/// One call with the first example or the default of each parameter, if that is enough for a call.
fn from_properties(schema: &Value) -> Option<Value> {
    let mut args = Map::new();
    for (name, property) in properties(schema) {
        let example = property["examples"].get(0).or_else(|| property.get("example"));
        if let Some(value) = example.or_else(|| property.get("default")) {
            args.insert(name.clone(), value.clone());
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_enough = required.into_iter().all(|name| args.contains_key(name));
    (is_enough && !args.is_empty()).then_some(Value::Object(args))
}

/// Arguments of a shape, each value replaced by what it is.
fn placeholders(shape: &Value) -> Option<Value> {
    let properties = shape["properties"].as_object()?;
    if properties.is_empty() {
        return None;
    }
    let args: Map<String, Value> = properties
        .iter()
        .map(|(name, shape)| {
            let kind = shape["type"].as_str().unwrap_or("value");
            (name.clone(), format!("<{kind}>").into())
        })
        .collect();
    Some(Value::Object(args))
}

/// What is known and not said elsewhere; nothing is made up.
fn notes(tool: &Documented<'_>) -> Vec<String> {
    let definition = tool.hit.tool();
    let mut notes = Vec::new();
    if let Some(about) = tool.about {
        notes.push(format!("{}: {}", tool.hit.server, text::clean_line(about, 2 * SHORT)));
    }
    let claims = crate::discover::claims(definition);
    if !claims.is_empty() {
        notes.push(format!("The server says: {}.", claims.join(", ")));
    }
    if let Some(reason) = definition.flag() {
        notes.push(format!("Be careful: {}.", text::flag_in_words(reason)));
    }
    notes
}

/// Addresses in a description.
fn refs(description: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in description.split(|c: char| c.is_whitespace() || "<>()[]\"'`".contains(c)) {
        let is_address = word.starts_with("https://") || word.starts_with("http://");
        let address = word.trim_end_matches(['.', ',', ';', ':', '!', '?']);
        if is_address
            && address.len() > "https://".len()
            && address.len() <= MAX_REF
            && !found.iter().any(|known| known == address)
        {
            found.push(address.to_owned());
        }
    }
    found.truncate(MAX_REFS);
    found
}
