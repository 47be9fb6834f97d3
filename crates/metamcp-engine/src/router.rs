//! The one path of every call: admit, connect, send, classify, retry once, answer.
//! Owns: the dispatch and its lock, live connections, the sweeper.      Never: decides (the core does), renders answers.
//! In: `call(Request, Caller)`.  Out: exactly one `Caller::answer` per call, progress before it.
//! Tests: `metamcp-core/tests/sim.rs` for the decisions, `metamcp/tests/hazards/` with real processes.

mod backlog;
mod connect;
mod error;
mod handshake;
mod heard;
mod message;
mod offers;
mod relay;
mod rounds;
mod servers;
mod steps;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use metamcp_core::dispatch::{
    Ask, CallId, Dispatch, Effect, Effects, Limits, ServerView, Shut, Verdict,
};
use metamcp_core::failure::{Fact, Failure};
use metamcp_core::ledger::{ConnId, ServerId};
use metamcp_core::lifecycle::State as Stand;
use metamcp_core::moment::Moment;
use metamcp_core::notify::Pace;
use metamcp_core::replay::Delivery;
use metamcp_core::secret::scrub;
use metamcp_core::settings::LogLevel;
use metamcp_core::slab::Key;
use metamcp_wire::bridge::Rounds;
use metamcp_wire::modern::meta;
use metamcp_wire::object;
use serde_json::Value;
use tokio::sync::Notify;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::notices::Notices;
use crate::progress::Progress;
use crate::task;
use crate::telemetry;
use crate::upstream::launch::Launcher;
use crate::upstream::{Connection, Link};

pub use error::{CallError, CallErrorKind};
pub use message::{Input, Verbatim};
pub use relay::{Level, Question};
pub use servers::{Entry, Servers};
pub use steps::{Silent, Steps};

/// From this size on arguments stay where they were read; below it a copy frees the read buffer sooner.
const COPY_BELOW: usize = 16 * 1024;

/// Idle connections that are ended at once to get at their files: each child holds four or five, and a start needs a few
/// more than it keeps.
const SHED: usize = 4;
/// The ladder of a deaf child takes less.
const SHED_WITHIN: Duration = Duration::from_secs(5);

/// A call as the router takes it: of a tool, or any other request of a client.
#[derive(Debug)]
pub struct Request {
    /// Which server.
    pub server: ServerId,
    /// Which of its tools; of another request, what it is about.
    pub tool: Arc<str>,
    /// Its arguments: a JSON object, as written by the caller.
    pub arguments: Option<Bytes>,
    /// The caller's `_meta`, a JSON object.
    pub meta: Option<Bytes>,
    /// The caller's progress token, raw.
    pub progress: Option<Bytes>,
    /// Its progress, where begin and end are told if the server tells nothing.
    pub steps: Option<Arc<Steps>>,
    /// Whether running it twice is harmless.
    pub harmless: bool,
    /// Answers to what the server asked when the call was made before.
    pub input: Option<Arc<Input>>,
    /// The request as a client wrote it, where it is passed on as it is; then there are no `arguments`.
    pub verbatim: Option<Verbatim>,
    /// What is made of the outcome before the caller hears of it.
    pub dress: Option<Dress>,
}

impl Request {
    /// Its method.
    pub fn method(&self) -> &'static str {
        self.verbatim.as_ref().map_or("tools/call", |verbatim| verbatim.method)
    }

    /// The part of it that may be long.
    fn body(&self) -> Option<&Bytes> {
        self.verbatim.as_ref().map(|verbatim| &verbatim.params).or(self.arguments.as_ref())
    }
}

/// What is made of an outcome on its way to the caller: another form of the same answer, never another answer.
pub struct Dress(Box<dyn FnOnce(Outcome) -> Outcome + Send>);

impl Dress {
    /// By a function, which runs where the answer was heard and must not wait for anything.
    pub fn new(make: impl FnOnce(Outcome) -> Outcome + Send + 'static) -> Dress {
        Dress(Box::new(make))
    }
}

impl std::fmt::Debug for Dress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dress")
    }
}

/// How a call ended.
#[derive(Debug)]
pub enum Outcome {
    /// The server's result, byte for byte.
    Result(Bytes),
    /// Anything else.
    Failed(CallError),
    /// The caller called it off: it must not be answered.
    Cancelled,
}

/// Who makes calls and hears about them: a client's session, or a command.
pub trait Caller: Send + Sync {
    /// The one answer to the call it tagged so.
    fn answer(&self, tag: &Bytes, outcome: Outcome);
    /// Progress on the call it tagged so, with the caller's own token already in the params.
    fn progress(&self, tag: &Bytes, params: &[u8]);
    /// A log message of a server, and the call during which it was written, where there is one.
    fn log(&self, tag: Option<&Bytes>, params: &[u8]);
    /// A server asks the client something, because of that call where there is one; the answer goes to
    /// `Question::answer`. Given back if it cannot be asked.
    fn ask(&self, tag: Option<&Bytes>, question: Question) -> Result<(), Question>;
    /// A server takes its question back.
    fn unask(&self, conn: ConnId, id: Option<&[u8]>);
    /// What the client can do, for servers that are started on its behalf.
    fn capabilities(&self) -> Value;
    /// A number for the client behind it: callers that speak for one client give the same.
    fn client(&self) -> usize;
    /// Whether its client takes results with their type, as the stateless era has them.
    fn is_stateless(&self) -> bool {
        false
    }
    /// A server that keeps nothing answered the call it tagged so with questions. True if the client gets them as they
    /// are, which ends the call; false if they are to be put to it one by one.
    fn input_required(&self, _tag: &Bytes, _server: &Arc<str>, _result: &Bytes) -> bool {
        false
    }
    /// A login at this server is all that keeps a call of it from being made; its client can open this address.
    fn login_wanted(&self, _server: &Arc<str>, _address: &str) {}
    /// Answers that go with its next call.
    fn input(&self) -> Option<Arc<Input>> {
        None
    }
    /// It searched and was shown tools with these ids.
    fn searched(&self, _query: &str, _ids: Vec<String>) {}
    /// The call it tagged so is about to go to this tool.
    fn calling(&self, _tag: &Bytes, _server: &str, _tool: &str) {}
}

pub(crate) struct Pending {
    request: Request,
    caller: Arc<dyn Caller>,
    tag: Bytes,
    key: u64,
    /// Where its message ends in the stream to the connection it was last put on.
    sent_end: u64,
    /// Questions of its server that the client has not answered yet.
    asked: u32,
    /// Where it stands with a server that answers calls with questions.
    rounds: Option<Box<Rounds>>,
}

impl Pending {
    /// The one answer.
    fn answer(mut self, outcome: Outcome) {
        if let Some(steps) = self.request.steps.take() {
            steps.end(!matches!(outcome, Outcome::Cancelled));
        }
        let outcome = match self.request.dress.take() {
            // Who called it off is told nothing.
            Some(dress) if !matches!(outcome, Outcome::Cancelled) => (dress.0)(outcome),
            _ => outcome,
        };
        self.caller.answer(&self.tag, outcome);
    }
}

pub(crate) enum Slot {
    /// Its process is being started.
    Starting { unwanted: bool },
    /// It runs.
    Live { conn: Arc<Connection>, link: Link, life: Arc<connect::Life> },
}

pub(crate) struct State {
    pub(crate) dispatch: Dispatch<Pending>,
    pub(crate) slots: HashMap<ConnId, Slot>,
    /// When the sweeper is going to wake.
    armed: Moment,
    /// Whether it looks at the clock before that, for the sake of those who wait.
    watched: bool,
    next_key: u64,
}

#[derive(Default)]
struct Declared {
    /// The last one as it was written: most requests repeat it.
    last: Vec<u8>,
    all: Value,
}

/// What the router needs to know beyond servers.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// For `tools/list`, all pages together.
    pub list: Duration,
    /// The longest line a server may write.
    pub line_bytes: usize,
    /// The most tools kept of one server.
    pub tools: usize,
    /// When clients are told that a list changed, if they are.
    pub notify: Option<Pace>,
}

/// See the module.
pub struct Router {
    pub(crate) clock: Clock,
    pub(crate) timing: Timing,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) launcher: Launcher,
    pub(crate) state: Mutex<State>,
    servers: RwLock<Arc<Servers>>,
    callers: Mutex<Vec<Weak<dyn Caller>>>,
    pub(crate) level: Mutex<Option<Level>>,
    /// What clients of the stateless era have declared so far, all of them together.
    declared: Mutex<Declared>,
    /// Calls whose clients are being asked before they are made again.
    rounds: rounds::Table,
    offers: offers::Offers,
    silences: Arc<steps::Silences>,
    /// Who is told of changes.
    pub notices: Arc<Notices>,
    /// Logins that clients were asked to open, by client and address.
    offered: Mutex<HashSet<(usize, String)>>,
    rearm: Notify,
    /// Moves whenever a server became known, failed or changed its state.
    pub stir: Progress,
    process_key: u64,
    me: Weak<Router>,
}

impl Router {
    /// A router without servers, and its sweeper.
    pub fn start(
        clock: Clock,
        limits: Limits,
        timing: Timing,
        catalog: Arc<Catalog>,
        launcher: Launcher,
    ) -> Arc<Router> {
        let process_key = getrandom::u64().unwrap_or(1);
        let mut dispatch = Dispatch::new(limits);
        dispatch.set_jitter(u32::try_from(process_key % 1001).unwrap_or(0));
        let router = Arc::new_cyclic(|me| Router {
            clock,
            timing,
            catalog,
            launcher,
            state: Mutex::new(State {
                dispatch,
                slots: HashMap::new(),
                armed: Moment::NEVER,
                watched: false,
                next_key: 1,
            }),
            servers: RwLock::default(),
            callers: Mutex::default(),
            level: Mutex::default(),
            declared: Mutex::default(),
            rounds: rounds::Table::default(),
            offers: offers::Offers::default(),
            silences: Arc::default(),
            notices: Arc::new(Notices::new(timing.notify, clock)),
            offered: Mutex::default(),
            rearm: Notify::new(),
            stir: Progress::default(),
            process_key,
            me: me.clone(),
        });
        task::spawn("sweeper", sweep(Arc::downgrade(&router)));
        router
    }

    /// A caller from whom calls will come; it hears logs and is asked questions while it lives.
    pub fn attach(&self, caller: &Arc<dyn Caller>) {
        let mut callers = self.callers.lock().expect("no panic while callers are locked");
        callers.retain(|caller| caller.strong_count() > 0);
        callers.push(Arc::downgrade(caller));
    }

    pub(crate) fn attached(&self) -> Vec<Arc<dyn Caller>> {
        let callers = self.callers.lock().expect("no panic while callers are locked");
        callers.iter().filter_map(Weak::upgrade).collect()
    }

    /// What an operator may see of a server.
    pub fn view(&self, server: ServerId) -> Option<ServerView> {
        self.lock().dispatch.view(server)
    }

    /// Makes a call. It is answered exactly once, through `caller`, under `tag`.
    pub fn call(&self, mut request: Request, caller: Arc<dyn Caller>, tag: Bytes) {
        if let Some(arguments) = &mut request.arguments
            && arguments.len() < COPY_BELOW
        {
            *arguments = Bytes::copy_from_slice(arguments);
        }
        self.enter(Pending {
            request,
            caller,
            tag,
            key: 0,
            sent_end: u64::MAX,
            asked: 0,
            rounds: None,
        });
    }

    /// Hands a call to the dispatch, under a key of its own.
    fn enter(&self, mut pending: Pending) {
        let now = self.clock.now();
        let ask = Ask { timeout: None, harmless: pending.request.harmless };
        let mut effects = Effects::new();
        let mut state = self.lock();
        pending.key = state.next_key;
        state.next_key += 1;
        let server = pending.request.server;
        state.dispatch.call(server, ask, pending, now, &mut effects);
        self.carry_out(state, effects);
    }

    /// A client of the stateless era says what it can do, an object. Servers that shake hands hear of it when they
    /// start, since they are told once what later calls may need.
    pub fn declare(&self, capabilities: &[u8]) {
        let mut declared = self.declared.lock().expect("no panic while it is locked");
        if declared.last != capabilities {
            declared.last = capabilities.to_vec();
            let more = serde_json::from_slice(capabilities).unwrap_or_default();
            let more = metamcp_wire::handshake::relayed_capabilities(&more);
            declared.all = meta::merged(std::mem::take(&mut declared.all), &more);
        }
    }

    /// What the clients behind us can do.
    fn able(&self) -> Value {
        let declared = self.declared.lock().expect("no panic while it is locked").all.clone();
        match self.attached().pop() {
            Some(caller) => meta::merged(caller.capabilities(), &declared),
            None => declared,
        }
    }

    /// Has the begin of a call or a script told if nothing is heard of it.
    pub fn watch_silence<S: Silent + 'static>(&self, whose: &Arc<S>) {
        let whose: Weak<S> = Arc::downgrade(whose);
        self.silences.watch(whose);
    }

    /// Calls off what `caller` tagged so, if it is still open.
    pub fn cancel(&self, caller: &Arc<dyn Caller>, tag: &[u8]) {
        self.cancel_rounds(caller, Some(tag));
        let now = self.clock.now();
        let mut effects = Effects::new();
        let mut state = self.lock();
        let matching = state.dispatch.find(|pending| {
            pending.tag == tag
                && Arc::as_ptr(&pending.caller).cast::<()>() == Arc::as_ptr(caller).cast::<()>()
        });
        // Two calls with one id are legal for us; the client cannot tell which it means, so both go.
        for call in matching {
            state.dispatch.cancel(call, now, &mut effects);
        }
        self.carry_out(state, effects);
    }

    /// Calls off everything `caller` has open.
    pub fn cancel_all(&self, caller: &Arc<dyn Caller>) {
        self.cancel_rounds(caller, None);
        let now = self.clock.now();
        let mut effects = Effects::new();
        let mut state = self.lock();
        let matching = state.dispatch.find(|pending| {
            Arc::as_ptr(&pending.caller).cast::<()>() == Arc::as_ptr(caller).cast::<()>()
        });
        for call in matching {
            state.dispatch.cancel(call, now, &mut effects);
        }
        self.carry_out(state, effects);
    }

    /// Makes sure that a server's tools get known: starts it if need be. The error says why it cannot be.
    pub fn wake(&self, server: ServerId) -> Result<(), Verdict> {
        let now = self.clock.now();
        let mut effects = Effects::new();
        let mut state = self.lock();
        let woken = state.dispatch.wake_server(server, now, &mut effects);
        self.carry_out(state, effects);
        woken
    }

    /// Why a server that was woken is not there; `None` if nothing speaks against waking it again.
    pub fn why_not(&self, server: ServerId) -> Option<Verdict> {
        let now = self.clock.now();
        self.lock().dispatch.why_not(server, now)
    }

    /// Reads a server's tools again: from its connection if it has one, else by starting it.
    pub fn relist(&self, server: ServerId) {
        let live = self.lock().slots.values().find_map(|slot| match slot {
            Slot::Live { conn, .. } if conn.server == server => Some(Arc::clone(conn)),
            _ => None,
        });
        match live {
            Some(conn) => connect::list_changed(self, &conn),
            // Whoever needs the server next hears why it cannot be started.
            None => drop(self.wake(server)),
        }
    }

    /// No new calls; those not sent yet are answered.
    pub fn stop(&self) {
        self.stop_rounds();
        let now = self.clock.now();
        self.with(|dispatch, effects| dispatch.stop(now, effects));
    }

    /// Answers every open call and shuts every connection.
    pub fn stop_now(&self) {
        self.stop_rounds();
        let now = self.clock.now();
        self.with(|dispatch, effects| dispatch.stop_now(now, effects));
    }

    /// Ends a few idle connections, because the system gives us no more files, and waits until they are gone. False if
    /// there is none that could go.
    pub(crate) async fn shed(&self) -> bool {
        let now = self.clock.now();
        let mut seen = self.stir.now();
        let going = self.with(|dispatch, effects| dispatch.shed(SHED, now, effects));
        let gone = async {
            while going.iter().any(|conn| self.lock().slots.contains_key(conn)) {
                self.stir.moved_on(&mut seen).await;
            }
        };
        !going.is_empty() && self.clock.timeout(SHED_WITHIN, gone).await.is_some()
    }

    /// Kills what is left, without further ceremony.
    pub fn kill_all(&self) {
        for slot in self.lock().slots.values() {
            if let Slot::Live { link, .. } = slot {
                link.kill_now();
            }
        }
    }

    /// Calls of one caller that have no answer yet.
    pub fn calls_of(&self, caller: &Arc<dyn Caller>) -> usize {
        let is_its = |pending: &Pending| {
            Arc::as_ptr(&pending.caller).cast::<()>() == Arc::as_ptr(caller).cast::<()>()
        };
        let asked = self.rounds.count_of(is_its);
        asked + self.lock().dispatch.find(is_its).len()
    }

    /// Waits until no process is left.
    pub async fn emptied(&self) {
        let mut seen = self.stir.now();
        while self.lock().dispatch.ledger().count() > 0 {
            self.stir.moved_on(&mut seen).await;
        }
    }

    // -- carrying out what the core decides --

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock would be a fault of ours in one call; the others shall go on.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// One event for the dispatch, and what follows from it.
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
                        if let Err(verdict) = self.send(&mut state, conn, call) {
                            refused.push((call, verdict));
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
            for (call, verdict) in refused.drain(..) {
                state.dispatch.refuse(call, verdict, now, &mut effects);
            }
        }
        let unseen = !state.watched && state.dispatch.is_waited_for();
        if unseen || state.dispatch.wake() < state.armed {
            state.armed = state.dispatch.wake();
            state.watched |= unseen;
            self.rearm.notify_one();
        }
        drop(state);
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
                Effect::Close { conn, shut } => self.shut(conn, shut),
                Effect::Answer { server, payload, verdict } => {
                    let outcome = match verdict {
                        Verdict::Cancelled => Outcome::Cancelled,
                        verdict => {
                            if verdict.wants_login() {
                                self.offer_login(server, &payload.caller, &payload.tag);
                            }
                            Outcome::Failed(self.failed(&payload.request, verdict))
                        }
                    };
                    payload.answer(outcome);
                }
                Effect::Send { .. } | Effect::Abandon { .. } => {}
            }
        }
        self.stir.step();
    }

    /// Puts a call on the wire, unless the child has too much to read already, or there is something in it that is no JSON.
    fn send(&self, state: &mut State, conn: ConnId, call: CallId) -> Result<(), Verdict> {
        let Some(Slot::Live { conn: connection, life, .. }) = state.slots.get(&conn) else {
            return Ok(());
        };
        let (connection, life) = (Arc::clone(connection), Arc::clone(life));
        let mut backlog = life.backlog.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = state.dispatch.attempts(call);
        let process_key = self.process_key;
        let Some(pending) = state.dispatch.payload_mut(call) else { return Ok(()) };
        let size = pending.request.body().map_or(0, |body| body.len() as u64);
        let (taken, before) = connection.outbox.stands();
        if !backlog.takes(size, taken, before) {
            return Err(Verdict::Overloaded);
        }
        let id = connection.id_for(number_of(call, attempts));
        let (request, key) = (&pending.request, pending.key);
        let told = connection.is_stateless().then(|| self.told(pending));
        let stateless = told.as_ref().map(|(capabilities, level)| message::Stateless {
            capabilities: capabilities.as_bytes(),
            level: level.as_deref(),
        });
        let about = message::About { id, key: (process_key, key), stateless: stateless.as_ref() };
        let pushed = match request.body() {
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
                pending.sent_end = end;
                backlog.pushed(before, end.max(before));
                Ok(())
            }
            Err(_) => {
                connection.forget_call(number_of(call, attempts));
                Err(Verdict::NotJson)
            }
        }
    }

    /// What a stateless server is told with a call: the abilities of the client behind it, and the level of logs it
    /// wants. A caller's own lock is taken inside the router's here, and nowhere the other way round.
    fn told(&self, pending: &Pending) -> (String, Option<Bytes>) {
        let able = metamcp_wire::handshake::relayed_capabilities(&pending.caller.capabilities());
        let own = pending.request.meta.as_deref();
        let own = own.and_then(|raw| object::pick(raw, [meta::LOG_LEVEL]).ok()?[0]);
        let level = match own {
            Some(level) => Some(Bytes::copy_from_slice(level)),
            None if pending.caller.is_stateless() => None,
            None => self.level.lock().expect("no panic while the level is locked").clone(),
        };
        (able.to_string(), level)
    }

    /// Tells the child that nobody waits for this call any more.
    fn abandon(state: &State, conn: ConnId, call: CallId, attempt: u32) {
        let Some(Slot::Live { conn: connection, .. }) = state.slots.get(&conn) else { return };
        let Some(id) = connection.forget_call(number_of(call, attempt)) else { return };
        let params =
            format!("{{\"requestId\":{id},\"reason\":\"nobody waits for the answer any more\"}}");
        connection.notify("notifications/cancelled", Some(params.as_bytes()));
    }

    fn shut(&self, conn: ConnId, shut: Shut) {
        let mut state = self.lock();
        match state.slots.get_mut(&conn) {
            Some(Slot::Starting { unwanted }) => *unwanted = true,
            Some(Slot::Live { conn, link, .. }) => {
                conn.outbox.close();
                conn.forget_requests();
                let link = link.clone();
                drop(state);
                match shut {
                    Shut::Now => link.kill_now(),
                    Shut::Gently => {
                        task::spawn("ladder", async move { link.stop().await });
                    }
                }
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
        let delivered: HashMap<CallId, Delivery> = calls
            .into_iter()
            .map(|call| {
                let end = state.dispatch.payload(call).map_or(u64::MAX, |pending| pending.sent_end);
                let sent = connection.as_ref().is_some_and(|conn| conn.outbox.was_sent(end));
                (call, if sent { Delivery::Sent } else { Delivery::NotSent })
            })
            .collect();
        let delivery = |call: CallId| delivered.get(&call).copied().unwrap_or(Delivery::Sent);
        let told = state
            .dispatch
            .ledger()
            .held(conn)
            .filter(|held| held.state != Stand::Closed)
            .map(|held| held.server);
        self.tell_lost(told, &failure, delivered.len());
        state.dispatch.lost(conn, failure, &delivery, now, &mut effects);
        self.carry_out(state, effects);
        for caller in self.attached() {
            caller.unask(conn, None);
        }
    }

    /// An operator hears of every break but those that were asked for.
    fn tell_lost(&self, server: Option<ServerId>, failure: &Failure, calls: usize) {
        let Some(entry) = server.and_then(|server| self.entry(server)) else { return };
        let fact = failure.fact.to_string();
        let fact = scrub(&fact, entry.config.secrets());
        telemetry::log(
            LogLevel::Warn,
            &format!("server {:?} {fact} ({calls} calls under way)", entry.name),
        );
    }

    /// Nothing is left of a connection's process.
    /// Ends starts that take too long, with what their processes said so far: it may be all that tells what they wait for.
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
        self.stir.step();
    }
}

/// The number under which a connection knows a call: another one for each attempt.
fn number_of(call: CallId, attempts: u32) -> u64 {
    call.0.number() * 2 + u64::from(attempts % 2)
}

/// The call and attempt that a number stands for.
fn from_number(number: u64) -> Option<(CallId, u32)> {
    Some((CallId(Key::from_number(number / 2)?), u32::from(number % 2 == 1)))
}

/// Sleeps until the dispatch wants to be told the time. While somebody waits it looks at the clock every now and then,
/// so that a pause of the whole process is noticed, and taken out of the deadlines, before any of them is judged.
async fn sweep(router: Weak<Router>) {
    let Some(clock) = router.upgrade().map(|router| router.clock) else { return };
    loop {
        let Some(strong) = router.upgrade() else { break };
        let (wake, look) = {
            let mut state = strong.lock();
            state.armed = state.dispatch.wake();
            state.watched = state.dispatch.is_waited_for();
            (state.armed, clock.next_look(state.armed, state.watched))
        };
        let rearmed = strong.rearm.notified();
        tokio::select! {
            () = tokio::time::sleep_until(look) => {
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
