//! The compact surface as data: what `tools/list` answers, byte for byte the same for the same servers.

use serde_json::{Value, json};

/// The `tools/list` result with the digest of the servers in it.
pub fn compact_tools(digest: &str, code: bool, provisions: bool) -> String {
    json!({ "tools": compact_list(digest, code, provisions) }).to_string()
}

/// The tools themselves.
pub fn compact_list(digest: &str, code: bool, provisions: bool) -> Vec<Value> {
    let mut tools = vec![discover_tool(digest), call_tool()];
    if code {
        tools.push(execute_tool());
    }
    if provisions {
        tools.push(provision_tool());
    }
    tools
}

/// The `instructions` a client gets at the start.
pub fn instructions(digest: &str, code: bool) -> String {
    let how = if code {
        "Tools of the servers below are found with mcp_discover and run with mcp_call, or many at once by code with mcp_execute."
    } else {
        "Tools of the servers below are found with mcp_discover and run with mcp_call."
    };
    if digest.is_empty() { how.to_owned() } else { format!("{how}\n{digest}") }
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
                "query": {"type": "string", "description": "Task in words; omit to list servers"},
                "server": {"type": "string"},
                "tool": {"type": "string", "description": "server:tool, for its details"},
                "detail": {"type": "string", "enum": ["brief", "signature", "schema"]},
                "limit": {"type": "integer", "maximum": 100},
                "cursor": {"type": "string"}
            }
        },
        "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false}
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
                "server": {"type": "string"},
                "args": {"type": "object"}
            },
            "required": ["tool"]
        },
        "annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": true}
    })
}

/// The limits of a script by default, as its description says them.
pub const CAPS: &str = "2000 calls (LimitError), 120 s";

fn execute_tool() -> Value {
    let description = format!(
        "Run TypeScript over many tools; only what it returns or logs comes back. \
        `await servers[\"name\"].call(\"tool\", {{args}})` or `await name.toolName({{args}})` gives the tool's data or throws ToolError (e.code, e.retryable). \
        parallel(items, fn, 8) fails at the first throw, parallel.settled does not. \
        results.put(value) gives a handle, results.get(handle) reads it later. \
        tools.search(query), tools.types(\"server:tool\"), sleep(ms). \
        At most {CAPS}. No network, files or imports."
    );
    json!({
        "name": "mcp_execute",
        "title": "Run code over tools",
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "timeoutMs": {"type": "integer"}
            },
            "required": ["code"]
        },
        "annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": true}
    })
}

/// `mcp_provision`, which is in both surfaces.
pub fn provision_tool() -> Value {
    json!({
        "name": "mcp_provision",
        "title": "Get a missing tool",
        "description": "When mcp_discover finds nothing: find a server to install.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "intent": {"type": "string"},
                "context": {"type": "string"},
                "autoProvision": {"type": "boolean", "description": "Ask the user to install it"}
            },
            "required": ["intent"]
        },
        "annotations": {"readOnlyHint": false, "destructiveHint": false, "openWorldHint": true}
    })
}
