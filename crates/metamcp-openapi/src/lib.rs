//! A REST API as a server: its OpenAPI description read as tools, a call as a request, an answer as a result.
//!
//! Nothing here does I/O. A description is read as values rather than into types: of the crates that have types for it, one
//! knows 3.0 and another 3.1, and both refuse the whole for one flaw of the kind that nearly every published description has.
//!
//! 1. [`Document::read`] takes JSON or YAML apart as far as an index of its components ([`document`], [`yaml`]).
//! 2. [`Api::of`] makes tools of the operations that are wanted ([`select`], [`naming`], [`schema`], [`operation`]).
//! 3. [`Operation::request`] makes the parts of an HTTP request out of arguments ([`request`]).
//! 4. [`answer::result`] makes a tool result out of what came back ([`answer`]).
//!
//! Whoever wrote the description may be hostile: every step is bounded by what it may read, keep and write.

pub mod answer;
pub mod api;
pub mod document;
pub mod naming;
pub mod operation;
pub mod request;
pub mod schema;
pub mod security;
pub mod select;
pub mod server;
mod yaml;

pub use answer::Answer;
pub use api::{Api, Glance, Options};
pub use document::{DescriptionError, Document, MAX_DOCUMENT};
pub use operation::Operation;
pub use request::{ArgumentError, Request};
pub use select::Rule;

#[cfg(test)]
mod tests;

/// What fuzzing runs: any bytes give tools or an error that can be shown, and any of the tools takes any arguments.
#[doc(hidden)]
pub fn fuzz_description(data: &[u8]) {
    let Ok(document) = Document::read(data) else { return };
    let base = metamcp_types::web::Address::parse("https://api.example/v1").ok();
    let options = Options { base_url: base, ..Options::default() };
    let Ok(api) = Api::of(&document, &options) else { return };
    let tools: serde_json::Value =
        serde_json::from_str(api.tools()).expect("what is written as JSON is JSON");
    assert_eq!(tools["tools"].as_array().map_or(0, Vec::len), api.operations().len());
    for (tool, operation) in tools["tools"].as_array().into_iter().flatten().zip(api.operations()) {
        assert_eq!(tool["name"].as_str(), Some(&*operation.name));
        let mut arguments = serde_json::Map::new();
        for (at, key) in operation.keys().enumerate() {
            let value = match at % 4 {
                0 => serde_json::json!("a/../b"),
                1 => serde_json::json!(7),
                2 => serde_json::json!(["x", 1, null]),
                _ => serde_json::json!({ "k": "v", "list": [true, { "d": "" }] }),
            };
            arguments.insert(key.to_owned(), value);
        }
        if let Ok(request) = operation.request(&arguments) {
            assert!(request.target.starts_with('/'), "{}", request.target);
            assert!(!request.target.bytes().any(|byte| byte <= b' ' || byte >= 0x7f));
        }
    }
}
