//! Requests of the stateless era: each carries everything needed to serve it, whatever else its connection carries.
//! Owns: the open requests of a connection, and its subscriptions.      Never: stores anything about the client.
//! In: requests with the era's `_meta`.  Out: results with their type, on the stream of the request.
//! Tests: `metamcp/tests/hazards/eras.rs`, with real processes.

mod call;
mod suspended_calls;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use metamcp_calls::pool::ServerId;
use metamcp_surface::apps;
use metamcp_surface::direct::fit::Reader;
use metamcp_wire::modern::listen::{self, Filter};
use metamcp_wire::modern::meta::{self, Meta};
use metamcp_wire::modern::{Fault, result};
use metamcp_wire::seal::{self, Resume};
use metamcp_wire::trace_context::TraceContext;
use metamcp_wire::{object, write};
use parking_lot::{Mutex, MutexGuard};

use self::call::{Call, OriginalRequest, Requester, Retry};
use super::Session;
use super::response_streams::ResponseStreams;
use super::session::cursor;
use crate::router::{Input, Router};
use crate::surface::{Finished, View, tasks};

/// The methods of this era that are served here.
const METHODS: [&str; 4] = ["server/discover", "tools/list", "tools/call", "subscriptions/listen"];
/// Those that hosts use which show pages of servers.
const APP_METHODS: [&str; 2] = ["resources/list", "resources/read"];
/// Open requests of one connection; the router's own queue limits how many of them run.
const MOST_OPEN: usize = 8192;
/// Open subscriptions of one connection.
const MOST_SUBSCRIPTIONS: usize = 64;

/// Whether a request can be served at all, before a stream is opened for it: HTTP answers with the fault's status.
pub fn precheck<'a>(
    view: &View,
    method: &str,
    params: Option<&'a [u8]>,
) -> Result<Meta<'a>, Fault> {
    let read = meta::require(params)?;
    served(view, method, shows_apps(read.capabilities))
        .map(|_| read)
        .ok_or_else(|| Fault::no_such_method(method))
}

fn shows_apps(capabilities: &[u8]) -> bool {
    // Most clients show none, and need not be parsed again.
    memchr::memmem::find(capabilities, apps::EXTENSION.as_bytes()).is_some()
        && serde_json::from_slice(capabilities).is_ok_and(|read| apps::shown_by(&read))
}

/// The method, if it is served in this era.
fn served(view: &View, method: &str, shows_apps: bool) -> Option<&'static str> {
    let own = METHODS.into_iter().find(|known| *known == method);
    let of_tasks =
        || tasks::METHODS.into_iter().find(|known| *known == method && !view.is_direct());
    let of_apps = || {
        let known = APP_METHODS.into_iter().find(|known| *known == method);
        known.filter(|_| shows_apps && !view.is_direct())
    };
    let own = own.or_else(of_tasks).or_else(of_apps);
    // Subscriptions to single resources are part of `subscriptions/listen` now.
    own.or_else(|| view.passes_on(method).filter(|method| !method.ends_with("subscribe")))
}

/// The suspended calls of all clients of a listener.
pub type SuspendedCalls = suspended_calls::SuspendedCalls<Call>;

/// See the module.
pub struct StatelessHandler {
    view: View,
    suspended_calls: Arc<SuspendedCalls>,
    /// The owner of the connection: no other may resume its calls.
    principal: OnceLock<Bytes>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    calls: HashMap<Bytes, Vec<Arc<Call>>>,
    subscriptions: HashMap<Bytes, Subscription>,
    stopping: bool,
}

struct Subscription {
    filter: Filter,
    /// The servers that may have its resources.
    watched: Vec<(ServerId, String)>,
    router: Arc<Router>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for (server, uri) in &self.watched {
            self.router.unwatch(*server, uri);
        }
    }
}

impl StatelessHandler {
    pub fn new(view: View, suspended_calls: Arc<SuspendedCalls>) -> StatelessHandler {
        let (principal, open) = (OnceLock::new(), Mutex::default());
        StatelessHandler { view, suspended_calls, principal, open }
    }

    /// Sets the authenticated principal, once.
    pub fn belongs_to(&self, principal: Bytes) {
        // The first one counts.
        drop(self.principal.set(principal));
    }

    fn principal(&self) -> Bytes {
        self.principal.get().cloned().unwrap_or_default()
    }

    /// One request. `params` lies in `line`.
    pub fn request(
        &self,
        session: &Arc<Session>,
        id: Bytes,
        method: &str,
        params: Option<&[u8]>,
        line: &Bytes,
        trace: Option<Arc<TraceContext>>,
    ) {
        let requester = Requester::new(session, id, trace);
        let read = match precheck(&self.view, method, params) {
            Ok(read) => read,
            Err(fault) => return requester.refuse(&fault),
        };
        let shows_apps = shows_apps(read.capabilities);
        let Some(method) = served(&self.view, method, shows_apps) else { return };
        self.view.surface.router.declare(read.capabilities);
        let params = params.unwrap_or(b"{}");
        let requester = requester.with(&read);
        match method {
            "server/discover" => {
                let view = self.view.clone();
                self.begin(requester, &read, method, params).later(async move {
                    let mut capabilities = view.capabilities(shows_apps).await;
                    if !view.is_direct() {
                        capabilities["extensions"][tasks::EXTENSION] = serde_json::json!({});
                    }
                    let instructions = view.server_instructions().await;
                    let version = env!("CARGO_PKG_VERSION");
                    Finished::Result(result::discovery(&capabilities, &instructions, version))
                });
            }
            "tools/list" => {
                let view = self.view.clone();
                let cursor = match cursor(Some(params)) {
                    Ok(cursor) => cursor,
                    Err(why) => return requester.refuse(&Fault::invalid(why)),
                };
                self.begin(requester, &read, method, params).later(async move {
                    let tools = match view.tools_page(cursor, Reader::Stateless, shows_apps).await {
                        Finished::Result(tools) => tools,
                        other => return other,
                    };
                    // Tools of servers may change, and may be private to this client.
                    let tools = match view.is_direct() || shows_apps {
                        true => result::cacheable(&tools, result::FOREIGN_TTL_MS, false),
                        false => result::cacheable(&tools, result::LIST_TTL_MS, true),
                    };
                    Finished::Result(result::signed(&tools, env!("CARGO_PKG_VERSION")))
                });
            }
            "subscriptions/listen" => self.listen(session, &requester, params),
            "resources/list" if !self.view.is_direct() => {
                let view = self.view.clone();
                self.begin(requester, &read, method, params).later(async move {
                    match view.app_resources() {
                        Finished::Result(list) => {
                            let list = result::cacheable(&list, result::FOREIGN_TTL_MS, false);
                            Finished::Result(result::signed(&list, env!("CARGO_PKG_VERSION")))
                        }
                        other => other,
                    }
                });
            }
            _ if tasks::METHODS.contains(&method) && !self.view.is_direct() => {
                let declared: serde_json::Value =
                    serde_json::from_slice(read.capabilities).unwrap_or_default();
                if !declared["extensions"][tasks::EXTENSION].is_object() {
                    let why =
                        format!("{method} needs a client with the extension {}", tasks::EXTENSION);
                    return requester.refuse(&Fault::missing_extension(tasks::EXTENSION, why));
                }
                let view = self.view.clone();
                let asked = Bytes::copy_from_slice(params);
                self.begin(requester, &read, method, params)
                    .later(async move { view.task_request(method, &asked) });
            }
            _ => self.call(requester, &read, method, params, line),
        }
    }

    /// The client cancels a request.
    pub fn cancelled(&self, id: &[u8]) {
        let calls = {
            let mut open = self.lock();
            open.subscriptions.remove(id);
            open.calls.remove(id)
        };
        for call in calls.into_iter().flatten() {
            call.cancelled(id);
        }
    }

    /// The client is gone: everything open is cancelled.
    pub fn abandon(&self) {
        let calls = {
            let mut open = self.lock();
            open.stopping = true;
            open.subscriptions.clear();
            std::mem::take(&mut open.calls)
        };
        for (id, calls) in calls {
            for call in &calls {
                call.cancelled(&id);
            }
        }
    }

    /// The gateway shuts down: open requests are answered, and subscriptions end cleanly.
    pub fn stop(&self, response_streams: &ResponseStreams) {
        let calls: Vec<Arc<Call>> = {
            let mut open = self.lock();
            open.stopping = true;
            open.calls.values().flatten().cloned().collect()
        };
        self.end_subscriptions(response_streams);
        for call in &calls {
            call.stop();
        }
    }

    /// Ends subscriptions cleanly, while other requests may still be answered.
    pub fn end_subscriptions(&self, response_streams: &ResponseStreams) {
        let subscriptions = std::mem::take(&mut self.lock().subscriptions);
        for id in subscriptions.keys() {
            response_streams.answer(Some(id), |out| write::result(out, id, &listen::ended(id)));
        }
    }

    /// Requests without a response; a subscription gets one only at its end.
    pub fn in_flight(&self) -> usize {
        self.lock().calls.values().map(Vec::len).sum()
    }

    /// Whether nothing is open.
    pub fn is_quiet(&self) -> bool {
        let open = self.lock();
        open.calls.is_empty() && open.subscriptions.is_empty()
    }

    /// Sends a notification to the subscriptions that cover it.
    pub fn notify(
        &self,
        response_streams: &ResponseStreams,
        method: &str,
        uri: Option<&str>,
        params: Option<&[u8]>,
    ) {
        let covered: Vec<Bytes> = {
            let open = self.lock();
            open.subscriptions
                .iter()
                .filter(|(_, subscription)| subscription.filter.covers(method, uri))
                .map(|(id, _)| id.clone())
                .collect()
        };
        for id in covered.iter().filter(|id| response_streams.has_room(Some(id))) {
            let params = listen::tagged(params, id);
            response_streams.tell(Some(id), |out| write::notification(out, method, Some(&params)));
        }
    }

    /// Removes a request that was answered.
    fn done(&self, id: &Bytes, call: &Call) {
        let mut open = self.lock();
        if let Some(calls) = open.calls.get_mut(id) {
            calls.retain(|known| !std::ptr::eq(&raw const **known, call));
            if calls.is_empty() {
                open.calls.remove(id);
            }
        }
    }

    fn call(
        &self,
        requester: Requester,
        read: &Meta<'_>,
        method: &'static str,
        params: &[u8],
        line: &Bytes,
    ) {
        let picked = match object::pick(params, ["requestState", "inputResponses"]) {
            Ok(picked) => picked,
            Err(defect) => {
                let why = format!("the params of {method} cannot be used: {defect}");
                return requester.refuse(&Fault::invalid(why));
            }
        };
        let input = match self.retried(&picked, method, params) {
            // In direct mode unsolicited input responses are forwarded; the server decides about them.
            Ok(None) => picked[1].filter(|_| self.view.is_direct()).map(|responses| {
                let responses = Bytes::copy_from_slice(responses);
                Arc::new(Input { responses, state: None, is_sealed: false })
            }),
            Ok(Some(Retried::Relay(input))) => Some(Arc::new(input)),
            Ok(Some(Retried::Suspended(call, retry))) => {
                if let Err(fault) = self.enlist(&requester.id, &call) {
                    return requester.refuse(&fault);
                }
                return call.retried(requester, retry);
            }
            Err(fault) => return requester.refuse(&fault),
        };
        let call = self.begin_with(requester, read, method, params, input);
        call.start(params, line);
    }

    /// What a retry resumes, if it is one.
    fn retried(
        &self,
        [state, responses]: &[Option<&[u8]>; 2],
        method: &str,
        params: &[u8],
    ) -> Result<Option<Retried>, Fault> {
        let Some(state) = state else { return Ok(None) };
        let state =
            object::text(state).ok_or_else(|| Fault::invalid("requestState must be a string"))?;
        let principal = self.principal();
        let request = seal::digest(method, Some(params));
        let now = self.suspended_calls.now(self.view.surface.router.clock);
        let resume = self
            .suspended_calls
            .key()
            .open(&state, &principal, now, &request)
            .map_err(|broken| Fault::invalid(broken.to_string()))?;
        let unfit = |unfit: metamcp_wire::modern::input::InvalidInput| {
            Fault::invalid(format!("inputResponses cannot be used: {unfit}"))
        };
        let raw = responses.unwrap_or(b"{}");
        let responses = metamcp_wire::modern::input::responses(raw).map_err(unfit)?;
        match resume {
            Resume::Suspended { gateway, .. } if gateway != self.suspended_calls.gateway() => {
                Err(Fault::invalid(
                    "the call of this requestState waits at another gateway of this fleet, and only that one can go on with it; send the request again without it, or have the load balancer keep a client at one gateway",
                ))
            }
            Resume::Suspended { call, round, .. } => {
                let call = self.suspended_calls.find(call).ok_or_else(|| {
                    Fault::invalid("no call is suspended for this requestState any more; send the request again without it")
                })?;
                Ok(Some(Retried::Suspended(call, Retry { round, responses })))
            }
            Resume::Relay { state, .. } => {
                let state = state.map(|state| {
                    let mut quoted = Vec::with_capacity(state.len() + 2);
                    write::json_string(&mut quoted, &state);
                    Bytes::from(quoted)
                });
                let responses = Bytes::copy_from_slice(raw);
                Ok(Some(Retried::Relay(Input { responses, state, is_sealed: true })))
            }
        }
    }

    fn begin(
        &self,
        requester: Requester,
        read: &Meta<'_>,
        method: &'static str,
        params: &[u8],
    ) -> Arc<Call> {
        self.begin_with(requester, read, method, params, None)
    }

    fn begin_with(
        &self,
        requester: Requester,
        read: &Meta<'_>,
        method: &'static str,
        params: &[u8],
        input: Option<Arc<Input>>,
    ) -> Arc<Call> {
        let id = requester.id.clone();
        let request = OriginalRequest { method, params: Bytes::copy_from_slice(params) };
        let call = Call::new(self, requester, read, request, input);
        if let Err(fault) = self.enlist(&id, &call) {
            call.refused(&fault);
        }
        call
    }

    fn enlist(&self, id: &Bytes, call: &Arc<Call>) -> Result<(), Fault> {
        let mut open = self.lock();
        let refused = |message: &str| {
            Err(Fault { code: -32000, message: message.to_owned(), data: None, status: 503 })
        };
        if open.stopping {
            return refused("metamcp is shutting down; nothing was run");
        }
        if open.calls.len() >= MOST_OPEN {
            return refused("too many requests are in progress; nothing was run");
        }
        open.calls.entry(id.clone()).or_default().push(Arc::clone(call));
        Ok(())
    }

    fn listen(&self, session: &Session, requester: &Requester, params: &[u8]) {
        let wanted = match Filter::read(params) {
            Ok(wanted) => wanted,
            Err(fault) => return requester.refuse(&fault),
        };
        let granted = wanted.granted(&self.view.offered());
        let acknowledgement = listen::acknowledgement(&requester.id, &granted);
        let subscription = self.subscription(granted);
        session.watch_changes();
        let mut open = self.lock();
        if open.stopping || open.subscriptions.len() >= MOST_SUBSCRIPTIONS {
            drop(open);
            let message = "too many subscriptions are open".to_owned();
            let fault = Fault { code: -32000, message, data: None, status: 503 };
            return requester.refuse(&fault);
        }
        // Under the lock, so that no notification of the subscription can precede it.
        session.response_streams.tell(Some(&requester.id), |out| {
            write::notification(out, listen::ACKNOWLEDGED, Some(&acknowledgement));
        });
        open.subscriptions.insert(requester.id.clone(), subscription);
    }

    /// Subscribes at the servers to the resources of a filter.
    fn subscription(&self, filter: Filter) -> Subscription {
        let router = Arc::clone(&self.view.surface.router);
        let mut watched = Vec::new();
        for uri in &filter.uris {
            for server in self.view.owners_of(uri) {
                if router.watch(server, uri, true) {
                    watched.push((server, uri.clone()));
                }
            }
        }
        Subscription { filter, watched, router }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}

/// What a retry resumes.
enum Retried {
    /// A suspended call of the gateway.
    Suspended(Arc<Call>, Retry),
    /// A call of a stateless server, which gets the answers.
    Relay(Input),
}
