//! The request handler: from a request to its response. Authentication, session lookup, and the form of the response.
//! Owns: sessions and their owners, response streams opened per request.      Never: knows what a message says.
//! In: requests, from hyper or the fast path.  Out: responses, as documents or event streams.
//! Tests: `metamcp/tests/http/`.

mod head;
mod observing;
mod session_life;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use metamcp_config::settings::ToolSurface;
use metamcp_wire::era::{self, Era, Revision, VersionHeader};
use metamcp_wire::trace_context::TraceContext;
use parking_lot::{Mutex, MutexGuard};

pub(super) use self::head::{bad_message, busy, fresh_id, no_session, prefers_events, unreadable};
use self::head::{joined, read_head, refused, unknown_version, version};
use self::observing::unfit;
use self::session_life::NamedSession;
use super::access::{Access, Denied, Principal, Role, Visitor};
use super::body::{BodyReadError, RequestBody, discard, whole};
use super::connection_timer::ConnectionTimer;
use super::continuation::Continuation;
use super::guard::{Admitted, Endpoint, METADATA, Refusal, Route, Rules};
use super::limits::{Bodies, InFlight, MAX_IN_FLIGHT};
use super::post_body::{PostBody, one_line};
use super::reply::{self, Answer, REFUSED, SESSION_ID};
use super::sessions::{ActiveSession, Owner, SessionId, Sessions};
use super::stream::{First, KEEP_ALIVE, Reader};
use crate::clock;
use crate::gateway::Machine;
use crate::metrics::Metrics;
use crate::observe::{Action, Event, Identity, Subject};
use crate::router::{Router, Seat};
use crate::serve::Session;
use crate::serve::response_streams::{IdInUse, RequestStreams, ResponseMode, ResponseStreams};
use crate::serve::stateless::SuspendedCalls;
use crate::surface::{Scope, View};
use crate::task;

/// Time for a body to arrive: a client that sends it byte by byte holds a connection no longer.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Single-request sessions added between two cleanups of the list of them.
const ALONE: usize = 64;

/// `MCP-Protocol-Version`.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Last-Event-ID`.
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// What the handler needs of the settings.
pub struct HttpConfig {
    /// Which requests are admitted.
    pub rules: Rules,
    /// Which tokens are valid.
    pub access: Access,
    /// Maximum length of a body.
    pub body_bytes: usize,
    /// How long a session may be idle.
    pub session_timeout: Duration,
    /// Whether connections begin on [`super::fast_path`].
    pub fast_path: bool,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// In a fleet: what lets its gateways go on with each other's sessions.
    pub continuation: Option<Arc<Continuation>>,
}

/// Principals whose requests without a session are kept apart; more than that are looked through.
const MAX_SEATS: usize = 1024;

/// See the module.
pub struct Handler {
    /// The view of the main endpoint.
    view: View,
    /// The scopes of toolset endpoints, in the order of `Rules::toolsets`.
    scopes: Vec<Arc<Scope>>,
    pub(super) router: Arc<Router>,
    /// What it counts; the whole machine's.
    metrics: Option<Arc<Metrics>>,
    pub(super) http_config: HttpConfig,
    pub(super) sessions: Mutex<Sessions<Arc<Session>>>,
    /// Sessions of the HTTP+SSE transport; each lives as long as its stream.
    pub(super) listeners: Mutex<HashMap<SessionId, (Principal, Arc<Session>)>>,
    /// Sessions of a single request.
    alone: Mutex<Vec<Weak<Session>>>,
    /// Where requests without a session are seated, by principal.
    seats: Mutex<HashMap<u64, Arc<Seat>>>,
    /// By what every gateway knows a principal that was here.
    principals: Mutex<HashMap<u64, [u8; 32]>>,
    /// Calls whose client may come back for them in a session of its own.
    pub(super) suspended_calls: Arc<SuspendedCalls>,
    in_flight: Arc<InFlight>,
    bodies: Bodies,
    closing: AtomicBool,
    moved: AtomicBool,
    pub(super) me: Weak<Handler>,
}

impl ActiveSession for Arc<Session> {
    fn is_quiet(&self) -> bool {
        Session::is_quiet(self)
    }

    fn is_attached(&self) -> bool {
        Session::is_attached(self)
    }
}

/// An early response, mostly an error.
pub(super) type ErrorResponse = Box<Response<Answer>>;

impl Handler {
    /// The handler of one gateway.
    pub fn new(
        view: View,
        scopes: Vec<Arc<Scope>>,
        machine: &Machine,
        http_config: HttpConfig,
    ) -> Arc<Handler> {
        let keyring = http_config.continuation.as_ref().map(|shared| Arc::clone(&shared.keyring));
        Arc::new_cyclic(|me| Handler {
            view,
            scopes,
            router: Arc::clone(&machine.router),
            metrics: machine.metrics.clone(),
            sessions: Mutex::new(Sessions::new(http_config.session_timeout)),
            bodies: Bodies::new(http_config.body_bytes),
            http_config,
            listeners: Mutex::default(),
            alone: Mutex::default(),
            seats: Mutex::default(),
            principals: Mutex::default(),
            suspended_calls: SuspendedCalls::new(keyring),
            in_flight: Arc::default(),
            closing: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    /// Answers a request of hyper's.
    pub async fn answer(
        &self,
        request: Request<Incoming>,
        connection_timer: &ConnectionTimer,
    ) -> Response<Answer> {
        let (parts, mut body) = request.into_parts();
        let mut response = match self.admit(&parts) {
            Ok(admission) => {
                self.go(&admission, &parts, RequestBody::Streaming(&mut body), connection_timer)
                    .await
            }
            Err(error_response) => *error_response,
        };
        let is_refused = response.status().is_client_error() || response.status().is_server_error();
        // A client that sent `Expect: 100-continue` has not sent the body, and will not.
        if is_refused && !parts.headers.contains_key(EXPECT) {
            discard(&mut body).await;
        }
        reply::add_type(&mut response);
        reply::reuse(parts.headers, &mut response);
        response
    }

    /// Admits a request by its head, or responds at once.
    pub(super) fn admit(&self, parts: &Parts) -> Result<Admission, ErrorResponse> {
        let accept = joined(&parts.headers, &ACCEPT);
        let head = read_head(parts, accept.as_deref());
        let admitted = self.http_config.rules.admit(&head).map_err(|refusal| {
            if refusal.is_about_access() {
                self.publish_refusal(&refusal.to_string());
            }
            refused(&refusal)
        })?;
        let shown_to = admitted.shown_to.and_then(|origin| HeaderValue::from_str(origin).ok());
        let mut admission = Admission {
            route: admitted.route,
            owner: Owner { principal: Principal::ANYBODY, endpoint: admitted.endpoint },
            shown_to,
            version: version(&parts.headers),
            named: None,
            lasting: [0; 32],
            good_for: None,
        };
        match self.visitor(&parts.headers, &admitted, head.host) {
            Ok(visitor) => {
                admission.owner.principal = visitor.principal;
                admission.lasting = visitor.lasting;
                self.remember_principal(&visitor);
                admission.good_for = visitor.good_for;
                admission.named = self.named(&parts.headers, &admission);
                Ok(admission)
            }
            Err(mut denied) => {
                admission.show(&mut denied);
                Err(denied)
            }
        }
    }

    /// Answers an admitted request.
    pub(super) async fn go(
        &self,
        admission: &Admission,
        parts: &Parts,
        body: RequestBody<'_>,
        connection_timer: &ConnectionTimer,
    ) -> Response<Answer> {
        let owner = admission.owner;
        let done = match admission.route {
            Route::Post => self.post(admission, parts, body, connection_timer).await,
            Route::Listen => self.listen(admission, &parts.headers),
            Route::Delete => self.delete(admission, &parts.headers),
            Route::Sse => self.sse(owner.principal),
            Route::Messages => self.messages(owner.principal, parts, body, connection_timer).await,
            Route::Preflight => Ok(reply::empty(StatusCode::NO_CONTENT)),
            Route::Metadata => self.metadata(owner.endpoint, &parts.headers),
            Route::Health => Ok(self.health(parts.uri.path() == "/readyz")),
            Route::Metrics => self.metrics(&parts.headers).await,
        };
        let mut response = done.unwrap_or_else(|error_response| *error_response);
        admission.show(&mut response);
        response
    }

    /// The view of a principal at an endpoint.
    pub(super) fn view(&self, owner: Owner) -> View {
        let principal = owner.principal.0;
        let seat = self.principal_seat(principal);
        let principal_name = self.http_config.access.name_of(owner.principal);
        let lasting = self.http_config.access.lasting_of(owner.principal);
        let approves = self.http_config.access.approves(owner.principal);
        let tool_surface = match owner.endpoint {
            Endpoint::Main => self.view.tool_surface,
            Endpoint::Direct => ToolSurface::Direct,
            Endpoint::Full => ToolSurface::Full,
            Endpoint::Toolset(place) => {
                // The guard admits no toolset without a scope; should one get here, it sees nothing rather than all.
                let scope = self.scopes.get(usize::from(place)).cloned();
                let kept = self.view.restricted_to(scope.unwrap_or_default());
                return View { seat, principal, lasting, principal_name, approves, ..kept };
            }
        };
        let view = self.view.clone();
        View { seat, tool_surface, principal, lasting, principal_name, approves, ..view }
    }

    fn remember_principal(&self, visitor: &Visitor) {
        let mut principals = self.principals.lock();
        if principals.len() >= MAX_SEATS && !principals.contains_key(&visitor.principal.0) {
            principals.clear();
        }
        principals.insert(visitor.principal.0, visitor.lasting);
    }

    /// A seat of that principal. One of which nothing is known shares with nobody.
    fn seat_of(&self, principal: u64) -> Arc<Seat> {
        let seat = self.view.context().seat(Identity::owner().session);
        let known = self.principals.lock().get(&principal).copied();
        let digest = known.unwrap_or_else(|| {
            let mut alone = [0; 32];
            // Without randomness it is the owner's own, which no token has.
            getrandom::fill(&mut alone).ok();
            alone
        });
        seat.set_principal(&digest);
        seat
    }

    /// The same for a session of its own.
    pub(super) fn session_view(&self, owner: Owner) -> View {
        let seat = self.seat_of(owner.principal.0);
        self.view(owner).seated(seat)
    }

    /// The seat of requests without a session: those of one principal share it, since nothing else connects them.
    fn principal_seat(&self, principal: u64) -> Arc<Seat> {
        let mut seats = self.seats.lock();
        if seats.len() >= MAX_SEATS {
            seats.retain(|_, seat| Arc::strong_count(seat) > 1);
        }
        let seat = || {
            let seat = self.seat_of(principal);
            // Its next request may reach another gateway, where a process of its own would be another one.
            if self.http_config.continuation.is_some() {
                seat.may_be_elsewhere();
            }
            seat
        };
        Arc::clone(seats.entry(principal).or_insert_with(seat))
    }

    /// Takes no new requests; responses to server requests are still taken.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// New connections reach another process from now on: those there are have their next request answered, and end.
    pub fn move_away(&self) {
        self.moved.store(true, Ordering::Release);
    }

    pub(super) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }

    /// Requests without a response, or with one that is not written yet.
    pub fn in_flight(&self) -> usize {
        // HTTP+SSE responses use a stream without end, so they are counted by its backlog.
        let listeners = self.listeners.lock();
        let listeners = listeners.values().map(|(_, session)| match &session.response_streams {
            ResponseStreams::Shared(stream) => {
                session.in_flight() + usize::from(stream.backlog() > 0)
            }
            _ => 0,
        });
        self.in_flight.total() + listeners.sum::<usize>()
    }

    /// The verification of signed tokens, if configured.
    pub fn signed(&self) -> Option<&super::access::Signed> {
        self.http_config.access.signed()
    }

    /// Every active session.
    pub fn awake(&self) -> Vec<Arc<Session>> {
        let listeners = self.listeners.lock();
        let mut awake: Vec<_> =
            listeners.values().map(|(_, session)| Arc::clone(session)).collect();
        drop(listeners);
        awake.extend(self.alone().iter().filter_map(Weak::upgrade));
        awake.extend(self.sessions().awake().cloned());
        awake
    }

    /// Drops idle sessions and streams nobody resumed.
    pub fn sweep(&self) {
        self.http_config.access.refresh();
        let mut sessions = self.sessions();
        for session in sessions.awake() {
            if let ResponseStreams::PerRequest(streams) = &session.response_streams {
                streams.sweep();
            }
        }
        sessions.sweep(self.router.clock.now());
    }

    fn publish_refusal(&self, reason: &str) {
        let action = Action::new(Subject::Refusal { at: "http", reason }, "refused");
        self.router.observer.publish(&Event::Action(action));
    }

    fn visitor(
        &self,
        headers: &HeaderMap,
        admitted: &Admitted<'_>,
        host: Option<&str>,
    ) -> Result<Visitor, ErrorResponse> {
        if !admitted.route.is_guarded() {
            let principal = Principal::ANYBODY;
            let (lasting, role) = ([0; 32], Role::Owner);
            return Ok(Visitor { principal, toolset: None, lasting, role, good_for: None });
        }
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let rules = &self.http_config.rules;
        let metadata = || {
            let at = match admitted.endpoint {
                Endpoint::Main => String::new(),
                other => rules.path(other),
            };
            format!("{}{METADATA}{at}", self.base(host))
        };
        let visitor = self.http_config.access.visitor(shown, clock::unix_millis() / 1000);
        let visitor = visitor.map_err(|denied| {
            self.publish_refusal(&denied.to_string());
            let mut response =
                reply::refusal(StatusCode::UNAUTHORIZED, REFUSED, &denied.to_string());
            let error = (denied != Denied::Missing).then_some("invalid_token");
            reply::challenge(&mut response, &metadata(), error);
            Box::new(response)
        })?;
        if let Some(message) = unfit(visitor.role, admitted.route) {
            let mut response = reply::refusal(StatusCode::FORBIDDEN, REFUSED, message);
            reply::challenge(&mut response, &metadata(), Some("insufficient_scope"));
            return Err(Box::new(response));
        }
        match &visitor.toolset {
            Some(toolset) if !rules.is_kept_to(admitted.endpoint, toolset) => {
                let message =
                    format!("the token is bound to the toolset {toolset:?} and opens nothing else");
                self.publish_refusal(&message);
                let mut response = reply::refusal(StatusCode::FORBIDDEN, REFUSED, &message);
                reply::challenge(&mut response, &metadata(), Some("insufficient_scope"));
                Err(Box::new(response))
            }
            _ => Ok(visitor),
        }
    }

    // -- Streamable HTTP --

    async fn post(
        &self,
        admission: &Admission,
        parts: &Parts,
        body: RequestBody<'_>,
        connection_timer: &ConnectionTimer,
    ) -> Result<Response<Answer>, ErrorResponse> {
        let line = self.read(admission.owner.principal, body, connection_timer).await?;
        let post_body = PostBody::read(&line).map_err(|defect| unreadable(&defect))?;
        let era = era::of_request(admission.version, post_body.params());
        match era.map_err(unknown_version)? {
            Era::Initialize(said) => {
                self.post_in_session(admission, (parts, said), &line, post_body, connection_timer)
                    .await
            }
            Era::Stateless => {
                self.post_stateless(admission, parts, &line, post_body, connection_timer).await
            }
        }
    }

    async fn post_in_session(
        &self,
        admission: &Admission,
        (parts, said): (&Parts, Revision),
        line: &Bytes,
        post_body: PostBody<'_>,
        connection_timer: &ConnectionTimer,
    ) -> Result<Response<Answer>, ErrorResponse> {
        let owner = admission.owner;
        let initializes = post_body.initializes();
        if initializes && post_body.batch {
            return Err(bad_message("initialize cannot be one of several messages"));
        }
        let alone = self.http_config.rules.stateless;
        let session = if alone || initializes {
            self.start(owner, alone)
        } else {
            let session = self.session(admission, &parts.headers)?;
            self.check_answers(&session, &post_body)?;
            self.settle(admission, &session, &post_body);
            session
        };
        let agreed = session.peer().and_then(|peer| peer.era.revision());
        let revision = agreed.unwrap_or(said);
        if post_body.batch && revision != Revision::V2025_03_26 {
            return Err(bad_message("several messages at once are not part of this revision"));
        }
        let may_return = revision >= Revision::V2025_11_25 && !alone;
        let batch = post_body.batch;
        let trace = self.trace_of(&parts.headers);
        let handed = self.hand_over(owner.principal, &session, (line, trace), post_body)?;
        let Some(reader) = handed else {
            return Ok(reply::empty(StatusCode::ACCEPTED));
        };
        let id = if initializes && !alone { self.keep(admission, &session)? } else { None };
        // Older clients that list events first have always got a document, and could not resume a stream.
        let events = may_return && prefers_events(&parts.headers);
        let response_format = ResponseFormat { batch, may_return, events };
        let mut response = self.respond(reader, response_format, connection_timer).await;
        if let Some(id) = id {
            response.headers_mut().insert(SESSION_ID, id);
        }
        Ok(response)
    }

    /// Hands posted messages to the session; a reader of the responses, if there are requests among them.
    fn hand_over(
        &self,
        principal: Principal,
        session: &Arc<Session>,
        (line, trace): (&Bytes, Option<Arc<TraceContext>>),
        post_body: PostBody<'_>,
    ) -> Result<Option<Reader>, ErrorResponse> {
        let requests = post_body.requests();
        let reader = match requests.is_empty() {
            true => None,
            false => Some(self.open(principal, session, &requests)?),
        };
        let first = requests.first().filter(|_| post_body.has("tools/call"));
        if let Some(first) = first.filter(|first| session.lacks_roots(first)) {
            let (session, line, first) = (Arc::clone(session), line.clone(), first.clone());
            task::spawn("client roots", async move {
                session.learn_roots(&first).await;
                // Unless it was cancelled meanwhile.
                if session.response_streams.has(&first) {
                    session.hear(&line);
                }
            });
            return Ok(reader);
        }
        for message in post_body.messages {
            session.take_traced(message, line, trace.clone());
        }
        Ok(reader)
    }

    /// The response: a document if it is the first message, else an event stream.
    pub(super) async fn respond(
        &self,
        reader: Reader,
        response_format: ResponseFormat,
        connection_timer: &ConnectionTimer,
    ) -> Response<Answer> {
        reply::counted(
            reader.ticket(),
            self.formed(reader, response_format, connection_timer).await,
        )
    }

    async fn formed(
        &self,
        mut reader: Reader,
        response_format: ResponseFormat,
        connection_timer: &ConnectionTimer,
    ) -> Response<Answer> {
        let ResponseFormat { batch, may_return, events } = response_format;
        if self.http_config.rules.json {
            return match reader.all().await.as_slice() {
                [] => reply::empty(StatusCode::ACCEPTED),
                [one] if !batch => reply::document(one.to_bytes()),
                all => reply::list(all),
            };
        }
        if events {
            reader.stream();
            if may_return {
                reader.prime();
            }
            return reply::events(reader);
        }
        match reader.first(connection_timer, KEEP_ALIVE).await {
            First::Answer(event) if batch => reply::list(&[event]),
            First::Answer(event) => reply::document(event.to_bytes()),
            First::Events => reply::events(reader),
            First::Silence => {
                if may_return {
                    reader.prime();
                }
                reply::events(reader)
            }
            // Cancelled: a cancelled request has no response.
            First::Nothing => reply::empty(StatusCode::ACCEPTED),
        }
    }

    /// Opens the response stream of these requests.
    pub(super) fn open(
        &self,
        principal: Principal,
        session: &Arc<Session>,
        requests: &[Bytes],
    ) -> Result<Reader, ErrorResponse> {
        self.check_open()?;
        let ResponseStreams::PerRequest(streams) = &session.response_streams else {
            return Err(no_session());
        };
        let ticket = self.in_flight.enter(principal, requests.len()).ok_or_else(|| {
            let message = format!(
                "more than {MAX_IN_FLIGHT} requests of this client are under way; nothing was run"
            );
            busy(StatusCode::TOO_MANY_REQUESTS, &message)
        })?;
        let stream = streams.open(requests, Some(ticket)).map_err(|IdInUse(id)| {
            let id = String::from_utf8_lossy(&id).into_owned();
            bad_message(&format!("a request with the id {id} is under way in this session"))
        })?;
        let reader = stream.read(None);
        if !streams.mode().stateless {
            return Ok(reader);
        }
        let session = Arc::clone(session);
        Ok(reader.on_disconnect(Box::new(move || session.abandon())))
    }

    // -- shared --

    /// Reads the body as one line.
    pub(super) async fn read(
        &self,
        principal: Principal,
        body: RequestBody<'_>,
        connection_timer: &ConnectionTimer,
    ) -> Result<Bytes, ErrorResponse> {
        let body = match body {
            RequestBody::Buffered(body) => {
                return one_line(body).map_err(|defect| unreadable(&defect));
            }
            RequestBody::Streaming(body) => body,
        };
        let limit = self.http_config.body_bytes;
        let too_long = || {
            let message = format!("the body is over the limit of {limit} bytes; nothing was run");
            busy(StatusCode::PAYLOAD_TOO_LARGE, &message)
        };
        let length = body.size_hint().upper();
        if length.is_some_and(|length| length > limit as u64) {
            return Err(too_long());
        }
        let mut room = self.bodies.begin(principal);
        let reading = whole(body, limit, |more| room.grow(more));
        match connection_timer.within(BODY_TIMEOUT, reading).await {
            Some(Ok(body)) => one_line(body).map_err(|defect| unreadable(&defect)),
            Some(Err(BodyReadError::TooLong)) => Err(too_long()),
            Some(Err(BodyReadError::NoRoom)) => {
                let message = "requests of this client that are being read take all the room it has; nothing was run";
                Err(busy(StatusCode::SERVICE_UNAVAILABLE, message))
            }
            Some(Err(BodyReadError::Broken)) => {
                Err(bad_message("the body could not be read to its end"))
            }
            None => {
                let message = "the body took too long to arrive; nothing was run";
                Err(busy(StatusCode::REQUEST_TIMEOUT, message))
            }
        }
    }

    pub(super) fn check_open(&self) -> Result<(), ErrorResponse> {
        if self.closing.load(Ordering::Acquire) {
            let message = "metamcp is shutting down; nothing was run";
            let mut response = busy(StatusCode::SERVICE_UNAVAILABLE, message);
            // The next request has to reach the next process on this port.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return Err(response);
        }
        Ok(())
    }

    /// Whether this process lives, and whether it is to get new clients.
    #[cfg_attr(not(feature = "fleet"), expect(unused_variables, reason = "both are the same then"))]
    fn health(&self, is_about_clients: bool) -> Response<Answer> {
        match self.check_open() {
            #[cfg(feature = "fleet")]
            Ok(()) if is_about_clients && self.router.fleet().is_some() => self.in_fleet(),
            Ok(()) => reply::document(Bytes::from_static(b"{\"status\":\"ok\"}")),
            Err(_) => reply::empty(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    /// What this gateway is in its fleet.
    #[cfg(feature = "fleet")]
    fn in_fleet(&self) -> Response<Answer> {
        use crate::fleet::Readiness;
        let readiness = self.router.fleet().map(|fleet| *fleet.readiness().borrow());
        let now =
            self.router.fleet().map_or(metamcp_types::moment::Moment::START, |fleet| fleet.now());
        let (status, said) = match readiness.unwrap_or(Readiness::Draining) {
            Readiness::Ready => (StatusCode::OK, serde_json::json!({ "status": "ok" })),
            // It goes on with what it owns, and with every server that is not the fleet's.
            Readiness::NoBus { until } => {
                let left = until.map(|until| until.since(now).as_millis());
                let left = left.and_then(|left| u64::try_from(left).ok()).unwrap_or(0);
                let said = serde_json::json!({
                    "status": "degraded",
                    "fleet": "the bus is not reached",
                    "leases_end_in_ms": left,
                });
                (StatusCode::OK, said)
            }
            Readiness::BucketTooNew => {
                let why =
                    "the bus is new; nothing may be claimed before every old lease has run out";
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    serde_json::json!({ "status": "waiting", "fleet": why }),
                )
            }
            Readiness::Draining => {
                let said =
                    serde_json::json!({ "status": "draining", "fleet": "this gateway is leaving" });
                (StatusCode::SERVICE_UNAVAILABLE, said)
            }
            Readiness::Superseded => {
                let why = "another gateway has this one's name";
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    serde_json::json!({ "status": "superseded", "fleet": why }),
                )
            }
        };
        let mut response = reply::document(Bytes::from(said.to_string()));
        *response.status_mut() = status;
        response
    }

    /// OAuth protected resource metadata (RFC 9728).
    fn metadata(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
    ) -> Result<Response<Answer>, ErrorResponse> {
        if self.http_config.access.is_open() {
            return Err(refused(&Refusal::Path));
        }
        let expected = self.http_config.access.signed().map(|signed| &signed.expected);
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let resource = expected.map_or_else(
            || format!("{}{}", self.base(host), self.http_config.rules.path(endpoint)),
            |expected| expected.audience.clone(),
        );
        let issuers: Vec<&str> = expected.iter().map(|expected| expected.issuer.as_str()).collect();
        let metadata = serde_json::json!({
            "resource": resource,
            "authorization_servers": issuers,
            "bearer_methods_supported": ["header"],
            "resource_name": "metamcp",
        });
        Ok(reply::document(Bytes::from(metadata.to_string())))
    }

    /// Our base URL, with the host as the client wrote it; the guard has checked that.
    fn base(&self, host: Option<&str>) -> String {
        format!("{}://{}", self.http_config.scheme, host.unwrap_or("localhost"))
    }

    fn response_streams(&self, stateless: bool) -> ResponseStreams {
        ResponseStreams::PerRequest(RequestStreams::new(ResponseMode {
            json: self.http_config.rules.json,
            stateless,
            fleet: self.http_config.continuation.is_some(),
        }))
    }

    fn alone(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.alone.lock()
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions<Arc<Session>>> {
        self.sessions.lock()
    }
}

/// The result of admitting a head.
pub(super) struct Admission {
    route: Route,
    pub(super) owner: Owner,
    /// The origin for CORS headers.
    shown_to: Option<HeaderValue>,
    /// What its headers say of its version, and of its session, where that can be understood.
    version: VersionHeader,
    named: Option<NamedSession>,
    /// Who its owner is in every gateway of a fleet.
    lasting: [u8; 32],
    /// The token generation in which an identical head is admitted again without a check.
    pub(super) good_for: Option<u64>,
}

impl Admission {
    /// What ids and tokens for this client are bound to: who it is, and at which endpoint, for every gateway of a fleet.
    pub(super) fn binding(&self, rules: &Rules) -> Vec<u8> {
        let mut binding = self.lasting.to_vec();
        binding.extend_from_slice(rules.path(self.owner.endpoint).as_bytes());
        binding
    }

    fn show(&self, response: &mut Response<Answer>) {
        if let Some(origin) = &self.shown_to {
            reply::show_to(response, origin, self.route == Route::Preflight);
        }
    }
}

/// The form of a response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResponseFormat {
    /// The request was a batch.
    pub(super) batch: bool,
    /// The client can resume a stream.
    pub(super) may_return: bool,
    /// The client prefers events to a document.
    pub(super) events: bool,
}
