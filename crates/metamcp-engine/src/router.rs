//! The one path of every call: admit, connect, send, classify, retry once, respond.
//! Owns: the dispatch and its lock, live connections, the timer task.      Never: decides (`metamcp-calls` does), renders responses.
//! In: `call(UpstreamRequest, Caller)`.  Out: exactly one `Responder::respond` and one `CallRecord` per call, progress before them.
//! Tests: `metamcp-calls/tests/sim.rs` for the decisions, `metamcp/tests/hazards/` with real processes.

mod approving;
mod backlog;
mod call_progress;
mod caller;
mod connect;
mod context;
mod error;
#[cfg(feature = "fleet")]
mod fleet;
mod handshake;
mod inbound;
mod input_required;
mod message;
mod overriding;
mod publish;
mod recording;
mod relay;
mod result_mapper;
mod send;
mod server_capabilities;
mod server_tasks;
mod servers;
mod stderr_tails;
mod take_over;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::dispatch::{
    CallId, CallOptions, CloseMode, Dispatch, DispatchError, Effect, Effects, Limits, ServerView,
};
use metamcp_calls::failure::{Fact, Failure};
use metamcp_calls::lifecycle::State as SlotState;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_calls::replay::Delivery;
use metamcp_tools::tool::Hints;
use metamcp_types::escalation::Escalation;
use metamcp_types::moment::Moment;
use metamcp_types::secret::redact;
use metamcp_types::slab::Key;
use metamcp_wire::bridge::InputRetries;
use metamcp_wire::modern::meta;
use metamcp_wire::trace_context::TraceContext;
use parking_lot::{Mutex, MutexGuard, RwLock};
use serde_json::Value;
use tokio::sync::Notify;

use crate::change_counter::ChangeCounter;
use crate::clock::Clock;
use crate::observe::{CallRecord, Observer};
use crate::task;
use crate::upstream::Connection;
use crate::upstream::launch::Launcher;

pub use approving::Unapproved;
pub use call_progress::{CallProgress, Silent};
pub use caller::{Caller, Client, Responder};
pub use context::{Context, PinnedTool, Seat};
pub use error::{CallError, CallErrorKind};
pub use message::{Input, Verbatim};
pub use recording::Unrecorded;
pub use relay::{Level, ServerRequest};
pub use result_mapper::{Follow, ResultMapper};
pub use servers::{Definition, Entry, Instance, ScopeKey, Servers, as_written, environment_of};
pub use take_over::{LongCall, TakenOver};

/// Arguments of at least this size stay in the read buffer; smaller ones are copied, which frees it sooner.
const COPY_BELOW: usize = 16 * 1024;

/// How many idle connections are closed at once to free file descriptors: each child uses four or five, and a start
/// needs a few more than it keeps.
const SHED: usize = 4;
/// The shutdown escalation of an unresponsive child takes less.
const SHED_WITHIN: Duration = Duration::from_secs(5);

/// A request to a server: a tool call, or any other request of a client.
#[derive(Debug)]
pub struct UpstreamRequest {
    pub server: ServerId,
    pub server_name: Arc<str>,
    /// The tool's name; for another request, its subject.
    pub tool: Arc<str>,
    /// Its arguments: a JSON object, as written by the caller.
    pub arguments: Option<Bytes>,
    /// The caller's `_meta`, a JSON object.
    pub meta: Option<Bytes>,
    /// The caller's progress token, raw.
    pub progress: Option<Bytes>,
    /// The call's progress; start and end are reported if the server reports nothing.
    pub call_progress: Option<Arc<CallProgress>>,
    /// Whether the call is idempotent.
    pub harmless: bool,
    /// What is declared of the tool's effects; nothing where it is unknown.
    pub hints: Hints,
    /// Answers to the server's requests, when the call is a retry.
    pub input: Option<Arc<Input>>,
    /// The request as the client wrote it, where it is forwarded unchanged; then there are no `arguments`.
    pub verbatim: Option<Verbatim>,
    /// The server wants this tool to be called as a task, and an older server has to be told that it is.
    pub as_task: bool,
    /// What is sent in its place, where the user overrides the tool.
    pub(crate) rewritten: Option<overriding::Rewritten>,
    /// Maps the outcome before it reaches the caller.
    pub result_mapper: Option<ResultMapper>,
}

impl UpstreamRequest {
    pub fn method(&self) -> &'static str {
        self.verbatim.as_ref().map_or("tools/call", |verbatim| verbatim.method)
    }

    /// The part of it that may be long.
    fn body(&self) -> Option<&Bytes> {
        self.verbatim.as_ref().map(|verbatim| &verbatim.params).or(self.arguments.as_ref())
    }
}

/// How a call ended.
#[derive(Debug)]
pub enum CallOutcome {
    /// The server's result, byte for byte.
    Result(Bytes),
    Failed(CallError),
    /// The caller cancelled it: no response may be sent.
    Cancelled,
}

pub(crate) struct Pending {
    request: UpstreamRequest,
    caller: Caller,
    key: u64,
    /// Where its message ends in the stream of the connection it was last sent on.
    sent_end: u64,
    /// Server requests that the client has not answered yet.
    open_requests: u32,
    input_retries: Option<Box<InputRetries>>,
    record: CallRecord,
    #[cfg(feature = "fleet")]
    fleet: fleet::CallPlace,
}

impl Pending {
    #[cfg(feature = "fleet")]
    fn of(
        request: UpstreamRequest,
        caller: Caller,
        record: CallRecord,
        fleet: fleet::CallPlace,
    ) -> Pending {
        let (key, sent_end, open_requests, input_retries) = (0, u64::MAX, 0, None);
        Pending { request, caller, key, sent_end, open_requests, input_retries, record, fleet }
    }

    /// Whether its response goes there, under this tag if one is given.
    fn is_of(&self, responder: &Arc<dyn Responder>, tag: Option<&[u8]>) -> bool {
        self.caller.responds_to(responder) && tag.is_none_or(|tag| self.caller.tag == tag)
    }
}

pub(crate) enum Slot {
    Starting { unwanted: bool },
    Live { conn: Arc<Connection>, life: Arc<connect::Life> },
}

pub(crate) struct State {
    pub(crate) dispatch: Dispatch<Pending>,
    pub(crate) slots: HashMap<ConnId, Slot>,
    /// When the timer task wakes next.
    armed: Moment,
    /// Whether it checks the clock before that, because calls are waiting.
    watched: bool,
    next_key: u64,
}

#[derive(Default)]
struct Declared {
    /// The last one as it was written: most requests repeat it.
    last: Vec<u8>,
    all: Value,
}

/// Settings of the router beyond its servers.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// For `tools/list`, all pages together.
    pub list: Duration,
    /// The longest line a server may write.
    pub line_bytes: usize,
    /// The most tools stored per server.
    pub tools: usize,
}

/// See the module.
pub struct Router {
    pub(crate) clock: Clock,
    pub(crate) timing: Timing,
    pub(crate) launcher: Launcher,
    pub(crate) state: Mutex<State>,
    table: RwLock<servers::Table>,
    secrets_version: AtomicU64,
    /// Whether any server may have several instances for one purpose.
    has_siblings: AtomicBool,
    clients: Mutex<Vec<Weak<dyn Client>>>,
    pub(crate) level: Mutex<Option<Level>>,
    /// Union of the capabilities that clients of the stateless era declared so far.
    declared: Mutex<Declared>,
    /// Calls suspended until their clients answer.
    input_required: input_required::Table,
    server_capabilities: server_capabilities::ServerCapabilities,
    silences: Arc<call_progress::Silences>,
    long_calls: take_over::Watch,
    /// The responders of calls whose results are being mapped, by address.
    mapping: Mutex<Vec<usize>>,
    /// What the last process of each server wrote to stderr, also after it has gone.
    stderr_tails: stderr_tails::Table,
    /// Logins that clients were asked to complete, by session and address.
    offered: Mutex<HashSet<(u64, String)>>,
    rearm: Notify,
    recording: recording::Recording,
    #[cfg(feature = "fleet")]
    fleet: fleet::FleetCalls,
    approving: approving::Approving,
    /// Where everything that happens is published.
    pub observer: Arc<Observer>,
    /// Moves whenever a server became known, failed or changed its state.
    pub state_changes: ChangeCounter,
    process_key: u64,
    me: Weak<Router>,
}

impl Router {
    /// A router without servers, and its timer task.
    pub fn start(
        clock: Clock,
        limits: Limits,
        timing: Timing,
        launcher: Launcher,
        observer: Arc<Observer>,
    ) -> Arc<Router> {
        let process_key = getrandom::u64().unwrap_or(1);
        let mut dispatch = Dispatch::new(limits);
        dispatch.set_jitter(u32::try_from(process_key % 1001).unwrap_or(0));
        let router = Arc::new_cyclic(|me| Router {
            clock,
            timing,
            launcher,
            state: Mutex::new(State {
                dispatch,
                slots: HashMap::new(),
                armed: Moment::NEVER,
                watched: false,
                next_key: 1,
            }),
            table: RwLock::default(),
            secrets_version: AtomicU64::new(0),
            has_siblings: AtomicBool::new(false),
            clients: Mutex::default(),
            level: Mutex::default(),
            declared: Mutex::default(),
            input_required: input_required::Table::default(),
            server_capabilities: server_capabilities::ServerCapabilities::default(),
            silences: Arc::default(),
            long_calls: take_over::Watch::default(),
            mapping: Mutex::default(),
            stderr_tails: stderr_tails::Table::default(),
            offered: Mutex::default(),
            rearm: Notify::new(),
            recording: recording::Recording::default(),
            #[cfg(feature = "fleet")]
            fleet: fleet::FleetCalls::default(),
            approving: approving::Approving::default(),
            observer,
            state_changes: ChangeCounter::default(),
            process_key,
            me: me.clone(),
        });
        task::spawn("sweeper", sweep(Arc::downgrade(&router)));
        router
    }

    /// Registers a client; it receives logs and server requests while it lives.
    pub fn attach(&self, client: &Arc<dyn Client>) {
        let mut clients = self.clients.lock();
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(client));
    }

    pub(crate) fn attached(&self) -> Vec<Arc<dyn Client>> {
        let clients = self.clients.lock();
        clients.iter().filter_map(Weak::upgrade).collect()
    }

    /// The clients that may use an instance, the newest last.
    pub(crate) fn attached_to(&self, server: ServerId) -> Vec<Arc<dyn Client>> {
        let (mut clients, server) = (self.attached(), self.primary_of(server));
        clients.retain(|client| client.uses(server));
        clients
    }

    /// What an operator may see of a server.
    pub fn view(&self, server: ServerId) -> Option<ServerView> {
        let view = self.lock().dispatch.view(server);
        #[cfg(feature = "fleet")]
        if self.is_listing_elsewhere(server) {
            // It has no process here, and is about to tell what it can.
            return view.map(|view| ServerView { state: Some(SlotState::Connecting), ..view });
        }
        view
    }

    /// Makes a call. It gets exactly one response, through its caller, and one record.
    pub fn call(&self, mut request: UpstreamRequest, caller: Caller) {
        if let Some(arguments) = &mut request.arguments
            && arguments.len() < COPY_BELOW
        {
            *arguments = Bytes::copy_from_slice(arguments);
        }
        let rewritten = self.rewrite(&mut request);
        let now = self.clock.now();
        let names = (Arc::clone(&request.server_name), Arc::clone(&request.tool));
        let (identity, origin) = (caller.client.identity(), caller.origin);
        let (method, body) = (request.method(), request.body());
        let arrived = caller.arrived.unwrap_or(now);
        let mut record = CallRecord::arriving(identity, origin, names, method, body, arrived);
        if let Some(tracer) = self.observer.tracer() {
            let own = request.meta.as_deref().and_then(TraceContext::of_meta);
            record.trace = caller.traced(&**tracer, own.as_ref(), &request.tool);
        }
        let pending = Pending {
            request,
            caller,
            key: 0,
            sent_end: u64::MAX,
            open_requests: 0,
            input_retries: None,
            record,
            #[cfg(feature = "fleet")]
            fleet: fleet::CallPlace::default(),
        };
        match rewritten {
            Ok(()) => self.gate(pending, now),
            Err(mismatch) => {
                let request = &pending.request;
                let error = CallError {
                    server: Arc::clone(&request.server_name),
                    tool: Arc::clone(&request.tool),
                    method: request.method(),
                    kind: CallErrorKind::Mismatch(mismatch),
                };
                self.answer(pending, CallOutcome::Failed(error), now);
            }
        }
    }

    /// Passes a call to the dispatch, under a key of its own.
    fn enter(&self, mut pending: Pending, now: Moment) {
        #[cfg(feature = "fleet")]
        match self.to_fleet(pending, now) {
            Some(here) => pending = here,
            None => return,
        }
        let lane = pending.record.identity.session;
        let options = CallOptions { harmless: pending.request.harmless, lane, timeout: None };
        let mut effects = Effects::new();
        let mut state = self.lock();
        pending.key = state.next_key;
        state.next_key += 1;
        if pending.record.id == 0 {
            pending.record.id = pending.key;
        }
        let server = self.sibling(&mut state, pending.request.server, now);
        state.dispatch.call(server, options, pending, now, &mut effects);
        self.carry_out(state, effects);
    }

    /// A client of the stateless era declares its capabilities, an object. Servers with a handshake receive them at
    /// start, since capabilities that later calls may need can be declared only then.
    pub fn declare(&self, capabilities: &[u8]) {
        let mut declared = self.declared.lock();
        if declared.last != capabilities {
            declared.last = capabilities.to_vec();
            let more = serde_json::from_slice(capabilities).unwrap_or_default();
            let more = metamcp_wire::handshake::relayed_capabilities(&more);
            declared.all = meta::merged(std::mem::take(&mut declared.all), &more);
        }
    }

    /// The capabilities of the clients behind an instance.
    fn client_capabilities(&self, server: ServerId) -> Value {
        let declared = self.declared.lock().all.clone();
        match self.attached_to(server).pop() {
            Some(client) => meta::merged(client.capabilities(), &declared),
            None => declared,
        }
    }

    /// Reports the start of a call or a script if nothing else is reported in time.
    pub fn watch_silence<S: Silent + 'static>(&self, whose: &Arc<S>) {
        let whose: Weak<S> = Arc::downgrade(whose);
        self.silences.watch(whose);
    }

    /// Cancels what this responder waits for under this tag, if it is still open.
    pub fn cancel(&self, responder: &Arc<dyn Responder>, tag: &[u8]) {
        // Two calls with one id are legal here; the client cannot tell which it means, so both are cancelled.
        self.cancel_matching(responder, Some(tag));
    }

    /// Cancels every open call of a responder.
    pub fn cancel_all(&self, responder: &Arc<dyn Responder>) {
        self.cancel_matching(responder, None);
    }

    fn cancel_matching(&self, responder: &Arc<dyn Responder>, tag: Option<&[u8]>) {
        self.cancel_input_required(responder, tag);
        self.cancel_approving(responder, tag);
        self.cancel_recording(responder, tag);
        #[cfg(feature = "fleet")]
        self.cancel_in_fleet(responder, tag);
        let now = self.clock.now();
        let mut effects = Effects::new();
        let mut state = self.lock();
        let matching = state.dispatch.find(|pending| pending.is_of(responder, tag));
        for call in matching {
            state.dispatch.cancel(call, now, &mut effects);
        }
        self.carry_out(state, effects);
    }

    /// Makes sure that a server's tools become known: starts it if needed. The error says why it cannot.
    pub fn wake(&self, server: ServerId) -> Result<(), DispatchError> {
        #[cfg(feature = "fleet")]
        if self.is_listed_elsewhere(server) {
            return Ok(());
        }
        let now = self.clock.now();
        let mut effects = Effects::new();
        let mut state = self.lock();
        let woken = state.dispatch.wake_server(server, 0, now, &mut effects);
        self.carry_out(state, effects);
        woken
    }

    /// Why a server that was started is unavailable; `None` if it may be started again.
    pub fn why_not(&self, server: ServerId) -> Option<DispatchError> {
        let now = self.clock.now();
        self.lock().dispatch.why_not(server, now)
    }

    /// How long it is before a server that failed is contacted again, whoever asks for it.
    pub fn next_try(&self, server: ServerId) -> Option<Duration> {
        match self.why_not(server)? {
            DispatchError::Unavailable { retry_after, .. }
            | DispatchError::Refused { retry_after, .. } => retry_after,
            DispatchError::Paused { retry_after, .. }
            | DispatchError::CrashLoop { retry_after, .. }
            | DispatchError::CircuitOpen { retry_after, .. } => Some(retry_after),
            _ => None,
        }
    }

    /// Reads a server's tools again: from its connection if it has one, else by starting it.
    pub fn relist(&self, server: ServerId) {
        let live = self.lock().slots.values().find_map(|slot| match slot {
            Slot::Live { conn, .. } if conn.server == server => Some(Arc::clone(conn)),
            _ => None,
        });
        match live {
            Some(conn) => connect::list_changed(self, &conn),
            // The next caller gets the reason why it cannot start.
            None => drop(self.wake(server)),
        }
    }

    /// Accepts no new calls; those not sent yet fail.
    pub fn stop(&self) {
        self.stop_approving();
        self.stop_input_required();
        let now = self.clock.now();
        self.with(|dispatch, effects| dispatch.stop(now, effects));
    }

    /// Ends every open call and closes every connection.
    pub fn stop_now(&self) {
        self.stop_approving();
        self.stop_input_required();
        #[cfg(feature = "fleet")]
        self.stop_in_fleet();
        let now = self.clock.now();
        self.with(|dispatch, effects| dispatch.stop_now(now, effects));
    }

    /// Closes a few idle connections because the system is out of file descriptors, and waits until they are gone.
    /// False if none could be closed.
    pub(crate) async fn shed(&self) -> bool {
        let now = self.clock.now();
        let mut seen = self.state_changes.now();
        let going = self.with(|dispatch, effects| dispatch.shed(SHED, now, effects));
        let gone = async {
            while going.iter().any(|conn| self.lock().slots.contains_key(conn)) {
                self.state_changes.moved_on(&mut seen).await;
            }
        };
        !going.is_empty() && self.clock.timeout(SHED_WITHIN, gone).await.is_some()
    }

    /// Kills the remaining processes at once.
    pub fn kill_all(&self) {
        for slot in self.lock().slots.values() {
            if let Slot::Live { conn, .. } = slot {
                conn.transport.kill();
            }
        }
    }

    /// Calls of one responder that have no response yet.
    pub fn calls_of(&self, responder: &Arc<dyn Responder>) -> usize {
        let is_its = |pending: &Pending| pending.is_of(responder, None);
        let address = Arc::as_ptr(responder).cast::<()>().addr();
        let mapping = self.mapping.lock().iter().filter(|its| **its == address).count();
        let suspended = self.input_required.count_of(is_its)
            + self.recording_of(is_its)
            + self.approving_of(is_its);
        #[cfg(feature = "fleet")]
        let suspended = suspended + self.count_in_fleet(is_its);
        mapping + suspended + self.lock().dispatch.find(is_its).len()
    }

    /// Waits until no process is left.
    pub async fn emptied(&self) {
        let mut seen = self.state_changes.now();
        while self.lock().dispatch.pool().count() > 0 {
            self.state_changes.moved_on(&mut seen).await;
        }
    }

    // -- carrying out what the dispatch decides --

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock would be a bug in one call; the others must continue.
        self.state.lock()
    }

    /// Passes one event to the dispatch and carries out its effects.
    pub(crate) fn with<R>(
        &self,
        event: impl FnOnce(&mut Dispatch<Pending>, &mut Effects<Pending>) -> R,
    ) -> R {
        let mut effects = Effects::new();
        let mut state = self.lock();
        let result = event(&mut state.dispatch, &mut effects);
        self.carry_out(state, effects);
        result
    }

    /// Sends happen under the lock, so that messages leave in the order that was decided; the rest after it.
    pub(crate) fn carry_out(
        &self,
        mut state: MutexGuard<'_, State>,
        mut effects: Effects<Pending>,
    ) {
        let mut later = Effects::new();
        let mut refused = Vec::new();
        loop {
            for effect in effects.drain(..) {
                match effect {
                    Effect::Send { conn, call } => {
                        if let Err(error) = self.send(&mut state, conn, call) {
                            refused.push((call, error));
                        }
                    }
                    Effect::Abandon { conn, call, attempt } => {
                        Self::abandon(&state, conn, call, attempt);
                    }
                    Effect::Connect { conn, .. } => {
                        state.slots.insert(conn, Slot::Starting { unwanted: false });
                        later.push(effect);
                    }
                    other => later.push(other),
                }
            }
            if refused.is_empty() {
                break;
            }
            let now = self.clock.now();
            for (call, error) in refused.drain(..) {
                state.dispatch.refuse(call, error, now, &mut effects);
            }
        }
        let unseen = !state.watched && state.dispatch.is_waited_for();
        if unseen || state.dispatch.wake() < state.armed {
            state.armed = state.dispatch.wake();
            state.watched |= unseen;
            self.rearm.notify_one();
        }
        let changes = self.changes_to_publish(&mut state);
        drop(state);
        self.publish_changes(&changes);
        if !later.is_empty() {
            self.carry_out_later(later);
        }
    }

    fn carry_out_later(&self, effects: Effects<Pending>) {
        let Some(me) = self.me.upgrade() else { return };
        for effect in effects {
            match effect {
                Effect::Connect { conn, server } => {
                    task::spawn("connect", connect::connect(Arc::clone(&me), conn, server));
                }
                Effect::List { conn, .. } => connect::list(&me, conn),
                Effect::Probe { conn } => connect::probe(&me, conn),
                Effect::Close { conn, mode } => self.close(conn, mode),
                Effect::Answer { server, payload, error } => {
                    let outcome = match error {
                        DispatchError::Cancelled => CallOutcome::Cancelled,
                        error => {
                            if error.wants_login() {
                                self.offer_login(server, &payload.caller);
                            }
                            CallOutcome::Failed(self.failed(&payload.request, error))
                        }
                    };
                    self.answer(payload, outcome, self.clock.now());
                }
                Effect::Send { .. } | Effect::Abandon { .. } => {}
            }
        }
        self.state_changes.step();
    }

    fn close(&self, conn: ConnId, mode: CloseMode) {
        let mut state = self.lock();
        match state.slots.get_mut(&conn) {
            Some(Slot::Starting { unwanted }) => *unwanted = true,
            Some(Slot::Live { conn, .. }) => {
                conn.outbox.close();
                conn.forget_requests();
                let transport = Arc::clone(&conn.transport);
                drop(state);
                let escalation = match mode {
                    CloseMode::Immediate => return transport.kill(),
                    CloseMode::Graceful => Escalation::graceful(),
                    CloseMode::Brisk => Escalation::brisk(),
                };
                task::spawn("close", async move { transport.close(escalation).await });
            }
            // Nothing was started, so nothing has to end.
            None => {
                drop(state);
                self.gone(conn);
            }
        }
    }

    /// A connection broke.
    pub(crate) fn lost(&self, conn: ConnId, failure: Failure) {
        let now = self.clock.now();
        let mut effects = Effects::new();
        let mut state = self.lock();
        let connection = match state.slots.get(&conn) {
            Some(Slot::Live { conn, .. }) => Some(Arc::clone(conn)),
            _ => None,
        };
        let calls = state.dispatch.calls_on(conn);
        let shared = Arc::new(failure.clone());
        for call in &calls {
            if let Some(pending) = state.dispatch.payload_mut(*call) {
                pending.record.lost(now, Arc::clone(&shared));
            }
        }
        let delivered: HashMap<CallId, Delivery> = calls
            .into_iter()
            .map(|call| {
                let end = state.dispatch.payload(call).map_or(u64::MAX, |pending| pending.sent_end);
                let sent = connection.as_ref().is_some_and(|conn| conn.outbox.was_sent(end));
                (call, if sent { Delivery::Sent } else { Delivery::NotSent })
            })
            .collect();
        let delivery = |call: CallId| delivered.get(&call).copied().unwrap_or(Delivery::Sent);
        let server = state
            .dispatch
            .pool()
            .slot(conn)
            .filter(|slot| slot.state != SlotState::Closed)
            .map(|slot| slot.server);
        self.log_disconnect(server, &failure, delivered.len());
        state.dispatch.lost(conn, failure, &delivery, now, &mut effects);
        self.carry_out(state, effects);
        for client in self.attached() {
            client.cancel_ask(conn, None);
        }
    }

    /// Logs every disconnect except those that were requested.
    fn log_disconnect(&self, server: Option<ServerId>, failure: &Failure, calls: usize) {
        let Some(entry) = server.and_then(|server| self.entry(server)) else { return };
        let fact = failure.fact.to_string();
        let fact = redact(&fact, entry.config.secrets());
        tracing::warn!("server {:?} {fact} ({calls} calls in flight)", entry.name);
    }

    /// Ends starts that take too long, with the stderr so far: it may be the only hint at what they wait for.
    fn end_overdue_starts(&self, now: Moment) {
        let overdue: Vec<_> = {
            let state = self.lock();
            let overdue = state.dispatch.overdue_starts(now).into_iter();
            overdue
                .filter_map(|(conn, after)| match state.slots.get(&conn)? {
                    Slot::Live { conn, .. } => Some((Arc::clone(conn), after)),
                    Slot::Starting { .. } => None,
                })
                .collect()
        };
        for (connection, after) in overdue {
            self.lost(connection.id, connection.failure(Fact::StartTimedOut { after }));
        }
    }

    pub(crate) fn gone(&self, conn: ConnId) {
        let now = self.clock.now();
        self.lock().slots.remove(&conn);
        self.with(|dispatch, effects| dispatch.gone(conn, now, effects));
        self.state_changes.step();
    }
}

/// The number under which a connection knows a call: another one for each attempt.
fn number_of(call: CallId, attempts: u32) -> u64 {
    call.0.number() * 2 + u64::from(attempts % 2)
}

/// The call and attempt behind a number.
fn from_number(number: u64) -> Option<(CallId, u32)> {
    Some((CallId(Key::from_number(number / 2)?), u32::from(number % 2 == 1)))
}

/// Sleeps until the dispatch's next deadline. While calls wait it checks the clock periodically, so that a suspension
/// of the whole process is noticed, and excluded from the deadlines, before any of them expires.
async fn sweep(router: Weak<Router>) {
    let Some(clock) = router.upgrade().map(|router| router.clock) else { return };
    loop {
        let Some(strong) = router.upgrade() else { break };
        let (wake, check) = {
            let mut state = strong.lock();
            state.armed = state.dispatch.wake();
            state.watched = state.dispatch.is_waited_for();
            (state.armed, clock.next_look(state.armed, state.watched))
        };
        let rearmed = strong.rearm.notified();
        tokio::select! {
            () = tokio::time::sleep_until(check) => {
                let now = clock.now();
                if now >= wake {
                    strong.end_overdue_starts(now);
                    strong.with(|dispatch, effects| dispatch.tick(now, effects));
                }
            }
            () = rearmed => {}
        }
    }
    clock.unwatched();
}
