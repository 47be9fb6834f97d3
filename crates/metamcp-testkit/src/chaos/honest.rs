//! The correct server: its tools, and what they do when no hazard is selected.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::message::{Call, error_line, notification_line, result_line};
use super::offers::ListBehaviour;
use super::server_state::ServerState;
use super::{stateful, stateless};

/// How long a tool waits for the client's response to a server request; no test waits for a person.
const QUESTION_PATIENCE: Duration = Duration::from_mins(1);
/// How often `slow` looks for the file that it waits for.
const LOOK: Duration = Duration::from_millis(5);

/// The revisions with an `initialize` handshake.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A result with everything a careless gateway would lose: unknown fields, key order, a number beyond 64 bits,
/// every content type and one that does not exist, `_meta` at each level, spaces and escapes.
pub(super) const EXOTIC: &str = concat!(
    r#"{"zeta":1,"alpha": [ 1.0, 1.50, 1e3, -0, 12345678901234567890123 ],"_meta":{"org.example/trace":"t-1","n":12345678901234567890123},"#,
    r#""content":[{"text":"caf\u00e9 \u0000 \ud83d\ude00 / \/","type":"text","annotations":{"audience":["system","user"],"priority":1,"futureHint":true},"_meta":{"k":[]}},"#,
    r#"{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"audio","mimeType":"audio/wav","data":"aGk="},"#,
    r#"{"type":"resource_link","uri":"file:///tmp/a%20b","name":"a b","size":12345678901234567890123},"#,
    r#"{"type":"resource","resource":{"uri":"memo://1","blob":"aGk=","extra":null}},"#,
    r#"{"type":"video","data":"??","codec":{"b":2,"a":1}}],"#,
    r#""tools":[],"contents":[],"messages":[],"action":"accept","#,
    r#""structuredContent":{"b":{"y":1,"x":2},"a":12345678901234567890123,"empty":{},"none":null},"isError":false,"resultType":"complete"}"#
);

pub(super) fn handshake(params: &Value) -> Value {
    let asked = params["protocolVersion"].as_str().unwrap_or_default();
    let revision = REVISIONS.iter().find(|revision| **revision == asked).unwrap_or(&"2025-11-25");
    json!({
        "protocolVersion": revision,
        "capabilities": {"tools": {"listChanged": true}, "logging": {}},
        "serverInfo": {"name": "chaos-child", "title": "Chaos child", "version": env!("CARGO_PKG_VERSION")},
        "instructions": "Call echo to be answered.",
    })
}

pub(super) fn tools(server: &ServerState) -> Vec<Value> {
    let text = json!({"type": "string"});
    let whole = json!({"type": "integer", "minimum": 0});
    let read_only = json!({"readOnlyHint": true});
    let mut tools = vec![
        tool(
            "echo",
            "Answers with the text it was given.",
            &json!({"text": text}),
            &["text"],
            &read_only,
        ),
        tool(
            "effect",
            "Changes the world once per call.",
            &json!({"key": text}),
            &["key"],
            &Value::Null,
        ),
        tool(
            "effect_idempotent",
            "Changes the world; a second time changes nothing more.",
            &json!({"key": text}),
            &["key"],
            &json!({"idempotentHint": true}),
        ),
        tool("slow", "Answers after ms milliseconds.", &json!({"ms": whole}), &["ms"], &read_only),
        tool(
            "big",
            "Answers with that many bytes of text.",
            &json!({"bytes": whole}),
            &["bytes"],
            &read_only,
        ),
        tool(
            "progress",
            "Reports count steps, ms milliseconds apart, then answers.",
            &json!({"count": whole, "ms": whole}),
            &["count"],
            &read_only,
        ),
        tool(
            "log",
            "Logs a message at level info, then answers.",
            &json!({"text": text}),
            &["text"],
            &read_only,
        ),
        tool("elicit", "Asks the user for a name.", &json!({}), &[], &Value::Null),
        tool("sample", "Asks the model for a sentence.", &json!({}), &[], &Value::Null),
        tool("roots", "Asks the client for its roots.", &json!({}), &[], &Value::Null),
        tool("fail", "Fails as a tool does, with isError.", &json!({}), &[], &read_only),
        tool(
            "rpc_error",
            "Fails as a protocol does.",
            &json!({"code": {"type": "integer"}}),
            &[],
            &read_only,
        ),
        tool("env", "Shows its environment and open files.", &json!({}), &[], &read_only),
        tool("exotic", "Answers with everything that is easily lost.", &json!({}), &[], &read_only),
        tool("grow", "Adds one tool to the list.", &json!({}), &[], &Value::Null),
    ];
    for number in 1..=server.grown.load(Ordering::Relaxed) {
        tools.push(tool(
            &format!("grown_{number}"),
            "Was added later.",
            &json!({}),
            &[],
            &read_only,
        ));
    }
    if server.options.stateful {
        tools.extend(stateful::tools());
    }
    match server.options.offers.as_ref().map(|offers| offers.manner) {
        Some(ListBehaviour::Wrong) => tools.extend(unfit()),
        Some(ListBehaviour::Some) => tools.push(for_pages()),
        _ => {}
    }
    tools
}

/// A tool for the server's UI pages only, hidden from models.
fn for_pages() -> Value {
    let mut page = tool("page_turn", "Turns the page.", &json!({}), &[], &Value::Null);
    page["_meta"] = json!({"ui": {"resourceUri": "ui://book", "visibility": ["app"]}});
    page
}

/// Tools that are invalid by the protocol, and some that are barely valid.
fn unfit() -> [Value; 6] {
    let schema = json!({"type": "object"});
    [
        json!({"name": "no_schema"}),
        json!({"name": "text_schema", "inputSchema": "x"}),
        json!({"name": "number_words", "description": 7, "inputSchema": schema}),
        json!({"name": "null_words", "title": null, "description": null, "inputSchema": schema}),
        json!({"name": "hidden_words", "description": "a\u{202e}b\u{1b}[31mc", "inputSchema": schema}),
        json!({"name": format!("long_{}", "x".repeat(80)), "inputSchema": schema}),
    ]
}

/// Runs the tool and responds; slow tools get their own thread, so calls overlap.
pub(super) fn perform(server: &Arc<ServerState>, call: Call) {
    let overlaps =
        matches!(call.tool.as_str(), "slow" | "progress" | "elicit" | "sample" | "roots");
    if overlaps {
        let server = Arc::clone(server);
        thread::spawn(move || perform_now(&server, &call));
    } else {
        perform_now(server, &call);
        stateful::after(server, &call);
    }
}

fn perform_now(server: &ServerState, call: &Call) {
    let result = match call.tool.as_str() {
        "echo" => text(call.arguments["text"].as_str().unwrap_or_default()),
        "effect" | "effect_idempotent" => text(&format!("done {}", call.key)),
        "slow" => {
            let ms = call.amount("ms", 0);
            if server.wait_unless_cancelled(&call.id, Duration::from_millis(ms)) {
                // The protocol forbids a response to a cancelled request.
                return;
            }
            // A test that has to do something meanwhile lets it go by making this file.
            let until = call.arguments["until"].as_str();
            while until.is_some_and(|file| !Path::new(file).exists()) {
                if server.wait_unless_cancelled(&call.id, LOOK) {
                    return;
                }
            }
            text(&format!("waited {ms} ms"))
        }
        "big" => text(&"x".repeat(usize::try_from(call.amount("bytes", 0)).unwrap_or(usize::MAX))),
        "progress" => {
            let count = call.amount("count", 0);
            let pause = Duration::from_millis(call.amount("ms", 0));
            for step in 1..=count {
                report_progress(server, call, step, count);
                if !pause.is_zero() && server.wait_unless_cancelled(&call.id, pause) {
                    return;
                }
            }
            text(&format!("{count} steps"))
        }
        "log" => {
            let message =
                json!({"level": "info", "logger": "chaos", "data": call.arguments["text"]});
            server.send(&notification_line("notifications/message", &message));
            text("logged")
        }
        "elicit" => question(
            server,
            call,
            "elicitation",
            "elicitation/create",
            &json!({
                "message": call.arguments["message"].as_str().unwrap_or("What is your name?"),
                "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            }),
        ),
        "sample" => question(
            server,
            call,
            "sampling",
            "sampling/createMessage",
            &json!({"messages": [{"role": "user", "content": {"type": "text", "text": "Say something."}}], "maxTokens": 16}),
        ),
        "roots" => question(server, call, "roots", "roots/list", &json!({})),
        "fail" => json!({
            "content": [{"type": "text", "text": "the tool failed on purpose"}],
            "structuredContent": {"reason": "on purpose"},
            "isError": true,
        }),
        "rpc_error" => {
            let code = call.arguments["code"].as_i64().unwrap_or(-32602);
            let error = json!({"code": code, "message": call.arguments["message"].as_str().unwrap_or("refused on purpose"), "data": {"b": 1, "a": [null]}});
            return server.answer(call, &error_line(&call.id, &error));
        }
        "page_turn" => text("turned"),
        "env" => {
            let mut seen = json!(server.surroundings);
            seen["progressAsked"] = (!call.meta["progressToken"].is_null()).into();
            json!({"content": [], "structuredContent": seen})
        }
        "exotic" => return server.answer(call, &result_line(&call.id, EXOTIC)),
        "grow" => {
            server.grown.fetch_add(1, Ordering::Relaxed);
            server.send(&notification_line(
                "notifications/tools/list_changed",
                &server.list_changed(),
            ));
            text("grown")
        }
        grown if is_grown(server, grown) => text(grown),
        other => match stateful::result(server, call) {
            Some(result) => result,
            None => {
                let error = json!({"code": -32602, "message": format!("unknown tool {other}")});
                return server.answer(call, &error_line(&call.id, &error));
            }
        },
    };
    let result = if call.stateless { stateless::typed(result) } else { result };
    server.answer(call, &result_line(&call.id, &result.to_string()));
}

/// Whether this is one of the tools added by `grow`.
fn is_grown(server: &ServerState, tool: &str) -> bool {
    let number = tool.strip_prefix("grown_").and_then(|number| number.parse::<u64>().ok());
    number.is_some_and(|number| (1..=server.grown.load(Ordering::Relaxed)).contains(&number))
}

/// Sends a progress notification, if the caller requested progress.
fn report_progress(server: &ServerState, call: &Call, step: u64, count: u64) {
    let token = &call.meta["progressToken"];
    if !token.is_null() {
        let params = json!({
            "progressToken": token,
            "progress": step,
            "total": count,
            "message": format!("step {step}"),
            "futureField": {"b": 1, "a": 2},
        });
        server.send(&notification_line("notifications/progress", &params));
    }
}

fn question(
    server: &ServerState,
    call: &Call,
    capability: &str,
    method: &str,
    params: &Value,
) -> Value {
    let honest = params.to_string();
    // A caller may give the params of the server request byte for byte.
    let params = call.arguments["params"].as_str().unwrap_or(&honest);
    if call.stateless {
        let params = serde_json::from_str(params).unwrap_or_default();
        return stateless::question(call, capability, method, &params);
    }
    let declared =
        server.capabilities.get().is_some_and(|declared| !declared[capability].is_null());
    if !declared {
        return json!({
            "content": [{"type": "text", "text": format!("the client has no {capability}")}],
            "isError": true,
        });
    }
    match server.ask(method, params).recv_timeout(QUESTION_PATIENCE) {
        Ok(answer) => json!({
            "content": [{"type": "text", "text": answer.to_string()}],
            "structuredContent": answer,
        }),
        Err(_) => {
            json!({"content": [{"type": "text", "text": "nobody answered"}], "isError": true})
        }
    }
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn tool(
    name: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
    annotations: &Value,
) -> Value {
    let mut tool = json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
    });
    if !annotations.is_null() {
        tool["annotations"] = annotations.clone();
    }
    tool
}
