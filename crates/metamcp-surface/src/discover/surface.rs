//! The compact surface as data: what `tools/list` answers, byte for byte the same for the same servers. Every session pays
//! for each word, so annotations with the protocol's own defaults are left out.

use serde_json::{Value, json};

/// The `tools/list` result with the digest of the servers in it.
pub fn compact_tools(digest: &str, caps: Option<&str>, provisions: bool) -> String {
    json!({ "tools": compact_list(digest, caps, provisions) }).to_string()
}

/// The tools themselves; `caps` are the limits of scripts, where there is code mode.
pub fn compact_list(digest: &str, caps: Option<&str>, provisions: bool) -> Vec<Value> {
    let mut tools = vec![discover_tool(digest), call_tool()];
    if let Some(caps) = caps {
        tools.push(execute_tool(caps));
    }
    if provisions {
        tools.push(provision_tool());
    }
    tools
}

/// The `instructions` a client gets at the start. The servers are named where every client shows them, in the description
/// of `mcp_discover`.
pub fn instructions(code: bool) -> String {
    let more = if code { ", mcp_execute many by code" } else { "" };
    format!("Tools of other servers: mcp_discover finds them, mcp_call runs one{more}.")
}

fn discover_tool(digest: &str) -> Value {
    let description = if digest.is_empty() {
        "Find tools by what they do. No servers are configured yet.".to_owned()
    } else {
        format!("Find tools by what they do. Servers:\n{digest}")
    };
    json!({
        "name": "mcp_discover",
        "title": "Find tools",
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Task in words"},
                "server": {"type": "string"},
                "tool": {"type": "string"},
                "detail": {"type": "string", "enum": ["brief", "schema"]},
                "limit": {"type": "integer"},
                "cursor": {"type": "string"}
            }
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false}
    })
}

fn call_tool() -> Value {
    json!({
        "name": "mcp_call",
        "title": "Call a tool",
        "description": "Run a tool that mcp_discover found.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "server:tool"},
                "args": {"type": "object"}
            },
            "required": ["tool"]
        },
        "annotations": {"readOnlyHint": false}
    })
}

/// What a script can do, and its limits.
pub(crate) fn script_description(caps: &str) -> String {
    format!(
        "Run TypeScript over many tools; only what it returns or logs comes back. \
        `await name.toolName({{args}})` or `await servers[\"name\"].call(\"tool\", {{args}})` gives the tool's data or throws ToolError (e.code, e.retryable). \
        parallel(items, fn, 8) fails at the first throw, parallel.settled does not. \
        results.put(value) gives a handle for results.get. \
        Also tools.search(query), tools.types(\"server:tool\"). \
        At most {caps}. No network, files or imports."
    )
}

fn execute_tool(caps: &str) -> Value {
    json!({
        "name": "mcp_execute",
        "title": "Run code over tools",
        "description": script_description(caps),
        "inputSchema": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "timeoutMs": {"type": "integer"}
            },
            "required": ["code"]
        },
        "annotations": {"readOnlyHint": false}
    })
}

/// `mcp_provision`, which is in both surfaces.
pub fn provision_tool() -> Value {
    json!({
        "name": "mcp_provision",
        "title": "Get a missing tool",
        "description": "When nothing here does it: find a server to install.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "intent": {"type": "string"},
                "context": {"type": "string"},
                "autoProvision": {"type": "boolean", "description": "Ask the user to install it"},
                "force": {"type": "boolean"}
            },
            "required": ["intent"]
        },
        "annotations": {"readOnlyHint": false, "destructiveHint": false}
    })
}
