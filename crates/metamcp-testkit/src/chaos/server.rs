//! Reading and dispatching: one blocking thread, honest unless an act says otherwise.

use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};

use super::acts::Next;
use super::honest;
use super::message::{Call, Incoming, Request, error_line, result_line};
use super::misbehaviours::Act;
use super::offers;
use super::options::Options;
use super::stage::{Stage, linger};
use super::stateless;
use crate::journal::{Record, What};

pub(super) fn serve(options: Options) -> Result<()> {
    let lifetime = options.lifetime;
    let stage = Arc::new(Stage::new(options)?);
    stage.record(&Record::new(What::Start));
    for (act, told) in stage.acts() {
        if let Act::Start(act) = act {
            act(&stage, told.amount);
        }
    }
    // After the acts, so that a signal they block is blocked in this thread as well.
    thread::spawn(move || linger(lifetime));
    read_all(&stage)?;
    stage.record(&Record::new(What::EndOfInput));
    for (act, told) in stage.acts() {
        if let Act::End(act) = act {
            act(&stage, told.amount);
        }
    }
    Ok(())
}

fn read_all(stage: &Arc<Stage>) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        // A last line without a newline counts: many real servers take it, so a sender must reckon with it.
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let Ok(message) = serde_json::from_slice::<Incoming>(&line) else { continue };
        if take(stage, message).is_break() {
            linger(stage.options.lifetime);
        }
    }
}

fn take(stage: &Arc<Stage>, message: Incoming) -> ControlFlow<()> {
    let id = message.id.map(|id| id.get().to_owned());
    match (id, message.method) {
        (Some(id), Some(method)) => {
            return request(stage, &method, &Request { id, params: message.params });
        }
        (Some(id), None) => {
            let answer = message
                .error
                .map_or_else(|| json!({"result": message.result}), |e| json!({"error": e}));
            stage.answered(&id, answer);
        }
        (None, Some(method)) => notification(stage, &method, message.params),
        (None, None) => {}
    }
    ControlFlow::Continue(())
}

fn request(stage: &Arc<Stage>, method: &str, request: &Request) -> ControlFlow<()> {
    if stateless::takes(stage, method, request) {
        return ControlFlow::Continue(());
    }
    let is_stateless = stateless::is_stateless(stage, &request.params);
    match method {
        "initialize" => {
            stage.record(&Record {
                detail: request.params.clone(),
                ..Record::new(What::Initialize)
            });
            // A second handshake keeps the first one's capabilities.
            drop(stage.capabilities.set(request.params["capabilities"].clone()));
            for (act, told) in stage.acts() {
                if let Act::Initialize(act) = act
                    && act(stage, told.amount, request) == Next::Done
                {
                    return ControlFlow::Continue(());
                }
            }
            let mut hello = honest::handshake(&request.params);
            if let Some(offers) = &stage.options.offers {
                offers.declare(&mut hello["capabilities"]);
            }
            stage.send(&result_line(&request.id, &offers::shown(stage, &hello)));
        }
        "tools/list" | "tools/call" if offers::tells(stage, request) => {}
        "tools/list" => {
            stage.record(&Record {
                detail: request.params["cursor"].clone(),
                ..Record::new(What::List)
            });
            stage.lists.fetch_add(1, Ordering::Relaxed);
            for (act, told) in stage.acts() {
                if let Act::List(act) = act
                    && act(stage, told.amount, request) == Next::Done
                {
                    return ControlFlow::Continue(());
                }
            }
            let tools = honest::tools(stage);
            let list = if is_stateless { stateless::list(&tools) } else { json!({"tools": tools}) };
            stage.send(&result_line(&request.id, &offers::shown(stage, &list)));
        }
        "tools/call" => {
            let number = stage.calls.fetch_add(1, Ordering::Relaxed) + 1;
            let asked = Call::new(request, number);
            return call(stage, Call { stateless: is_stateless, ..asked });
        }
        "logging/setLevel" => {
            stage.record(&Record { detail: request.params.clone(), ..Record::new(What::Level) });
            stage.send(&result_line(&request.id, "{}"));
        }
        "ping" => stage.send(&result_line(&request.id, "{}")),
        _ if offers::takes(stage, method, request, is_stateless) => {}
        _ => stage.send(&error_line(
            &request.id,
            &json!({"code": -32601, "message": format!("method {method} not found")}),
        )),
    }
    ControlFlow::Continue(())
}

fn call(stage: &Arc<Stage>, call: Call) -> ControlFlow<()> {
    stage.record_call(&call);
    if stage.mistreats(&call) {
        for (act, told) in stage.acts() {
            if let Act::Call(act) = act {
                match act(stage, told.amount, &call) {
                    Next::Honest => {}
                    Next::Done => return ControlFlow::Continue(()),
                    Next::StopReading => return ControlFlow::Break(()),
                }
            }
        }
    }
    honest::perform(stage, call);
    ControlFlow::Continue(())
}

fn notification(stage: &Arc<Stage>, method: &str, params: Value) {
    if method == "notifications/cancelled" {
        stage.cancel(params["requestId"].to_string());
        stage.record(&Record { detail: params, ..Record::new(What::Cancelled) });
    }
    for (act, told) in stage.acts() {
        if let Act::Notification(act) = act {
            act(stage, told.amount, method);
        }
    }
}
