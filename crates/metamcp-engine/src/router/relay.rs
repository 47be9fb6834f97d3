//! Relays server requests to the client whose call caused them, and the log level the other way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use metamcp_calls::dispatch::CallId;
use metamcp_calls::failure::Fact;
use metamcp_calls::pool::{ConnId, ServerId};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Caller, Client, Router, Slot, input_required};
use crate::upstream::{Connection, Reply};

/// Most remembered login prompts; each is sent once.
const MOST_OFFERED: usize = 1000;

/// A log level as the client wrote it, such as `"warning"` with its quotes.
pub type Level = Bytes;

/// A server request that waits for the client.
#[derive(Debug)]
pub struct ServerRequest {
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// Its params, raw.
    pub params: Option<Bytes>,
    /// From a connection, the server's own id; from an input-required retry, ours.
    id: Bytes,
    origin: Box<Origin>,
    settled: AtomicBool,
}

/// Where a server request comes from.
#[derive(Debug)]
enum Origin {
    /// A server, in the middle of a call.
    Server { conn: Arc<Connection>, call: Option<CallId>, router: Weak<Router> },
    /// A server that answered a call with `input_required`; the call is retried with the answers.
    InputRequired { round: u64, key: String, router: Weak<Router> },
    /// A server on another node of the fleet.
    #[cfg(feature = "fleet")]
    Fleet(super::fleet::FleetAsk),
    /// The gateway itself; the client's answer goes to the waiting task, if there still is one.
    Gateway { answer: Mutex<Option<oneshot::Sender<Reply>>>, has_cause: bool },
}

impl ServerRequest {
    /// A request with params as the client will see them.
    pub(super) fn new(
        conn: &Arc<Connection>,
        id: Bytes,
        method: &str,
        params: Option<Bytes>,
        call: Option<CallId>,
        router: Weak<Router>,
    ) -> ServerRequest {
        ServerRequest {
            id,
            method: method.to_owned(),
            params,
            origin: Box::new(Origin::Server { conn: Arc::clone(conn), call, router }),
            settled: AtomicBool::new(false),
        }
    }

    /// One of several in an `input_required` result, as the client will see it.
    pub(super) fn for_input_required(
        round: u64,
        question: metamcp_wire::modern::input::Question,
        router: Weak<Router>,
    ) -> ServerRequest {
        ServerRequest {
            id: input_required::server_request_id(round, &question.key),
            params: question.params.map(Bytes::from),
            method: question.method,
            origin: Box::new(Origin::InputRequired { round, key: question.key, router }),
            settled: AtomicBool::new(false),
        }
    }

    /// One of a server on another node.
    #[cfg(feature = "fleet")]
    pub(super) fn of_fleet(
        id: Bytes,
        method: String,
        params: Option<Bytes>,
        ask: super::fleet::FleetAsk,
    ) -> ServerRequest {
        let (origin, settled) = (Box::new(Origin::Fleet(ask)), AtomicBool::new(false));
        ServerRequest { method, params, id, origin, settled }
    }

    /// Asks the user behind a client to sign in at a server.
    fn to_log_in(server: &str, address: &str) -> ServerRequest {
        let id = format!("login-{:016x}", getrandom::u64().unwrap_or_default());
        let mut params = login_request(server, address);
        params["elicitationId"] = id.as_str().into();
        ServerRequest {
            id: Bytes::from(id),
            method: "elicitation/create".to_owned(),
            params: Some(Bytes::from(params.to_string())),
            origin: Box::new(Origin::Gateway { answer: Mutex::new(None), has_cause: false }),
            settled: AtomicBool::new(false),
        }
    }

    /// The same because of a call that waits for it, and where the answer arrives.
    pub fn before_a_call(server: &str, address: &str) -> (ServerRequest, oneshot::Receiver<Reply>) {
        ServerRequest::of_gateway("elicitation/create", &login_request(server, address))
    }

    /// A request of the gateway, and where its answer arrives; nothing does if the client never answers.
    pub fn of_gateway(method: &str, params: &Value) -> (ServerRequest, oneshot::Receiver<Reply>) {
        let (sender, answer) = oneshot::channel();
        let server_request = ServerRequest {
            id: Bytes::new(),
            method: method.to_owned(),
            params: Some(Bytes::from(params.to_string())),
            origin: Box::new(Origin::Gateway { answer: Mutex::new(Some(sender)), has_cause: true }),
            settled: AtomicBool::new(false),
        };
        (server_request, answer)
    }

    /// Whether this is the request with that id of that connection; without an id, any of it. One of an input-required
    /// retry outlives its connection, since the server is stateless.
    pub fn is_from(&self, conn: ConnId, id: Option<&[u8]>) -> bool {
        match &*self.origin {
            Origin::Server { conn: own, .. } => own.id == conn && id.is_none_or(|id| id == self.id),
            Origin::InputRequired { .. } => id.is_some_and(|id| id == self.id),
            #[cfg(feature = "fleet")]
            Origin::Fleet(_) => id.is_some_and(|id| id == self.id),
            Origin::Gateway { .. } => false,
        }
    }

    /// Whether the call that caused it is known.
    pub fn has_cause(&self) -> bool {
        match &*self.origin {
            Origin::Server { call, .. } => call.is_some(),
            Origin::InputRequired { .. } => true,
            #[cfg(feature = "fleet")]
            Origin::Fleet(_) => true,
            Origin::Gateway { has_cause, .. } => *has_cause,
        }
    }

    /// Passes the client's answer on.
    pub fn answer(self, reply: &Reply) {
        match &*self.origin {
            Origin::Server { conn, .. } => conn.answer(&self.id, reply),
            Origin::InputRequired { round, key, router } => {
                let result = match reply {
                    Reply::Result(result) if result.starts_with(b"{") => Some(result.to_vec()),
                    _ => None,
                };
                if let (false, Some(router)) =
                    (self.settled.swap(true, Ordering::Relaxed), router.upgrade())
                {
                    router.input_answered(*round, key, result);
                }
            }
            #[cfg(feature = "fleet")]
            Origin::Fleet(ask) => {
                if !self.settled.swap(true, Ordering::Relaxed) {
                    ask.answer(reply);
                }
            }
            Origin::Gateway { answer, .. } => {
                let waiting = answer.lock().take();
                if let Some(waiting) = waiting {
                    // The asking task may have stopped waiting.
                    drop(waiting.send(reply.clone()));
                }
            }
        }
        self.settle();
    }

    /// Answers in the client's place.
    pub fn refuse(self, why: &str) {
        if let Origin::Server { conn, .. } = &*self.origin {
            conn.refuse(&self.id, -32601, why);
        }
        #[cfg(feature = "fleet")]
        if let Origin::Fleet(ask) = &*self.origin
            && !self.settled.swap(true, Ordering::Relaxed)
        {
            ask.refuse(why);
        }
        self.settle();
    }

    fn settle(&self) {
        if self.settled.swap(true, Ordering::Relaxed) {
            return;
        }
        match &*self.origin {
            Origin::Server { conn, call, router } => {
                conn.return_server_request();
                if let (Some(router), Some(call)) = (router.upgrade(), *call) {
                    let now = router.clock.now();
                    router.with(|dispatch, _| {
                        if let Some(pending) = dispatch.payload_mut(call) {
                            pending.open_requests = pending.open_requests.saturating_sub(1);
                        }
                        dispatch.resumed(call, now);
                    });
                }
            }
            Origin::InputRequired { round, key, router } => {
                if let Some(router) = router.upgrade() {
                    router.input_answered(*round, key, None);
                }
            }
            #[cfg(feature = "fleet")]
            Origin::Fleet(ask) => ask.refuse("the client behind metamcp gave no answer"),
            // Dropping the channel without an answer signals that.
            Origin::Gateway { .. } => {}
        }
    }
}

fn login_request(server: &str, address: &str) -> Value {
    let message = format!("The server {server:?} needs you to sign in. Then call its tool again.");
    json!({ "mode": "url", "url": address, "message": message })
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Router {
    /// A call failed because its server requires a login: a client that can open addresses is asked to, once for each.
    pub fn offer_login(&self, server: ServerId, caller: &Caller) {
        let failure = self.view(server).and_then(|view| view.last_failure);
        let Some(Fact::LoginNeeded { address: Some(address), .. }) =
            failure.as_ref().map(|failure| &failure.fact)
        else {
            return;
        };
        let capabilities = caller.client.capabilities();
        if !capabilities.pointer("/elicitation/url").is_some_and(Value::is_object) {
            return;
        }
        let Some(entry) = self.entry(server) else { return };
        if caller.responder.is_stateless() {
            // The response to its call carries the elicitation, and it retries.
            return caller.responder.login_wanted(&entry.name, address);
        }
        {
            let mut offered = self.offered.lock();
            if offered.len() >= MOST_OFFERED {
                offered.clear();
            }
            if !offered.insert((caller.client.identity().session, address.clone())) {
                return;
            }
        }
        // A client that does not support it has the address in the error.
        let login = ServerRequest::to_log_in(&entry.name, address);
        drop(caller.client.ask(Some(&caller.request), login));
    }

    /// The call that caused a server request, as far as known, the client's request behind it, and the client: of the
    /// call on whose stream it came, else of the newest on its connection, or the newest client of that instance where
    /// there is none.
    pub(super) fn on_whose_behalf(
        &self,
        conn: &Connection,
        cause: Option<u64>,
    ) -> (Option<CallId>, Option<Bytes>, Option<Arc<dyn Client>>) {
        let mut state = self.lock();
        let calls = state.dispatch.calls_on(conn.id);
        // Of several calls the newest without an open request, so that each server request finds another one.
        let has_no_request = |call: &&CallId| {
            state.dispatch.payload(**call).is_some_and(|pending| pending.open_requests == 0)
        };
        let caused = cause.and_then(super::from_number).map(|(call, _)| call);
        let caused = caused.filter(|call| calls.contains(call));
        let guessed = || calls.iter().rev().find(has_no_request).or(calls.last()).copied();
        let call = caused.or_else(guessed);
        let who = call.and_then(|call| state.dispatch.payload_mut(call)).map(|pending| {
            pending.open_requests += 1;
            (pending.caller.request.clone(), Arc::clone(&pending.caller.client))
        });
        drop(state);
        match who {
            Some((request, client)) => (call, Some(request), Some(client)),
            None => (call, None, self.attached_to(conn.server).pop()),
        }
    }

    /// Who receives a server's logs: clients with calls on its connection, each by its newest, else every client.
    pub(super) fn hears_logs(&self, conn: &Connection) -> Vec<(Arc<dyn Client>, Option<Bytes>)> {
        let mut clients: Vec<(Arc<dyn Client>, Option<Bytes>)> = Vec::new();
        let state = self.lock();
        for call in state.dispatch.calls_on(conn.id).into_iter().rev() {
            let Some(pending) = state.dispatch.payload(call) else { continue };
            let caller = &pending.caller;
            if !clients.iter().any(|(known, _)| caller.is_client(known)) {
                clients.push((Arc::clone(&caller.client), Some(caller.request.clone())));
            }
        }
        drop(state);
        if clients.is_empty() {
            clients.extend(self.attached_to(conn.server).into_iter().map(|client| (client, None)));
        }
        clients
    }

    /// The client sets its log level: it is sent to servers with logging, now and when they start.
    pub fn set_level(&self, level: Level) {
        *self.level.lock() = Some(level);
        for conn in self.live() {
            self.repeat_level(&conn);
        }
    }

    /// Sends a server the client's log level, if it supports that.
    pub(super) fn repeat_level(&self, conn: &Connection) {
        let level = self.level.lock().clone();
        let has_logging =
            !conn.is_stateless() && conn.peer.get().is_some_and(|peer| peer.can("logging"));
        let Some(level) = level.filter(|_| has_logging) else { return };
        let mut params = b"{\"level\":".to_vec();
        params.extend_from_slice(&level);
        params.push(b'}');
        // Nobody can act on the response.
        drop(conn.request("logging/setLevel", Some(&params)));
    }

    /// The roots of a client changed, which the servers that it uses are told.
    pub fn roots_changed(&self, uses: impl Fn(ServerId) -> bool) {
        let live = self.live();
        for conn in live.iter().filter(|conn| !conn.is_stateless() && uses(conn.server)) {
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
