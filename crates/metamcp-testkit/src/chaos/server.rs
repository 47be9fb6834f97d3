//! Reading and dispatching: one blocking thread, correct unless a hook decides otherwise.

use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};

use super::hazards::Hook;
use super::honest;
use super::hooks::Next;
use super::message::{Call, Incoming, Request, error_line, result_line};
use super::offers;
use super::options::Options;
use super::server_state::{ServerState, linger};
use super::{pages, stateful, stateless, tasks};
use crate::journal::{EventKind, Record};

pub(super) fn serve(options: Options) -> Result<()> {
    let lifetime = options.lifetime;
    let server = Arc::new(ServerState::new(options)?);
    server.record(&Record::new(EventKind::Start));
    stateful::introduce(&server);
    for (hook, selected) in server.hooks() {
        if let Hook::Start(hook) = hook {
            hook(&server, selected.amount);
        }
    }
    // After the start hooks, so that a signal they block is blocked in this thread as well.
    thread::spawn(move || linger(lifetime));
    read_all(&server)?;
    server.record(&Record::new(EventKind::EndOfInput));
    for (hook, selected) in server.hooks() {
        if let Hook::End(hook) = hook {
            hook(&server, selected.amount);
        }
    }
    Ok(())
}

fn read_all(server: &Arc<ServerState>) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        // A last line without a newline counts: many real servers accept it, so a sender must expect it.
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let Ok(message) = serde_json::from_slice::<Incoming>(&line) else { continue };
        if take(server, message).is_break() {
            linger(server.options.lifetime);
        }
    }
}

fn take(server: &Arc<ServerState>, message: Incoming) -> ControlFlow<()> {
    let id = message.id.map(|id| id.get().to_owned());
    match (id, message.method) {
        (Some(id), Some(method)) => {
            return request(server, &method, &Request { id, params: message.params });
        }
        (Some(id), None) => {
            let answer = message
                .error
                .map_or_else(|| json!({"result": message.result}), |e| json!({"error": e}));
            server.answered(&id, answer);
        }
        (None, Some(method)) => notification(server, &method, message.params),
        (None, None) => {}
    }
    ControlFlow::Continue(())
}

fn request(server: &Arc<ServerState>, method: &str, request: &Request) -> ControlFlow<()> {
    if stateless::takes(server, method, request) {
        return ControlFlow::Continue(());
    }
    let is_stateless = stateless::is_stateless(server, &request.params);
    match method {
        "initialize" => {
            server.record(&Record {
                detail: request.params.clone(),
                ..Record::new(EventKind::Initialize)
            });
            // A second handshake keeps the first one's capabilities.
            drop(server.capabilities.set(request.params["capabilities"].clone()));
            for (hook, selected) in server.hooks() {
                if let Hook::Initialize(hook) = hook
                    && hook(server, selected.amount, request) == Next::Done
                {
                    return ControlFlow::Continue(());
                }
            }
            let mut hello = honest::handshake(&request.params);
            if server.options.pages.is_some() {
                hello["capabilities"]["resources"] = serde_json::json!({});
            }
            if server.options.tasks {
                tasks::declare(&mut hello["capabilities"], false);
            }
            if let Some(offers) = &server.options.offers {
                offers.declare(&mut hello["capabilities"]);
            }
            server.send(&result_line(&request.id, &offers::shown(server, &hello)));
        }
        "tools/list" | "tools/call" if offers::tells(server, request) => {}
        "tools/list" => {
            server.record(&Record {
                detail: request.params["cursor"].clone(),
                ..Record::new(EventKind::List)
            });
            server.lists.fetch_add(1, Ordering::Relaxed);
            for (hook, selected) in server.hooks() {
                if let Hook::List(hook) = hook
                    && hook(server, selected.amount, request) == Next::Done
                {
                    return ControlFlow::Continue(());
                }
            }
            let mut tools = honest::tools(server);
            if server.options.tasks {
                tools.push(tasks::tool(is_stateless));
            }
            if server.options.pages.is_some() {
                tools.extend(pages::tools());
            }
            let list = if is_stateless { stateless::list(&tools) } else { json!({"tools": tools}) };
            server.send(&result_line(&request.id, &offers::shown(server, &list)));
        }
        "tools/call" => {
            let number = server.calls.fetch_add(1, Ordering::Relaxed) + 1;
            let asked = Call::new(request, number);
            let asked = Call { stateless: is_stateless, ..asked };
            if pages::call(server, &asked) {
                return ControlFlow::Continue(());
            }
            if server.options.tasks && asked.tool == "errand" {
                server.record_call(&asked);
                server.send(&tasks::begin(server, &asked, &request.params["task"]));
                return ControlFlow::Continue(());
            }
            return call(server, asked);
        }
        "logging/setLevel" => {
            server.record(&Record {
                detail: request.params.clone(),
                ..Record::new(EventKind::Level)
            });
            server.send(&result_line(&request.id, "{}"));
        }
        "ping" => server.send(&result_line(&request.id, "{}")),
        _ if tasks::takes(server, method, request, is_stateless) => {}
        _ if pages::takes(server, method, request, is_stateless) => {}
        _ if offers::takes(server, method, request, is_stateless) => {}
        _ => server.send(&error_line(
            &request.id,
            &json!({"code": -32601, "message": format!("method {method} not found")}),
        )),
    }
    ControlFlow::Continue(())
}

fn call(server: &Arc<ServerState>, call: Call) -> ControlFlow<()> {
    server.record_call(&call);
    if server.applies_to(&call) {
        for (hook, selected) in server.hooks() {
            if let Hook::Call(hook) = hook {
                match hook(server, selected.amount, &call) {
                    Next::Honest => {}
                    Next::Done => return ControlFlow::Continue(()),
                    Next::StopReading => return ControlFlow::Break(()),
                }
            }
        }
    }
    honest::perform(server, call);
    ControlFlow::Continue(())
}

fn notification(server: &Arc<ServerState>, method: &str, params: Value) {
    if method == "notifications/cancelled" {
        server.cancel(params["requestId"].to_string());
        server.record(&Record { detail: params, ..Record::new(EventKind::Cancelled) });
    }
    for (hook, selected) in server.hooks() {
        if let Hook::Notification(hook) = hook {
            hook(server, selected.amount, method);
        }
    }
}
