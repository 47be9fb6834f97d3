use metamcp_tools::arguments::Checker;
use serde_json::{Value, json};

use super::{api, described, read, tools};
use crate::{Api, Options};

/// The schema of a body, as the tool has it.
fn body(version: &str, schema: &Value, schemas: &Value) -> Value {
    let content = json!({ "application/json": { "schema": schema } });
    let mut description = described(
        &json!({ "/a": { "post": { "operationId": "a", "requestBody": { "content": content } } } }),
        &json!({ "schemas": schemas }),
    );
    description["openapi"] = version.into();
    let tool = tools(&api(&description)).remove(0);
    assert!(jsonschema::validator_for(&tool["inputSchema"]).is_ok(), "{tool}");
    tool["inputSchema"].clone()
}

#[test]
fn keywords_of_both_revisions_become_those_of_today() {
    let old = "3.0.1";
    for (version, schema, expected) in [
        (old, json!({ "type": "string", "nullable": true }), json!({ "type": ["string", "null"] })),
        (
            old,
            json!({ "type": "integer", "minimum": 1, "exclusiveMinimum": true }),
            json!({ "type": "integer", "exclusiveMinimum": 1 }),
        ),
        (
            "3.1.0",
            json!({ "type": ["string", "null"], "exclusiveMaximum": 5 }),
            json!({ "type": ["string", "null"], "exclusiveMaximum": 5 }),
        ),
        (
            old,
            json!({ "type": "string", "enum": ["a", "a", 1, true], "nullable": true }),
            json!({ "type": ["string", "null"], "enum": ["a", "1", "true", null] }),
        ),
        (
            old,
            json!({ "type": "integer", "enum": ["1", "2"] }),
            json!({ "type": "integer", "enum": [1, 2] }),
        ),
        (
            old,
            json!({ "properties": { "a": {} } }),
            json!({ "type": "object", "properties": { "a": {} } }),
        ),
        (old, json!({ "type": "int", "format": "int32" }), json!({ "format": "int32" })),
        (
            old,
            json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
        ),
        (
            old,
            json!({ "oneOf": [{ "type": "string" }, { "type": "string" }], "xml": {}, "example": 1 }),
            json!({ "type": "string" }),
        ),
        (old, json!({ "type": "string", "pattern": "^(?P<a>.)$" }), json!({ "type": "string" })),
        (
            old,
            json!({ "type": "string", "pattern": "^[a-z]{2,3}$" }),
            json!({ "type": "string", "pattern": "^[a-z]{2,3}$" }),
        ),
        (
            old,
            json!({ "type": "array", "items": { "type": "number" }, "uniqueItems": true }),
            json!({ "type": "array", "items": { "type": "number" }, "uniqueItems": true }),
        ),
        (
            old,
            json!({ "type": "object", "required": ["id", "a"], "properties": { "id": { "readOnly": true }, "a": { "type": "boolean" } } }),
            json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"] }),
        ),
        (
            old,
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        ),
        (
            old,
            json!({ "allOf": [{ "properties": { "a": { "type": "string" } }, "required": ["a"] }, { "type": "object", "properties": { "b": {} } }], "description": "both" }),
            json!({ "type": "object", "description": "both", "properties": { "a": { "type": "string" }, "b": {} }, "required": ["a"] }),
        ),
        (
            old,
            json!({ "allOf": [{ "type": "string", "maxLength": 3 }], "nullable": true }),
            json!({ "type": ["string", "null"], "maxLength": 3 }),
        ),
        (
            old,
            json!({ "allOf": [{ "type": "string", "enum": ["a"] }], "nullable": true }),
            json!({ "anyOf": [{ "type": "string", "enum": ["a"] }, { "type": "null" }] }),
        ),
    ] {
        let found = body(version, &schema, &json!({}));
        assert_eq!(found["properties"]["body"], expected, "{schema}");
    }
}

#[test]
fn what_is_referred_to_once_stands_in_place_and_circles_are_kept() {
    let schemas = json!({
        "Pet": {
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "owner": { "$ref": "#/components/schemas/Owner" },
                "friends": { "type": "array", "items": { "$ref": "#/components/schemas/Pet" } },
                "a": { "$ref": "#/components/schemas/Long" },
                "b": { "$ref": "#/components/schemas/Long", "nullable": true },
                "elsewhere": { "$ref": "other.yaml#/Pet" },
                "missing": { "$ref": "#/components/schemas/Missing" },
            },
        },
        "Owner": { "type": "object", "properties": { "email": { "type": "string", "format": "email" } } },
        "Long": { "type": "string", "description": "x".repeat(250) },
    });
    let schema = body("3.0.0", &json!({ "$ref": "#/components/schemas/Pet" }), &schemas);
    assert_eq!(schema["properties"]["body"]["$ref"], "#/$defs/Pet");
    let pet = &schema["$defs"]["Pet"]["properties"];
    assert_eq!(pet["owner"]["properties"]["email"]["format"], "email");
    assert_eq!(pet["friends"]["items"]["$ref"], "#/$defs/Pet");
    assert_eq!(pet["a"]["$ref"], "#/$defs/Long");
    assert_eq!(pet["b"]["anyOf"][1], json!({ "type": "null" }));
    assert_eq!((&pet["elsewhere"], &pet["missing"]), (&json!({}), &json!({})));
    let checker = Checker::new(&schema);
    assert!(checker.check(&json!({ "body": { "friends": [{ "name": "x" }] } })).is_ok());
    assert!(checker.check(&json!({ "body": { "friends": [{ "name": 7 }] } })).is_err());
}

#[test]
fn what_is_too_large_loses_what_is_farthest_from_its_root() {
    let mut schemas = serde_json::Map::new();
    for at in 0..400 {
        let mut properties = serde_json::Map::new();
        for inner in 0..20 {
            let next =
                json!({ "$ref": format!("#/components/schemas/S{}", (at * 20 + inner + 1) % 400) });
            properties.insert(format!("p{inner}"), next);
        }
        let words = "what this is good for ".repeat(8);
        schemas.insert(
            format!("S{at}"),
            json!({ "type": "object", "description": words, "properties": properties }),
        );
    }
    let schema = body("3.0.0", &json!({ "$ref": "#/components/schemas/S0" }), &schemas.into());
    let length = schema.to_string().len();
    assert!(length < 60_000, "{length}");
    let members = &schema["properties"]["body"]["properties"];
    assert_eq!(members.as_object().map(serde_json::Map::len), Some(20), "{schema}");
}

#[test]
fn many_tools_share_the_room_there_is() {
    let wide: serde_json::Map<String, Value> = (0..150)
        .map(|at| {
            (
                format!("member_{at}"),
                json!({ "type": "string", "description": "words ".repeat(30) }),
            )
        })
        .collect();
    let paths: serde_json::Map<String, Value> = (0..400)
        .map(|at| {
            let content = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Wide" } } });
            (format!("/p{at}"), json!({ "post": { "requestBody": { "content": content } } }))
        })
        .collect();
    let schemas = json!({ "schemas": { "Wide": { "type": "object", "properties": wide } } });
    let document = read(&described(&paths.into(), &schemas));
    let api = Api::of(&document, &Options { max_list: 1_500_000, ..Options::default() }).unwrap();
    assert_eq!(api.operations().len(), 400);
    assert!(api.tools().len() <= 1_500_000, "{}", api.tools().len());
    let few = Api::of(&document, &Options { max_list: 60_000, ..Options::default() }).unwrap();
    assert!(few.operations().len() < 400 && few.tools().len() <= 60_000);
    assert!(few.notes[0].contains("do not fit into one list of tools"), "{:?}", few.notes);
}
