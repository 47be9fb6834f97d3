//! The HTTP+SSE transport of 2024: one stream for everything to the client, and an endpoint to post to.

use std::sync::Arc;

use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::access::Principal;
use super::body::RequestBody;
use super::connection_timer::ConnectionTimer;
use super::guard::{Endpoint, MESSAGES};
use super::handler::{Handler, busy, fresh_id, unreadable};
use super::post_body::PostBody;
use super::reply::{self, Answer, INVALID, NO_SESSION};
use super::sessions::{Owner, SessionId};
use super::stream::Stream;
use crate::serve::Session;
use crate::serve::response_streams::ResponseStreams;

/// Backpressure: while a client has this many unread bytes, its messages are rejected.
const READ_BACKLOG: usize = 16 * 1024 * 1024;

impl Handler {
    /// Opens a session that lives as long as its stream.
    pub(super) fn sse(
        &self,
        principal: Principal,
    ) -> Result<Response<Answer>, Box<Response<Answer>>> {
        self.check_open()?;
        let id = fresh_id()?;
        let stream = Stream::general(false);
        let view = self.session_view(Owner { principal, endpoint: Endpoint::Main });
        let response_streams = ResponseStreams::Shared(Arc::clone(&stream));
        let session = Session::new(view, response_streams, &self.suspended_calls);
        self.router.attach(&session.client());
        self.listeners().insert(id, (principal, session));
        let handler = self.me.clone();
        let reader = stream.read(None).plain(&format!("{MESSAGES}?sessionId={}", id.text()));
        Ok(reply::events(reader.on_disconnect(Box::new(move || {
            let Some(handler) = handler.upgrade() else { return };
            let left = handler.listeners().remove(&id);
            if let Some((_, session)) = left {
                session.abandon();
            }
        }))))
    }

    /// Takes a message; its response goes to the stream.
    pub(super) async fn messages(
        &self,
        principal: Principal,
        parts: &Parts,
        body: RequestBody<'_>,
        connection_timer: &ConnectionTimer,
    ) -> Result<Response<Answer>, Box<Response<Answer>>> {
        let is_fleet = self.http_config.continuation.is_some();
        let no_stream = || no_stream(is_fleet);
        let id = parts.uri.query().and_then(session_of).ok_or_else(no_stream)?;
        let line = self.read(principal, body, connection_timer).await?;
        let owner = self.listeners().get(&id).cloned();
        let Some((_, session)) = owner.filter(|(owner, _)| *owner == principal) else {
            return Err(no_stream());
        };
        if let ResponseStreams::Shared(stream) = &session.response_streams
            && stream.backlog() > READ_BACKLOG
        {
            let message = "the client does not read its stream; nothing was run";
            return Err(busy(StatusCode::TOO_MANY_REQUESTS, message));
        }
        let post_body = PostBody::read(&line).map_err(|defect| unreadable(&defect))?;
        if post_body.batch
            && let Some(why) = session.refuses_batches()
        {
            return Err(Box::new(reply::refusal(StatusCode::BAD_REQUEST, INVALID, why)));
        }
        if !post_body.requests().is_empty() {
            self.check_open()?;
        }
        for message in post_body.messages {
            session.take(message, &line);
        }
        Ok(reply::empty(StatusCode::ACCEPTED))
    }

    fn listeners(
        &self,
    ) -> parking_lot::MutexGuard<'_, std::collections::HashMap<SessionId, (Principal, Arc<Session>)>>
    {
        self.listeners.lock()
    }
}

/// One error whether a stream never existed, is over, or belongs to another principal.
fn no_stream(is_fleet: bool) -> Box<Response<Answer>> {
    let message = match is_fleet {
        false => {
            "there is no such session; begin anew with GET /sse, whose stream names where to post"
        }
        true => {
            "there is no such session at this gateway; in a fleet the HTTP+SSE transport needs a load balancer that keeps a client at one gateway, since its session is its stream. Begin anew with GET /sse, whose stream names where to post"
        }
    };
    Box::new(reply::refusal(StatusCode::NOT_FOUND, NO_SESSION, message))
}

/// The session id in the query.
fn session_of(query: &str) -> Option<SessionId> {
    let mut named = query.split('&').filter_map(|pair| pair.strip_prefix("sessionId="));
    let id = SessionId::parse(named.next()?)?;
    named.next().is_none().then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_session() {
        let id = SessionId::new([7; 16]);
        let text = id.text();
        assert_eq!(session_of(&format!("sessionId={text}")), Some(id));
        assert_eq!(session_of(&format!("a=b&sessionId={text}&c")), Some(id));
        assert_eq!(session_of(&format!("sessionId={text}&sessionId={text}")), None);
        assert_eq!(session_of("sessionId="), None);
        assert_eq!(session_of(""), None);
    }
}
