//! The tools of the full surface as `tools/list` shows them, with input and output schemas.

use serde_json::{Value, json};

use super::chain::MAX_STEPS;
use super::request::MAX_EXAMPLES;
use crate::discover::{MAX_LIMIT, script_description};

/// Their names, in the order of the list.
pub const NAMES: [&str; 8] = [
    "search_tools",
    "list_tools",
    "list_namespaces",
    "describe_tool",
    "list_tool_examples",
    "run_tool",
    "run_chain",
    "execute_code",
];

/// What is only read, of all servers together.
const READS: &[&str] =
    &["search_tools", "list_tools", "list_namespaces", "describe_tool", "list_tool_examples"];

/// The tools, with the digest of the servers where one looks for a tool first.
pub fn tools(digest: &str, caps: Option<&str>) -> Vec<Value> {
    NAMES
        .iter()
        .filter(|name| caps.is_some() || **name != "execute_code")
        .map(|name| {
            let (title, description) = words(name, digest, caps.unwrap_or_default());
            let reads = READS.contains(name);
            let annotations = if reads {
                json!({ "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false })
            } else {
                json!({ "readOnlyHint": false, "destructiveHint": true, "openWorldHint": true })
            };
            json!({
                "name": name,
                "title": title,
                "description": description,
                "inputSchema": input_schema(name),
                "outputSchema": output_schema(name),
                "annotations": annotations,
            })
        })
        .collect()
}

/// The `instructions` for a client of this surface; the servers are named in the description of `search_tools`.
pub fn instructions(code: bool) -> String {
    let more = if code { ", many at once by code with execute_code" } else { "" };
    format!(
        "Tools of other servers: find them with search_tools, look at them with describe_tool, run them with run_tool; several in a row with run_chain{more}."
    )
}

fn words(name: &str, digest: &str, caps: &str) -> (&'static str, String) {
    let (title, said) = match name {
        "search_tools" => {
            let said = if digest.is_empty() {
                "Find tools by what they do. No servers are configured yet.".to_owned()
            } else {
                format!("Find tools by what they do. Servers:\n{digest}")
            };
            return ("Find tools", said);
        }
        "list_tools" => ("List tools", "All tools, page by page; of one namespace if wanted."),
        "list_namespaces" => ("List namespaces", "The namespaces: one per server."),
        "describe_tool" => (
            "Describe a tool",
            "summary: a few words; schema: its definition and what a call needs; full: notes, examples and links as well.",
        ),
        "list_tool_examples" => ("Examples of a tool", "Arguments to call a tool with."),
        "run_tool" => ("Run a tool", "Run a tool that search_tools found."),
        "run_chain" => (
            "Run tools in a row",
            "Run tools one after the other; stops at the first that fails and gives the results so far. \
             `use_previous` puts the result before into args.previous; anywhere in args {\"$from\": step id or index, \"path\": \"/json/pointer\"} stands for a part of an earlier result.",
        ),
        _ => return ("Run code over tools", script_description(caps)),
    };
    (title, said.to_owned())
}

fn input_schema(name: &str) -> Value {
    let text = || json!({ "type": "string" });
    let limit = || json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 20 });
    let flag = |default: bool| json!({ "type": "boolean", "default": default });
    let id = || json!({ "type": "string", "description": "namespace:name" });
    let (properties, required): (Value, &[&str]) = match name {
        "search_tools" => {
            let mut limit = limit();
            // Without it, how sure the ranking is decides.
            limit.as_object_mut().map(|limit| limit.remove("default"));
            (json!({ "query": text(), "limit": limit, "cursor": text() }), &["query"])
        }
        "list_tools" => (
            json!({
                "namespace": text(),
                "backend_kind": { "type": "string", "enum": ["mcp", "local", "provider"] },
                "backend_name": text(),
                "limit": limit(),
                "cursor": text(),
            }),
            &[],
        ),
        "list_namespaces" => (json!({ "limit": limit(), "cursor": text() }), &[]),
        "describe_tool" => (
            json!({
                "tool_id": id(),
                "detail_level": { "type": "string", "enum": ["summary", "schema", "full"], "default": "schema" },
                "examples_max": { "type": "integer", "minimum": 0, "maximum": MAX_EXAMPLES },
            }),
            &["tool_id"],
        ),
        "list_tool_examples" => (
            json!({ "tool_id": id(), "max": { "type": "integer", "minimum": 1, "maximum": MAX_EXAMPLES } }),
            &["tool_id"],
        ),
        "run_tool" => (
            json!({
                "tool_id": id(),
                "args": { "type": "object" },
                "include_tool": flag(false),
                "include_backend": flag(false),
                "include_mcp_result": flag(false),
                "stream": flag(false),
                "backend_override": { "type": "object" },
            }),
            &["tool_id"],
        ),
        "run_chain" => (
            json!({
                "steps": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_STEPS,
                    "items": object(
                        &json!({
                            "tool_id": id(),
                            "args": { "type": "object" },
                            "use_previous": flag(false),
                            "id": text(),
                        }),
                        &["tool_id"],
                    ),
                },
                "include_backends": flag(true),
                "include_tools": flag(false),
                "timeout_ms": { "type": "integer", "minimum": 1 },
            }),
            &["steps"],
        ),
        _ => (
            json!({
                "language": { "type": "string", "enum": ["typescript", "javascript"], "default": "typescript" },
                "code": text(),
                "timeout_ms": { "type": "integer", "minimum": 1 },
                "max_tool_calls": { "type": "integer", "minimum": 0 },
            }),
            &["code"],
        ),
    };
    object(&properties, required)
}

/// What every answer of a tool looks like. All members are there, absent ones as `null`.
pub fn output_schema(name: &str) -> Value {
    let maybe_text = || json!({ "type": ["string", "null"] });
    let texts = || json!({ "type": "array", "items": { "type": "string" } });
    let list = |items: Value| json!({ "type": "array", "items": items });
    let count = || json!({ "type": "integer", "minimum": 0 });
    let properties = match name {
        "search_tools" | "list_tools" => json!({
            "tools": list(summary_schema()),
            "nextCursor": maybe_text(),
            "pending": texts(),
            "failed": list(whole(&json!({ "namespace": { "type": "string" }, "reason": { "type": "string" } }))),
            "note": maybe_text(),
        }),
        "list_namespaces" => json!({ "namespaces": texts(), "nextCursor": maybe_text() }),
        "describe_tool" => json!({
            "summary": or_null(&summary_schema()),
            "tool": { "type": ["object", "null"] },
            "schemaInfo": or_null(&whole(&json!({
                "required": texts(),
                "defaults": { "type": "object" },
                "types": { "type": "object", "additionalProperties": { "type": "string" } },
            }))),
            "notes": texts(),
            "examples": list(example_schema()),
            "refs": texts(),
        }),
        "list_tool_examples" => json!({ "examples": list(example_schema()) }),
        "run_tool" => ran(json!({})),
        "run_chain" => json!({
            "results": list(whole(&with_error(ran(json!({ "tool_id": { "type": "string" }, "id": maybe_text() }))))),
            "final": {},
            "durationMs": { "type": "integer", "minimum": 0 },
        }),
        _ => json!({
            "value": {},
            "handle": maybe_text(),
            "stdout": { "type": "string" },
            "stderr": { "type": "string" },
            "toolCalls": list(whole(&json!({
                "tool_id": { "type": "string" },
                "calls": count(),
                "failed": count(),
                "cancelled": count(),
                "reason": maybe_text(),
            }))),
            "durationMs": { "type": "integer", "minimum": 0 },
        }),
    };
    whole(&with_error(properties))
}

/// What went wrong, in every answer the same.
pub fn error_schema() -> Value {
    let text = || json!({ "type": "string" });
    let count = || json!({ "type": "integer", "minimum": 0 });
    object(
        &json!({
            "code": text(),
            "message": text(),
            "hint": text(),
            "tool_id": text(),
            "server": text(),
            "op": text(),
            "step_index": count(),
            "retryable": { "type": "boolean" },
            "retry_after_ms": count(),
            "details": { "type": "object" },
        }),
        &["code", "message", "retryable"],
    )
}

fn ran(mut more: Value) -> Value {
    let own = json!({
        "structured": {},
        "durationMs": { "type": "integer", "minimum": 0 },
        "tool": { "type": ["object", "null"] },
        "backend": or_null(&whole(&json!({ "kind": { "type": "string" }, "serverName": { "type": "string" } }))),
        "mcpResult": { "type": ["object", "null"] },
    });
    if let (Some(more), Value::Object(own)) = (more.as_object_mut(), own) {
        more.extend(own);
    }
    more
}

fn summary_schema() -> Value {
    whole(&json!({
        "id": { "type": "string" },
        "name": { "type": "string" },
        "namespace": { "type": "string" },
        "shortDescription": { "type": "string", "maxLength": 120 },
        "tags": { "type": "array", "items": { "type": "string" } },
    }))
}

fn example_schema() -> Value {
    whole(&json!({
        "title": { "type": "string" },
        "description": { "type": "string" },
        "args": { "type": "object" },
    }))
}

fn with_error(mut properties: Value) -> Value {
    properties["error"] = or_null(&error_schema());
    properties
}

fn or_null(schema: &Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// An object all of whose members are there, and no others.
fn whole(properties: &Value) -> Value {
    let names: Vec<String> =
        properties.as_object().into_iter().flatten().map(|(k, _)| k.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    object(properties, &names)
}

fn object(properties: &Value, required: &[&str]) -> Value {
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}
