//! One request and its response: what each status means, what is retried, and what fails.

use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use metamcp_calls::failure::Fact;
use metamcp_calls::replay::Delivery;
use metamcp_wire::envelope::Envelope;
use metamcp_wire::modern::HEADER_MISMATCH;
use metamcp_wire::object;
use tokio::time::{sleep, timeout};

use super::Remote;
use super::message::Message;
use super::post::{Broken, PostResponse};
use crate::upstream::{Connection, Listener, Reply, sse};
use crate::web::{self, BodyError};

/// Delays before reconnecting to a server that worked a moment ago and now refuses connections: it may be restarting.
const RECONNECT_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
/// How much of an error response is read, and for how long.
const MAX_ERROR_BODY: usize = 64 * 1024;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the gateway's own requests: longer than any caller waits.
const OWN_REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// Delay before a subscription that ended is renewed.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(5);
/// Longest content type quoted in an error.
const MAX_TYPE: usize = 80;

/// What a response contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Document,
    Stream,
    Nothing,
    Other(String),
}

/// A request of ours, and who receives its response.
#[derive(Clone, Copy)]
struct SentRequest<'a> {
    connection: &'a Arc<Connection>,
    listener: &'a Arc<dyn Listener>,
    number: u64,
    message: &'a Message,
}

/// What was tried already.
#[derive(Default)]
struct Attempts {
    renewed: bool,
    logged_in: bool,
    older: bool,
    connections: usize,
}

/// What follows from a response.
enum Next {
    Reply(Reply),
    /// The response was delivered, or will come over another stream.
    Done,
    Again,
}

impl Remote {
    /// Runs one request to its end. A subscription has none while the connection lives.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
        number: u64,
        message: Message,
    ) {
        loop {
            let asking = self.ask(SentRequest { connection, listener, number, message: &message });
            let reply = if connection.is_own(number) && message.method != "subscriptions/listen" {
                let late = Fact::CallTimedOut { after: OWN_REQUEST_TIMEOUT };
                let late = Reply::Broke { fact: late, delivery: Delivery::Sent };
                timeout(OWN_REQUEST_TIMEOUT, asking).await.unwrap_or(Some(late))
            } else {
                // A call has its own deadline, at which this task is aborted.
                asking.await
            };
            if message.method != "subscriptions/listen" {
                self.exchanges().remove(&number);
                if let Some(reply) = reply {
                    connection.deliver(number, reply, &**listener);
                }
                return;
            }
            match reply {
                Some(Reply::Error(_)) => return,
                Some(Reply::Broke { fact: Fact::HttpStatus { status: 400..=499 }, .. }) => return,
                _ => {}
            }
            sleep(RESUBSCRIBE_DELAY).await;
            // Changes in the meantime were not announced.
            listener.on_notification(connection, "notifications/tools/list_changed", None);
        }
    }

    /// The reply, or nothing if it was delivered already.
    async fn ask(self: &Arc<Self>, sent_request: SentRequest<'_>) -> Option<Reply> {
        let mut attempts = Attempts::default();
        loop {
            // Waits for a session renewal under way: the server has to see `initialize` first.
            drop(self.renewing.lock().await);
            let next = match self.post(sent_request.connection, sent_request.message).await {
                Ok(post_response) => self.judge(sent_request, post_response, &mut attempts).await,
                Err(broken) => {
                    if broken.fact == Fact::StreamDropped {
                        self.drop_idle_connections();
                    }
                    let known = sent_request.connection.peer.get().is_some();
                    let pause = RECONNECT_DELAYS.get(attempts.connections).filter(|_| {
                        known
                            && broken.delivery == Delivery::NotSent
                            && matches!(broken.fact, Fact::Unreachable { .. } | Fact::StreamDropped)
                    });
                    match pause {
                        Some(pause) => {
                            attempts.connections += 1;
                            sleep(*pause).await;
                            Ok(Next::Again)
                        }
                        None => Err(broken),
                    }
                }
            };
            match next {
                Ok(Next::Again) => {}
                Ok(Next::Done) => return None,
                Ok(Next::Reply(reply)) => return Some(reply),
                Err(Broken { fact, delivery }) => return Some(Reply::Broke { fact, delivery }),
            }
        }
    }

    async fn judge(
        self: &Arc<Self>,
        sent_request: SentRequest<'_>,
        post_response: PostResponse,
        attempts: &mut Attempts,
    ) -> Result<Next, Broken> {
        let SentRequest { connection, listener, message, .. } = sent_request;
        let status = post_response.response.status().as_u16();
        match status {
            200..=299 => self.answer(sent_request, post_response).await,
            401 if !attempts.logged_in => {
                attempts.logged_in = true;
                self.login(&post_response).await?;
                Ok(Next::Again)
            }
            403 if !attempts.logged_in && wants_more_rights(&post_response.response) => {
                attempts.logged_in = true;
                self.login(&post_response).await?;
                Ok(Next::Again)
            }
            401 => Err(Broken::refused(fresh_token_refused())),
            429 => Err(Broken::refused(self.fact_of(429, &post_response.response))),
            400..=499 => {
                let PostResponse { response, session, .. } = post_response;
                let fact = self.fact_of(status, &response);
                let error = refusal(response).await;
                if self.is_sse() {
                    return Err(Broken::refused(fact));
                }
                // The protocol says 404; many servers that lost a session answer 400 without an id.
                let forgotten =
                    status == 404 || (status == 400 && matches!(error, Some((_, false))));
                if let (Some(session), true, false) = (session, forgotten, attempts.renewed) {
                    attempts.renewed = true;
                    self.renew(connection, listener, session).await?;
                    return Ok(Next::Again);
                }
                if let Some((error, _)) = error {
                    if message.method == "tools/call" && is_mismatch(&error) {
                        // Its tools require other headers than we know of.
                        listener.on_notification(
                            connection,
                            "notifications/tools/list_changed",
                            None,
                        );
                    }
                    return Ok(Next::Reply(Reply::Error(error)));
                }
                let older = message.method == "initialize" && self.site.may_be_sse;
                if older && !attempts.older && matches!(status, 400 | 404 | 405 | 406 | 415) {
                    attempts.older = true;
                    // If there is no such stream either, report the first error.
                    if sse::open_stream(self, connection, listener).await.is_ok() {
                        return Ok(Next::Again);
                    }
                }
                Err(Broken::refused(fact))
            }
            _ => Err(Broken::after_sending(self.fact_of(status, &post_response.response))),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        sent_request: SentRequest<'_>,
        post_response: PostResponse,
    ) -> Result<Next, Broken> {
        let SentRequest { connection, listener, number, message } = sent_request;
        if self.is_sse() {
            return Ok(Next::Done);
        }
        let response = post_response.response;
        if message.method == "initialize" {
            self.store_session(&response);
        }
        let instead = match kind_of(&response) {
            Kind::Document => {
                let whole = web::read_body(response.into_body(), self.site.line_bytes).await;
                let document = match whole {
                    Ok(document) => document,
                    Err(BodyError::TooLarge) => {
                        let more = self.site.line_bytes as u64 + 1;
                        return Ok(Next::Reply(Reply::Oversize(more)));
                    }
                    Err(BodyError::Closed) => {
                        return Err(Broken::after_sending(Fact::StreamDropped));
                    }
                };
                match connection.message(&document, &document, Some(number), &**listener) {
                    Ok(true) => return Ok(Next::Done),
                    Ok(false) => "a message that answers another request".to_owned(),
                    Err(defect) => return Ok(Next::Reply(Reply::Malformed(defect))),
                }
            }
            Kind::Stream => {
                let body = response.into_body();
                let reply = self.answer_in_stream(connection, listener, number, body).await;
                return Ok(reply.map_or(Next::Done, Next::Reply));
            }
            Kind::Nothing => "nothing".to_owned(),
            Kind::Other(kind) => kind,
        };
        Err(Broken::after_sending(Fact::NotMcp { instead }))
    }

    /// Handles a 401 or 403.
    pub(in crate::upstream) async fn login(
        &self,
        post_response: &PostResponse,
    ) -> Result<(), Broken> {
        let challenges: Vec<String> = post_response
            .response
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| Some(value.to_str().ok()?.to_owned()))
            .collect();
        let more = self.site.credentials.refused(&challenges, post_response.token.as_ref()).await;
        more.map_err(Broken::refused)
    }

    /// What an error status means.
    pub(in crate::upstream) fn fact_of(&self, status: u16, response: &Response<Incoming>) -> Fact {
        let retry_after = web::retry_after(response.headers());
        match (status, retry_after) {
            (429, retry_after) => Fact::Limited { retry_after },
            (503, Some(retry_after)) => Fact::Busy { retry_after },
            _ => Fact::HttpStatus { status },
        }
    }
}

/// A server that refuses even a fresh token is not sent another one.
pub(in crate::upstream) fn fresh_token_refused() -> Fact {
    let reason = "it refused a fresh token".to_owned();
    Fact::LoginNeeded { reason, address: None }
}

/// The kind of a response, by its headers.
pub(super) fn kind_of(response: &Response<Incoming>) -> Kind {
    let headers = response.headers();
    let encoding = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
        return Kind::Other("a compressed body, which was not requested".to_owned());
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/json" => Kind::Document,
        "text/event-stream" => Kind::Stream,
        _ if matches!(response.status().as_u16(), 202 | 204) => Kind::Nothing,
        "" => Kind::Other("a body without a content type".to_owned()),
        other => Kind::Other(other.chars().take(MAX_TYPE).collect()),
    }
}

fn wants_more_rights(response: &Response<Incoming>) -> bool {
    let challenges = response.headers().get_all(WWW_AUTHENTICATE);
    challenges
        .iter()
        .any(|value| value.to_str().is_ok_and(|text| text.contains("insufficient_scope")))
}

/// Whether the server misses headers that repeat parts of the body.
fn is_mismatch(error: &[u8]) -> bool {
    let code = object::pick(error, ["code"]).ok().and_then(|[code]| code);
    code.is_some_and(|code| code == HEADER_MISMATCH.to_string().as_bytes())
}

/// The JSON-RPC error in an error response, and whether it names a request.
async fn refusal(response: Response<Incoming>) -> Option<(bytes::Bytes, bool)> {
    if kind_of(&response) != Kind::Document {
        return None;
    }
    let body = timeout(ERROR_BODY_TIMEOUT, web::read_body(response.into_body(), MAX_ERROR_BODY))
        .await
        .ok()?
        .ok()?;
    match Envelope::parse(&body) {
        Ok(Envelope::Error { id, error }) => Some((body.slice_ref(error), id.is_some())),
        _ => None,
    }
}
