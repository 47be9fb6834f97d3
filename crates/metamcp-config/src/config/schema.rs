//! The JSON Schema of the config file, generated from the tables of keys and settings.

use serde_json::{Map, Value, json};

use super::keys::{FOREIGN_FILE_KEYS, FOREIGN_SERVER_KEYS, SERVER_KEYS, number, words};
use super::names::LONGEST_NAME;
use super::read::Foreign;
use super::toolset;
use crate::settings::{Kind, SETTINGS, Setting};

/// Keys by which people put comments into JSON, and extensions by convention.
const COMMENT_KEYS: &str = "^(_|#|//|x-)";
/// What a server may be called; the reader says more precisely what is wrong.
const SERVER_NAMES: &str = r"^(?!@|mcp\.)[^:\u0000-\u001f\u007f]+$";

/// The schema (2020-12) that editors check and complete config files with.
pub fn json_schema() -> Value {
    let mut properties = Map::new();
    properties.insert(
        "$schema".to_owned(),
        json!({ "type": "string", "description": "Where this schema is, for editors." }),
    );
    for (key, description) in [
        ("mcpServers", "The servers, each under its name."),
        ("servers", "The same as `mcpServers`; both may be given, without a name in common."),
    ] {
        properties.insert(
            key.to_owned(),
            json!({ "description": description, "$ref": "#/$defs/servers" }),
        );
    }
    properties.insert("toolsets".to_owned(), toolsets_schema());
    for setting in SETTINGS.iter() {
        let Some(key) = setting.key else { continue };
        match key.split_once('.') {
            None => {
                properties.insert(key.to_owned(), setting_schema(setting));
            }
            Some((object, name)) => {
                let group = properties.entry(object).or_insert_with(|| group_schema(object));
                for name in std::iter::once(&name).chain(setting.aliases) {
                    group["properties"][*name] = setting_schema(setting);
                }
            }
        }
    }
    add_foreign(&mut properties, FOREIGN_FILE_KEYS);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "metamcp config",
        "description": "The servers behind metamcp and its settings: `.mcp.json` in a project, or `~/.metamcp/mcp.json`. Comments and trailing commas are fine.",
        "type": "object",
        "properties": properties,
        "patternProperties": { COMMENT_KEYS: true },
        "additionalProperties": false,
        "$defs": {
            "servers": {
                "type": "object",
                "propertyNames": { "minLength": 1, "maxLength": LONGEST_NAME, "pattern": SERVER_NAMES },
                "additionalProperties": { "$ref": "#/$defs/server" },
            },
            "server": server_schema(),
        },
    })
}

fn server_schema() -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for known in SERVER_KEYS {
        let name = known.key.name;
        properties.insert(name.to_owned(), described((known.schema)(), known.help));
        for alias in known.key.aliases {
            let help = format!("The same as `{name}`. {}", known.help);
            properties.insert((*alias).to_owned(), described((known.schema)(), &help));
        }
        if matches!(name, "command" | "url" | "openapi") {
            required.extend(
                std::iter::once(&name)
                    .chain(known.key.aliases)
                    .map(|key| json!({ "required": [key] })),
            );
        }
    }
    add_foreign(&mut properties, FOREIGN_SERVER_KEYS);
    json!({
        "description": "One server: a local program (`command`) or a remote one (`url`).",
        "type": "object",
        "properties": properties,
        "patternProperties": { COMMENT_KEYS: true },
        "additionalProperties": false,
        "anyOf": required,
    })
}

fn toolsets_schema() -> Value {
    let list = json!({ "type": "array", "items": { "type": "string", "minLength": 1 } });
    let properties: Map<String, Value> = toolset::KEYS
        .iter()
        .map(|(name, help)| {
            let schema =
                if *name == "description" { json!({ "type": "string" }) } else { list.clone() };
            ((*name).to_owned(), described(schema, help))
        })
        .collect();
    json!({
        "description": "Named subsets of servers and tools; `toolset` chooses the one that clients may use.",
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": properties,
            "patternProperties": { COMMENT_KEYS: true },
            "additionalProperties": false,
        },
    })
}

fn group_schema(object: &str) -> Value {
    let description = match object {
        "approvals" => "Which calls need a person's approval.",
        "pins" => "Tools that are listed beside metamcp's own.",
        "pool" => "The connection pool and the circuit breakers.",
        "timeouts" => "Time limits.",
        "limits" => "Limits of size and number.",
        "search" => "How tools are found.",
        "cluster" => "A fleet of gateways.",
        "daemon" => "The process that clients share.",
        "code" => "Code mode: sandbox and limits of scripts.",
        _ => "Settings.",
    };
    json!({
        "description": description,
        "type": "object",
        "properties": {},
        "patternProperties": { COMMENT_KEYS: true },
        "additionalProperties": false,
    })
}

fn setting_schema(setting: &Setting) -> Value {
    let mut schema = match setting.kind {
        Kind::Count { min, max } | Kind::Millis { min, max } | Kind::Bytes { min, max } => {
            number(min, max)
        }
        Kind::Word(known) => words(known),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Path => json!({ "type": "string", "minLength": 1 }),
        Kind::Text => json!({ "type": "string" }),
        Kind::Names => {
            json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
        }
    };
    schema["default"] = match setting.kind {
        Kind::Word(_) | Kind::Path | Kind::Text | Kind::Names => json!(setting.default_text()),
        Kind::Switch => json!(setting.default == Some(crate::settings::Value::Switch(true))),
        _ => json!(setting.default_text().parse::<u64>().ok()),
    };
    let help = if setting.doc.is_empty() {
        format!("{}.", setting.help)
    } else {
        format!("{}. {}", setting.help, setting.doc)
    };
    described(schema, &help)
}

/// The schema with its description in front, where people look first.
fn described(schema: Value, description: &str) -> Value {
    let mut all = Map::new();
    all.insert("description".to_owned(), json!(description));
    if let Value::Object(rest) = schema {
        all.extend(rest);
    }
    Value::Object(all)
}

fn add_foreign(properties: &mut Map<String, Value>, foreign: &[Foreign]) {
    for known in foreign {
        let description = format!("Of another program: {}.", known.reason);
        properties.insert(known.name.to_owned(), json!({ "description": description }));
    }
}
