//! OTLP over our own HTTP client: the same TLS and the same bounds as every other request.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Request, Response};
use metamcp_config::config::TlsFiles;
use opentelemetry_http::HttpError;
use tokio::runtime::Handle;

use crate::task;
use crate::web::{ClientOptions, Outgoing, Web, read_body};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The default of the specification for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Exports of one signal follow one another.
const IDLE_CONNECTIONS: usize = 1;
/// Longest answer; a collector says only which part it refused.
const MAX_ANSWER: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct HttpClient {
    web: Web,
    runtime: Handle,
}

impl HttpClient {
    pub(super) fn new(tls: &TlsFiles) -> Result<HttpClient, String> {
        let options = ClientOptions::new(CONNECT_TIMEOUT, IDLE_CONNECTIONS);
        let options = ClientOptions { tls: tls.clone(), ..options };
        let web = Web::new(options).map_err(|error| error.to_string())?;
        Ok(HttpClient { web, runtime: Handle::current() })
    }
}

#[async_trait]
impl opentelemetry_http::HttpClient for HttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let web = self.web.clone();
        let sending = async move {
            let sent = web.send(request.map(Outgoing::of)).await;
            let response = sent.map_err(|error| HttpError::from(format!("{:?}", error.kind)))?;
            let (head, body) = response.into_parts();
            let body = read_body(body, MAX_ANSWER).await;
            let body =
                body.map_err(|_| HttpError::from("the answer of the collector broke off"))?;
            Ok(Response::from_parts(head, body))
        };
        let sent = {
            // The SDK asks on a thread of its own, which has no runtime.
            let _inside = self.runtime.enter();
            task::spawn("otlp", tokio::time::timeout(TIMEOUT, sending))
        };
        sent.await??
    }
}
