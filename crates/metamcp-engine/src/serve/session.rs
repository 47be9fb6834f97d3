//! One client: its requests in, responses and notifications out, with its own request ids.
//! Owns: slow responses in progress, open server requests.      Never: touches a server, knows its client's transport.
//! In: messages.  Out: messages, each on its stream, in order.
//! Tests: `metamcp/tests/`.

mod continued;
mod watching;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_surface::apps;
use metamcp_surface::direct::fit::Reader;
use metamcp_wire::envelope::Envelope;
use metamcp_wire::era::{self, Era, Revision, VersionHeader};
use metamcp_wire::frame::skim;
use metamcp_wire::handshake::{self, Peer};
use metamcp_wire::scan::Defect;
use metamcp_wire::trace_context::TraceContext;
use metamcp_wire::{object, write};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};
use tokio::task::AbortHandle;

use super::client_roots;
use super::response_streams::ResponseStreams;
use super::stateless::{StatelessHandler, SuspendedCalls};
use crate::clock::Clock;
use crate::observe::{ClientInfo, ClientLink, Identity, Origin};
use crate::router::{CallOutcome, Caller, Client, Responder, ServerRequest};
use crate::surface::reply::{ErrorObject, Plain};
use crate::surface::{Finished, Step, View};
use crate::task;
use crate::upstream::Reply;

/// How often it is checked whether the last lists are answered.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Most slow responses in progress for one client: first calls of a server wait here until its tools are known, so
/// this has to be as large as the router's own queue.
const MAX_SLOW: usize = metamcp_calls::dispatch::SERVER_QUEUE;

/// The last server request to any client. One counter for all, so that a late answer can never be taken for one to a
/// request of another session, or of the same session after it was suspended.
static LAST_SERVER_REQUEST: AtomicU64 = AtomicU64::new(0);

/// Numbers server requests in the range of this process of a fleet.
pub(super) fn count_from(process: u64) {
    LAST_SERVER_REQUEST.store(super::http::stream::range_of(process), Ordering::Relaxed);
}

/// See the module.
pub struct Session {
    view: View,
    pub response_streams: ResponseStreams,
    state: Mutex<State>,
    /// Requests of the stateless era.
    pub stateless: StatelessHandler,
    /// How often the client sent `notifications/initialized`, or that its roots changed.
    ready: watch::Sender<u64>,
    /// Over HTTP, filled once the client has said its roots; another one when they changed.
    roots: Mutex<Arc<OnceCell<()>>>,
    me: Weak<Session>,
}

struct State {
    identity: Arc<Identity>,
    peer: Option<Arc<Peer>>,
    /// Slow responses by the id of their request, so that they can be cancelled.
    slow: HashMap<Bytes, Vec<Slow>>,
    server_requests: HashMap<u64, OpenServerRequest>,
    /// The least severe log level it wants, if it set one.
    level: Option<usize>,
    /// Resources it subscribed to, and the servers that may have them.
    watched: HashMap<String, Vec<ServerId>>,
    /// Whether it is registered for change notifications.
    is_notified: bool,
    /// Its input ended, so it can answer no server request any more.
    input_ended: bool,
    stopping: bool,
}

impl State {
    fn new(identity: Identity, peer: Option<Arc<Peer>>) -> State {
        State {
            identity: Arc::new(identity),
            peer,
            slow: HashMap::new(),
            server_requests: HashMap::new(),
            level: None,
            watched: HashMap::new(),
            is_notified: false,
            input_ended: false,
            stopping: false,
        }
    }
}

/// A server request that the client has not answered yet.
struct OpenServerRequest {
    server_request: ServerRequest,
    /// The call that caused it, on whose stream it was sent.
    tag: Option<Bytes>,
}

/// A slow response in progress.
struct Slow {
    task: AbortHandle,
    /// The response if it is aborted; without one, nothing was run.
    final_response: Option<FinalResponse>,
    /// Whether it runs nothing anywhere: a handshake or a list.
    is_list: bool,
}

type FinalResponse = Box<dyn Fn() -> Finished + Send + Sync>;

impl Session {
    /// A session before its handshake.
    pub fn new(
        view: View,
        response_streams: ResponseStreams,
        suspended_calls: &Arc<SuspendedCalls>,
    ) -> Arc<Session> {
        Session::with(view, response_streams, suspended_calls, None)
    }

    /// A session that is resumed: its handshake was done before.
    pub fn resumed(
        view: View,
        response_streams: ResponseStreams,
        suspended_calls: &Arc<SuspendedCalls>,
        peer: Arc<Peer>,
    ) -> Arc<Session> {
        Session::with(view, response_streams, suspended_calls, Some(peer))
    }

    fn with(
        view: View,
        response_streams: ResponseStreams,
        suspended_calls: &Arc<SuspendedCalls>,
        peer: Option<Arc<Peer>>,
    ) -> Arc<Session> {
        let resumed = peer.is_some();
        let mut identity = Identity::new(view.principal, Arc::clone(&view.principal_name));
        identity.session = view.seat.session;
        identity.client = peer.as_deref().map(client_info);
        let state = State::new(identity, peer);
        let session = Arc::new_cyclic(|me| Session {
            stateless: StatelessHandler::new(view.clone(), Arc::clone(suspended_calls)),
            view,
            response_streams,
            state: Mutex::new(state),
            ready: watch::channel(0).0,
            roots: Mutex::default(),
            me: me.clone(),
        });
        if resumed {
            session.watch_changes();
        }
        session
    }

    pub(super) fn clock(&self) -> Clock {
        self.view.surface.router.clock
    }

    /// The client's side of the handshake, once it is done.
    pub fn peer(&self) -> Option<Arc<Peer>> {
        self.lock().peer.clone()
    }

    /// Whether its client is a host that shows pages of servers.
    fn shows_apps(&self) -> bool {
        self.peer().is_some_and(|peer| apps::shown_by(&peer.capabilities))
    }

    /// Waits until the client is initialized, and may be sent requests.
    pub async fn introduced(&self) {
        // The sender lives as long as the session.
        drop(self.ready.subscribe().wait_for(|steps| *steps > 0).await);
    }

    /// Whether which servers it gets depends on roots that it has not said yet, and can be asked for with this request.
    pub(super) fn lacks_roots(&self, request: &Bytes) -> bool {
        !self.roots.lock().initialized()
            && self.peer().is_some_and(|peer| peer.can("roots"))
            && self.response_streams.has(request)
            && self.view.seat.has_projects()
    }

    /// Asks for them, once for all requests that wait for it.
    pub(super) async fn learn_roots(&self, request: &Bytes) {
        let cell = Arc::clone(&*self.roots.lock());
        // Whoever cannot be asked has no roots that could be told apart.
        cell.get_or_init(|| async {
            client_roots::ask(self, &self.view.seat, Some(request)).await;
        })
        .await;
    }

    /// Moves when the client is initialized, and when its roots change.
    pub(super) fn steps(&self) -> watch::Receiver<u64> {
        self.ready.subscribe()
    }

    /// The session as the caller of the client's request with this id.
    pub(super) fn caller(&self, id: &Bytes) -> Caller {
        let origin = if self.view.is_direct() { Origin::Direct } else { Origin::McpCall };
        let responder = self.me();
        let client = Arc::clone(&responder) as Arc<dyn Client>;
        let (tag, request) = (id.clone(), id.clone());
        Caller { responder, tag, client, request, origin, arrived: None, trace: None }
    }

    fn responder(&self) -> Arc<dyn Responder> {
        self.me()
    }

    pub fn client(&self) -> Arc<dyn Client> {
        self.me()
    }

    fn me(&self) -> Arc<Session> {
        self.me.upgrade().expect("a session that receives a message is alive")
    }

    /// Handles one line of the client.
    pub fn hear(&self, line: &Bytes) {
        if let Err(defect) = self.message(line, line) {
            self.defective(line, defect);
        }
    }

    /// Why batches are refused from this client. Before the handshake it may be of the one revision that had them.
    pub fn refuses_batches(&self) -> Option<&'static str> {
        let revision = self.peer().and_then(|peer| peer.era.revision());
        revision
            .is_some_and(|revision| revision != Revision::V2025_03_26)
            .then_some("invalid request: several messages at once are not part of this revision")
    }

    /// Handles one message of the client, already parsed from `line`.
    pub fn take(&self, message: Envelope<'_>, line: &Bytes) {
        self.take_traced(message, line, None);
    }

    /// The same for one whose HTTP headers say where in a trace it was made.
    pub fn take_traced(
        &self,
        message: Envelope<'_>,
        line: &Bytes,
        trace: Option<Arc<TraceContext>>,
    ) {
        match message {
            Envelope::Request { id, method, params } => {
                self.request(Bytes::copy_from_slice(id.raw()), &method, params, line, trace);
            }
            Envelope::Notification { method, params } => self.notified(&method, params),
            Envelope::Result { id, result } => {
                self.answered(id.as_u64(), &Reply::Result(line.slice_ref(result)));
            }
            Envelope::Error { id, error } => {
                self.answered(id.and_then(|id| id.as_u64()), &Reply::Error(line.slice_ref(error)));
            }
            Envelope::Batch(parts) => {
                if let Some(why) = self.refuses_batches() {
                    return self
                        .response_streams
                        .answer(None, |out| write::error(out, None, -32600, why, None));
                }
                for part in parts {
                    if let Err(defect) = self.message(line, part) {
                        self.defective(part, defect);
                    }
                }
            }
        }
    }

    /// Handles a line of the client that exceeds the limit; `request` if it had a method.
    pub fn oversize(&self, id: Option<&[u8]>, request: bool, length: u64) {
        if !request && self.answered_badly(id, &Reply::Oversize(length)) {
            return;
        }
        let message = format!(
            "the message has {length} bytes, which is over the line limit; nothing was run"
        );
        self.response_streams.answer(id, |out| write::error(out, id, -32600, &message, None));
    }

    /// The client is gone for good: everything in progress is cancelled, without responses.
    pub fn abandon(&self) {
        let (slow, server_requests) = {
            let mut state = self.lock();
            state.stopping = true;
            (std::mem::take(&mut state.slow), std::mem::take(&mut state.server_requests))
        };
        self.unwatch_all();
        slow.into_values().flatten().for_each(|slow| slow.task.abort());
        drop(server_requests);
        self.stateless.abandon();
        self.view.surface.router.cancel_all(&self.responder());
        self.response_streams.close();
    }

    /// Whether nothing is in progress in either direction.
    pub fn is_quiet(&self) -> bool {
        let state = self.lock();
        state.slow.is_empty()
            && state.server_requests.is_empty()
            && self.response_streams.is_quiet()
            && self.stateless.is_quiet()
    }

    /// Whether it has a log level, subscriptions or servers of its own, which would be lost with the session.
    pub fn is_attached(&self) -> bool {
        let state = self.lock();
        state.level.is_some() || !state.watched.is_empty() || self.view.seat.has_own()
    }

    /// Waits until handshakes and lists are answered, which run nothing at a server.
    pub async fn answered_lists(&self) {
        let waits = || self.lock().slow.values().flatten().any(|slow| slow.is_list);
        while waits() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Requests without a response: calls, scripts, chains, lists, calls that wait for a start.
    pub fn in_flight(&self) -> usize {
        let slow: usize = self.lock().slow.values().map(Vec::len).sum();
        slow + self.stateless.in_flight() + self.view.surface.router.calls_of(&self.responder())
    }

    /// The client will send nothing more: open server requests are refused, since they would never be answered.
    pub fn input_ended(&self) {
        let open = {
            let mut state = self.lock();
            state.input_ended = true;
            std::mem::take(&mut state.server_requests)
        };
        for open_request in open.into_values() {
            open_request.server_request.refuse("the client behind metamcp has closed its end");
        }
    }

    /// The gateway drains: requests in progress continue, new calls are refused, subscriptions end cleanly.
    pub fn drain(&self) {
        self.view.seat.drain();
        self.stateless.end_subscriptions(&self.response_streams);
    }

    /// Ends and answers every slow response that is not in the router.
    pub fn stop(&self) {
        self.stateless.stop(&self.response_streams);
        let slow = {
            let mut state = self.lock();
            state.stopping = true;
            std::mem::take(&mut state.slow)
        };
        for (id, tasks) in slow {
            for slow in tasks {
                slow.task.abort();
                match slow.final_response {
                    Some(final_response) => self.finish(&id, final_response()),
                    None => self.refuse(&id, -32000, "metamcp is shutting down; nothing was run"),
                }
            }
        }
    }

    fn message(&self, line: &Bytes, part: &[u8]) -> Result<(), Defect> {
        self.take(Envelope::parse(part)?, line);
        Ok(())
    }

    fn defective(&self, part: &[u8], defect: Defect) {
        let (code, error) = if defect.kind.is_syntax() {
            (-32700, "parse error")
        } else {
            (-32600, "invalid request")
        };
        let skimmed = skim(part);
        let is_response = !skimmed.has_method();
        let id = if code == -32600 { skimmed.into_id() } else { None };
        if is_response && self.answered_badly(id.as_deref(), &Reply::Malformed(defect)) {
            return;
        }
        let message = format!("{error}: {defect}");
        let id = id.as_deref();
        self.response_streams.answer(id, |out| write::error(out, id, code, &message, None));
    }

    fn request(
        &self,
        id: Bytes,
        method: &str,
        params: Option<&[u8]>,
        line: &Bytes,
        trace: Option<Arc<TraceContext>>,
    ) {
        // Its version header, if any, was compared with this before.
        if era::of_request(VersionHeader::Absent, params) == Ok(Era::Stateless)
            && let Some(me) = self.me.upgrade()
        {
            return self.stateless.request(&me, id, method, params, line, trace);
        }
        match method {
            "tools/call" => {
                let caller = Caller { trace, ..self.caller(&id) };
                let step = self.view.call(params, line, caller);
                self.advance(id, step);
            }
            "ping" => self.result(&id, b"{}"),
            "tools/list" => {
                let view = self.view.clone();
                let cursor = match cursor(params) {
                    Ok(cursor) => cursor,
                    Err(why) => return self.refuse(&id, -32602, &why),
                };
                let shows_apps = self.shows_apps();
                self.later(id, async move {
                    view.tools_page(cursor, Reader::Initialized, shows_apps).await
                });
            }
            "initialize" => self.initialize(id, params),
            "logging/setLevel" => {
                let level = params.and_then(|params| object::pick(params, ["level"]).ok()?[0]);
                match level.and_then(|level| Some((level, severity(level)?))) {
                    Some((level, severity)) => {
                        self.lock().level = Some(severity);
                        self.view.surface.router.set_level(Bytes::copy_from_slice(level));
                        self.result(&id, b"{}");
                    }
                    None => self.refuse(
                        &id,
                        -32602,
                        &format!("level must be one of {}", LEVELS.join(", ")),
                    ),
                }
            }
            "resources/list" if self.shows_apps() && !self.view.is_direct() => {
                self.advance(id, Step::Now(self.view.app_resources()));
            }
            "resources/read" if self.shows_apps() && !self.view.is_direct() => {
                let caller = Caller { trace, ..self.caller(&id) };
                let step = self.view.app_resource(params, &caller);
                self.advance(id, step);
            }
            _ => match self.view.passes_on(method) {
                Some("resources/subscribe") => self.subscribe(id, params),
                Some("resources/unsubscribe") => self.unsubscribe(&id, params),
                Some(method) => {
                    let caller = Caller { trace, ..self.caller(&id) };
                    let step = self.view.pass_on(method, params, &caller);
                    self.advance(id, step);
                }
                None => {
                    let message = format!("metamcp does not know the method {method:?}");
                    self.refuse(&id, -32601, &message);
                }
            },
        }
    }

    fn advance(&self, id: Bytes, step: Step) {
        match step {
            Step::Dispatched => {}
            Step::Now(finished) => self.finish(&id, finished),
            Step::Later(future) => self.run(id, future, None, false),
            Step::Running(running) => {
                self.run(id, running.future, Some(running.final_response), false);
            }
        }
    }

    fn initialize(&self, id: Bytes, params: Option<&[u8]>) {
        let peer = match handshake::accept(params.unwrap_or(b"{}")) {
            Ok(peer) => peer,
            Err(refusal) => return self.refuse(&id, -32602, &refusal.to_string()),
        };
        let revision = peer.era;
        self.introduce(peer);
        self.watch_changes();
        let (view, shows_apps) = (self.view.clone(), self.shows_apps());
        self.later(id, async move {
            let mut result = json!({
                "protocolVersion": revision.name(),
                "capabilities": view.capabilities(shows_apps).await,
                "serverInfo": {
                    "name": "metamcp",
                    "title": "metamcp gateway",
                    "version": env!("CARGO_PKG_VERSION"),
                },
            });
            let server_instructions = view.server_instructions().await;
            if !server_instructions.is_empty() {
                result["instructions"] = server_instructions.into();
            }
            Finished::Result(result.to_string().into_bytes())
        });
    }

    /// Stores the client's handshake; its calls are recorded under its name from now on.
    fn introduce(&self, peer: Peer) {
        let mut state = self.lock();
        let client = Some(client_info(&peer));
        state.identity = Arc::new(Identity { client, ..(*state.identity).clone() });
        state.peer = Some(Arc::new(peer));
    }

    fn notified(&self, method: &str, params: Option<&[u8]>) {
        match method {
            "notifications/cancelled" => {
                let picked = params.and_then(|params| object::pick(params, ["requestId"]).ok()?[0]);
                if let Some(id) = picked {
                    self.stateless.cancelled(id);
                    let slow = self.lock().slow.remove(id);
                    slow.into_iter().flatten().for_each(|slow| slow.task.abort());
                    self.view.surface.router.cancel(&self.responder(), id);
                    self.response_streams.end(id);
                }
            }
            "notifications/initialized" => self.ready.send_modify(|steps| *steps += 1),
            "notifications/roots/list_changed" => {
                self.view.surface.router.roots_changed(|server| self.view.seat.uses(server));
                *self.roots.lock() = Arc::default();
                self.ready.send_modify(|steps| *steps += 1);
            }
            _ => {}
        }
    }

    /// The client answers a server request.
    fn answered(&self, number: Option<u64>, reply: &Reply) {
        let server_request = number.and_then(|number| self.lock().server_requests.remove(&number));
        if let Some(open) = server_request {
            open.server_request.answer(reply);
        }
    }

    /// The client's response to a server request is unusable: the server must not wait for another, and a response gets
    /// no response. False if no such request is open.
    fn answered_badly(&self, id: Option<&[u8]>, reply: &Reply) -> bool {
        let number = id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
        let open = number.is_some_and(|number| self.lock().server_requests.contains_key(&number));
        if open {
            self.answered(number, reply);
        }
        open
    }

    /// Answers a handshake or a list, which may wait for the disk.
    fn later(&self, id: Bytes, future: impl Future<Output = Finished> + Send + 'static) {
        self.run(id, future, None, true);
    }

    /// Runs a slow request in a task of its own; a cancelled one gets no response.
    fn run(
        &self,
        id: Bytes,
        future: impl Future<Output = Finished> + Send + 'static,
        final_response: Option<FinalResponse>,
        is_list: bool,
    ) {
        let mut state = self.lock();
        if state.stopping || state.slow.len() >= MAX_SLOW {
            let why = if state.stopping {
                "metamcp is shutting down"
            } else {
                "too many requests are in progress"
            };
            drop(state);
            return self.refuse(&id, -32000, &format!("{why}; nothing was run"));
        }
        let Some(me) = self.me.upgrade() else { return };
        let own = id.clone();
        let running = task::spawn("answer", async move {
            let finished = future.await;
            let mut state = me.lock();
            if let Some(tasks) = state.slow.get_mut(&own) {
                // Of several with one id it does not matter which handle is removed: the rest can still be cancelled.
                tasks.retain(|slow| !slow.task.is_finished());
                tasks.pop();
                if tasks.is_empty() {
                    state.slow.remove(&own);
                }
                drop(state);
                me.finish(&own, finished);
            }
        });
        // The runtime cannot have run it yet: this thread holds the lock it needs to finish.
        let task = running.abort_handle();
        state.slow.entry(id).or_default().push(Slow { task, final_response, is_list });
    }

    fn finish(&self, id: &Bytes, finished: Finished) {
        match finished.in_words() {
            Finished::Result(result) => {
                if !self.view.is_direct() {
                    self.view.surface.router.observer.totals().shown(result.len());
                }
                self.result(id, &result);
            }
            Finished::Refused(_) => {}
            Finished::Protocol { code, message } => self.refuse(id, code, &message),
            Finished::Dispatched => {}
        }
    }

    fn result(&self, id: &[u8], result: &[u8]) {
        let result = self.view.surface.clean(result);
        self.response_streams.answer(Some(id), |out| write::result(out, id, &result));
    }

    fn refuse(&self, id: &[u8], code: i64, message: &str) {
        let mut error = Vec::new();
        write::error_object(&mut error, code, message, None);
        self.fail(id, &error);
    }

    /// Sends an error. All errors are redacted here, since any of them may quote a server.
    pub(super) fn fail(&self, id: &[u8], error: &[u8]) {
        let error = self.view.surface.clean(error);
        self.response_streams.answer(Some(id), |out| write::error_raw(out, Some(id), &error));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn client_info(peer: &Peer) -> ClientInfo {
    ClientInfo { name: peer.name.clone(), version: peer.version.clone() }
}

/// The log levels of the protocol.
const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// How severe a level is, as the client or a server wrote it.
fn severity(level: &[u8]) -> Option<usize> {
    let level = object::text(level)?;
    LEVELS.iter().position(|known| *known == level)
}

impl Responder for Session {
    fn respond(&self, tag: &Bytes, outcome: CallOutcome) {
        match outcome {
            CallOutcome::Result(result) => {
                let result = self.clean(result);
                if result.len() < 4096 {
                    self.response_streams.answer(Some(tag), |out| write::result(out, tag, &result));
                } else {
                    let body = match write::one_line(&result) {
                        Cow::Borrowed(_) => result.clone(),
                        Cow::Owned(joined) => Bytes::from(joined),
                    };
                    self.response_streams.answer_parts(
                        tag,
                        &write::result_head(tag),
                        body,
                        write::RESULT_TAIL,
                    );
                }
            }
            CallOutcome::Failed(error) => {
                let entry = self.view.any_server(&error.server);
                let config = entry.as_ref().map(|entry| &*entry.config);
                if !self.view.is_direct() && error.method == "tools/call" {
                    let object = ErrorObject::from_call(&error, config);
                    return self.result(tag, &object.to_result());
                }
                match Plain::from_call(&error, config) {
                    Plain::Result(result) => self.result(tag, &result),
                    Plain::Error(error) => self.fail(tag, &error),
                }
            }
            CallOutcome::Cancelled => self.response_streams.end(tag),
        }
    }

    fn progress(&self, tag: &Bytes, params: &[u8]) {
        self.notify(Some(tag), "notifications/progress", params);
    }
}

impl Client for Session {
    fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.lock().identity)
    }

    fn link(&self) -> ClientLink {
        let version = self.peer().map(|peer| peer.era.name());
        ClientLink { transport: Some(self.response_streams.transport()), version }
    }

    fn uses(&self, server: ServerId) -> bool {
        self.view.seat.uses(server)
    }

    fn may_approve(&self) -> bool {
        self.view.approves
    }

    fn capabilities(&self) -> Value {
        self.lock().peer.as_ref().map(|peer| peer.capabilities.clone()).unwrap_or_default()
    }

    fn log(&self, tag: Option<&Bytes>, params: &[u8]) {
        let wanted = self.lock().level;
        let level = object::pick(params, ["level"]).ok().and_then(|[level]| severity(level?));
        if wanted.zip(level).is_none_or(|(wanted, level)| level >= wanted) {
            self.notify(tag, "notifications/message", params);
        }
    }

    fn ask(&self, tag: Option<&Bytes>, server_request: ServerRequest) -> Result<(), ServerRequest> {
        let mut state = self.lock();
        let needed = match server_request.method.as_str() {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            _ => "roots",
        };
        if state.input_ended || !state.peer.as_ref().is_some_and(|peer| peer.can(needed)) {
            return Err(server_request);
        }
        if !self.response_streams.can_ask(tag.map(|tag| &**tag)) {
            return Err(server_request);
        }
        let number = LAST_SERVER_REQUEST.fetch_add(1, Ordering::Relaxed) + 1;
        self.response_streams.tell(tag.map(|tag| &**tag), |out| {
            let params =
                server_request.params.as_deref().map(|params| self.view.surface.clean(params));
            write::request(out, number, &server_request.method, params.as_deref());
        });
        state
            .server_requests
            .insert(number, OpenServerRequest { server_request, tag: tag.cloned() });
        Ok(())
    }

    fn cancel_ask(&self, conn: ConnId, id: Option<&[u8]>) {
        let mut state = self.lock();
        let gone: Vec<u64> = state
            .server_requests
            .iter()
            .filter(|(_, open)| open.server_request.is_from(conn, id))
            .map(|(&number, _)| number)
            .collect();
        let dropped: Vec<(u64, OpenServerRequest)> = gone
            .iter()
            .filter_map(|number| Some((*number, state.server_requests.remove(number)?)))
            .collect();
        drop(state);
        for (number, open) in &dropped {
            let params = format!(
                "{{\"requestId\":{number},\"reason\":\"the server does not wait for it any more\"}}"
            );
            self.notify(open.tag.as_ref(), "notifications/cancelled", params.as_bytes());
        }
    }
}

/// The cursor of `tools/list`. An unreadable one is an error, not a reason to start from the beginning.
pub(super) fn cursor(params: Option<&[u8]>) -> Result<Option<String>, String> {
    let Some(params) = params else { return Ok(None) };
    let [cursor] = object::pick(params, ["cursor"])
        .map_err(|defect| format!("the params of tools/list cannot be used: {defect}"))?;
    let Some(cursor) = cursor.filter(|cursor| *cursor != b"null") else { return Ok(None) };
    let text = object::text(cursor).ok_or("the cursor of tools/list must be a string")?;
    Ok(Some(text.into_owned()))
}

impl Session {
    /// Redacts secrets from JSON for the client.
    pub(super) fn clean(&self, json: Bytes) -> Bytes {
        match self.view.surface.clean(&json) {
            Cow::Borrowed(_) => json,
            Cow::Owned(clean) => Bytes::from(clean),
        }
    }

    fn notify(&self, tag: Option<&Bytes>, method: &str, params: &[u8]) {
        let tag = tag.map(|tag| &**tag);
        if self.response_streams.has_room(tag) {
            let params = &self.view.surface.clean(params);
            self.response_streams.tell(tag, |out| write::notification(out, method, Some(params)));
        }
    }
}
