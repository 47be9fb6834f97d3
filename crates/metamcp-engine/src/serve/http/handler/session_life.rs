//! Sessions over HTTP: how they begin, are found again, listen, go on after another gateway of the fleet, and end.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use metamcp_wire::envelope::{Envelope, Id};
use metamcp_wire::era::{self, Era};
use metamcp_wire::session_ticket::SessionTicket;
use metamcp_wire::write;

use super::head::{bad_message, busy, fresh_id, no_session, unknown_version, version};
use super::{ALONE, Admission, ErrorResponse, Handler, LAST_EVENT};
use crate::serve::Session;
use crate::serve::http::post_body::PostBody;
use crate::serve::http::reply::{self, Answer, REFUSED, SESSION_ID};
use crate::serve::http::sessions::{Found, Owner, SessionId};
use crate::serve::http::stateless::not_here;
use crate::serve::http::stream::{self, EventId, Stream, from_event_id};
use crate::serve::response_streams::ResponseStreams;

/// A client resumes the stream of a request that another gateway of the fleet answers.
const ANSWER_ELSEWHERE: &str = "the connection broke off, and the answer to this request is at another gateway of this fleet, which this one cannot ask; the request may have run, so verify before repeating it (a load balancer that keeps a session at one gateway avoids this)";
/// A client answers a request that another gateway of the fleet made.
const ASKED_ELSEWHERE: &str = "no request with this id waits for an answer at this gateway: it is over, or another gateway of this fleet asked and has to get the answer (a load balancer that keeps a session at one gateway avoids this)";

/// The session that a request names.
#[derive(Debug, Clone)]
pub(super) struct NamedSession {
    id: SessionId,
    /// What its id says, if any gateway of the fleet may go on with it.
    ticket: Option<Arc<SessionTicket>>,
}

impl Handler {
    /// The session that a head names, if its id is one that may be ours or this client's.
    pub(super) fn named(&self, headers: &HeaderMap, admission: &Admission) -> Option<NamedSession> {
        let text = headers.get(SESSION_ID)?.to_str().ok()?;
        if let Some(id) = SessionId::parse(text) {
            return Some(NamedSession { id, ticket: None });
        }
        let continuation = self.http_config.continuation.as_ref()?;
        let binding = admission.binding(&self.http_config.rules);
        let ticket = continuation.open(text, &binding)?;
        Some(NamedSession { id: SessionId::new(ticket.id), ticket: Some(Arc::new(ticket)) })
    }

    pub(super) fn listen(
        &self,
        admission: &Admission,
        headers: &HeaderMap,
    ) -> Result<Response<Answer>, ErrorResponse> {
        self.check_open()?;
        let era = era::of_request(version(headers), None);
        if era.map_err(unknown_version)? == Era::Stateless {
            return Err(not_here());
        }
        let session = self.session(admission, headers)?;
        let ResponseStreams::PerRequest(streams) = &session.response_streams else {
            return Err(no_session());
        };
        let last = match headers.get(LAST_EVENT).filter(|id| !id.is_empty()) {
            None => None,
            // A valid id may be of a stream that is over by now; an invalid one was never ours.
            Some(id) => Some(id.to_str().ok().and_then(from_event_id).ok_or_else(|| {
                bad_message("the Last-Event-ID is of no event of this gateway; listen without it")
            })?),
        };
        let found =
            last.as_ref().and_then(|last| Some((streams.numbered(last.stream)?, last.position)));
        let reader = match found {
            Some((stream, position)) => stream.read(Some(position)),
            None => match last.as_ref().and_then(|last| self.answered_elsewhere(last)) {
                Some(lost) => lost.read(None),
                None => streams.general().read(None),
            },
        };
        Ok(reply::counted(reader.ticket(), reply::events(reader)))
    }

    /// For a client that wants to resume the answer to a request which another gateway has: errors that say so.
    fn answered_elsewhere(&self, last: &EventId) -> Option<Arc<Stream>> {
        self.http_config.continuation.as_ref()?;
        if last.requests.is_empty() || stream::is_own(last.stream) {
            return None;
        }
        let lost = Stream::awaiting(last.requests.len(), false, None);
        for id in &last.requests {
            let mut error = Vec::new();
            write::error(&mut error, Some(id), -32000, ANSWER_ELSEWHERE, None);
            lost.answer(stream::Event::whole(Bytes::from(error)));
        }
        Some(lost)
    }

    /// Whether the answers among these messages are to requests that this gateway made. Elsewhere late ones mean nothing;
    /// in a fleet the client has to know that an answer did not reach who waits for it.
    pub(super) fn check_answers(
        &self,
        session: &Session,
        post_body: &PostBody<'_>,
    ) -> Result<(), ErrorResponse> {
        if self.http_config.continuation.is_none() {
            return Ok(());
        }
        let number = |message: &Envelope<'_>| match message {
            Envelope::Result { id, .. } => Some(id.as_u64()),
            Envelope::Error { id, .. } => Some(id.as_ref().and_then(Id::as_u64)),
            _ => None,
        };
        let mut answers = post_body.messages.iter().filter_map(number);
        match answers.all(|number| session.awaits(number)) {
            true => Ok(()),
            false => Err(Box::new(reply::refusal(StatusCode::CONFLICT, REFUSED, ASKED_ELSEWHERE))),
        }
    }

    pub(super) fn delete(
        &self,
        admission: &Admission,
        headers: &HeaderMap,
    ) -> Result<Response<Answer>, ErrorResponse> {
        if era::of_request(version(headers), None) == Ok(Era::Stateless) {
            return Err(not_here());
        }
        let named = admission.named.as_ref().ok_or_else(|| unnamed(headers))?;
        let here = self.sessions().remove(named.id, admission.owner);
        let elsewhere = here.is_none() && self.may_continue(named).is_some();
        if here.is_none() && !elsewhere {
            return Err(no_session());
        }
        if let (Some(continuation), Some(_)) = (&self.http_config.continuation, &named.ticket) {
            continuation.end(named.id);
        }
        if let Some(session) = here.flatten() {
            session.abandon();
        }
        Ok(reply::empty(StatusCode::NO_CONTENT))
    }

    /// A client says `notifications/initialized` once, so of all gateways of a fleet one hears it: there are processes that
    /// its session does not share. A load balancer that goes by the session's id sends it where it sends what follows.
    pub(super) fn settle(
        &self,
        admission: &Admission,
        session: &Session,
        post_body: &PostBody<'_>,
    ) {
        let is_said = |message: &Envelope<'_>| matches!(message, Envelope::Notification { method, .. } if method == "notifications/initialized");
        if self.http_config.continuation.is_none() || !post_body.messages.iter().any(is_said) {
            return;
        }
        if let Some(named) = &admission.named {
            session.settle();
            self.sessions().settle(named.id);
        }
    }

    /// A session that is not in the table yet; `alone`, one for a single request.
    pub(super) fn start(&self, owner: Owner, alone: bool) -> Arc<Session> {
        if alone {
            return self.start_alone(owner, self.response_streams(true));
        }
        let view = self.session_view(owner);
        if self.http_config.continuation.is_some() {
            view.seat.may_be_elsewhere();
        }
        let session = Session::new(view, self.response_streams(false), &self.suspended_calls);
        self.router.attach(&session.client());
        session
    }

    /// A session for a single request.
    pub(in crate::serve::http) fn start_alone(
        &self,
        owner: Owner,
        response_streams: ResponseStreams,
    ) -> Arc<Session> {
        let session = Session::new(self.view(owner), response_streams, &self.suspended_calls);
        let mut all = self.alone();
        // Cleaned up only when it is full, so that a request costs a push.
        if all.len() == all.capacity() {
            all.retain(|session| session.strong_count() > 0);
            let room = all.len().max(ALONE);
            all.reserve(room);
        }
        all.push(Arc::downgrade(&session));
        drop(all);
        session
    }

    /// Puts a session into the table once its client has initialized it; its id for the client.
    pub(super) fn keep(
        &self,
        admission: &Admission,
        session: &Arc<Session>,
    ) -> Result<Option<HeaderValue>, ErrorResponse> {
        let Some(peer) = session.peer() else { return Ok(None) };
        let id = fresh_id()?;
        let now = self.router.clock.now();
        if !self.sessions().insert(id, admission.owner, &peer, Arc::clone(session), now) {
            session.abandon();
            return Err(no_room());
        }
        let continuation = self.http_config.continuation.as_ref();
        let binding = admission.binding(&self.http_config.rules);
        let sealed = continuation.and_then(|continuation| continuation.seal(id, &peer, &binding));
        Ok(HeaderValue::from_str(&sealed.unwrap_or_else(|| id.text())).ok())
    }

    /// The session a request names: resumed if it was idle, continued if it began at another gateway.
    pub(super) fn session(
        &self,
        admission: &Admission,
        headers: &HeaderMap,
    ) -> Result<Arc<Session>, ErrorResponse> {
        let named = admission.named.as_ref().ok_or_else(|| unnamed(headers))?;
        let (id, owner, now) = (named.id, admission.owner, self.router.clock.now());
        let mut sessions = self.sessions();
        let (peer, is_known) = match sessions.find(id, owner, now) {
            Some(Found::Awake(session)) => return Ok(session),
            Some(Found::Resting(peer)) => (peer, true),
            None => (self.may_continue(named).ok_or_else(no_session)?.peer(), false),
        };
        let view = self.session_view(owner);
        if self.http_config.continuation.is_some() && !sessions.is_home(id) {
            view.seat.may_be_elsewhere();
        }
        let streams = self.response_streams(false);
        let session =
            Session::resumed(view, streams, &self.suspended_calls, Arc::new(peer.clone()));
        if is_known {
            sessions.wake(id, Arc::clone(&session));
        } else if !sessions.insert(id, owner, &peer, Arc::clone(&session), now) {
            drop(sessions);
            session.abandon();
            return Err(no_room());
        }
        drop(sessions);
        self.router.attach(&session.client());
        Ok(session)
    }

    /// What the id of a session that is not here says, if it can go on here.
    fn may_continue<'a>(&self, named: &'a NamedSession) -> Option<&'a SessionTicket> {
        let continuation = self.http_config.continuation.as_ref()?;
        named.ticket.as_deref().filter(|ticket| !continuation.is_over(ticket))
    }
}

fn no_room() -> ErrorResponse {
    busy(StatusCode::SERVICE_UNAVAILABLE, "there are too many sessions; try again later")
}

/// The error for a request that names no session of anybody.
fn unnamed(headers: &HeaderMap) -> ErrorResponse {
    if headers.contains_key(SESSION_ID) {
        return no_session();
    }
    let message = "the header Mcp-Session-Id is missing; a session begins with initialize, whose response names it";
    Box::new(reply::refusal(StatusCode::BAD_REQUEST, REFUSED, message))
}
