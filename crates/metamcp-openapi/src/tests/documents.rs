use serde_json::json;

use super::{api, described, tools};
use crate::{Document, fuzz_description};

#[test]
fn what_is_no_description_is_told_with_its_place_and_what_to_do() {
    for (text, told) in [
        ("", "it is empty"),
        (
            "<!DOCTYPE html><p>docs",
            "line 1: it is a web page, not a description; name the JSON or YAML file itself",
        ),
        ("{\"openapi\": \"3.0.0\",\n \"paths\": {,}}", "line 2, column 12: it is not JSON"),
        ("openapi: 3.0.0\npaths:\n  a: b: c\n", "line 3, column 7: it is not YAML"),
        ("{\"swagger\": \"2.0\", \"paths\": {}}", "#/swagger: it is of Swagger \"2.0\""),
        ("swagger: '2.0'", "npx swagger2openapi"),
        (
            "{\"openapi\": \"4.0.0\"}",
            "#/openapi: the revision \"4.0.0\" is not read; 3.0 and 3.1 are",
        ),
        ("{\"asyncapi\": \"3.0.0\"}", "it has no `openapi` with a version"),
        ("[1]", "it is not an object"),
        ("{\"openapi\": \"3.0.0\", \"paths\": []}", "#/paths: it is not an object"),
        ("just words", "it is not an object"),
    ] {
        let error = Document::read(text.as_bytes()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
    let utf16 = Document::read(b"\xff\xfe{\0").unwrap_err();
    assert!(utf16.to_string().contains("UTF-16"));
    let latin = Document::read(b"openapi: 3.0.0\ninfo: \xe9").unwrap_err();
    assert!(latin.to_string().contains("line 2: it is not UTF-8"), "{latin}");
}

#[test]
fn json_and_yaml_of_both_revisions_are_read_alike() {
    let yaml = "openapi: 3.1\ninfo: {title: T, version: 1.0.0}\nservers: [{url: https://a.example}]\npaths:\n  /a:\n    get: {operationId: one, responses: {200: {description: ok}}}\n";
    let document = Document::read(yaml.as_bytes()).unwrap();
    let read = crate::Api::of(&document, &crate::Options::default()).unwrap();
    assert_eq!((read.title.as_str(), read.total), ("T", 1));
    let with_mark = format!("\u{feff}{}", described(&json!({ "/a": { "get": {} } }), &json!({})));
    assert!(Document::read(with_mark.as_bytes()).is_ok());
}

#[test]
fn references_lead_anywhere_in_the_document() {
    let description = described(
        &json!({
            "/a/{id}": {
                "parameters": [{ "$ref": "#/components/parameters/Id" }],
                "get": { "operationId": "a" },
            },
            "/b/{id}": {
                "get": { "operationId": "b", "parameters": [{ "$ref": "#/paths/~1a~1%7Bid%7D/parameters/0" }] },
            },
            "/c": { "$ref": "#/components/pathItems/C" },
            "/d": { "get": { "operationId": "d", "parameters": [{ "$ref": "#/components/parameters/Loop" }] } },
        }),
        &json!({
            "parameters": {
                "Id": { "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } },
                "Loop": { "$ref": "#/components/parameters/Loop" },
            },
            "pathItems": { "C": { "get": { "operationId": "c" } } },
        }),
    );
    let api = api(&description);
    let tools = tools(&api);
    assert_eq!(tools.len(), 4);
    for tool in &tools[..2] {
        assert_eq!(tool["inputSchema"]["properties"]["id"]["type"], "integer", "{tool}");
    }
    assert_eq!(tools[3]["inputSchema"]["properties"], json!({}));
}

#[test]
fn hostile_bytes_are_read_within_bounds() {
    for text in [
        "{\"openapi\":\"3.0.0\",\"paths\":{\"/a\":{\"get\":{\"parameters\":[{\"$ref\":\"#\"},{\"$ref\":7},null]}}}}",
        "{\"openapi\":\"3.1.0\",\"paths\":{\"/{\":{\"get\":{}},\"/}{\":{\"get\":{}},\"/{a}{b}{a}\":{\"put\":{\"requestBody\":{\"content\":{\"*/*\":{}}}}}}}",
        "{\"openapi\":\"3.1.0\",\"openapi\":\"3.0.0\",\"paths\":{\"/a\\nb c?d#e\":{\"get\":{\"operationId\":\"\\u0000\"}}}}",
        "{\"openapi\":\"3.1.0\",\"components\":{\"schemas\":{\"A\":{\"$ref\":\"#/components/schemas/A\"},\"B\":{\"allOf\":[{\"$ref\":\"#/components/schemas/B\"}]}}},\"paths\":{\"/a\":{\"post\":{\"requestBody\":{\"content\":{\"application/json\":{\"schema\":{\"anyOf\":[{\"$ref\":\"#/components/schemas/A\"},{\"$ref\":\"#/components/schemas/B\"}]}}}}}}}}",
        "openapi: 3.0.0\npaths: {/a: {get: {tags: [1, [2]], parameters: {a: b}, security: {}, servers: 1}}}",
    ] {
        fuzz_description(text.as_bytes());
        for end in (0..text.len()).step_by(7) {
            fuzz_description(text.get(..end).unwrap_or_default().as_bytes());
        }
    }
    // A chain in which each schema includes the one before.
    let mut schemas = serde_json::Map::new();
    for at in 0..3000 {
        let before = format!("#/components/schemas/S{}", if at == 0 { 2999 } else { at - 1 });
        schemas.insert(format!("S{at}"), json!({
            "allOf": [{ "$ref": before }, { "properties": { format!("p{at}"): { "$ref": before } } }],
        }));
    }
    let body = json!({ "content": { "application/json": { "schema": { "$ref": "#/components/schemas/S2999" } } } });
    let description = described(
        &json!({ "/a": { "post": { "operationId": "a", "requestBody": body } } }),
        &json!({ "schemas": schemas }),
    );
    let api = api(&description);
    assert!(api.tools().len() < 60_000, "{}", api.tools().len());
}
