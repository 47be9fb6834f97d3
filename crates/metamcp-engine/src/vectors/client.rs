//! One request to the API and its answer. No redirect is followed, no environment is asked for a way around.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};

use super::endpoint::{Endpoint, Purpose};
use super::unavailable::Failure;
use crate::web::{self, BodyError, Outgoing, Plan, SendErrorKind, Web};

/// A host that does not take a connection in this time will not answer in time either.
const CONNECT: Duration = Duration::from_secs(2);
/// A batch of documents on a local model without a graphics card takes seconds; nobody waits for it.
const DOCUMENTS: Duration = Duration::from_secs(10);
/// Somebody waits for a search.
const QUERY: Duration = Duration::from_secs(2);
/// 64 vectors of 8192 numbers of 20 digits are 10 MiB.
const MAX_DOCUMENTS_BYTES: usize = 16 * 1024 * 1024;
/// One vector.
const MAX_QUERY_BYTES: usize = 512 * 1024;
/// Connections kept for the next request: as many as there are requests at once.
const KEPT: usize = 2;

/// Times and sizes, for one kind of request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) time: Duration,
    pub(super) bytes: usize,
}

/// What each kind of request may take.
pub(super) fn bounds(purpose: Purpose) -> Bounds {
    match purpose {
        Purpose::Query => Bounds { time: QUERY, bytes: MAX_QUERY_BYTES },
        Purpose::Document => Bounds { time: DOCUMENTS, bytes: MAX_DOCUMENTS_BYTES },
    }
}

/// Speaks HTTP, over TLS where the address says so.
#[derive(Debug)]
pub(super) struct Client {
    web: Result<Web, &'static str>,
}

/// A request that did not succeed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// How long the API asked to be left alone.
    pub(super) wish: Option<Duration>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed { failure, wish: None }
    }
}

impl Client {
    pub(super) fn new() -> Client {
        // No files are read for it, so there is nothing that could be wrong with them.
        let web = Web::new(Plan::plain(CONNECT, KEPT)).map_err(|_| "TLS cannot be set up");
        Client { web }
    }

    /// The body of the answer to one request. Takes no longer than `bounds` says.
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
            // What it says beside its status is not read: it may repeat the key.
            return Err(refused(endpoint, head.status, &head.headers));
        }
        let body = web::whole(body, most).await.map_err(|error| match error {
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
    Failed { failure, wish: web::retry_after(headers) }
}
