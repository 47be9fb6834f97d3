//! From a request to its response: who asks, in which session, and in what form the answer goes back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HOST, HeaderMap,
    HeaderName, HeaderValue, ORIGIN,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use metamcp_core::settings::{LogLevel, Vocabulary};
use metamcp_wire::era::{Era, Revision, STATELESS};
use metamcp_wire::scan::Defect;

use super::access::{Access, Denied, Principal, Visitor};
use super::alarm::Alarm;
use super::body::{Sent, Unread, discard, whole};
use super::guard::{Admitted, Endpoint, Head, METADATA, Refusal, Route, Rules};
use super::limits::{Bodies, InFlight, MAX_IN_FLIGHT};
use super::posted::{Posted, one_line};
use super::reply::{self, Answer, INVALID, NO_SESSION, REFUSED, SESSION_ID, UNPARSED};
use super::sessions::{Awake, Found, Owner, SessionId, Sessions};
use super::stateless::{is_stateless, not_here};
use super::stream::{First, KEEP_ALIVE, Reader, from_event_id};
use crate::clock;
use crate::router::Router;
use crate::serve::Session;
use crate::serve::lanes::{Each, IdInUse, Lanes, Manner};
use crate::surface::{Scope, View};
use crate::telemetry;

/// How long a body may take to arrive: those who send it byte by byte hold a connection for no longer.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// Sessions of one request between two looks for those that are over.
const ALONE: usize = 64;

/// `MCP-Protocol-Version`.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Last-Event-ID`.
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// How requests are taken.
pub struct Ways {
    /// Who may come in.
    pub rules: Rules,
    /// With which token.
    pub access: Access,
    /// The longest body.
    pub body_bytes: usize,
    /// How long a session may be idle.
    pub session_timeout: Duration,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// See the module.
pub struct Door {
    /// What the main endpoint shows.
    view: View,
    /// What the endpoints of toolsets are kept to, in the order of `Rules::toolsets`.
    scopes: Vec<Arc<Scope>>,
    pub(super) router: Arc<Router>,
    pub(super) ways: Ways,
    pub(super) sessions: Mutex<Sessions<Arc<Session>>>,
    /// Sessions of clients of 2024, each as long as its stream.
    pub(super) listeners: Mutex<HashMap<SessionId, (Principal, Arc<Session>)>>,
    /// Sessions of one request each.
    alone: Mutex<Vec<Weak<Session>>>,
    in_flight: Arc<InFlight>,
    bodies: Bodies,
    closing: AtomicBool,
    pub(super) me: Weak<Door>,
}

impl Awake for Arc<Session> {
    fn is_quiet(&self) -> bool {
        Session::is_quiet(self)
    }

    fn is_attached(&self) -> bool {
        Session::is_attached(self)
    }
}

/// A response that is given instead of the one asked for.
pub(super) type Instead = Box<Response<Answer>>;

impl Door {
    /// A door to a gateway.
    pub fn new(view: View, scopes: Vec<Arc<Scope>>, router: Arc<Router>, ways: Ways) -> Arc<Door> {
        Arc::new_cyclic(|me| Door {
            view,
            scopes,
            router,
            sessions: Mutex::new(Sessions::new(ways.session_timeout)),
            bodies: Bodies::new(ways.body_bytes),
            ways,
            listeners: Mutex::default(),
            alone: Mutex::default(),
            in_flight: Arc::default(),
            closing: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    /// Answers one request; its connection has this timer.
    pub async fn answer(&self, request: Request<Incoming>, alarm: &Alarm) -> Response<Answer> {
        let (parts, mut body) = request.into_parts();
        let mut response = match self.admit(&parts) {
            Ok(admission) => self.go(&admission, &parts, Sent::Coming(&mut body), alarm).await,
            Err(instead) => *instead,
        };
        let is_refused = response.status().is_client_error() || response.status().is_server_error();
        // Who waits to be told to go on is told not to.
        if is_refused && !parts.headers.contains_key(EXPECT) {
            discard(&mut body).await;
        }
        reply::add_type(&mut response);
        reply::reuse(parts.headers, &mut response);
        response
    }

    /// Lets a request in by its head, or answers it at once.
    pub(super) fn admit(&self, parts: &Parts) -> Result<Admission, Instead> {
        let accept = joined(&parts.headers, &ACCEPT);
        let head = read_head(parts, accept.as_deref());
        let admitted = self.ways.rules.admit(&head).map_err(|refusal| refused(&refusal))?;
        let shown_to = admitted.shown_to.and_then(|origin| HeaderValue::from_str(origin).ok());
        let mut admission = Admission {
            route: admitted.route,
            owner: Owner { principal: Principal::ANYBODY, endpoint: admitted.endpoint },
            shown_to,
            speaks: era(&parts.headers).ok(),
            session: named_session(&parts.headers),
            good_for: None,
        };
        match self.visitor(&parts.headers, &admitted, head.host) {
            Ok(visitor) => {
                admission.owner.principal = visitor.principal;
                admission.good_for = visitor.good_for;
                Ok(admission)
            }
            Err(mut denied) => {
                admission.show(&mut denied);
                Err(denied)
            }
        }
    }

    /// Whether who was let in once is let in again by the same head: a token may be valid no longer.
    pub(super) fn admits_again(&self, admission: &Admission) -> bool {
        admission.good_for == Some(self.ways.access.generation())
    }

    /// The longest body.
    pub(super) fn longest_body(&self) -> usize {
        self.ways.body_bytes
    }

    /// Answers a request that was let in.
    pub(super) async fn go(
        &self,
        admission: &Admission,
        parts: &Parts,
        body: Sent<'_>,
        alarm: &Alarm,
    ) -> Response<Answer> {
        let owner = admission.owner;
        let done = match admission.route {
            Route::Post => self.post(admission, parts, body, alarm).await,
            Route::Listen => self.listen(owner, &parts.headers),
            Route::Delete => self.delete(owner, &parts.headers),
            Route::Sse => self.sse(owner.principal),
            Route::Messages => self.messages(owner.principal, parts, body, alarm).await,
            Route::Preflight => Ok(reply::empty(StatusCode::NO_CONTENT)),
            Route::Metadata => self.metadata(owner.endpoint, &parts.headers),
            Route::Health => Ok(self.health()),
        };
        let mut response = done.unwrap_or_else(|instead| *instead);
        admission.show(&mut response);
        response
    }

    /// What somebody is shown at an endpoint.
    pub(super) fn view(&self, owner: Owner) -> View {
        let principal = owner.principal.0;
        let approves = self.ways.access.approves(owner.principal);
        let vocabulary = match owner.endpoint {
            Endpoint::Main => self.view.vocabulary,
            Endpoint::Direct => Vocabulary::Direct,
            Endpoint::Full => Vocabulary::Full,
            Endpoint::Toolset(place) => {
                // A place without a scope cannot come in; if it did, it would see nothing rather than all.
                let scope = self.scopes.get(usize::from(place)).cloned();
                let kept = self.view.kept_to(scope.unwrap_or_default());
                return View { principal, approves, ..kept };
            }
        };
        View { vocabulary, principal, approves, ..self.view.clone() }
    }

    /// No new requests; answers to questions are still taken.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Requests that have no answer yet, or whose answer is not written.
    pub fn in_flight(&self) -> usize {
        // Answers to clients of 2024 take a stream that has no end, so they are counted by what waits on it.
        let listeners = self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let listeners = listeners.values().map(|(_, session)| match &session.lanes {
            Lanes::Shared(stream) => session.in_flight() + usize::from(stream.backlog() > 0),
            _ => 0,
        });
        self.in_flight.total() + listeners.sum::<usize>()
    }

    /// Signed tokens, where they are taken.
    pub fn signed(&self) -> Option<&super::access::Signed> {
        self.ways.access.signed()
    }

    /// Every session there is something of.
    pub fn awake(&self) -> Vec<Arc<Session>> {
        let listeners = self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut awake: Vec<_> =
            listeners.values().map(|(_, session)| Arc::clone(session)).collect();
        drop(listeners);
        awake.extend(self.alone().iter().filter_map(Weak::upgrade));
        awake.extend(self.sessions().awake().cloned());
        awake
    }

    /// Forgets what nobody came back for.
    pub fn sweep(&self) {
        self.ways.access.refresh();
        let mut sessions = self.sessions();
        for session in sessions.awake() {
            if let Lanes::Each(each) = &session.lanes {
                each.sweep();
            }
        }
        sessions.sweep(self.router.clock.now());
    }

    fn visitor(
        &self,
        headers: &HeaderMap,
        admitted: &Admitted<'_>,
        host: Option<&str>,
    ) -> Result<Visitor, Instead> {
        if !admitted.route.is_guarded() {
            let principal = Principal::ANYBODY;
            return Ok(Visitor { principal, toolset: None, good_for: None });
        }
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let rules = &self.ways.rules;
        let metadata = || {
            let at = match admitted.endpoint {
                Endpoint::Main => String::new(),
                other => rules.path(other),
            };
            format!("{}{METADATA}{at}", self.base(host))
        };
        let visitor = self.ways.access.visitor(shown, clock::unix_millis() / 1000);
        let visitor = visitor.map_err(|denied| {
            let mut response =
                reply::refusal(StatusCode::UNAUTHORIZED, REFUSED, &denied.to_string());
            let error = (denied != Denied::Missing).then_some("invalid_token");
            reply::challenge(&mut response, &metadata(), error);
            Box::new(response)
        })?;
        match &visitor.toolset {
            Some(toolset) if !rules.is_kept_to(admitted.endpoint, toolset) => {
                let message =
                    format!("the token is bound to the toolset {toolset:?} and opens nothing else");
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
        body: Sent<'_>,
        alarm: &Alarm,
    ) -> Result<Response<Answer>, Instead> {
        let line = self.read(admission.owner.principal, body, alarm).await?;
        let posted = Posted::read(&line).map_err(|defect| unreadable(&defect))?;
        if admission.speaks == Some(Speaks::Stateless) || is_stateless(&posted) {
            return self.post_stateless(admission.owner, parts, &line, posted, alarm).await;
        }
        match admission.speaks.map_or_else(|| era(&parts.headers), Ok)? {
            Speaks::Initialize(said) => {
                self.post_in_session(admission, (parts, said), &line, posted, alarm).await
            }
            Speaks::Stateless => Err(not_here()),
        }
    }

    async fn post_in_session(
        &self,
        admission: &Admission,
        (parts, said): (&Parts, Option<Revision>),
        line: &Bytes,
        posted: Posted<'_>,
        alarm: &Alarm,
    ) -> Result<Response<Answer>, Instead> {
        let owner = admission.owner;
        let initializes = posted.initializes();
        if initializes && posted.batch {
            return Err(bad_message("initialize cannot be one of several messages"));
        }
        let alone = self.ways.rules.stateless;
        let session = if alone || initializes {
            self.start(owner, alone)
        } else {
            let id = admission.session.map_or_else(|| session_id(&parts.headers), Ok)?;
            self.session(owner, id)?
        };
        let agreed = session.peer().and_then(|peer| peer.era.revision());
        let revision = agreed.or(said).unwrap_or(Revision::V2025_03_26);
        if posted.batch && revision != Revision::V2025_03_26 {
            return Err(bad_message("several messages at once are not part of this revision"));
        }
        let may_return = revision >= Revision::V2025_11_25 && !alone;
        let batch = posted.batch;
        let Some(reader) = self.hand_over(owner.principal, &session, line, posted)? else {
            return Ok(reply::empty(StatusCode::ACCEPTED));
        };
        let id = if initializes && !alone { self.keep(owner, &session)? } else { None };
        // Older clients that name events first have always got a document, and could not come back to a stream.
        let events = may_return && prefers_events(&parts.headers);
        let form = Form { batch, may_return, events };
        let mut response = self.respond(reader, form, alarm).await;
        if let Some(id) = id.and_then(|id| HeaderValue::from_str(&id.text()).ok()) {
            response.headers_mut().insert(SESSION_ID, id);
        }
        Ok(response)
    }

    /// Gives the session what was posted; where that asks for answers, they can be read.
    fn hand_over(
        &self,
        principal: Principal,
        session: &Arc<Session>,
        line: &Bytes,
        posted: Posted<'_>,
    ) -> Result<Option<Reader>, Instead> {
        let requests = posted.requests();
        let reader = match requests.is_empty() {
            true => None,
            false => Some(self.open(principal, session, &requests)?),
        };
        for message in posted.messages {
            session.take(message, line);
        }
        Ok(reader)
    }

    /// The answer as a document if nothing comes before it, else as events.
    pub(super) async fn respond(
        &self,
        reader: Reader,
        form: Form,
        alarm: &Alarm,
    ) -> Response<Answer> {
        reply::counted(reader.ticket(), self.formed(reader, form, alarm).await)
    }

    async fn formed(&self, mut reader: Reader, form: Form, alarm: &Alarm) -> Response<Answer> {
        let Form { batch, may_return, events } = form;
        if self.ways.rules.json {
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
        match reader.first(alarm, KEEP_ALIVE).await {
            First::Answer(event) if batch => reply::list(&[event]),
            First::Answer(event) => reply::document(event.to_bytes()),
            First::Events => reply::events(reader),
            First::Silence => {
                if may_return {
                    reader.prime();
                }
                reply::events(reader)
            }
            // It was called off, and what is called off is not answered.
            First::Nothing => reply::empty(StatusCode::ACCEPTED),
        }
    }

    fn listen(&self, owner: Owner, headers: &HeaderMap) -> Result<Response<Answer>, Instead> {
        self.check_open()?;
        if let Speaks::Stateless = era(headers)? {
            return Err(not_here());
        }
        let session = self.session(owner, session_id(headers)?)?;
        let Lanes::Each(each) = &session.lanes else { return Err(no_session()) };
        let last = match headers.get(LAST_EVENT).filter(|id| !id.is_empty()) {
            None => None,
            // One that was ours may be of a stream that is over by now; others never were.
            Some(id) => Some(id.to_str().ok().and_then(from_event_id).ok_or_else(|| {
                bad_message("the Last-Event-ID is of no event of this gateway; listen without it")
            })?),
        };
        let found = last.and_then(|(number, position)| Some((each.numbered(number)?, position)));
        let reader = match found {
            Some((stream, position)) => stream.read(Some(position)),
            None => each.general().read(None),
        };
        Ok(reply::counted(reader.ticket(), reply::events(reader)))
    }

    fn delete(&self, owner: Owner, headers: &HeaderMap) -> Result<Response<Answer>, Instead> {
        if let Ok(Speaks::Stateless) = era(headers) {
            return Err(not_here());
        }
        let id = session_id(headers)?;
        let Some(ended) = self.sessions().remove(id, owner) else { return Err(no_session()) };
        if let Some(session) = ended {
            session.abandon();
        }
        Ok(reply::empty(StatusCode::NO_CONTENT))
    }

    /// A session that nobody knows yet; `alone`, for one request and no longer.
    fn start(&self, owner: Owner, alone: bool) -> Arc<Session> {
        if alone {
            return self.start_alone(owner, self.lanes(true));
        }
        let session = Session::new(self.view(owner), self.lanes(false));
        self.router.attach(&session.caller());
        session
    }

    /// A session of one request.
    pub(super) fn start_alone(&self, owner: Owner, lanes: Lanes) -> Arc<Session> {
        let session = Session::new(self.view(owner), lanes);
        let mut all = self.alone();
        // Looked through when it is full, so that each request costs a push and no more.
        if all.len() == all.capacity() {
            all.retain(|session| session.strong_count() > 0);
            let room = all.len().max(ALONE);
            all.reserve(room);
        }
        all.push(Arc::downgrade(&session));
        drop(all);
        session
    }

    /// Makes a session one that can be come back to, once its client has introduced itself.
    fn keep(&self, owner: Owner, session: &Arc<Session>) -> Result<Option<SessionId>, Instead> {
        let Some(peer) = session.peer() else { return Ok(None) };
        let id = fresh_id()?;
        let now = self.router.clock.now();
        if self.sessions().insert(id, owner, &peer, Arc::clone(session), now) {
            return Ok(Some(id));
        }
        session.abandon();
        Err(busy(StatusCode::SERVICE_UNAVAILABLE, "there are too many sessions; try again later"))
    }

    /// The session a request names, awake.
    fn session(&self, owner: Owner, id: SessionId) -> Result<Arc<Session>, Instead> {
        let mut sessions = self.sessions();
        match sessions.find(id, owner, self.router.clock.now()) {
            Some(Found::Awake(session)) => Ok(session),
            Some(Found::Resting(peer)) => {
                let view = self.view(owner);
                let session = Session::resumed(view, self.lanes(false), Arc::new(peer));
                sessions.wake(id, Arc::clone(&session));
                drop(sessions);
                self.router.attach(&session.caller());
                Ok(session)
            }
            None => Err(no_session()),
        }
    }

    /// Opens the lane of these requests and reads it.
    pub(super) fn open(
        &self,
        principal: Principal,
        session: &Arc<Session>,
        requests: &[Bytes],
    ) -> Result<Reader, Instead> {
        self.check_open()?;
        let Lanes::Each(each) = &session.lanes else { return Err(no_session()) };
        let ticket = self.in_flight.enter(principal, requests.len()).ok_or_else(|| {
            let message = format!(
                "more than {MAX_IN_FLIGHT} requests of this client are under way; nothing was run"
            );
            busy(StatusCode::TOO_MANY_REQUESTS, &message)
        })?;
        let stream = each.open(requests, Some(ticket)).map_err(|IdInUse(id)| {
            let id = String::from_utf8_lossy(&id).into_owned();
            bad_message(&format!("a request with the id {id} is under way in this session"))
        })?;
        let reader = stream.read(None);
        if !each.manner().stateless {
            return Ok(reader);
        }
        let session = Arc::clone(session);
        Ok(reader.leaving(Box::new(move || session.abandon())))
    }

    // -- what all of them need --

    /// The body, on one line.
    pub(super) async fn read(
        &self,
        principal: Principal,
        body: Sent<'_>,
        alarm: &Alarm,
    ) -> Result<Bytes, Instead> {
        let body = match body {
            Sent::Here(body) => return one_line(body).map_err(|defect| unreadable(&defect)),
            Sent::Coming(body) => body,
        };
        let limit = self.ways.body_bytes;
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
        match alarm.within(BODY_PATIENCE, reading).await {
            Some(Ok(body)) => one_line(body).map_err(|defect| unreadable(&defect)),
            Some(Err(Unread::TooLong)) => Err(too_long()),
            Some(Err(Unread::NoRoom)) => {
                let message = "requests of this client that are being read take all the room it has; nothing was run";
                Err(busy(StatusCode::SERVICE_UNAVAILABLE, message))
            }
            Some(Err(Unread::Broken)) => Err(bad_message("the body could not be read to its end")),
            None => {
                let message = "the body took too long to arrive; nothing was run";
                Err(busy(StatusCode::REQUEST_TIMEOUT, message))
            }
        }
    }

    pub(super) fn check_open(&self) -> Result<(), Instead> {
        if self.closing.load(Ordering::Acquire) {
            let message = "metamcp is shutting down; nothing was run";
            let mut response = busy(StatusCode::SERVICE_UNAVAILABLE, message);
            // The next request has to go to whoever comes after us.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return Err(response);
        }
        Ok(())
    }

    fn health(&self) -> Response<Answer> {
        match self.check_open() {
            Ok(()) => reply::document(Bytes::from_static(b"{\"status\":\"ok\"}")),
            Err(_) => reply::empty(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    /// Who gives out tokens for us.
    fn metadata(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
    ) -> Result<Response<Answer>, Instead> {
        if self.ways.access.is_open() {
            return Err(refused(&Refusal::Path));
        }
        let expected = self.ways.access.signed().map(|signed| &signed.expected);
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let resource = expected.map_or_else(
            || format!("{}{}", self.base(host), self.ways.rules.path(endpoint)),
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

    /// Our address as the client wrote it; the name was checked before.
    fn base(&self, host: Option<&str>) -> String {
        format!("{}://{}", self.ways.scheme, host.unwrap_or("localhost"))
    }

    fn lanes(&self, stateless: bool) -> Lanes {
        Lanes::Each(Each::new(Manner { json: self.ways.rules.json, stateless }))
    }

    fn alone(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.alone.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions<Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A request that was let in.
pub(super) struct Admission {
    route: Route,
    owner: Owner,
    /// The origin whose page may see the answer.
    shown_to: Option<HeaderValue>,
    /// What its headers say of its era, and of its session, where that can be understood.
    speaks: Option<Speaks>,
    session: Option<SessionId>,
    /// The generation of tokens in which the same head is let in again.
    good_for: Option<u64>,
}

impl Admission {
    fn show(&self, response: &mut Response<Answer>) {
        if let Some(origin) = &self.shown_to {
            reply::show_to(response, origin, self.route == Route::Preflight);
        }
    }
}

/// In what form a client is answered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Form {
    /// It sent several messages at once.
    pub(super) batch: bool,
    /// It can come back for what it missed.
    pub(super) may_return: bool,
    /// It would rather have events than a document.
    pub(super) events: bool,
}

/// Whether a client names events first among what it accepts. Those that do not care name documents first, as all SDKs
/// do.
pub(super) fn prefers_events(headers: &HeaderMap) -> bool {
    let Some(accept) = joined(headers, &ACCEPT) else { return false };
    let place = |kind: &str| accept.to_ascii_lowercase().find(kind);
    matches!(
        (place("text/event-stream"), place("application/json")),
        (Some(events), Some(document)) if events < document
    )
}

/// The era of a request. The only place that decides it for HTTP: whatever a request needs of its era follows from here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    /// Sessions that begin with `initialize`, in this revision where the request says so.
    Initialize(Option<Revision>),
    /// Each request for itself.
    Stateless,
}

/// A client that does not say is of a revision from before the header was invented.
fn era(headers: &HeaderMap) -> Result<Speaks, Instead> {
    let Some(version) = headers.get(VERSION) else {
        return Ok(Speaks::Initialize(None));
    };
    if version == STATELESS {
        return Ok(Speaks::Stateless);
    }
    let known = version.to_str().ok().and_then(Revision::named);
    known.map(|known| Speaks::Initialize(Some(known))).ok_or_else(|| {
        let known = Era::supported().collect::<Vec<_>>().join(", ");
        let message =
            format!("the MCP-Protocol-Version is not one this gateway speaks; it speaks {known}");
        Box::new(reply::refusal(StatusCode::BAD_REQUEST, REFUSED, &message))
    })
}

/// Headers that mean something else, or nothing, when they stand twice. `read_head` takes the first three by their places.
static SINGLE: [HeaderName; 7] =
    [HOST, ORIGIN, CONTENT_TYPE, AUTHORIZATION, SESSION_ID, VERSION, LAST_EVENT];

/// What of a head decides who may come in, in one pass over it.
fn read_head<'a>(parts: &'a Parts, accept: Option<&'a str>) -> Head<'a> {
    let mut values = [None; 7];
    let mut doubtful = None;
    for (name, value) in &parts.headers {
        let Some(place) = SINGLE.iter().position(|single| single == name) else { continue };
        let text = value.to_str().ok();
        if text.is_none() || values[place].is_some() {
            doubtful = doubtful.or(Some(name.as_str()));
        }
        values[place] = values[place].or(text);
    }
    let [host, origin, content_type, ..] = values;
    Head {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        authority: parts.uri.authority().map(hyper::http::uri::Authority::as_str),
        host,
        origin,
        content_type,
        is_encoded: parts.headers.get_all(CONTENT_ENCODING).iter().any(|how| how != "identity"),
        accept,
        doubtful,
    }
}

/// All values of a header that is a list.
fn joined<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<std::borrow::Cow<'a, str>> {
    let mut all = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    let first = all.next()?;
    let rest: Vec<&str> = all.collect();
    if rest.is_empty() {
        return Some(first.into());
    }
    Some([&[first], &rest[..]].concat().join(",").into())
}

/// The session a request names, if it names one that could be.
fn named_session(headers: &HeaderMap) -> Option<SessionId> {
    headers.get(SESSION_ID)?.to_str().ok().and_then(SessionId::parse)
}

fn session_id(headers: &HeaderMap) -> Result<SessionId, Instead> {
    if !headers.contains_key(SESSION_ID) {
        let message = "the header Mcp-Session-Id is missing; a session begins with initialize, whose response names it";
        return Err(Box::new(reply::refusal(StatusCode::BAD_REQUEST, REFUSED, message)));
    }
    named_session(headers).ok_or_else(no_session)
}

/// An id nobody can guess.
pub(super) fn fresh_id() -> Result<SessionId, Instead> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| {
        busy(StatusCode::SERVICE_UNAVAILABLE, "no randomness for a session's id; try again later")
    })?;
    Ok(SessionId::new(random))
}

/// The same for a session that never was, is over, or is somebody else's.
pub(super) fn no_session() -> Instead {
    let message = "there is no such session; begin anew with initialize";
    Box::new(reply::refusal(StatusCode::NOT_FOUND, NO_SESSION, message))
}

/// The same words and codes as over stdio.
pub(super) fn unreadable(defect: &Defect) -> Instead {
    if !defect.kind.is_syntax() {
        return bad_message(&defect.to_string());
    }
    let message = format!("parse error: {defect}");
    Box::new(reply::refusal(StatusCode::BAD_REQUEST, UNPARSED, &message))
}

pub(super) fn bad_message(why: &str) -> Instead {
    Box::new(reply::refusal(StatusCode::BAD_REQUEST, INVALID, &format!("invalid request: {why}")))
}

pub(super) fn busy(status: StatusCode, message: &str) -> Instead {
    Box::new(reply::refusal(status, REFUSED, message))
}

fn refused(refusal: &Refusal) -> Instead {
    telemetry::log(LogLevel::Debug, &format!("refused a request: {refusal}"));
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = reply::refusal(status, REFUSED, &refusal.to_string());
    if let Refusal::Method { allowed } = refusal {
        reply::allow(&mut response, allowed);
    }
    Box::new(response)
}
