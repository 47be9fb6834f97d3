//! Responses: a JSON document, an event stream, or an error that says what happened and what to do.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use metamcp_wire::write;

use super::pending_writes::PendingWrites;
use super::stream::{Event, Reader, Ticket};

/// The header that carries a session's id.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// JSON-RPC: parse error.
pub const UNPARSED: i64 = -32700;
/// JSON-RPC: invalid request.
pub const INVALID: i64 = -32600;
/// Server error whose meaning is in the HTTP status.
pub const REFUSED: i64 = -32000;
/// Server error: no such session.
pub const NO_SESSION: i64 = -32001;

/// Largest header map that is reused: twice what clients send, so that no client makes us keep a large one.
const MAX_REUSED: usize = 24;

/// The body of a response.
pub struct Answer {
    /// The document or the stream.
    pub content: Content,
    /// Counts the requests it answers as in flight.
    ticket: Option<Ticket>,
    /// Takes the ticket over when hyper drops the body before it is written.
    pending_writes: Option<PendingWrites>,
}

/// The two kinds of body.
pub enum Content {
    /// One document, or an empty body.
    Document(Option<Bytes>),
    /// Server-sent events.
    Events(Reader),
}

impl Answer {
    /// Takes the document out.
    pub fn take(&mut self) -> Option<Bytes> {
        match &mut self.content {
            Content::Document(document) => document.take(),
            Content::Events(_) => None,
        }
    }

    /// Sets the connection that hyper writes it to.
    pub(super) fn leave_by(&mut self, pending_writes: &PendingWrites) {
        self.pending_writes = Some(pending_writes.clone());
    }
}

impl From<Content> for Answer {
    fn from(content: Content) -> Answer {
        Answer { content, ticket: None, pending_writes: None }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let (Some(pending_writes), Some(ticket)) = (&self.pending_writes, self.ticket.take()) {
            pending_writes.given(ticket);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().content {
            Content::Document(document) => {
                Poll::Ready(document.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            Content::Events(reader) => Pin::new(reader).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Document(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Document(document) => {
                SizeHint::with_exact(document.as_ref().map_or(0, Bytes::len) as u64)
            }
            Content::Events(_) => SizeHint::default(),
        }
    }
}

/// A status without a body.
pub fn empty(status: StatusCode) -> Response<Answer> {
    let mut response = Response::new(Content::Document(None).into());
    *response.status_mut() = status;
    response
}

/// The Content-Type of every document.
pub const JSON: &str = "application/json";

/// A JSON document. Its Content-Type is added when it is written.
pub fn document(bytes: Bytes) -> Response<Answer> {
    Response::new(Content::Document(Some(bytes)).into())
}

/// A document that is not JSON. Nobody keeps a copy of it.
pub fn text(text: String, content_type: &'static str) -> Response<Answer> {
    let mut response = document(Bytes::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Adds the Content-Type of a document that has none.
pub fn add_type(response: &mut Response<Answer>) {
    if let Content::Document(Some(_)) = response.body().content {
        let json = HeaderValue::from_static(JSON);
        response.headers_mut().entry(CONTENT_TYPE).or_insert(json);
    }
}

/// Makes the requests it answers count as in flight until it is written.
pub fn counted(ticket: Option<Ticket>, mut response: Response<Answer>) -> Response<Answer> {
    response.body_mut().ticket = ticket;
    response
}

/// The responses to a batch, as a batch.
pub fn list(events: &[Event]) -> Response<Answer> {
    let mut whole = vec![b'['];
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            whole.push(b',');
        }
        whole.extend_from_slice(event.to_bytes().trim_ascii_end());
    }
    whole.push(b']');
    document(Bytes::from(whole))
}

/// An event stream, with headers that ask intermediaries not to buffer or transform it.
pub fn events(reader: Reader) -> Response<Answer> {
    let mut response = Response::new(Content::Events(reader).into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

/// An error: an HTTP status with a JSON-RPC error as its body.
pub fn refusal(status: StatusCode, code: i64, message: &str) -> Response<Answer> {
    let mut body = Vec::with_capacity(128 + message.len());
    write::error(&mut body, None, code, message, None);
    let mut response = document(Bytes::from(body));
    *response.status_mut() = status;
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Adds the `Allow` header.
pub fn allow(response: &mut Response<Answer>, allowed: &'static str) {
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
}

/// Adds the `WWW-Authenticate` header.
pub fn challenge(response: &mut Response<Answer>, metadata: &str, error: Option<&str>) {
    let error = error.map_or_else(String::new, |error| format!(", error=\"{error}\""));
    let text = format!("Bearer resource_metadata=\"{metadata}\"{error}");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
}

/// Adds the CORS headers for that origin.
pub fn show_to(response: &mut Response<Answer>, origin: &HeaderValue, is_preflight: bool) {
    let headers = response.headers_mut();
    let mut add = |name, value| headers.insert(HeaderName::from_static(name), value);
    add("access-control-allow-origin", origin.clone());
    add("vary", HeaderValue::from_static("Origin"));
    let exposed = HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate");
    add("access-control-expose-headers", exposed);
    if is_preflight {
        let methods = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
        add("access-control-allow-methods", methods);
        let sent = HeaderValue::from_static(
            "Authorization, Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, Mcp-Method, Mcp-Name",
        );
        add("access-control-allow-headers", sent);
    }
}

/// Moves a response's headers into the map that held the request's. hyper reuses the map of a response for the headers of
/// the next request, and one made for a response is too small for that: it would grow with every request.
pub fn reuse(mut table: HeaderMap, response: &mut Response<Answer>) {
    if table.capacity() <= MAX_REUSED {
        table.clear();
        table.extend(response.headers_mut().drain());
        *response.headers_mut() = table;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_a_request_carries_the_headers_of_its_response() {
        let asked = |count: usize| {
            let mut headers = HeaderMap::new();
            for at in 0..count {
                let name = HeaderName::try_from(format!("x-{at}")).unwrap();
                headers.insert(name, HeaderValue::from_static("theirs"));
            }
            headers
        };
        for (count, is_reused) in [(0, false), (8, true), (100, false)] {
            let table = asked(count);
            let room = table.capacity();
            let mut response = document(Bytes::from_static(b"{}"));
            add_type(&mut response);
            allow(&mut response, "POST");
            let mine = response.headers().clone();
            reuse(table, &mut response);
            assert_eq!(*response.headers(), mine, "{count}");
            assert_eq!(response.headers().capacity() == room, is_reused, "{count}");
        }
    }
}
