//! The server that makes tasks of calls: the tool `errand`, and the requests about its tasks, in both eras. Only with
//! `--tasks yes`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::message::{Call, Request, error_line, result_line};
use super::server_state::ServerState;
use crate::journal::{EventKind, Record};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Short, because tests wait for it.
const POLL_MS: u64 = 10;

/// What the server remembers of each task.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<HashMap<String, RunningTask>>);

#[derive(Debug)]
struct RunningTask {
    /// How often it has to be looked at before it is done.
    looks: u64,
    asks: bool,
    answer: Value,
    is_cancelled: bool,
}

/// Added to the list of tools.
pub(super) fn tool(is_stateless: bool) -> Value {
    let whole = json!({"type": "integer", "minimum": 0});
    let properties = json!({"key": {"type": "string"}, "looks": whole, "ask": {"type": "boolean"}});
    let mut tool = json!({
        "name": "errand",
        "description": "Runs an errand, which takes a while.",
        "inputSchema": {"type": "object", "properties": properties},
    });
    if !is_stateless {
        tool["execution"] = json!({"taskSupport": "required"});
    }
    tool
}

pub(super) fn declare(capabilities: &mut Value, is_stateless: bool) {
    if is_stateless {
        capabilities["extensions"][EXTENSION] = json!({});
    } else {
        capabilities["tasks"] = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
    }
}

/// Answers a call of `errand`.
pub(super) fn begin(server: &ServerState, call: &Call, task: &Value) -> String {
    let able = &call.meta["io.modelcontextprotocol/clientCapabilities"]["extensions"][EXTENSION];
    let is_asked_for = if call.stateless { able.is_object() } else { task.is_object() };
    if !is_asked_for {
        let error = json!({"code": -32021, "message": "errand is a task"});
        return error_line(&call.id, &error);
    }
    let id = format!("errand {} \"{}\"", call.number, call.key);
    let errand = RunningTask {
        looks: call.amount("looks", 0),
        asks: call.arguments["ask"] == true,
        answer: Value::Null,
        is_cancelled: false,
    };
    server.tasks.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), errand);
    let handle = match call.stateless {
        true => json!({
            "resultType": "task", "taskId": id, "status": "working",
            "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z",
            "ttlMs": null, "pollIntervalMs": POLL_MS,
        }),
        false => {
            json!({"task": {"taskId": id, "status": "working", "pollInterval": POLL_MS, "ttl": null}})
        }
    };
    result_line(&call.id, &handle.to_string())
}

/// Requests about tasks. True if it was one.
pub(super) fn takes(
    server: &ServerState,
    method: &str,
    request: &Request,
    is_stateless: bool,
) -> bool {
    if !server.options.tasks || !method.starts_with("tasks/") {
        return false;
    }
    let id = request.params["taskId"].as_str().unwrap_or_default();
    let mut tasks = server.tasks.0.lock().unwrap_or_else(PoisonError::into_inner);
    let line = match tasks.get_mut(id) {
        None => {
            let error =
                json!({"code": -32602, "message": format!("Failed to retrieve task: {id:?}")});
            error_line(&request.id, &error)
        }
        Some(errand) => match method {
            "tasks/get" => result_line(&request.id, &errand.look(id, is_stateless).to_string()),
            "tasks/result" => result_line(&request.id, &errand.result().to_string()),
            "tasks/update" => {
                errand.answer = request.params["inputResponses"]["who"].clone();
                result_line(&request.id, r#"{"resultType":"complete"}"#)
            }
            _ => {
                errand.is_cancelled = true;
                let detail = json!({"task": id});
                server.record(&Record { detail, ..Record::new(EventKind::Cancelled) });
                result_line(&request.id, r#"{"resultType":"complete"}"#)
            }
        },
    };
    drop(tasks);
    server.send(&line);
    true
}

impl RunningTask {
    fn look(&mut self, id: &str, is_stateless: bool) -> Value {
        self.looks = self.looks.saturating_sub(1);
        let waits = self.looks == 0 && self.asks && self.answer.is_null() && is_stateless;
        let status = match () {
            () if self.is_cancelled => "cancelled",
            () if waits => "input_required",
            () if self.looks > 0 => "working",
            () => "completed",
        };
        let mut seen = json!({
            "taskId": id, "status": status, "statusMessage": format!("{} looks left", self.looks),
            "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z",
            "ttlMs": null, "pollIntervalMs": POLL_MS, "pollInterval": POLL_MS,
        });
        if is_stateless {
            seen["resultType"] = "complete".into();
        }
        if waits {
            let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
            let params = json!({"message": "For whom?", "requestedSchema": schema});
            seen["inputRequests"] =
                json!({"who": {"method": "elicitation/create", "params": params}});
        }
        if status == "completed" && is_stateless {
            seen["result"] = self.result();
        }
        seen
    }

    fn result(&self) -> Value {
        let whom = self.answer["content"]["name"].as_str().unwrap_or("nobody");
        json!({"content": [{"type": "text", "text": format!("errand done for {whom}")}]})
    }
}
