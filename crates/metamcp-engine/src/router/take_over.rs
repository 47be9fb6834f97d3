//! Long calls: a call that is still under way after a while may get another caller, and its first one an answer that says
//! so. To the server nothing changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::dispatch::CallId;
use metamcp_calls::pool::ConnId;

use super::{CallOutcome, CallProgress, Caller, Pending, Router, Slot};
use crate::task;

/// How often the calls under way are looked at, while there are any.
const LOOK: Duration = Duration::from_millis(250);
/// A server that works answers a ping in milliseconds, and one under load within seconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Whether anybody looks.
#[derive(Debug, Default)]
pub(super) struct Watch(AtomicBool);

/// A call that is under way, as who may take it over sees it.
pub struct LongCall<'a> {
    pub caller: &'a Caller,
    pub server: &'a Arc<str>,
    pub tool: &'a Arc<str>,
    /// Since it arrived.
    pub age: Duration,
}

/// Who takes a call over.
pub struct TakenOver {
    pub caller: Caller,
    /// What its first caller gets.
    pub response: Bytes,
    /// Whether that is a handle in the protocol's own form.
    pub is_handle: bool,
}

/// What is left to do for a call that was taken over, without the lock.
struct Rest {
    call: CallId,
    conn: Option<ConnId>,
    first: Caller,
    call_progress: Option<Arc<CallProgress>>,
    response: Bytes,
    is_handle: bool,
}

impl Router {
    /// Calls may be under way that somebody takes over when they take long.
    pub fn watch_long_calls(&self) {
        if self.long_calls.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let router = self.me.clone();
        task::spawn("long calls", async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(router) = router.upgrade() else { return };
                if router.take_over_long_calls() {
                    continue;
                }
                router.long_calls.0.store(false, Ordering::Relaxed);
                // One that came in between saw somebody look.
                let is_any = router.take_over_long_calls();
                if !is_any || router.long_calls.0.swap(true, Ordering::Relaxed) {
                    return;
                }
            }
        });
    }

    /// Whether there are calls to come back for.
    fn take_over_long_calls(&self) -> bool {
        let now = self.clock.now();
        let is_followed = |pending: &Pending| pending.request.result_mapper.is_some();
        let mut rests = Vec::new();
        let mut state = self.lock();
        let followed = state.dispatch.find(is_followed);
        let is_any = !followed.is_empty();
        for call in followed {
            let conn = state.dispatch.conn_of(call);
            let Some(pending) = state.dispatch.payload_mut(call) else { continue };
            let Some(mapper) = &mut pending.request.result_mapper else { continue };
            let long = LongCall {
                caller: &pending.caller,
                server: &pending.request.server_name,
                tool: &pending.request.tool,
                age: now.since(pending.record.arrived),
            };
            let Some(TakenOver { caller, response, is_handle }) = mapper.follow.outlives(&long)
            else {
                continue;
            };
            let first = std::mem::replace(&mut pending.caller, caller);
            let call_progress = pending.request.call_progress.take();
            rests.push(Rest { call, conn, first, call_progress, response, is_handle });
        }
        drop(state);
        for Rest { call, conn, first, call_progress, response, is_handle } in rests {
            if let Some(call_progress) = call_progress {
                call_progress.end(true);
            }
            match is_handle {
                true => first.responder.became_task(&first.tag, response),
                false => first.responder.respond(&first.tag, CallOutcome::Result(response)),
            }
            if let Some(conn) = conn {
                self.extend_if_alive(call, conn);
            }
        }
        is_any
    }

    /// Gives a call all the time that progress could give it, if its server answers at all: nobody waits for it now, but a
    /// server that hangs is still found by its time limit.
    fn extend_if_alive(&self, call: CallId, conn: ConnId) {
        let live = match self.lock().slots.get(&conn) {
            Some(Slot::Live { conn, .. }) => Arc::clone(conn),
            _ => return,
        };
        let router = self.me.clone();
        task::spawn("long call", async move {
            let method = if live.is_stateless() { "server/discover" } else { "ping" };
            let asked = live.ask(method, b"{}");
            let answered = tokio::time::timeout(ANSWERS_WITHIN, asked).await;
            if let (Ok(Ok(_)), Some(router)) = (answered, router.upgrade()) {
                router.with(|dispatch, _| {
                    if dispatch.is_on(call, conn) {
                        dispatch.paused(call);
                    }
                });
            }
        });
    }
}
