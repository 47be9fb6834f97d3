//! Questions of servers to the client whose call caused them, and the log level the other way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use metamcp_core::dispatch::CallId;
use metamcp_core::failure::Fact;
use metamcp_core::ledger::{ConnId, ServerId};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Caller, Router, Slot, rounds};
use crate::upstream::{Connection, Reply};

/// Logins that were offered and are remembered, so that nobody is asked twice.
const MOST_OFFERED: usize = 1000;

/// A log level as the client wrote it, such as `"warning"` with its quotes.
pub type Level = Bytes;

/// A request of a server that waits for the client.
#[derive(Debug)]
pub struct Question {
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// Its params, raw.
    pub params: Option<Bytes>,
    /// Of the connection, the server's own; of a round, ours.
    id: Bytes,
    whose: Box<Whose>,
    settled: AtomicBool,
}

/// Who asks.
#[derive(Debug)]
enum Whose {
    /// A server, in the middle of a call.
    Server { conn: Arc<Connection>, call: Option<CallId>, router: Weak<Router> },
    /// A server that answered a call with questions; the call is made again with the answers.
    Round { round: u64, key: String, router: Weak<Router> },
    /// We ourselves; what the client says goes to whoever waits for it, if anybody does.
    Gateway { answer: Mutex<Option<oneshot::Sender<Reply>>>, has_cause: bool },
}

impl Question {
    /// One with params as the client gets to see them.
    pub(super) fn new(
        conn: &Arc<Connection>,
        id: Bytes,
        method: &str,
        params: Option<Bytes>,
        call: Option<CallId>,
        router: Weak<Router>,
    ) -> Question {
        Question {
            id,
            method: method.to_owned(),
            params,
            whose: Box::new(Whose::Server { conn: Arc::clone(conn), call, router }),
            settled: AtomicBool::new(false),
        }
    }

    /// One of several in an answer, which is as the client gets to see it.
    pub(super) fn of_round(
        round: u64,
        asked: metamcp_wire::modern::input::Question,
        router: Weak<Router>,
    ) -> Question {
        Question {
            id: rounds::question_id(round, &asked.key),
            params: asked.params.map(Bytes::from),
            method: asked.method,
            whose: Box::new(Whose::Round { round, key: asked.key, router }),
            settled: AtomicBool::new(false),
        }
    }

    /// Asks the person behind a client to log in at a server.
    fn to_log_in(server: &str, address: &str) -> Question {
        let id = format!("login-{:016x}", getrandom::u64().unwrap_or_default());
        let mut params = login_wish(server, address);
        params["elicitationId"] = id.as_str().into();
        Question {
            id: Bytes::from(id),
            method: "elicitation/create".to_owned(),
            params: Some(Bytes::from(params.to_string())),
            whose: Box::new(Whose::Gateway { answer: Mutex::new(None), has_cause: false }),
            settled: AtomicBool::new(false),
        }
    }

    /// The same because of a call that waits for it, and where the answer arrives.
    pub fn before_a_call(server: &str, address: &str) -> (Question, oneshot::Receiver<Reply>) {
        Question::of_gateway("elicitation/create", &login_wish(server, address))
    }

    /// A question of our own, and where its answer arrives; nothing does if the client never gives one.
    pub fn of_gateway(method: &str, params: &Value) -> (Question, oneshot::Receiver<Reply>) {
        let (sender, answer) = oneshot::channel();
        let question = Question {
            id: Bytes::new(),
            method: method.to_owned(),
            params: Some(Bytes::from(params.to_string())),
            whose: Box::new(Whose::Gateway { answer: Mutex::new(Some(sender)), has_cause: true }),
            settled: AtomicBool::new(false),
        };
        (question, answer)
    }

    /// Whether this is the question with that id of that connection; without an id, any of it. One of a round outlives
    /// the connection it came on, since its server keeps nothing.
    pub fn is_from(&self, conn: ConnId, id: Option<&[u8]>) -> bool {
        match &*self.whose {
            Whose::Server { conn: own, .. } => own.id == conn && id.is_none_or(|id| id == self.id),
            Whose::Round { .. } => id.is_some_and(|id| id == self.id),
            Whose::Gateway { .. } => false,
        }
    }

    /// Whether a call is known that made the server ask.
    pub fn has_cause(&self) -> bool {
        match &*self.whose {
            Whose::Server { call, .. } => call.is_some(),
            Whose::Round { .. } => true,
            Whose::Gateway { has_cause, .. } => *has_cause,
        }
    }

    /// Passes the client's answer on.
    pub fn answer(self, reply: &Reply) {
        match &*self.whose {
            Whose::Server { conn, .. } => conn.answer(&self.id, reply),
            Whose::Round { round, key, router } => {
                let result = match reply {
                    Reply::Result(result) if result.starts_with(b"{") => Some(result.to_vec()),
                    _ => None,
                };
                if let (false, Some(router)) =
                    (self.settled.swap(true, Ordering::Relaxed), router.upgrade())
                {
                    router.round_answered(*round, key, result);
                }
            }
            Whose::Gateway { answer, .. } => {
                let waiting = answer.lock().ok().and_then(|mut answer| answer.take());
                if let Some(waiting) = waiting {
                    // Whoever asked may have stopped waiting.
                    drop(waiting.send(reply.clone()));
                }
            }
        }
        self.settle();
    }

    /// Answers in the client's place.
    pub fn refuse(self, why: &str) {
        if let Whose::Server { conn, .. } = &*self.whose {
            conn.refuse(&self.id, -32601, why);
        }
        self.settle();
    }

    fn settle(&self) {
        if self.settled.swap(true, Ordering::Relaxed) {
            return;
        }
        match &*self.whose {
            Whose::Server { conn, call, router } => {
                conn.return_question();
                if let (Some(router), Some(call)) = (router.upgrade(), *call) {
                    let now = router.clock.now();
                    router.with(|dispatch, _| {
                        if let Some(pending) = dispatch.payload_mut(call) {
                            pending.asked = pending.asked.saturating_sub(1);
                        }
                        dispatch.resumed(call, now);
                    });
                }
            }
            Whose::Round { round, key, router } => {
                if let Some(router) = router.upgrade() {
                    router.round_answered(*round, key, None);
                }
            }
            // Dropped without an answer, the channel says so.
            Whose::Gateway { .. } => {}
        }
    }
}

fn login_wish(server: &str, address: &str) -> Value {
    let message = format!("The server {server:?} wants you to log in. Then call its tool again.");
    json!({ "mode": "url", "url": address, "message": message })
}

impl Drop for Question {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Router {
    /// A call failed because its server wants a login: a client that can open addresses is asked to, once for each.
    pub fn offer_login(&self, server: ServerId, caller: &Arc<dyn Caller>, tag: &Bytes) {
        let failure = self.view(server).and_then(|view| view.last_failure);
        let Some(Fact::LoginNeeded { address: Some(address), .. }) =
            failure.as_ref().map(|failure| &failure.fact)
        else {
            return;
        };
        if !caller.capabilities().pointer("/elicitation/url").is_some_and(Value::is_object) {
            return;
        }
        let Some(entry) = self.entry(server) else { return };
        if caller.is_stateless() {
            // It is asked by the answer to its call, and comes again.
            return caller.login_wanted(&entry.name, address);
        }
        {
            let mut offered = self.offered.lock().expect("no panic while it is locked");
            if offered.len() >= MOST_OFFERED {
                offered.clear();
            }
            if !offered.insert((caller.client(), address.clone())) {
                return;
            }
        }
        // One that cannot be asked has the address in its error.
        drop(caller.ask(Some(tag), Question::to_log_in(&entry.name, address)));
    }

    /// The call that made a server ask, as far as can be told, and who made it: the one on whose stream it asks, else
    /// the newest on its connection, or the newest client where the server asks out of its own.
    pub(super) fn on_whose_behalf(
        &self,
        conn: &Connection,
        cause: Option<u64>,
    ) -> (Option<CallId>, Option<Bytes>, Option<Arc<dyn Caller>>) {
        let mut state = self.lock();
        let calls = state.dispatch.calls_on(conn.id);
        // Of several calls the newest that has not asked yet: each question finds another, if they all ask.
        let asks_nothing = |call: &&CallId| {
            state.dispatch.payload(**call).is_some_and(|pending| pending.asked == 0)
        };
        let caused = cause.and_then(super::from_number).map(|(call, _)| call);
        let caused = caused.filter(|call| calls.contains(call));
        let guessed = || calls.iter().rev().find(asks_nothing).or(calls.last()).copied();
        let call = caused.or_else(guessed);
        let who = call.and_then(|call| state.dispatch.payload_mut(call)).map(|pending| {
            pending.asked += 1;
            (pending.tag.clone(), Arc::clone(&pending.caller))
        });
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
        *self.level.lock().expect("no panic while the level is locked") = Some(level);
        for conn in self.live() {
            self.repeat_level(&conn);
        }
    }

    /// Tells a server the level that the client wants, if it can hear it.
    pub(super) fn repeat_level(&self, conn: &Connection) {
        let level = self.level.lock().expect("no panic while the level is locked").clone();
        let hears = !conn.is_stateless() && conn.peer.get().is_some_and(|peer| peer.can("logging"));
        let Some(level) = level.filter(|_| hears) else { return };
        let mut params = b"{\"level\":".to_vec();
        params.extend_from_slice(&level);
        params.push(b'}');
        // The answer says nothing that anybody could act on.
        drop(conn.request("logging/setLevel", Some(&params)));
    }

    /// The client's roots changed.
    pub fn roots_changed(&self) {
        for conn in self.live().iter().filter(|conn| !conn.is_stateless()) {
            conn.notify("notifications/roots/list_changed", None);
        }
    }

    pub(super) fn live(&self) -> Vec<Arc<Connection>> {
        let state = self.lock();
        let live = state.slots.values().filter_map(|slot| match slot {
            Slot::Live { conn, .. } if conn.peer.get().is_some() => Some(Arc::clone(conn)),
            _ => None,
        });
        live.collect()
    }
}
