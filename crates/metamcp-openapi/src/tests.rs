//! Tests of a description as a whole, over small ones of our own.
//! Owns: the cases, one file for each step from text to result.      Never: reads a published description; `cargo xtask openapi` does.
//! In: descriptions in the tests.  Out: tools, requests and results, compared.
//! Tests: these.

mod answers;
mod descriptions;
mod documents;
mod requests;
mod schemas;

use metamcp_types::web::Address;
use serde_json::{Value, json};

use crate::{Api, Document, Options};

/// A description of these paths and components.
fn described(paths: &Value, components: &Value) -> Value {
    json!({
        "openapi": "3.0.3",
        "info": { "title": "Test", "version": "1" },
        "servers": [{ "url": "https://api.example/v1" }],
        "paths": paths,
        "components": components,
    })
}

fn read(description: &Value) -> Document {
    Document::read(description.to_string().as_bytes()).unwrap()
}

fn api(description: &Value) -> Api {
    Api::of(&read(description), &Options::default()).unwrap()
}

fn tools(api: &Api) -> Vec<Value> {
    let list: Value = serde_json::from_str(api.tools()).unwrap();
    list["tools"].as_array().unwrap().clone()
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}
