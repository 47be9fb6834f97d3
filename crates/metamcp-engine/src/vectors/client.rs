//! One request to the API and its answer. No redirect is followed, no environment is asked for a way around.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pooled;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::endpoint::{Endpoint, Purpose};
use super::unavailable::Failure;

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
/// Shorter than servers keep theirs, so that we rarely write into one that was just closed.
const KEPT_FOR: Duration = Duration::from_secs(30);

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
    http: Pooled<HttpsConnector<HttpConnector>, Full<Bytes>>,
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
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = Pooled::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEPT_FOR)
            .pool_max_idle_per_host(KEPT)
            .build(connector);
        Client { http }
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
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = endpoint.uri().clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let agent = HeaderValue::from_static(concat!("metamcp/", env!("CARGO_PKG_VERSION")));
        headers.insert(USER_AGENT, agent);
        if let Some(key) = endpoint.authorization() {
            headers.insert(AUTHORIZATION, key.clone());
        }
        let answer = self.http.request(request).await.map_err(|error| {
            if error.is_connect() { not_connected(&error) } else { Failure::Closed }
        })?;
        let (head, body) = answer.into_parts();
        if head.status != StatusCode::OK {
            // What it says beside its status is not read: it may repeat the key.
            return Err(refused(endpoint, head.status, &head.headers));
        }
        let body = Limited::new(body, most).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Failure::TooLarge { cap: most }
            } else {
                Failure::Closed
            }
        })?;
        Ok(body.to_bytes())
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
    // The other form, a date, would need a calendar; the usual pause does instead.
    let wish = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Failed { failure, wish: wish.map(Duration::from_secs) }
}

/// Why there is no connection, by the innermost error of a type we know.
fn not_connected(error: &(dyn Error + 'static)) -> Failure {
    let mut kind = None;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            kind = Some(error.kind());
            // Its source leaves out what it wraps.
            next = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
        } else {
            next = error.source();
        }
    }
    use io::ErrorKind as Kind;
    match kind {
        // What rustls does not accept arrives as invalid data.
        Some(Kind::InvalidData) => {
            Failure::Insecure { reason: "its certificate or its TLS is not accepted" }
        }
        Some(Kind::UnexpectedEof) => {
            Failure::Insecure { reason: "it closed the connection; it may not speak TLS" }
        }
        Some(Kind::ConnectionRefused) => Failure::Unreachable { reason: "connection refused" },
        Some(Kind::TimedOut) => Failure::Unreachable { reason: "no connection in time" },
        Some(Kind::ConnectionReset) => Failure::Unreachable { reason: "connection reset" },
        Some(Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::NetworkDown) => {
            Failure::Unreachable { reason: "no way there" }
        }
        // A name that is not found has no kind of its own.
        _ => Failure::Unreachable { reason: "its name is not known, or the network is down" },
    }
}
