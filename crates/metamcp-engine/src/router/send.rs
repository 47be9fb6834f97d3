//! A call on its way to its connection: written as one message, its attempt noted.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::dispatch::{CallId, DispatchError};
use metamcp_calls::pool::ConnId;
use metamcp_wire::modern::meta;
use metamcp_wire::object;
use metamcp_wire::server_task::TASKS;

use super::inbound::has_tasks;
use super::{COPY_BELOW, Pending, Router, Slot, State, message, number_of};
use crate::observe::AttemptTrace;

impl Router {
    /// Sends a call, unless the child has too much to read already, or part of it is not JSON.
    pub(super) fn send(
        &self,
        state: &mut State,
        conn: ConnId,
        call: CallId,
    ) -> Result<(), DispatchError> {
        let Some(Slot::Live { conn: connection, life, .. }) = state.slots.get(&conn) else {
            return Ok(());
        };
        let (connection, life) = (Arc::clone(connection), Arc::clone(life));
        let mut backlog = life.backlog.lock();
        let (attempts, sent) = (state.dispatch.attempts(call), state.dispatch.sent_at(call));
        let process_key = self.process_key;
        let Some(pending) = state.dispatch.payload_mut(call) else { return Ok(()) };
        // A fresh look at the clock, right before the bytes leave.
        #[cfg(feature = "fleet")]
        if !pending.fleet.may_be_sent() {
            return Err(DispatchError::Removed);
        }
        let body = pending.request.sent_body(&life.overrides);
        let size = body.as_ref().map_or(0, |body| body.len() as u64);
        let (taken, before) = connection.outbox.stands();
        if !backlog.takes(size, taken, before) {
            return Err(DispatchError::Overloaded);
        }
        let id = connection.id_for(number_of(call, attempts));
        let key = pending.key;
        let client = connection.is_stateless().then(|| self.client_params(pending));
        let stateless = client.as_ref().map(|(capabilities, level)| message::Stateless {
            capabilities: capabilities.as_bytes(),
            level: level.as_deref(),
        });
        if let (Some(trace), Some(tracer)) = (&mut pending.record.trace, self.observer.tracer()) {
            let transport = if connection.transport.pid().is_some() { "pipe" } else { "tcp" };
            let version = connection.peer.get().map(|peer| peer.era.name());
            let span = tracer.new_span();
            trace.attempts.push(AttemptTrace { span, request: id, transport, version });
        }
        let (request, trace) = (&pending.request, pending.record.trace.as_deref());
        let stateless = stateless.as_ref();
        let about = message::About { id, key: (process_key, key), stateless, trace };
        let pushed = match body.as_deref() {
            Some(body) if body.len() >= COPY_BELOW => connection.outbox.push_long(
                |line| message::head(line, &about, request),
                (body.clone(), request.verbatim.is_some()),
                |line, is_empty| message::tail(line, &about, request, is_empty),
            ),
            body => connection.outbox.push(|line| {
                let body = body.map_or(&b"{}"[..], |body| body);
                message::head(line, &about, request);
                let is_empty = message::body(line, request, body);
                message::tail(line, &about, request, is_empty);
            }),
        };
        match pushed {
            Ok(end) => {
                // The dispatch knows when a call was first sent; another time is rare.
                let first = sent.filter(|_| pending.record.attempts == 0);
                let at = first.unwrap_or_else(|| self.clock.now());
                pending.record.sending(at, connection.start_times());
                pending.sent_end = end;
                backlog.pushed(before, end.max(before));
                Ok(())
            }
            Err(_) => {
                connection.forget_call(number_of(call, attempts));
                Err(DispatchError::NotJson)
            }
        }
    }

    /// What a stateless server receives with each call: the capabilities of the client behind it, and the log level it
    /// wants. A caller's own lock is taken inside the router's here, and never the other way round.
    fn client_params(&self, pending: &Pending) -> (String, Option<Bytes>) {
        let of_client = pending.caller.client.capabilities();
        let mut capabilities = metamcp_wire::handshake::relayed_capabilities(&of_client);
        // A task that a server makes of a call is followed here, but in direct mode, where the client has to.
        if pending.request.verbatim.is_none() || has_tasks(&of_client) {
            capabilities["extensions"][TASKS] = serde_json::json!({});
        }
        let own = pending.request.meta.as_deref();
        let own = own.and_then(|raw| object::pick(raw, [meta::LOG_LEVEL]).ok()?[0]);
        let level = match own {
            Some(level) => Some(Bytes::copy_from_slice(level)),
            None if pending.caller.responder.is_stateless() => None,
            None => self.level.lock().clone(),
        };
        (capabilities.to_string(), level)
    }

    /// Notifies the server that this call was cancelled.
    pub(super) fn abandon(state: &State, conn: ConnId, call: CallId, attempt: u32) {
        let Some(Slot::Live { conn: connection, .. }) = state.slots.get(&conn) else { return };
        let Some(id) = connection.forget_call(number_of(call, attempt)) else { return };
        let params = format!(
            "{{\"requestId\":{id},\"reason\":\"the caller no longer waits for the response\"}}"
        );
        connection.notify("notifications/cancelled", Some(params.as_bytes()));
    }
}
