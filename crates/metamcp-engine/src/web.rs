//! The one way out over HTTP: to remote servers, to those who let us log in, to embedding APIs, to issuers of keys.
//! Owns: connections kept for reuse, TLS, the way through a tunnel, the guard on where strangers send us.      Never: follows a redirect, retries, knows what a body says.
//! In: a `Request`.  Out: the head of its response and a body still to be read, or a `SendError` that says how far it got.
//! Tests: below, `metamcp/tests/remote/`.

mod body;
mod dial;
mod error;
mod tls;
mod tunnel;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use metamcp_config::config::TlsFiles;
use metamcp_types::date;
use metamcp_types::web::{Address, SsrfZone};
use parking_lot::Mutex;

pub use body::Outgoing;
use dial::Dial;
pub use dial::zone_of;
pub use error::{SendError, SendErrorKind};
pub use tls::TlsError;
pub use tunnel::Tunnel;

use crate::clock::unix_millis;

/// Shorter than servers keep theirs, so that we rarely write into one that was just closed.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// Longest head of a response. Cookies and policies of large sites fit many times over.
const MAX_HEAD: usize = 64 * 1024;
/// The same for HTTP/2, which counts otherwise.
const MAX_HEADER_LIST: u32 = 64 * 1024;
/// How often a silent HTTP/2 connection is asked whether it lives, and how long it may take to say so.
const ALIVE_EVERY: Duration = Duration::from_secs(30);
const ALIVE_WITHIN: Duration = Duration::from_secs(20);

/// What a way out is like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long a connection may take to stand, TLS not counted.
    pub connect: Duration,
    /// Idle connections kept for each host.
    pub kept: usize,
    /// Whether HTTP/2 is spoken where the server offers it.
    pub http2: bool,
    /// Files for TLS.
    pub tls: TlsFiles,
    /// The tunnel that the surroundings name, if any.
    pub tunnel: Option<Tunnel>,
    /// Where it may lead.
    pub ssrf_policy: SsrfPolicy,
}

/// Where a way out may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SsrfPolicy {
    /// Wherever the operator says.
    Anywhere,
    /// Where a server in that zone may send us.
    SentFrom(SsrfZone),
}

impl Plan {
    /// Addresses that the operator wrote, with nothing special about them.
    pub fn plain(connect: Duration, kept: usize) -> Plan {
        Plan {
            connect,
            kept,
            http2: false,
            tls: TlsFiles::default(),
            tunnel: None,
            ssrf_policy: SsrfPolicy::Anywhere,
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Web {
    client: Client<HttpsConnector<Dial>, Outgoing>,
    connector: HttpsConnector<Dial>,
    /// Idle connections kept for each host.
    kept: usize,
}

impl Web {
    /// A way out. Reads the files for TLS.
    pub fn new(plan: Plan) -> Result<Web, TlsError> {
        let tls = tls::config(&plan.tls)?;
        let dial = Dial::new(plan.connect, plan.tunnel, plan.ssrf_policy);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = if plan.http2 {
            builder.enable_all_versions().wrap_connector(dial)
        } else {
            builder.enable_http1().wrap_connector(dial)
        };
        let client = client(connector.clone(), plan.kept);
        Ok(Web { client, connector, kept: plan.kept })
    }

    /// The same way without the connections that were kept: one of them turned out to be dead, and those that were idle
    /// beside it hardly fare better.
    #[must_use]
    pub fn afresh(&self) -> Web {
        let client = client(self.connector.clone(), self.kept);
        Web { client, connector: self.connector.clone(), kept: self.kept }
    }

    /// Sends one request. The caller sets a limit of time.
    pub async fn send(
        &self,
        mut request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, SendError> {
        let agent = HeaderValue::from_static(concat!("metamcp/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        let watch = request.body().watch();
        self.client.request(request).await.map_err(|error| SendError::from_hyper(&error, &watch))
    }
}

/// The way to wherever a server sends us, made for the zone in which the server itself was reached.
#[derive(Debug, Default)]
pub struct Guarded {
    made: Mutex<Option<(SsrfZone, Web)>>,
}

impl Guarded {
    /// The way for a server at this address, otherwise as planned.
    pub fn way(&self, server: &Address, plan: &Plan) -> Result<Web, TlsError> {
        let zone = zone_of(server);
        let mut made = self.made.lock();
        if let Some((_, web)) = made.as_ref().filter(|(known, _)| *known == zone) {
            return Ok(web.clone());
        }
        let web = Web::new(Plan { ssrf_policy: SsrfPolicy::SentFrom(zone), ..plan.clone() })?;
        *made = Some((zone, web.clone()));
        Ok(web)
    }
}

fn client(connector: HttpsConnector<Dial>, kept: usize) -> Client<HttpsConnector<Dial>, Outgoing> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(KEPT_FOR)
        .pool_max_idle_per_host(kept)
        .http1_max_buf_size(MAX_HEAD)
        .http2_max_header_list_size(MAX_HEADER_LIST)
        .http2_keep_alive_interval(ALIVE_EVERY)
        .http2_keep_alive_timeout(ALIVE_WITHIN)
        .http2_adaptive_window(true)
        .build(connector)
}

/// A request to an address.
pub fn request(
    method: hyper::Method,
    address: &Address,
    headers: HeaderMap,
    body: Outgoing,
) -> Result<Request<Outgoing>, SendError> {
    let uri = address.to_string().parse::<hyper::Uri>().map_err(|_| SendError::no_address())?;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

/// How long a response asks us to stay away.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    date::retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, unix_millis())
}

/// Why a body could not be read whole.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is longer than it may be.
    TooLarge,
    /// It broke off.
    Closed,
}

/// A whole body, up to a limit.
pub async fn whole(body: Incoming, most: usize) -> Result<Bytes, BodyError> {
    let read = Limited::new(body, most).collect().await;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() { BodyError::TooLarge } else { BodyError::Closed }
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;
