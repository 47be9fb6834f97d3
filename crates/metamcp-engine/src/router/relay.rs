//! Questions of servers to the client whose call caused them, and the log level the other way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use metamcp_core::dispatch::CallId;
use metamcp_core::ledger::ConnId;

use super::{Caller, Router, Slot};
use crate::upstream::{Connection, Reply};

/// A log level as the client wrote it, such as `"warning"` with its quotes.
pub type Level = Bytes;

/// A request of a server that waits for the client.
#[derive(Debug)]
pub struct Question {
    conn: Arc<Connection>,
    id: Bytes,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// Its params, raw.
    pub params: Option<Bytes>,
    call: Option<CallId>,
    router: Weak<Router>,
    settled: AtomicBool,
}

impl Question {
    pub(super) fn new(
        conn: &Arc<Connection>,
        id: Bytes,
        method: &str,
        params: Option<&[u8]>,
        call: Option<CallId>,
        router: Weak<Router>,
    ) -> Question {
        Question {
            conn: Arc::clone(conn),
            id,
            method: method.to_owned(),
            params: params.map(Bytes::copy_from_slice),
            call,
            router,
            settled: AtomicBool::new(false),
        }
    }

    /// Whether this is the question with that id of that connection; without an id, any of it.
    pub fn is_from(&self, conn: ConnId, id: Option<&[u8]>) -> bool {
        self.conn.id == conn && id.is_none_or(|id| id == self.id)
    }

    /// Passes the client's answer on.
    pub fn answer(self, reply: &Reply) {
        self.conn.answer(&self.id, reply);
        self.settle();
    }

    /// Answers in the client's place.
    pub fn refuse(self, why: &str) {
        self.conn.refuse(&self.id, -32601, why);
        self.settle();
    }

    fn settle(&self) {
        if self.settled.swap(true, Ordering::Relaxed) {
            return;
        }
        self.conn.return_question();
        if let (Some(router), Some(call)) = (self.router.upgrade(), self.call) {
            let now = router.clock.now();
            router.with(|dispatch, _| dispatch.resumed(call, now));
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Router {
    /// The call that made a server ask, as far as can be told, and who made it: the newest on its connection, or
    /// the newest client where the server asks out of its own.
    pub(super) fn on_whose_behalf(
        &self,
        conn: &Connection,
    ) -> (Option<CallId>, Option<Bytes>, Option<Arc<dyn Caller>>) {
        let state = self.lock();
        let call = state.dispatch.calls_on(conn.id).last().copied();
        let who = call
            .and_then(|call| state.dispatch.payload(call))
            .map(|pending| (pending.tag.clone(), Arc::clone(&pending.caller)));
        drop(state);
        match who {
            Some((tag, caller)) => (call, Some(tag), Some(caller)),
            None => (call, None, self.attached().pop()),
        }
    }

    /// Who hears what a server logs: those with calls on its connection, each by its newest one, else every client.
    pub(super) fn hears_logs(&self, conn: &Connection) -> Vec<(Arc<dyn Caller>, Option<Bytes>)> {
        let mut callers: Vec<(Arc<dyn Caller>, Option<Bytes>)> = Vec::new();
        let state = self.lock();
        for call in state.dispatch.calls_on(conn.id).into_iter().rev() {
            let Some(pending) = state.dispatch.payload(call) else { continue };
            let client = pending.caller.client();
            if !callers.iter().any(|(known, _)| known.client() == client) {
                callers.push((Arc::clone(&pending.caller), Some(pending.tag.clone())));
            }
        }
        drop(state);
        if callers.is_empty() {
            callers.extend(self.attached().into_iter().map(|caller| (caller, None)));
        }
        callers
    }

    /// The client wants logs of this level: servers that can are told, now and when they start.
    pub fn set_level(&self, level: Level) {
        let live = self.live();
        for conn in
            live.iter().filter(|conn| conn.peer.get().is_some_and(|peer| peer.can("logging")))
        {
            Self::tell_level(conn, &level);
        }
        *self.level.lock().expect("no panic while the level is locked") = Some(level);
    }

    pub(super) fn tell_level(conn: &Connection, level: &Level) {
        let mut params = b"{\"level\":".to_vec();
        params.extend_from_slice(level);
        params.push(b'}');
        // The answer says nothing that anybody could act on.
        drop(conn.request("logging/setLevel", Some(&params)));
    }

    /// The client's roots changed.
    pub fn roots_changed(&self) {
        for conn in self.live() {
            conn.notify("notifications/roots/list_changed", None);
        }
    }

    fn live(&self) -> Vec<Arc<Connection>> {
        let state = self.lock();
        let live = state.slots.values().filter_map(|slot| match slot {
            Slot::Live { conn, .. } if conn.peer.get().is_some() => Some(Arc::clone(conn)),
            _ => None,
        });
        live.collect()
    }
}
