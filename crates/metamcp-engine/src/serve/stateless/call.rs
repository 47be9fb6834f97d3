//! One request of the stateless era while it is in progress, and while it is suspended between an `input_required`
//! result and the client's retry.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_types::text;
use metamcp_wire::bridge::Suspension;
use metamcp_wire::bridge::suspension::{Effect, Event};
use metamcp_wire::era::Era;
use metamcp_wire::modern::meta::{LEVELS, Meta};
use metamcp_wire::modern::{Fault, MISSING_CAPABILITY, input, result};
use metamcp_wire::seal::{self, Resume, ResumeToken};
use metamcp_wire::server_task::TASKS;
use metamcp_wire::trace_context::TraceContext;
use metamcp_wire::{object, write};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::{StatelessHandler, SuspendedCalls};
use crate::observe::{ClientInfo, ClientLink, Identity, Origin};
use crate::router::{CallErrorKind, CallOutcome, Caller, Client, Input, Responder, ServerRequest};
use crate::serve::Session;
use crate::surface::reply::{Code, ErrorObject, Plain};
use crate::surface::{Finished, Step, View};
use crate::task;
use crate::upstream::Reply;

/// How long a client may take to retry with answers, and how long a resume token is valid.
const RETRY_WITHIN: Duration = Duration::from_mins(5);
/// How long a call waits for a person who agreed to sign in: a little shorter than the usual timeout of clients.
const LOGIN_WAIT: Duration = Duration::from_secs(45);
/// A result from this size on is sent without a copy; below it a copy is cheaper.
const LARGE: usize = 4096;
/// Longest name or version of a client that is recorded.
const MAX_CLIENT_NAME: usize = 100;

/// The code for a missing resource in older revisions.
const NO_RESOURCE: i64 = -32002;
/// The code for it in this revision.
const INVALID_PARAMS: i64 = -32602;

/// The request that waits for the response.
pub(super) struct Requester {
    pub(super) id: Bytes,
    session: Weak<Session>,
    /// Where in a trace it was made, by its headers.
    trace: Option<Arc<TraceContext>>,
    progress: Option<Bytes>,
    /// The least severe log level it wants.
    level: Option<usize>,
}

impl Requester {
    pub(super) fn new(
        session: &Arc<Session>,
        id: Bytes,
        trace: Option<Arc<TraceContext>>,
    ) -> Requester {
        let session = Arc::downgrade(session);
        Requester { id, session, trace, progress: None, level: None }
    }

    pub(super) fn with(self, read: &Meta<'_>) -> Requester {
        Requester { progress: read.progress.map(Bytes::copy_from_slice), level: read.level, ..self }
    }

    pub(super) fn refuse(&self, fault: &Fault) {
        self.answer(None, Final::Fault(fault.clone()));
    }

    /// Sends the one response.
    fn answer(&self, call: Option<&Call>, end: Final) {
        let Some(session) = self.session.upgrade() else { return };
        if let Some(call) = call {
            session.stateless.done(&self.id, call);
        }
        let (response_streams, id) = (&session.response_streams, &self.id);
        match end {
            Final::Result(result) => {
                let result = session.clean(result);
                if result.len() < LARGE {
                    return response_streams
                        .answer(Some(id), |out| write::result(out, id, &result));
                }
                let body = match write::one_line(&result) {
                    std::borrow::Cow::Borrowed(_) => result,
                    std::borrow::Cow::Owned(joined) => Bytes::from(joined),
                };
                response_streams.answer_parts(
                    id,
                    &write::result_head(id),
                    body,
                    write::RESULT_TAIL,
                );
            }
            Final::Fault(Fault { code, message, data, .. }) => {
                let mut error = Vec::new();
                write::error_object(&mut error, code, &message, data.as_deref());
                session.fail(id, &error);
            }
            Final::Error(error) => session.fail(id, &error),
            Final::Nothing => response_streams.end(id),
        }
    }

    fn notify(&self, method: &str, params: &[u8]) {
        let Some(session) = self.session.upgrade() else { return };
        if session.response_streams.has_room(Some(&self.id)) {
            let params = &session.clean(Bytes::copy_from_slice(params));
            session
                .response_streams
                .tell(Some(&self.id), |out| write::notification(out, method, Some(params)));
        }
    }
}

/// How a request ends.
enum Final {
    Result(Bytes),
    Fault(Fault),
    /// A server's own error.
    Error(Bytes),
    /// It was cancelled: no response.
    Nothing,
}

/// A client's retry of a suspended call.
pub(super) struct Retry {
    pub(super) round: u32,
    pub(super) responses: input::Responses,
}

type FinalResponse = Box<dyn Fn() -> Finished + Send + Sync>;

pub(super) struct OriginalRequest {
    pub(super) method: &'static str,
    pub(super) params: Bytes,
}

/// See the module.
pub struct Call {
    view: View,
    suspended_calls: Arc<SuspendedCalls>,
    principal: Bytes,
    /// The request, which a retry has to match.
    request: OriginalRequest,
    capabilities: Value,
    identity: Arc<Identity>,
    /// Identifies it toward the router.
    tag: Bytes,
    input: Option<Arc<Input>>,
    trace: Option<Arc<TraceContext>>,
    state: Mutex<State>,
    me: Weak<Call>,
}

struct State {
    suspension: Suspension,
    requester: Option<Requester>,
    /// Its number in the table of suspended calls.
    suspended_as: Option<u64>,
    server_requests: BTreeMap<u64, ServerRequest>,
    last_server_request: u64,
    end: Option<Final>,
    work: Option<AbortHandle>,
    final_response: Option<FinalResponse>,
    /// It was refused before it began.
    refused: bool,
    login: LoginOffer,
}

/// Whether a call needs a login, and whether the person was asked.
#[derive(Default)]
enum LoginOffer {
    /// No login is needed so far.
    #[default]
    NotNeeded,
    /// At this server, by this address.
    Needed(Arc<str>, String),
    /// The person was asked, which happens once.
    Made,
}

/// What is done after the lock is released.
enum FollowUp {
    Feed(ServerRequest, Vec<u8>),
    Refuse(ServerRequest),
    Abandon,
    Forget,
}

impl Call {
    pub(super) fn new(
        handler: &StatelessHandler,
        requester: Requester,
        read: &Meta<'_>,
        request: OriginalRequest,
        input: Option<Arc<Input>>,
    ) -> Arc<Call> {
        let tag = requester.id.clone();
        let identity = identity_of(handler, &requester, read);
        let retry_within = u64::try_from(RETRY_WITHIN.as_millis()).unwrap_or(u64::MAX);
        Arc::new_cyclic(|me| Call {
            view: handler.view.clone(),
            suspended_calls: Arc::clone(&handler.suspended_calls),
            principal: handler.principal(),
            request,
            capabilities: serde_json::from_slice(read.capabilities).unwrap_or_default(),
            identity,
            tag,
            input,
            trace: requester.trace.clone(),
            state: Mutex::new(State {
                suspension: Suspension::new(retry_within),
                requester: Some(requester),
                suspended_as: None,
                server_requests: BTreeMap::new(),
                last_server_request: 0,
                end: None,
                work: None,
                final_response: None,
                refused: false,
                login: LoginOffer::default(),
            }),
            me: me.clone(),
        })
    }

    fn caller(self: &Arc<Self>) -> Caller {
        Caller {
            responder: Arc::clone(self) as Arc<dyn Responder>,
            tag: self.tag.clone(),
            client: Arc::clone(self) as Arc<dyn Client>,
            request: self.tag.clone(),
            origin: if self.view.is_direct() { Origin::Direct } else { Origin::McpCall },
            arrived: None,
            trace: self.trace.clone(),
        }
    }

    pub(super) fn start(self: &Arc<Self>, params: &[u8], line: &Bytes) {
        if self.lock().refused {
            return;
        }
        let caller = self.caller();
        let step = match self.request.method {
            "tools/call" => self.view.call(Some(params), line, caller),
            "resources/read" if !self.view.is_direct() => {
                self.view.app_resource(Some(params), &caller)
            }
            method => self.view.pass_on(method, Some(params), &caller),
        };
        match step {
            Step::Dispatched => {}
            Step::Now(finished) => self.finish(finished),
            Step::Later(future) => self.later(future),
            Step::Running(running) => {
                self.lock().final_response = Some(running.final_response);
                self.later(running.future);
            }
        }
    }

    /// Runs a slow request in a task of its own.
    pub(super) fn later(self: &Arc<Self>, future: impl Future<Output = Finished> + Send + 'static) {
        let mut state = self.lock();
        if state.refused {
            return;
        }
        let me = Arc::clone(self);
        let running = task::spawn("answer", async move {
            let finished = future.await;
            me.lock().work = None;
            me.finish(finished);
        });
        // It needs the lock to finish, which this thread holds.
        state.work = Some(running.abort_handle());
    }

    pub(super) fn refused(&self, fault: &Fault) {
        self.lock().refused = true;
        self.ended(Final::Fault(fault.clone()));
    }

    /// The client retries it with answers.
    pub(super) fn retried(&self, requester: Requester, retry: Retry) {
        let mut state = self.lock();
        let answers = retry.responses.iter().filter_map(|(key, _)| number_of(key)).collect();
        let event = Event::Retried { round: retry.round, answers };
        let effects = state.suspension.take(event, self.now());
        if effects.contains(&Effect::Reject) {
            drop(state);
            let fault = Fault::invalid(
                "this requestState was used before; use the newest one, or send the request again without it",
            );
            return requester.answer(Some(self), Final::Fault(fault));
        }
        state.requester = Some(requester);
        self.carry_out(state, effects, retry.responses);
    }

    /// The client cancels the request with this id.
    pub(super) fn cancelled(&self, id: &[u8]) {
        let mut state = self.lock();
        if state.requester.as_ref().is_some_and(|requester| requester.id == id) {
            state.requester = None;
            let effects = state.suspension.take(Event::Cancelled, self.now());
            self.carry_out(state, effects, Vec::new());
        }
    }

    /// Ends and answers it, unless the router has it, which does so itself.
    pub(super) fn stop(&self) {
        let (work, final_response) = {
            let mut state = self.lock();
            (state.work.take(), state.final_response.take())
        };
        let Some(work) = work else { return };
        work.abort();
        match final_response {
            Some(final_response) => self.finish(final_response()),
            None => {
                let message = "metamcp is shutting down; nothing was run".to_owned();
                let fault = Fault { code: -32000, message, data: None, status: 503 };
                self.ended(Final::Fault(fault));
            }
        }
    }

    fn finish(&self, finished: Finished) {
        match finished.in_words() {
            Finished::Refused(_) => {}
            Finished::Result(result) => {
                if !self.view.is_direct() {
                    self.view.surface.router.observer.totals().shown(result.len());
                }
                self.ended(Final::Result(self.typed(Bytes::from(result))));
            }
            Finished::Protocol { code, message } => {
                let code = self.code_here(code).unwrap_or(code);
                self.ended(Final::Fault(Fault { code, message, data: None, status: 400 }));
            }
            Finished::Dispatched => {}
        }
    }

    fn ended(&self, end: Final) {
        let mut state = self.lock();
        if state.end.is_some() {
            return;
        }
        if let LoginOffer::Needed(..) = state.login
            && let LoginOffer::Needed(server, address) =
                std::mem::replace(&mut state.login, LoginOffer::Made)
            && let Some(me) = self.me.upgrade()
        {
            drop(state);
            return me.offer_login(server, &address, end);
        }
        state.end = Some(end);
        let effects = state.suspension.take(Event::Done, self.now());
        self.carry_out(state, effects, Vec::new());
    }

    /// Asks the person to sign in, and makes the call again after that. Otherwise it ends as it would have.
    fn offer_login(self: Arc<Self>, server: Arc<str>, address: &str, end: Final) {
        let (server_request, answer) = ServerRequest::before_a_call(&server, address);
        if self.ask(None, server_request).is_err() {
            return self.ended(end);
        }
        let me = Arc::clone(&self);
        let mut state = self.lock();
        let waiting = task::spawn("login offered", async move {
            let agreed = matches!(answer.await, Ok(Reply::Result(reply)) if is_accepted(&reply));
            if agreed {
                me.view.surface.router.launcher.authorization_finished(&server, LOGIN_WAIT).await;
            }
            me.lock().work = None;
            if agreed {
                let params = me.request.params.clone();
                me.start(&params, &params);
            } else {
                me.ended(end);
            }
        });
        // It needs the lock to continue, which this thread holds.
        state.work = Some(waiting.abort_handle());
    }

    fn carry_out(
        &self,
        mut state: MutexGuard<'_, State>,
        effects: Vec<Effect>,
        mut responses: input::Responses,
    ) {
        let mut after = Vec::new();
        for effect in effects {
            match effect {
                Effect::Respond { round, questions } => self.respond(&mut state, round, &questions),
                Effect::Deliver => {
                    let end = state.end.take().unwrap_or(Final::Nothing);
                    if let Some(requester) = state.requester.take() {
                        requester.answer(Some(self), end);
                    }
                }
                Effect::GiveUp => {
                    let refused = ErrorObject::new(
                        Code::ExecutionFailed,
                        "the server asks for input again and again without a result",
                    );
                    if let Some(requester) = state.requester.take() {
                        let result = typed(Bytes::from(refused.to_result()));
                        requester.answer(Some(self), Final::Result(result));
                    }
                }
                Effect::Forward(server_request) => {
                    let key = key_of(server_request);
                    let response = responses.iter().position(|(known, _)| *known == key);
                    if let (Some(server_request), Some(at)) =
                        (state.server_requests.remove(&server_request), response)
                    {
                        after.push(FollowUp::Feed(server_request, responses.swap_remove(at).1));
                    }
                }
                Effect::Refuse(server_request) => {
                    after.extend(
                        state.server_requests.remove(&server_request).map(FollowUp::Refuse),
                    );
                }
                Effect::Abandon => {
                    if let Some(work) = state.work.take() {
                        work.abort();
                    }
                    after.push(FollowUp::Abandon);
                }
                Effect::Forget => after.push(FollowUp::Forget),
                // Only a retry is rejected, and `retried` handles that.
                Effect::Reject => {}
            }
        }
        let suspended_as = state.suspended_as;
        drop(state);
        for action in after {
            match action {
                FollowUp::Feed(server_request, response) => {
                    server_request.answer(&Reply::Result(Bytes::from(response)));
                }
                FollowUp::Refuse(server_request) => {
                    server_request.refuse("the client did not answer");
                }
                FollowUp::Abandon => {
                    if let Some(me) = self.me.upgrade() {
                        let responder: Arc<dyn Responder> = me;
                        self.view.surface.router.cancel_all(&responder);
                    }
                }
                FollowUp::Forget => {
                    if let Some(number) = suspended_as {
                        self.suspended_calls.forget(number);
                    }
                }
            }
        }
    }

    /// Answers the waiting request with the open server requests, as `input_required`.
    fn respond(&self, state: &mut State, round: u32, questions: &[u64]) {
        let (Some(requester), Some(call)) = (state.requester.take(), state.suspended_as) else {
            return;
        };
        let gateway = self.suspended_calls.gateway();
        let sealed = self.seal(Resume::Suspended { gateway, call, round });
        let keys: Vec<String> = questions.iter().copied().map(key_of).collect();
        let requests = questions.iter().zip(&keys).filter_map(|(server_request, key)| {
            let server_request = state.server_requests.get(server_request)?;
            Some((key.as_str(), server_request.method.as_str(), server_request.params.as_deref()))
        });
        let required = Bytes::from(input::asking(requests, &sealed));
        requester.answer(Some(self), Final::Result(required));
        let me = self.me.clone();
        task::spawn("suspended call", async move {
            tokio::time::sleep(RETRY_WITHIN).await;
            if let Some(me) = me.upgrade() {
                let mut state = me.lock();
                let effects = state.suspension.take(Event::Tick, me.now());
                me.carry_out(state, effects, Vec::new());
            }
        });
    }

    fn seal(&self, resume: Resume) -> String {
        let retry_within = u64::try_from(RETRY_WITHIN.as_millis()).unwrap_or(u64::MAX);
        let now = self.suspended_calls.now(self.view.surface.router.clock);
        self.suspended_calls.key().seal(&ResumeToken {
            principal: self.principal.to_vec(),
            expires: now.saturating_add(retry_within),
            request: seal::digest(self.request.method, Some(&self.request.params)),
            resume,
        })
    }

    /// A result as this era has it: with its type, and with cache hints where it may be cached.
    fn typed(&self, raw: Bytes) -> Bytes {
        let typed = typed(raw);
        if !result::is_cacheable(self.request.method) {
            return typed;
        }
        match result::hinted(&typed) {
            std::borrow::Cow::Borrowed(_) => typed,
            std::borrow::Cow::Owned(hinted) => Bytes::from(hinted),
        }
    }

    /// Whether a result is the handle of a task, which its client has a right to.
    fn takes_task(&self, result: &[u8]) -> bool {
        result::is_task(result) && self.capabilities["extensions"][TASKS].is_object()
    }

    /// The code of this revision for one of an older one.
    fn code_here(&self, code: i64) -> Option<i64> {
        (self.request.method == "resources/read" && code == NO_RESOURCE).then_some(INVALID_PARAMS)
    }

    /// A server's error, with the code of this revision.
    fn restated(&self, error: Bytes) -> Bytes {
        match code_of(&error).and_then(|code| self.code_here(code)) {
            Some(code) => {
                object::replace_member(&error, "code", code.to_string().as_bytes()).into()
            }
            None => error,
        }
    }

    fn now(&self) -> u64 {
        self.view.surface.router.clock.now_ms()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The key of a server request in `inputRequests`.
fn key_of(server_request: u64) -> String {
    format!("question-{server_request}")
}

/// Whether a person accepted an elicitation.
fn is_accepted(reply: &[u8]) -> bool {
    let action = object::pick(reply, ["action"]).ok().and_then(|[action]| object::text(action?));
    action.as_deref() == Some("accept")
}

fn number_of(key: &str) -> Option<u64> {
    key.strip_prefix("question-")?.parse().ok()
}

fn typed(raw: Bytes) -> Bytes {
    match result::completed(&raw) {
        std::borrow::Cow::Borrowed(_) => raw,
        std::borrow::Cow::Owned(typed) => Bytes::from(typed),
    }
}

/// The identity of its session, under the client name that every request carries.
fn identity_of(
    handler: &StatelessHandler,
    requester: &Requester,
    read: &Meta<'_>,
) -> Arc<Identity> {
    let session = requester.session.upgrade().map(|session| session.identity());
    let identity = session.map_or_else(
        || Identity::new(handler.view.principal, Arc::clone(&handler.view.principal_name)),
        |identity| (*identity).clone(),
    );
    let client = read.client.and_then(|raw| object::pick(raw, ["name", "version"]).ok());
    let client = client.map(|[name, version]| {
        let string = |raw: Option<&[u8]>| {
            let string = raw.and_then(object::text).unwrap_or_default();
            text::clean_line(&string, MAX_CLIENT_NAME).into_owned()
        };
        ClientInfo { name: string(name), version: string(version) }
    });
    Arc::new(Identity { client, ..identity })
}

impl Responder for Call {
    fn respond(&self, _tag: &Bytes, outcome: CallOutcome) {
        self.ended(match outcome {
            // In direct mode the client follows the tasks of servers itself.
            CallOutcome::Result(result) if self.view.is_direct() && self.takes_task(&result) => {
                Final::Result(result)
            }
            CallOutcome::Result(result) => Final::Result(self.typed(result)),
            CallOutcome::Failed(error) if self.view.is_direct() || error.method != "tools/call" => {
                let entry = self.view.any_server(&error.server);
                let config = entry.as_ref().map(|entry| &*entry.config);
                match Plain::from_call(&error, config) {
                    Plain::Error(error) => Final::Error(self.restated(error)),
                    Plain::Result(result) => Final::Result(typed(Bytes::from(result))),
                }
            }
            CallOutcome::Failed(error) => match &error.kind {
                // The client may be able to handle it, so it gets the server's own error.
                CallErrorKind::Rpc(raw) if code_of(raw) == Some(MISSING_CAPABILITY) => {
                    Final::Error(raw.clone())
                }
                _ => {
                    let entry = self.view.any_server(&error.server);
                    let config = entry.as_ref().map(|entry| &*entry.config);
                    let object = ErrorObject::from_call(&error, config);
                    Final::Result(typed(Bytes::from(object.to_result())))
                }
            },
            CallOutcome::Cancelled => Final::Nothing,
        });
    }

    fn became_task(&self, _tag: &Bytes, handle: Bytes) {
        self.ended(Final::Result(handle));
    }

    fn progress(&self, _tag: &Bytes, params: &[u8]) {
        let state = self.lock();
        if let Some(requester) = &state.requester
            && let Some(token) = &requester.progress
        {
            let params = object::replace_member(params, "progressToken", token);
            requester.notify("notifications/progress", &params);
        }
    }

    fn is_stateless(&self) -> bool {
        true
    }

    fn input_required(&self, _tag: &Bytes, server: &Arc<str>, raw: &Bytes) -> bool {
        let Ok(required) = input::required(raw) else { return false };
        let is_permitted = |server_request: &input::Question| {
            input::permits(
                &self.capabilities,
                &server_request.method,
                server_request.params.as_deref(),
            )
        };
        if !required.questions.iter().all(is_permitted) {
            return false;
        }
        let resume = Resume::Relay { server: server.to_string(), state: required.state };
        let restated = input::restated(raw, &self.seal(resume));
        self.ended(Final::Result(Bytes::from(restated)));
        true
    }

    fn input(&self) -> Option<Arc<Input>> {
        self.input.clone()
    }

    fn login_wanted(&self, server: &Arc<str>, address: &str) {
        // Only these may be answered with `input_required`.
        if !matches!(self.request.method, "tools/call" | "resources/read" | "prompts/get") {
            return;
        }
        let mut state = self.lock();
        if matches!(state.login, LoginOffer::NotNeeded) {
            state.login = LoginOffer::Needed(Arc::clone(server), address.to_owned());
        }
    }
}

impl Client for Call {
    fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity)
    }

    fn link(&self) -> ClientLink {
        let session = self.lock().requester.as_ref().and_then(|one| one.session.upgrade());
        let transport = session.map(|session| session.response_streams.transport());
        ClientLink { transport, version: Some(Era::Stateless.name()) }
    }

    fn uses(&self, server: ServerId) -> bool {
        self.view.seat.uses(server)
    }

    fn may_approve(&self) -> bool {
        self.view.approves
    }

    fn capabilities(&self) -> Value {
        self.capabilities.clone()
    }

    fn log(&self, tag: Option<&Bytes>, params: &[u8]) {
        let state = self.lock();
        let Some(requester) = state.requester.as_ref().filter(|_| tag.is_some()) else { return };
        let level = object::pick(params, ["level"]).ok().and_then(|[level]| object::text(level?));
        let level = level.and_then(|level| LEVELS.iter().position(|known| *known == level));
        if requester.level.zip(level).is_some_and(|(wanted, level)| level >= wanted) {
            requester.notify("notifications/message", params);
        }
    }

    fn ask(
        &self,
        _tag: Option<&Bytes>,
        server_request: ServerRequest,
    ) -> Result<(), ServerRequest> {
        let permitted = input::permits(
            &self.capabilities,
            &server_request.method,
            server_request.params.as_deref(),
        );
        let Some(me) = self.me.upgrade().filter(|_| permitted && server_request.has_cause()) else {
            return Err(server_request);
        };
        let mut state = self.lock();
        if state.suspended_as.is_none() {
            state.suspended_as = self.suspended_calls.suspend(Arc::clone(&me));
        }
        if state.suspended_as.is_none() {
            return Err(server_request);
        }
        state.last_server_request += 1;
        let number = state.last_server_request;
        state.server_requests.insert(number, server_request);
        let effects = state.suspension.take(Event::Asked(number), self.now());
        self.carry_out(state, effects, Vec::new());
        // So that `cancel_ask` reaches it when the server withdraws the request.
        let client: Arc<dyn Client> = me;
        self.view.surface.router.attach(&client);
        Ok(())
    }

    fn cancel_ask(&self, conn: ConnId, id: Option<&[u8]>) {
        let mut state = self.lock();
        let gone: Vec<u64> = state
            .server_requests
            .iter()
            .filter(|(_, server_request)| server_request.is_from(conn, id))
            .map(|(&number, _)| number)
            .collect();
        let mut dropped = Vec::new();
        for number in gone {
            dropped.extend(state.server_requests.remove(&number));
            // A withdrawal has no further effects.
            drop(state.suspension.take(Event::Withdrawn(number), self.now()));
        }
        drop(state);
        drop(dropped);
    }
}

fn code_of(error: &[u8]) -> Option<i64> {
    let [code] = object::pick(error, ["code"]).ok()?;
    std::str::from_utf8(code?).ok()?.parse().ok()
}
