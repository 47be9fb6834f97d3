//! Messages from servers: responses to calls, notifications, server requests. Runs in the reader's task, in order.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::dispatch::Effects;
use metamcp_calls::notify::List;
use metamcp_surface::server_request;
use metamcp_types::moment::Moment;
use metamcp_wire::modern::result::{self, Kind};
use metamcp_wire::server_task::{InvalidTask, TASKS};
use metamcp_wire::{object, write};
use serde_json::Value;

use super::error::{CallError, CallErrorKind};
use super::relay::ServerRequest;
use super::{CallOutcome, Pending, Router, connect, from_number};
use crate::upstream::{Connection, Listener, Reply};

impl Listener for Router {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn on_response(&self, conn: &Arc<Connection>, number: u64, reply: Reply) {
        let Some((call, attempt)) = from_number(number) else { return };
        let reply = match self.task_made(conn, number, &reply) {
            None => reply,
            Some(Ok(created)) => return self.follow_task(conn, number, created),
            Some(Err(invalid)) => Reply::Error(invalid_task(&invalid)),
        };
        let now = self.clock.now();
        let mut effects = Effects::new();
        let mut state = self.lock();
        // A response to an earlier attempt does not answer this one.
        if state.dispatch.attempts(call) % 2 != attempt {
            return;
        }
        if let Reply::Broke { fact, delivery } = reply {
            let failure = conn.failure(fact);
            if let Some(pending) = state.dispatch.payload_mut(call) {
                pending.record.lost(now, Arc::new(failure.clone()));
            }
            state.dispatch.broke_off(call, conn.id, failure, delivery, now, &mut effects);
            return self.carry_out(state, effects);
        }
        let is_error = !matches!(reply, Reply::Result(_));
        let pending = state.dispatch.answered(call, conn.id, is_error, now, &mut effects);
        self.carry_out(state, effects);
        let Some(mut pending) = pending else { return };
        if let (Some(begun), Some(attempt)) = (conn.line_begun(), &mut pending.record.attempt) {
            attempt.first_byte = Some(begun);
        }
        if conn.list_ttl.get().is_some() {
            connect::used(self, conn);
        }
        let reply = match reply {
            Reply::Result(result) if conn.is_stateless() => match result::kind(&result) {
                Kind::Complete if pending.caller.responder.is_stateless() => Reply::Result(result),
                // In direct mode, for a client that has tasks: it asks for the result itself.
                Kind::Unknown(_) if hands_task_on(&pending, &result) => Reply::Result(result),
                Kind::Complete => {
                    let plain = if result::is_cacheable(pending.request.method()) {
                        result::unhinted(&result)
                    } else {
                        result::untyped(&result)
                    };
                    Reply::Result(match plain {
                        Cow::Borrowed(_) => result,
                        Cow::Owned(plain) => Bytes::from(plain),
                    })
                }
                Kind::InputRequired if may_ask(pending.request.method()) => {
                    return self.on_input_required(conn, pending, &result);
                }
                Kind::InputRequired => {
                    let why = "answered with input_required where that is not allowed".to_owned();
                    let error = CallErrorKind::Unusable(why);
                    let failed = CallOutcome::Failed(failure(conn, &pending, error));
                    return self.answer(pending, failed, now);
                }
                Kind::Unknown(kind) => {
                    let error = CallErrorKind::Unusable(format!(
                        "answered with a result of the unknown type {kind:?}"
                    ));
                    let failed = CallOutcome::Failed(failure(conn, &pending, error));
                    return self.answer(pending, failed, now);
                }
            },
            reply => reply,
        };
        let failed = |kind| CallOutcome::Failed(failure(conn, &pending, kind));
        let outcome = match reply {
            Reply::Result(result) => CallOutcome::Result(result),
            Reply::Error(error) => failed(CallErrorKind::Rpc(error)),
            Reply::Malformed(defect) => failed(CallErrorKind::Malformed(defect)),
            Reply::Oversize(bytes) => {
                failed(CallErrorKind::Oversize { bytes, limit: self.timing.line_bytes })
            }
            // Handled by the dispatch above.
            Reply::Broke { fact, .. } => failed(CallErrorKind::Unusable(fact.to_string())),
        };
        self.answer(pending, outcome, now);
    }

    fn on_notification(&self, conn: &Arc<Connection>, method: &str, params: Option<&[u8]>) {
        match method {
            "notifications/progress" => self.progressed(conn, params),
            "notifications/message" => self.logged(conn, params),
            "notifications/tools/list_changed" => connect::list_changed(self, conn),
            "notifications/resources/list_changed" => self.list_changed(conn, List::Resources),
            "notifications/prompts/list_changed" => self.list_changed(conn, List::Prompts),
            "notifications/resources/updated" => {
                let uri = params.and_then(|params| object::pick(params, ["uri"]).ok()?[0]);
                if let (Some(uri), Some(params)) = (uri.and_then(object::text), params)
                    && conn.admits_notification(self.clock.now())
                {
                    self.tell_updated(conn.server, &uri, params);
                }
            }
            "notifications/cancelled" => {
                let picked = params.and_then(|params| object::pick(params, ["requestId"]).ok());
                if let Some([Some(id)]) = picked {
                    for client in self.attached() {
                        client.cancel_ask(conn.id, Some(id));
                    }
                }
            }
            _ => {}
        }
    }

    fn on_session_renewed(&self, conn: &Arc<Connection>) {
        // It may have been restarted as another version of itself.
        connect::list_changed(self, conn);
        self.repeat_level(conn);
        self.introduced(conn);
    }

    fn on_request(
        &self,
        conn: &Arc<Connection>,
        id: Bytes,
        method: &str,
        params: Option<&[u8]>,
        cause: Option<u64>,
    ) {
        let relayed =
            matches!(method, "elicitation/create" | "sampling/createMessage" | "roots/list");
        // A stateless server asks with `input_required`, and cannot send requests otherwise.
        if !relayed || conn.is_stateless() {
            let message = format!("metamcp does not know the method {method:?}");
            return conn.refuse(&id, -32601, &message);
        }
        let shown = match server_request::presented(&conn.name, method, params) {
            Ok(shown) => shown.map(|params| Bytes::from(params.into_owned())),
            Err(unfit) => {
                let message = format!("metamcp does not relay this request: {unfit}");
                return conn.refuse(&id, -32602, &message);
            }
        };
        if !conn.take_server_request() {
            return conn.refuse(
                &id,
                -32000,
                "too many requests are open; wait for their responses",
            );
        }
        if method == "roots/list" {
            self.asked_for_roots(conn.server);
        }
        let (call, request, client) = self.on_whose_behalf(conn, cause);
        let server_request = ServerRequest::new(conn, id, method, shown, call, self.me.clone());
        let Some(client) = client else { return server_request.refuse("no client is connected") };
        if let Some(call) = call {
            self.lock().dispatch.paused(call);
        }
        if let Err(server_request) = client.ask(request.as_ref(), server_request) {
            server_request.refuse("the client behind metamcp cannot answer this");
        }
    }
}

/// Whether a result is the handle of a task for a client that may get one.
fn hands_task_on(pending: &Pending, result: &[u8]) -> bool {
    pending.request.verbatim.is_some()
        && pending.caller.responder.is_stateless()
        && result::is_task(result)
        && has_tasks(&pending.caller.client.capabilities())
}

/// Whether a client declares the extension for tasks.
pub(super) fn has_tasks(capabilities: &Value) -> bool {
    capabilities["extensions"][TASKS].is_object()
}

fn invalid_task(invalid: &InvalidTask) -> Bytes {
    let mut error = Vec::new();
    let why = format!("the server made a task of the call that cannot be used: {invalid}");
    write::error_object(&mut error, -32000, &why, None);
    Bytes::from(error)
}

/// Whether the response to a request may be `input_required`.
fn may_ask(method: &str) -> bool {
    matches!(method, "tools/call" | "resources/read" | "prompts/get")
}

pub(super) fn failure(conn: &Connection, pending: &Pending, kind: CallErrorKind) -> CallError {
    let request = &pending.request;
    let (server, tool) = (Arc::clone(&conn.name), Arc::clone(&request.tool));
    CallError { server, tool, method: request.method(), kind }
}

impl Router {
    /// Progress of a call, with the caller's own token, before its response and in order.
    fn progressed(&self, conn: &Arc<Connection>, params: Option<&[u8]>) {
        let Some(params) = params else { return };
        let Ok([Some(token)]) = object::pick(params, ["progressToken"]) else { return };
        let number = std::str::from_utf8(token).ok().and_then(|token| token.parse().ok());
        let call = number.and_then(|number| conn.call_of(number));
        let Some((call, attempt)) = call.and_then(from_number) else { return };
        let now = self.clock.now();
        let (caller, token, steps) = {
            let mut state = self.lock();
            if !state.dispatch.is_on(call, conn.id) || state.dispatch.attempts(call) % 2 != attempt
            {
                return;
            }
            state.dispatch.progressed(call, now);
            let Some(pending) = state.dispatch.payload(call) else { return };
            let Some(token) = pending.request.progress.clone() else { return };
            let steps = pending.request.call_progress.clone();
            (pending.caller.clone(), token, steps)
        };
        if conn.admits_notification(now) {
            let params = object::replace_member(params, "progressToken", &token);
            match steps {
                Some(call_progress) => call_progress.own(&params),
                None => caller.responder.progress(&caller.tag, &params),
            }
        }
    }

    fn logged(&self, conn: &Arc<Connection>, params: Option<&[u8]>) {
        let Some(params) = params else { return };
        if conn.admits_notification(self.clock.now()) {
            for (client, request) in self.hears_logs(conn) {
                client.log(request.as_ref(), params);
            }
        }
    }
}
