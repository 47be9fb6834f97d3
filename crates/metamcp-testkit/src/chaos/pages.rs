//! The server with pages (MCP Apps): a tool that shows one, a tool that only the page calls, and the page. Only with
//! `--pages NAME`.

use serde_json::{Value, json};

use super::message::{Call, Request, error_line, result_line};
use super::server_state::ServerState;

/// The same address for every server: whose page it is must not depend on it.
const PAGE: &str = "ui://book/page.html";

/// Added to the list of tools.
pub(super) fn tools() -> [Value; 2] {
    let schema = json!({"type": "object", "properties": {"to": {"type": "integer"}}});
    [
        json!({
            "name": "open_book", "description": "Opens the book.", "inputSchema": schema,
            "_meta": {"ui": {"resourceUri": PAGE}},
        }),
        json!({
            "name": "turn", "description": "Turns the page.", "inputSchema": schema,
            "_meta": {"ui": {"resourceUri": PAGE, "visibility": ["app"]}},
        }),
    ]
}

/// Answers a call of one of them.
pub(super) fn call(server: &ServerState, call: &Call) -> bool {
    let Some(name) = server.options.pages.as_deref() else { return false };
    let said = match call.tool.as_str() {
        "open_book" => format!("the book of {name} is open"),
        "turn" => format!("{name} turned to {}", call.arguments["to"]),
        _ => return false,
    };
    server.record_call(call);
    let mut result = json!({"content": [{"type": "text", "text": said}], "_meta": {"own": true}});
    if call.stateless {
        result["resultType"] = "complete".into();
    }
    server.send(&result_line(&call.id, &result.to_string()));
    true
}

/// Reads the page. True if the request was about one.
pub(super) fn takes(
    server: &ServerState,
    method: &str,
    request: &Request,
    is_stateless: bool,
) -> bool {
    let Some(name) = server.options.pages.as_deref().filter(|_| method == "resources/read") else {
        return false;
    };
    if request.params["uri"] != PAGE {
        let error =
            json!({"code": -32602, "message": format!("{name} has no {}", request.params["uri"])});
        server.send(&error_line(&request.id, &error));
        return true;
    }
    let mut read = json!({"contents": [{
        "uri": PAGE, "mimeType": "text/html;profile=mcp-app", "text": format!("<p>book of {name}</p>"),
        "_meta": {"ui": {"csp": {"connectDomains": []}}},
    }]});
    if is_stateless {
        read["resultType"] = "complete".into();
    }
    server.send(&result_line(&request.id, &read.to_string()));
    true
}
