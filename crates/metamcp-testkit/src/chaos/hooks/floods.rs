//! Too much of something, once per process and always bounded.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

use super::Next;
use crate::chaos::honest;
use crate::chaos::message::{Call, notification_line, request_line};
use crate::chaos::server_state::{ServerState, die};

/// One pipe buffer per write.
const CHUNK: usize = 64 * 1024;

pub(in crate::chaos) fn endless_line(server: &Arc<ServerState>, bytes: u64, _: &Call) -> Next {
    if server.first("endless-line") {
        let written = server.output.exclusively(|raw| {
            write_filler(raw, bytes)?;
            raw.write_all(b"\n")
        });
        if written.is_err() {
            die(1);
        }
    }
    Next::Honest
}

pub(in crate::chaos) fn long_line(server: &ServerState, bytes: u64, call: &Call, _: &str) -> Next {
    if !server.first("long-line") {
        return Next::Honest;
    }
    let written = server.output.exclusively(|raw| {
        write!(
            raw,
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":""#,
            call.id
        )?;
        write_filler(raw, bytes)?;
        raw.write_all(b"\"}]}}\n")
    });
    if written.is_err() {
        die(1);
    }
    Next::Done
}

pub(in crate::chaos) fn list_changed(server: &Arc<ServerState>, count: u64, _: &Call) -> Next {
    if server.first("list-changed-flood") {
        repeat(server, count, |_| {
            notification_line("notifications/tools/list_changed", &json!({}))
        });
    }
    Next::Honest
}

pub(in crate::chaos) fn progress(server: &Arc<ServerState>, count: u64, call: &Call) -> Next {
    if server.first("progress-flood") {
        let token = match &call.meta["progressToken"] {
            Value::Null => json!("nobody-asked"),
            token => token.clone(),
        };
        repeat(server, count, |step| {
            let params = json!({"progressToken": token, "progress": step, "total": count});
            notification_line("notifications/progress", &params)
        });
    }
    Next::Honest
}

pub(in crate::chaos) fn requests(server: &Arc<ServerState>, count: u64, call: &Call) -> Next {
    let questions = [
        ("sampling/createMessage", json!({"messages": [], "maxTokens": 1})),
        (
            "elicitation/create",
            json!({"message": "Your password?", "requestedSchema": {"type": "object"}}),
        ),
        ("roots/list", json!({})),
        ("no/such/method", json!({})),
    ];
    from_a_thread(server, "request-flood", call, move |server| {
        repeat(server, count, |number| {
            let (method, params) = &questions[number as usize % questions.len()];
            request_line(&format!("\"flood-{number}\""), method, params)
        });
    })
}

pub(in crate::chaos) fn pings(server: &Arc<ServerState>, count: u64, call: &Call) -> Next {
    from_a_thread(server, "ping-flood", call, move |server| {
        repeat(server, count, |number| request_line(&number.to_string(), "ping", json!({})));
    })
}

pub(in crate::chaos) fn stderr(server: &Arc<ServerState>, bytes: u64, _: &Call) -> Next {
    if server.first("stderr-flood") {
        let mut line = vec![b'e'; CHUNK];
        // Many lines, not one endless line: a ring buffer of the stderr tail must retain the last of these.
        for end in (99..CHUNK).step_by(100) {
            line[end] = b'\n';
        }
        let mut stderr = io::stderr();
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        while left > 0 {
            let length = left.min(CHUNK);
            if stderr.write_all(&line[..length]).is_err() {
                break;
            }
            left -= length;
        }
        drop(stderr.write_all(b"\nthe last words of chaos-child\n"));
    }
    Next::Honest
}

/// Floods while the main thread continues to read, as servers with an event loop do, and responds afterwards.
fn from_a_thread(
    server: &Arc<ServerState>,
    hazard: &'static str,
    call: &Call,
    flood: impl FnOnce(&ServerState) + Send + 'static,
) -> Next {
    if !server.first(hazard) {
        return Next::Honest;
    }
    let (server, call) = (Arc::clone(server), call.clone());
    thread::spawn(move || {
        flood(&server);
        honest::perform(&server, call);
    });
    Next::Done
}

/// Sends `count` lines in large writes.
fn repeat(server: &ServerState, count: u64, line: impl Fn(u64) -> String) {
    let mut batch = Vec::with_capacity(2 * CHUNK);
    for number in 1..=count {
        batch.extend_from_slice(line(number).as_bytes());
        batch.push(b'\n');
        if batch.len() >= CHUNK || number == count {
            if server.output.exclusively(|raw| raw.write_all(&batch)).is_err() {
                die(1);
            }
            batch.clear();
        }
    }
}

fn write_filler(out: &mut impl Write, mut bytes: u64) -> io::Result<()> {
    let chunk = vec![b'x'; CHUNK];
    while bytes > 0 {
        let length = usize::try_from(bytes).map_or(CHUNK, |left| left.min(CHUNK));
        out.write_all(&chunk[..length])?;
        bytes -= length as u64;
    }
    Ok(())
}
