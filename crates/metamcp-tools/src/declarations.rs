//! A server's tools as TypeScript declarations, for a model that writes code against them.
//! Owns: the level of detail and size of each declaration, identifiers.      Never: validates arguments, follows a reference out of the schema.
//! In: tools, their schemas, shapes of results seen before.  Out: `declare const github: { … };` and names.
//! Tests: `declarations/tests.rs`; `tests/declarations.rs` has what becomes of real servers compiled by tsc.

mod name;
pub mod observed;
mod types;

use std::collections::HashMap;

use serde_json::Value;

use crate::tool::Tool;
use metamcp_types::text;

pub use name::{camel, identifier, resolve_tool};
use types::{Detail, Types};

#[cfg(test)]
mod tests;

/// Longest declaration of one tool in bytes; a longer one is rendered with less detail.
pub const MAX_TOOL_BYTES: usize = 6 * 1024;

/// Longest description of a tool, in characters.
const MAX_DESCRIPTION_CHARS: usize = 200;

/// Bytes reserved for the frame around the tools and the comment about those that do not fit.
const SHELL_BYTES: usize = 256;

/// Names that the language itself asks an object for. A tool of such a name is no method, and reached by `call`.
const LANGUAGE: [&str; 8] = [
    "then",
    "toString",
    "valueOf",
    "toJSON",
    "constructor",
    "toLocaleString",
    "hasOwnProperty",
    "__proto__",
];

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

/// `declare const identifier: { … };` with one method a tool, at most `bound` bytes long, but for the empty
/// shell. Where that is too little, every tool is rendered with less detail before the last ones are dropped.
pub fn for_server(server: &str, identifier: &str, tools: &[Declared<'_>], bound: usize) -> String {
    let names = method_names(tools);
    let room = bound.saturating_sub(SHELL_BYTES);
    let mut methods: Vec<String> = Vec::new();
    for detail in Detail::ALL {
        methods =
            tools.iter().zip(&names).map(|(tool, name)| method(*tool, name, detail)).collect();
        if methods.iter().map(String::len).sum::<usize>() <= room {
            break;
        }
    }
    let mut text = format!("/** Tools of server {}. */\n", comment(server, 64));
    text.push_str(&format!("declare const {identifier}: {{\n"));
    let mut used = 0;
    for (index, method) in methods.iter().enumerate() {
        used += method.len();
        if used > room {
            let rest = methods.len() - index;
            text.push_str(&format!(
                "  // {rest} more tools do not fit here; tools.list() names them all\n"
            ));
            break;
        }
        text.push_str(method);
    }
    text.push_str("};\n");
    text
}

/// One method as it stands in the declaration of its server: comment and signature, at most `bound` bytes long
/// where that can be had at all.
pub fn for_tool(tool: Declared<'_>, bound: usize) -> String {
    let name = method_name(&tool.tool.name);
    let mut text = String::new();
    for detail in Detail::ALL {
        text = method(tool, &name, detail);
        if text.len() <= bound {
            break;
        }
    }
    text
}

/// What fuzzing runs: any schema is declared within the bound, with brackets that match and nothing unseen.
#[doc(hidden)]
pub fn fuzz_declarations(data: &[u8]) {
    let Ok(schema) = serde_json::from_slice::<Value>(data) else { return };
    for detail in Detail::ALL {
        let read = Types::new(&schema, detail).arguments().unwrap_or_default();
        assert!(read.len() <= types::MAX_TYPE_BYTES * 4, "too long: {} bytes", read.len());
        let unseen = |c: char| (c.is_control() && c != '\n') || text::is_hidden(c);
        assert!(!read.chars().any(unseen), "unseen: {read:?}");
    }
}

/// Camel case where that says which tool is meant, else the name as it is.
fn method_names(tools: &[Declared<'_>]) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for tool in tools {
        *seen.entry(camel(&tool.tool.name)).or_default() += 1;
    }
    let unique = |name: &str| seen.get(&camel(name)) == Some(&1);
    tools
        .iter()
        .map(|tool| {
            let name = &tool.tool.name;
            if unique(name) { method_name(name) } else { name::member(name).into_owned() }
        })
        .collect()
}

fn method_name(name: &str) -> String {
    let camel = camel(name);
    if name::is_identifier(&camel) && !LANGUAGE.contains(&&*camel) {
        camel
    } else {
        name::member(name).into_owned()
    }
}

fn method(tool: Declared<'_>, name: &str, detail: Detail) -> String {
    // A tool that is too long by itself is rendered with less detail, however much room the others leave.
    for detail in Detail::ALL.into_iter().skip_while(|one| *one != detail) {
        let text = method_in(tool, name, detail);
        if text.len() <= MAX_TOOL_BYTES || detail == Detail::Names {
            return text;
        }
    }
    String::new()
}

fn method_in(Declared { tool, observed }: Declared<'_>, name: &str, detail: Detail) -> String {
    if LANGUAGE.contains(&name) {
        return format!("  // the tool {name} is no method here: call(\"{name}\", {{…}})\n");
    }
    let parse = |schema: Option<&str>| serde_json::from_str::<Value>(schema?).ok();
    let mut text = String::new();
    let said = text::first_sentence(&tool.description, MAX_DESCRIPTION_CHARS);
    if !said.is_empty() && detail != Detail::Names {
        text.push_str(&format!("  /** {} */\n", comment(&said, MAX_DESCRIPTION_CHARS)));
    }
    let input = parse(tool.input_schema());
    let arguments = input.as_ref().and_then(|schema| Types::new(schema, detail).arguments());
    let output = parse(tool.output_schema());
    let result = output.as_ref().or(observed).map(|schema| Types::new(schema, detail).result());
    let result = result.unwrap_or_else(|| "any".to_owned());
    text.push_str(&format!("  {name}({}): Promise<{result}>;\n", arguments.unwrap_or_default()));
    text
}

/// Untrusted text inside a comment: one line that cannot end the comment.
fn comment(words: &str, max_chars: usize) -> String {
    text::clean_line(words, max_chars).replace("*/", "*\\/")
}
