//! Responses: structured content and the same as text, both on one line, with every member of the schema.

use metamcp_wire::object;
use metamcp_wire::write::{json_string, number};
use serde_json::{Value, json};

use crate::execution::{self, CallTally};
use metamcp_types::text;

/// A page of tools.
#[derive(Debug, Default)]
pub struct SearchResponse<'a> {
    pub tools: Vec<Value>,
    /// Where to go on.
    pub next_cursor: Option<&'a str>,
    pub pending: &'a [String],
    /// Servers whose tools could not be listed, and why.
    pub failed: &'a [(String, String)],
    /// What else should be said.
    pub note: Option<&'a str>,
}

/// The answer of `search_tools` and `list_tools`.
pub fn found(found: &SearchResponse<'_>) -> Value {
    let failed: Vec<Value> = found
        .failed
        .iter()
        .map(|(server, reason)| json!({ "namespace": server, "reason": reason }))
        .collect();
    json!({
        "tools": found.tools,
        "nextCursor": found.next_cursor,
        "pending": found.pending,
        "failed": failed,
        "note": found.note,
        "error": null,
    })
}

/// The answer of `list_namespaces`.
pub fn namespaces(names: &[&str], next_cursor: Option<&str>) -> Value {
    json!({ "namespaces": names, "nextCursor": next_cursor, "error": null })
}

/// The answer of a tool that failed before it had anything to say: every member there, and the error.
pub fn refused(tool: &str, error: &Value) -> Value {
    let mut answer = match tool {
        "search_tools" | "list_tools" => found(&SearchResponse::default()),
        "list_namespaces" => namespaces(&[], None),
        "describe_tool" => json!({
            "summary": null, "tool": null, "schemaInfo": null, "notes": [], "examples": [], "refs": [],
        }),
        "list_tool_examples" => json!({ "examples": [] }),
        "run_tool" => json!({
            "structured": null, "durationMs": 0, "tool": null, "backend": null, "mcpResult": null,
        }),
        "run_chain" => json!({ "results": [], "final": null, "durationMs": 0 }),
        _ => json!({
            "value": null, "handle": null, "stdout": "", "stderr": "", "toolCalls": [], "durationMs": 0,
        }),
    };
    answer["error"] = error.clone();
    answer
}

/// What one call came to. Raw members are JSON on one line.
#[derive(Debug, Clone, Copy)]
pub struct RunResponse<'a> {
    /// The value; `null` where there is none.
    pub structured: &'a [u8],
    pub error: Option<&'a Value>,
    /// How long it took.
    pub duration_ms: u64,
    /// The tool's definition, where it is wanted.
    pub tool: Option<&'a Value>,
    /// Which server answered, where that is wanted.
    pub backend: Option<&'a Value>,
    /// The server's own result, where the value is not all of it.
    pub mcp_result: Option<&'a [u8]>,
}

/// The answer of `run_tool`.
pub fn run(ran: &RunResponse<'_>) -> Vec<u8> {
    let size = ran.structured.len() + ran.mcp_result.map_or(0, <[u8]>::len);
    let mut out = Vec::with_capacity(size + 128);
    out.extend_from_slice(b"{\"structured\":");
    out.extend_from_slice(ran.structured);
    out.extend_from_slice(b",\"error\":");
    value(&mut out, ran.error);
    out.extend_from_slice(b",\"durationMs\":");
    number(&mut out, ran.duration_ms);
    out.extend_from_slice(b",\"tool\":");
    value(&mut out, ran.tool);
    out.extend_from_slice(b",\"backend\":");
    value(&mut out, ran.backend);
    out.extend_from_slice(b",\"mcpResult\":");
    out.extend_from_slice(ran.mcp_result.unwrap_or(b"null"));
    out.push(b'}');
    out
}

/// A step of a chain that was made.
#[derive(Debug, Clone)]
pub struct StepResponse {
    /// `namespace:name`.
    pub tool_id: String,
    /// What it is called.
    pub id: Option<String>,
    /// What it gave, as it is shown.
    pub structured: Vec<u8>,
    pub error: Option<Value>,
    /// How long it took.
    pub duration_ms: u64,
    /// The tool's definition, where it is wanted.
    pub tool: Option<Value>,
    /// Which server answered, where that is wanted.
    pub backend: Option<Value>,
    /// The server's own result, where the value is not all of it.
    pub mcp_result: Option<Vec<u8>>,
}

/// The answer of `run_chain`; `last` is the last good value.
pub fn chain(
    steps: &[StepResponse],
    last: &[u8],
    error: Option<&Value>,
    duration_ms: u64,
) -> Vec<u8> {
    let mut out = b"{\"results\":[".to_vec();
    for (index, step) in steps.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"tool_id\":");
        json_string(&mut out, &step.tool_id);
        out.extend_from_slice(b",\"id\":");
        match &step.id {
            Some(id) => json_string(&mut out, id),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b',');
        let ran = run(&RunResponse {
            structured: &step.structured,
            error: step.error.as_ref(),
            duration_ms: step.duration_ms,
            tool: step.tool.as_ref(),
            backend: step.backend.as_ref(),
            mcp_result: step.mcp_result.as_deref(),
        });
        out.extend_from_slice(&ran[1..]);
    }
    out.extend_from_slice(b"],\"final\":");
    out.extend_from_slice(last);
    out.extend_from_slice(b",\"durationMs\":");
    number(&mut out, duration_ms);
    out.extend_from_slice(b",\"error\":");
    value(&mut out, error);
    out.push(b'}');
    out
}

/// What a script came to.
#[derive(Debug, Clone, Copy)]
pub struct CodeResponse<'a> {
    /// Its value, as JSON; `null` where there is none or it is stored.
    pub value: &'a [u8],
    /// The handle it is stored under, where it is too long to show.
    pub handle: Option<&'a str>,
    /// What it printed, a line each, the level in front where it is not the usual one.
    pub logs: &'a [String],
    /// The calls it made, by tool.
    pub calls: &'a [CallTally],
    /// How long it took.
    pub duration_ms: u64,
    pub error: Option<&'a Value>,
}

/// The answer of `execute_code`.
pub fn code(ran: &CodeResponse<'_>) -> Vec<u8> {
    let complaint = |line: &str| -> Option<String> {
        let levels = ["error: ", "warn: "];
        levels.iter().find_map(|level| line.strip_prefix(level)).map(str::to_owned)
    };
    let said = ran.logs.iter().filter(|line| complaint(line).is_none());
    let said = said.map(String::as_str).collect::<Vec<_>>().join("\n");
    let complained: Vec<String> = ran.logs.iter().filter_map(|line| complaint(line)).collect();
    let calls: Vec<Value> = ran
        .calls
        .iter()
        .map(|tally| {
            let limit = ran.error.is_some_and(|error| error["details"]["limit"].is_string());
            let reason = (tally.cancelled > 0).then(|| execution::called_off(limit));
            json!({
                "tool_id": tally.tool,
                "calls": tally.calls,
                "failed": tally.failed,
                "cancelled": tally.cancelled,
                "reason": reason,
            })
        })
        .collect();
    let mut out = b"{\"value\":".to_vec();
    out.extend_from_slice(ran.value);
    let rest = json!({
        "handle": ran.handle,
        "stdout": said,
        "stderr": complained.join("\n"),
        "toolCalls": calls,
        "durationMs": ran.duration_ms,
        "error": ran.error,
    });
    out.push(b',');
    out.extend_from_slice(&rest.to_string().as_bytes()[1..]);
    out
}

/// A tool result around an answer: `line` goes in front of a failed one, `others` are parts that are no text.
/// Data of such parts is shown as a picture, not as letters: the text names its size instead.
pub fn answer(structured: &[u8], line: Option<&str>, others: &[&[u8]]) -> Vec<u8> {
    let shown = match std::str::from_utf8(structured) {
        Ok(shown) if others.is_empty() => text::escaped_json(shown),
        Ok(shown) => text::escaped_json(&without_data(shown, others)).into_owned().into(),
        Err(_) => "null".into(),
    };
    let mut out = Vec::with_capacity(structured.len() * 2 + shown.len() / 4 + 128);
    out.extend_from_slice(b"{\"content\":[");
    let mut texts = Vec::new();
    texts.extend(line);
    // The line says all of an error; what else there is, such as the steps before it, is shown too.
    if line.is_none() || !has_only_error(structured) {
        texts.push(&*shown);
    }
    for (index, text) in texts.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
        json_string(&mut out, text);
        out.push(b'}');
    }
    for part in others {
        out.push(b',');
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"],\"structuredContent\":");
    out.extend_from_slice(structured);
    if line.is_some() {
        out.extend_from_slice(b",\"isError\":true");
    }
    out.push(b'}');
    out
}

/// Whether a failed answer says nothing beside its error.
fn has_only_error(structured: &[u8]) -> bool {
    let is_empty =
        |value: &[u8]| matches!(value, b"null" | b"[]" | b"{}" | b"\"\"" | b"0" | b"false");
    object::members(structured)
        .all(|(name, value)| matches!(&*name, "error" | "durationMs") || is_empty(value))
}

/// The shown form with the base64 of each of `others` replaced by its length. Base64 stands in JSON as it is, so the
/// bytes can be found as they were written.
fn without_data(shown: &str, others: &[&[u8]]) -> String {
    let mut shown = shown.to_owned();
    for part in others {
        let inner = object::members(part).find(|(name, _)| *name == "resource");
        let holder = inner.map_or(*part, |(_, value)| value);
        let data = object::members(holder)
            .filter(|(name, _)| *name == "data" || *name == "blob")
            .filter_map(|(_, raw)| std::str::from_utf8(raw).ok());
        for data in data.filter(|data| data.len() > 64) {
            let stand_in =
                format!("\"[{} characters of base64, shown beside this]\"", data.len() - 2);
            shown = shown.replace(data, &stand_in);
        }
    }
    shown
}

fn value(out: &mut Vec<u8>, value: Option<&Value>) {
    match value {
        Some(value) => out.extend_from_slice(value.to_string().as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
}
