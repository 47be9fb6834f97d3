//! One request to the API and its response. No redirect is followed, and no proxy of the environment is used.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};

use super::endpoint::{Endpoint, Purpose};
use super::unavailable::Failure;
use crate::web::{self, BodyError, ClientOptions, Outgoing, SendErrorKind, Web};

/// A host that does not accept a connection in this time will not respond in time either.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A batch of documents on a local model without a GPU takes seconds; nobody waits for it.
const DOCUMENTS_TIMEOUT: Duration = Duration::from_secs(10);
/// A search waits for it.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// 64 vectors of 8192 numbers of 20 digits are 10 MiB.
const MAX_DOCUMENTS_BYTES: usize = 16 * 1024 * 1024;
/// One vector.
const MAX_QUERY_BYTES: usize = 512 * 1024;
/// Idle connections pooled: as many as there are concurrent requests.
const MAX_IDLE_CONNECTIONS: usize = 2;

/// Limits of one kind of request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) time: Duration,
    pub(super) bytes: usize,
}

pub(super) fn bounds(purpose: Purpose) -> Bounds {
    match purpose {
        Purpose::Query => Bounds { time: QUERY_TIMEOUT, bytes: MAX_QUERY_BYTES },
        Purpose::Document => Bounds { time: DOCUMENTS_TIMEOUT, bytes: MAX_DOCUMENTS_BYTES },
    }
}

#[derive(Debug)]
pub(super) struct Client {
    web: Result<Web, &'static str>,
}

#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// The `Retry-After` of the API.
    pub(super) retry_after: Option<Duration>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed { failure, retry_after: None }
    }
}

impl Client {
    pub(super) fn new() -> Client {
        // No TLS files are read, so nothing can be wrong with them.
        let web = Web::new(ClientOptions::new(CONNECT_TIMEOUT, MAX_IDLE_CONNECTIONS))
            .map_err(|_| "TLS cannot be set up");
        Client { web }
    }

    /// Sends one request and returns the response body, within `bounds`.
    pub(super) async fn post(
        &self,
        endpoint: &Endpoint,
        body: Vec<u8>,
        bounds: Bounds,
    ) -> Result<Bytes, Failed> {
        match tokio::time::timeout(bounds.time, self.exchange(endpoint, body, bounds.bytes)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::TimedOut { limit: bounds.time }.into()),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        body: Vec<u8>,
        most: usize,
    ) -> Result<Bytes, Failed> {
        let mut request = Request::new(Outgoing::of(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = endpoint.uri().clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(key) = endpoint.authorization() {
            headers.insert(AUTHORIZATION, key.clone());
        }
        let web = self.web.as_ref().map_err(|reason| Failure::Insecure { reason })?;
        let answer = web.send(request).await.map_err(|error| match error.kind {
            SendErrorKind::Unreachable { reason } => Failure::Unreachable { reason },
            SendErrorKind::Insecure { reason } => Failure::Insecure { reason },
            SendErrorKind::OutOfFiles { .. } => {
                Failure::Unreachable { reason: "metamcp has no file descriptors left" }
            }
            SendErrorKind::Forbidden { .. } | SendErrorKind::Closed => Failure::Closed,
        })?;
        let (head, body) = answer.into_parts();
        if head.status != StatusCode::OK {
            // The body of an error response is not read: it may repeat the key.
            return Err(refused(endpoint, head.status, &head.headers));
        }
        let body = web::read_body(body, most).await.map_err(|error| match error {
            BodyError::TooLarge => Failure::TooLarge { cap: most },
            BodyError::Closed => Failure::Closed,
        })?;
        Ok(body)
    }
}

fn refused(endpoint: &Endpoint, status: StatusCode, headers: &HeaderMap) -> Failed {
    let model = endpoint.model().to_owned();
    let code = status.as_u16();
    let failure = match code {
        300..=399 => Failure::Redirected { status: code },
        400 | 413 | 422 => Failure::Refused { status: code, model },
        401 | 403 => {
            Failure::Unauthorised { status: code, key: endpoint.key_name().map(str::to_owned) }
        }
        404 => Failure::NotFound { model },
        429 => Failure::TooMany,
        _ => Failure::Status { status: code },
    };
    Failed { failure, retry_after: web::retry_after(headers) }
}
