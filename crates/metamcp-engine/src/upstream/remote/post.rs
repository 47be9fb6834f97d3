//! One HTTP request to the server: headers, redirects, and the meaning of network errors.

use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION,
};
use hyper::{Method, Response};
use metamcp_calls::failure::Fact;
use metamcp_calls::replay::Delivery;
use metamcp_types::web::Address;

use super::Remote;
use super::credentials::Token;
use super::message::Message;
use crate::upstream::Connection;
use crate::web::{self, Outgoing, SendError, SendErrorKind, Web};

const MAX_REDIRECTS: usize = 3;

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A request that got no usable response.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Broken {
    pub(in crate::upstream) fact: Fact,
    pub(in crate::upstream) delivery: Delivery,
}

impl Broken {
    pub(in crate::upstream) fn refused(fact: Fact) -> Broken {
        Broken { fact, delivery: Delivery::Refused }
    }

    pub(super) fn after_sending(fact: Fact) -> Broken {
        Broken { fact, delivery: Delivery::Sent }
    }
}

impl From<SendError> for Broken {
    fn from(error: SendError) -> Broken {
        let fact = match error.kind {
            SendErrorKind::Unreachable { reason } => {
                Fact::Unreachable { reason: reason.to_owned() }
            }
            SendErrorKind::Insecure { reason } => Fact::Insecure { reason: reason.to_owned() },
            SendErrorKind::Forbidden { reason } => return Broken::refused(Fact::Astray { reason }),
            SendErrorKind::OutOfFiles { reason } => Fact::OutOfFiles { reason },
            SendErrorKind::Closed => Fact::StreamDropped,
        };
        Broken { fact, delivery: if error.sent { Delivery::Sent } else { Delivery::NotSent } }
    }
}

/// A response, and how the request was sent.
pub(in crate::upstream) struct PostResponse {
    pub(in crate::upstream) response: Response<Incoming>,
    /// The generation of the session it belonged to.
    pub(super) session: Option<u64>,
    pub(super) token: Option<Token>,
}

impl Remote {
    /// Posts a message.
    pub(super) async fn post(
        &self,
        connection: &Connection,
        message: &Message,
    ) -> Result<PostResponse, Broken> {
        let mut headers = self.headers(connection, message.method == "initialize");
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &message.headers {
            headers.insert(name.clone(), value.clone());
        }
        let (session, place) = {
            let state = self.state();
            let place = state.endpoint.as_ref().or(state.moved.as_ref());
            let place = place.unwrap_or(&self.site.address).clone();
            match &state.session {
                Some(id) if message.method != "initialize" => {
                    headers.insert(SESSION, id.clone());
                    (Some(state.generation), place)
                }
                _ => (None, place),
            }
        };
        let token = self.site.credentials.token().await;
        if let Some(token) = &token {
            headers.insert(AUTHORIZATION, token.header());
        }
        if !place.is_same_origin(&self.site.address) {
            drop_credentials(&mut headers);
        }
        let body = Outgoing::of(message.bytes.clone());
        let sent = self.follow_redirects(Method::POST, &place, headers, body, Some(message)).await;
        match sent {
            Ok((response, at)) => {
                if response.status().is_success() {
                    self.remember_redirect(at, &place);
                }
                Ok(PostResponse { response, session, token })
            }
            Err(broken) => {
                // The next request starts at the configured address again.
                self.state().moved = None;
                Err(broken)
            }
        }
    }

    /// Opens a stream, after the last event received.
    pub(in crate::upstream) async fn fetch_stream(
        &self,
        connection: &Connection,
        last: Option<&str>,
    ) -> Result<PostResponse, Broken> {
        let mut headers = self.headers(connection, false);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            headers.insert(LAST_EVENT, last);
        }
        let session = {
            let state = self.state();
            if let Some(id) = &state.session {
                headers.insert(SESSION, id.clone());
            }
            state.session.as_ref().map(|_| state.generation)
        };
        let token = self.site.credentials.token().await;
        if let Some(token) = &token {
            headers.insert(AUTHORIZATION, token.header());
        }
        let place = self.site.address.clone();
        let nothing = Outgoing::default();
        let (response, _) =
            self.follow_redirects(Method::GET, &place, headers, nothing, None).await?;
        Ok(PostResponse { response, session, token })
    }

    /// Deletes the session.
    pub(super) async fn delete(&self, session: HeaderValue) {
        let mut headers = self.site.headers.clone();
        headers.insert(SESSION, session);
        if let Some(token) = self.site.credentials.token().await {
            headers.insert(AUTHORIZATION, token.header());
        }
        let (place, nothing) = (&self.site.address, Outgoing::default());
        // The response does not matter: the server may not allow it, or have ended the session already.
        drop(self.follow_redirects(Method::DELETE, place, headers, nothing, None).await);
    }

    /// The headers of every message.
    fn headers(&self, connection: &Connection, first: bool) -> HeaderMap {
        let mut headers = self.site.headers.clone();
        let types = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, types);
        // No compression: a small body could expand to a huge one.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let (Some(peer), false) = (connection.peer.get(), first) {
            headers.insert(VERSION, HeaderValue::from_static(peer.era.name()));
        }
        headers
    }

    /// Remembers a redirect, so that calls go there directly: they are never sent twice.
    fn remember_redirect(&self, at: Address, asked: &Address) {
        let mut state = self.state();
        if at != *asked && state.endpoint.is_none() {
            state.moved = Some(at);
        }
    }

    /// One request with its redirects, and the final address. A server that redirects a call may have run it all the same, so
    /// a redirected call is not repeated.
    async fn follow_redirects(
        &self,
        method: Method,
        place: &Address,
        mut headers: HeaderMap,
        body: Outgoing,
        message: Option<&Message>,
    ) -> Result<(Response<Incoming>, Address), Broken> {
        let mut place = place.clone();
        let mut body = Some(body);
        let runs = message.is_some_and(Message::may_change_things);
        for hop in 0..=MAX_REDIRECTS {
            let at_home = place.is_same_origin(&self.site.address);
            let web = if at_home { self.web() } else { self.guarded()? };
            let again =
                || Outgoing::of(message.map(|message| message.bytes.clone()).unwrap_or_default());
            let body = body.take().unwrap_or_else(again);
            let request = web::request(method.clone(), &place, headers.clone(), body)?;
            let response = web.send(request).await.map_err(|error| {
                let broken = Broken::from(error);
                // A redirected request had reached a server before.
                if hop > 0 { Broken { delivery: Delivery::Sent, ..broken } } else { broken }
            })?;
            let status = response.status().as_u16();
            if !matches!(status, 301 | 302 | 307 | 308) {
                if (300..400).contains(&status) && status != 304 {
                    let reason = format!("by HTTP {status}, which is not followed");
                    return Err(not_followed(reason, runs));
                }
                return Ok((response, place));
            }
            if runs {
                let reason = format!("by HTTP {status}, in response to a call it may have run");
                return Err(not_followed(reason, true));
            }
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = target.and_then(|target| place.join(target).ok());
            let Some(next) = next else {
                let reason = "by a redirect without an address".to_owned();
                return Err(Broken::refused(Fact::Astray { reason }));
            };
            if place.is_secure() && !next.is_secure() {
                let reason = format!("to {}, which is not encrypted", next.origin());
                return Err(Broken::refused(Fact::Astray { reason }));
            }
            if !next.is_same_origin(&place) {
                drop_credentials(&mut headers);
            }
            place = next;
        }
        let reason = format!("more than {MAX_REDIRECTS} times");
        Err(Broken::refused(Fact::Astray { reason }))
    }

    /// The client for redirect targets.
    fn guarded(&self) -> Result<Web, Broken> {
        let client = self.guarded.client(&self.site.address, &self.site.client_options);
        client.map_err(|error| Broken::refused(Fact::Unreachable { reason: error.to_string() }))
    }
}

/// Removes credentials before a redirect to another host.
fn drop_credentials(headers: &mut HeaderMap) {
    let public = [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, VERSION];
    *headers = public
        .into_iter()
        .filter_map(|name| Some((name.clone(), headers.get(&name)?.clone())))
        .collect();
}

/// A redirect that was not followed.
fn not_followed(reason: String, ran: bool) -> Broken {
    let fact = Fact::Astray { reason };
    if ran { Broken::after_sending(fact) } else { Broken::refused(fact) }
}
