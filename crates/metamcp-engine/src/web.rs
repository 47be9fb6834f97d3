//! The HTTP client for all outgoing requests: remote servers, authorization servers, embedding APIs, key sets, registries.
//! Owns: the connection pool, TLS, the proxy, the SSRF guard.      Never: follows a redirect, retries, knows what a body says.
//! In: a `Request`.  Out: the head of its response and a body still to be read, or a `SendError` that says whether it was sent.
//! Tests: below, `metamcp/tests/remote/`.

mod body;
mod dial;
mod error;
mod proxy;
mod tls;

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
pub use proxy::Proxy;
pub use tls::TlsError;
#[cfg(feature = "fleet")]
pub(crate) use tls::config as tls_config;

use crate::clock::unix_millis;

/// Shorter than the idle timeout of servers, so that we rarely write to a connection that was just closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest response head. Cookies and policies of large sites fit many times over.
const MAX_HEAD: usize = 64 * 1024;
/// The same for HTTP/2, which counts differently.
const MAX_HEADER_LIST: u32 = 64 * 1024;
/// HTTP/2 keep-alive: how often an idle connection is pinged, and how long the reply may take.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Connect timeout, without TLS.
    pub connect_timeout: Duration,
    /// Idle connections pooled for each host.
    pub idle_per_host: usize,
    /// Whether HTTP/2 is negotiated.
    pub http2: bool,
    pub tls: TlsFiles,
    /// The proxy, if one is configured in the environment.
    pub proxy: Option<Proxy>,
    pub ssrf_policy: SsrfPolicy,
}

/// Which addresses may be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SsrfPolicy {
    /// Any: the operator configured the address.
    Anywhere,
    /// Those that a server in that zone may redirect to.
    SentFrom(SsrfZone),
}

impl ClientOptions {
    /// For addresses that the operator configured: HTTP/1.1, no proxy.
    pub fn new(connect_timeout: Duration, idle_per_host: usize) -> ClientOptions {
        ClientOptions {
            connect_timeout,
            idle_per_host,
            http2: false,
            tls: TlsFiles::default(),
            proxy: None,
            ssrf_policy: SsrfPolicy::Anywhere,
        }
    }
}

/// A pooled HTTP client.
#[derive(Debug, Clone)]
pub struct Web {
    client: Client<HttpsConnector<Dial>, Outgoing>,
    connector: HttpsConnector<Dial>,
    /// Idle connections pooled for each host.
    idle_per_host: usize,
}

impl Web {
    /// Reads the TLS files.
    pub fn new(options: ClientOptions) -> Result<Web, TlsError> {
        let tls = tls::config(&options.tls)?;
        let dial = Dial::new(options.connect_timeout, options.proxy, options.ssrf_policy);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = if options.http2 {
            builder.enable_all_versions().wrap_connector(dial)
        } else {
            builder.enable_http1().wrap_connector(dial)
        };
        let client = client(connector.clone(), options.idle_per_host);
        Ok(Web { client, connector, idle_per_host: options.idle_per_host })
    }

    /// The same client with an empty pool: one connection turned out to be dead, and those idle beside it probably are too.
    #[must_use]
    pub fn with_empty_pool(&self) -> Web {
        let client = client(self.connector.clone(), self.idle_per_host);
        Web { client, connector: self.connector.clone(), idle_per_host: self.idle_per_host }
    }

    /// Sends one request. The caller sets a timeout.
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

/// The client for addresses that a server names, restricted to the zone in which the server itself was reached.
#[derive(Debug, Default)]
pub struct GuardedClient {
    made: Mutex<Option<(SsrfZone, Web)>>,
}

impl GuardedClient {
    /// The client for the server at this address.
    pub fn client(&self, server: &Address, options: &ClientOptions) -> Result<Web, TlsError> {
        let zone = zone_of(server);
        let mut made = self.made.lock();
        if let Some((_, web)) = made.as_ref().filter(|(known, _)| *known == zone) {
            return Ok(web.clone());
        }
        let web =
            Web::new(ClientOptions { ssrf_policy: SsrfPolicy::SentFrom(zone), ..options.clone() })?;
        *made = Some((zone, web.clone()));
        Ok(web)
    }
}

fn client(
    connector: HttpsConnector<Dial>,
    idle_per_host: usize,
) -> Client<HttpsConnector<Dial>, Outgoing> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(idle_per_host)
        .http1_max_buf_size(MAX_HEAD)
        .http2_max_header_list_size(MAX_HEADER_LIST)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_adaptive_window(true)
        .build(connector)
}

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

/// The `Retry-After` of a response.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    date::retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, unix_millis())
}

#[derive(Debug, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    /// The connection closed early.
    Closed,
}

/// Reads a whole body, up to a limit.
pub async fn read_body(body: Incoming, most: usize) -> Result<Bytes, BodyError> {
    let read = Limited::new(body, most).collect().await;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() { BodyError::TooLarge } else { BodyError::Closed }
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;
