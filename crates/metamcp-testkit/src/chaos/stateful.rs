//! Tools of a server that keeps the state of whoever uses it: what one call left, the next one finds. Only with
//! `--stateful yes`.

use std::sync::{Arc, PoisonError};
use std::thread;

use serde_json::{Value, json};

use super::message::Call;
use super::server_state::ServerState;
use crate::journal::{EventKind, Record};

/// Writes down who this is, which a process id does not say: in a namespace of its own every server has the same.
pub(super) fn introduce(server: &ServerState) {
    if server.options.stateful {
        let mut detail = server.surroundings.clone();
        detail["process"] = server.number.into();
        server.record(&Record { detail, ..Record::new(EventKind::Surroundings) });
    }
}

/// Added to the list of a stateful server.
pub(super) fn tools() -> [Value; 3] {
    let text = json!({"type": "string"});
    let tool = |name: &str, description: &str, properties: Value| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": {"type": "object", "properties": properties},
        })
    };
    [
        tool("remember", "Keeps the key, instead of the one before.", json!({"key": text})),
        tool("recall", "Answers with the key that was kept last.", json!({"key": text})),
        tool(
            "ask_later",
            "Answers, and only then sends the request, which no call explains any more.",
            json!({"key": text, "method": text}),
        ),
    ]
}

/// The result of one of these tools, if it is one.
pub(super) fn result(server: &ServerState, call: &Call) -> Option<Value> {
    if !server.options.stateful {
        return None;
    }
    match call.tool.as_str() {
        "remember" => {
            let mut kept = server.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *kept, call.key.clone());
            Some(said(&json!({"before": before, "process": server.number})))
        }
        "recall" => {
            let kept = server.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Some(said(&json!({"kept": kept, "process": server.number})))
        }
        "ask_later" => Some(said(&json!({"process": server.number}))),
        _ => None,
    }
}

/// Sends the request of `ask_later`, once its call was answered, and records what came back.
pub(super) fn after(server: &Arc<ServerState>, call: &Call) {
    if !server.options.stateful || call.tool != "ask_later" {
        return;
    }
    let method = call.arguments["method"].as_str().unwrap_or("roots/list").to_owned();
    let params = match method.as_str() {
        "elicitation/create" => json!({
            "message": "What is your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        }),
        _ => json!({}),
    };
    let (server, key) = (Arc::clone(server), call.key.clone());
    let answer = server.ask(&method, &params.to_string());
    thread::spawn(move || {
        if let Ok(detail) = answer.recv() {
            server.record(&Record { key: Some(key), detail, ..Record::new(EventKind::Told) });
        }
    });
}

fn said(value: &Value) -> Value {
    json!({"content": [{"type": "text", "text": value.to_string()}], "structuredContent": value})
}
