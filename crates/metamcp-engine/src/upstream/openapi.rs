//! The transport of an API without an MCP server: what its description says is answered here, and a call is one HTTP request.
//! Owns: the answers to `initialize` and `tools/list`, the calls under way.      Never: reads a description itself (`openapi/description.rs`), decides whether a call is repeated.
//! In: messages from the connection's outbox.  Out: responses to them; why the connection ended.
//! Tests: `metamcp/tests/remote/openapi.rs`, `metamcp/tests/real/openapi.rs`.

pub(super) mod description;
mod exchange;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use metamcp_calls::failure::Fact;
use metamcp_config::config::{ApiEndpoint, RemoteEndpoint};
use metamcp_openapi::Api;
use metamcp_types::escalation::Escalation;
use metamcp_types::secret::Secret;
use metamcp_types::web::{Address, SsrfZone};
use metamcp_wire::envelope::Envelope;
use metamcp_wire::era::Revision;
use metamcp_wire::object;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::era_cache::ServerProtocol;
use super::launch::chain;
use super::remote::Site;
use super::transport::{Boxed, Surroundings, Transport};
use super::{Connection, Listener, Reply};
use crate::task;
use crate::web::{ClientOptions, GuardedClient, SsrfPolicy, Web, zone_of};

/// Calls to one API at a time that have a task of their own; the dispatch allows fewer.
const MAX_CALLS: usize = 4096;
/// The handshake needs no patience: the answers are ours.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct OpenApi(Arc<Shared>);

/// What the calls share.
struct Shared {
    name: String,
    api: Arc<Api>,
    site: Site,
    /// The client for the API's own origin, and the one for wherever else it sends us.
    web: Web,
    guarded: GuardedClient,
    /// By the names of their security schemes.
    credentials: Vec<(String, Secret)>,
    calls: Mutex<HashMap<u64, AbortHandle>>,
    fate: watch::Sender<bool>,
}

impl fmt::Debug for OpenApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenApi({})", self.0.api.base.origin())
    }
}

impl OpenApi {
    /// Reads the description, which may have to be fetched. Sends nothing to the API.
    pub async fn open(
        name: &str,
        endpoint: &ApiEndpoint,
        surroundings: Surroundings<'_>,
    ) -> Result<OpenApi, Fact> {
        let Surroundings { launcher, line_bytes, mirrors, .. } = surroundings;
        let api = launcher.descriptions.read(name, endpoint).await?;
        let remote = RemoteEndpoint {
            url: api.base.to_string(),
            headers: endpoint.headers().cloned().collect(),
            ..endpoint.remote.clone()
        };
        let site = launcher.sites.site(name, &remote, line_bytes, mirrors)?;
        let web = match endpoint.base_url() {
            Some(_) => site.web.clone(),
            None => named_by_description(endpoint, &api, &site)?,
        };
        let credentials =
            endpoint.credentials().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        Ok(OpenApi(Arc::new(Shared {
            name: name.to_owned(),
            api,
            site,
            web,
            guarded: GuardedClient::default(),
            credentials,
            calls: Mutex::default(),
            fate: watch::Sender::new(false),
        })))
    }
}

/// The client for an API whose place only its description names: it leads no further than it came from, and a credential
/// goes along only where whoever gave it can have known that.
fn named_by_description(endpoint: &ApiEndpoint, api: &Api, site: &Site) -> Result<Web, Fact> {
    let refuse = |reason: String| {
        let fix = format!("if that is right, set \"baseUrl\": \"{}\" in its entry", api.base);
        Err(Fact::Unsupported { reason: format!("{reason}; {fix}") })
    };
    let has_secrets = !endpoint.remote.headers.is_empty() || endpoint.remote.options.login.wanted;
    let origin = api.base.origin();
    let home = endpoint.is_fetched().then(|| Address::parse(&endpoint.description).ok()).flatten();
    if let Some(home) = &home
        && has_secrets
        && !home.is_same_origin(&api.base)
    {
        return refuse(format!(
            "its description from {} says that the API is at {origin}, and credentials are not sent to an origin that only a fetched file names",
            home.origin()
        ));
    }
    if has_secrets && !api.base.is_confidential() {
        return refuse(format!(
            "its description says that the API is at {origin}, where credentials would go unencrypted"
        ));
    }
    let zone = match &home {
        Some(home) => zone(home),
        None => zone(&api.base),
    };
    if zone == SsrfZone::Blocked {
        return refuse(format!(
            "its description says that the API is at {origin}, which is no address of an API"
        ));
    }
    let policy = SsrfPolicy::SentFrom(zone);
    let options = ClientOptions { ssrf_policy: policy, ..site.client_options.clone() };
    Web::new(options).map_err(|error| Fact::Insecure { reason: chain(&error) })
}

fn zone(address: &Address) -> SsrfZone {
    if address.is_here() { SsrfZone::Loopback } else { zone_of(address) }
}

impl Transport for OpenApi {
    fn serve<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        listener: &'a Arc<dyn Listener>,
    ) -> Boxed<'a, Option<Fact>> {
        Box::pin(async move {
            let mut fate = self.0.fate.subscribe();
            tokio::select! {
                () = self.0.talk(connection, listener) => {}
                _ = fate.wait_for(|stopped| *stopped) => {}
            }
            None
        })
    }

    fn ended(&self) -> Boxed<'_, ()> {
        let under_way: Vec<AbortHandle> =
            self.0.calls.lock().drain().map(|(_, call)| call).collect();
        under_way.iter().for_each(AbortHandle::abort);
        Box::pin(std::future::ready(()))
    }

    fn close(&self, _escalation: Escalation) -> Boxed<'_, ()> {
        self.kill();
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {
        self.0.fate.send_replace(true);
    }

    fn probe_patience(&self) -> Duration {
        PROBE_TIMEOUT
    }

    /// We answer ourselves, so there is nothing to find out.
    fn begins_with(&self, _last_time: Option<ServerProtocol>) -> Option<ServerProtocol> {
        Some(ServerProtocol::Initialize)
    }
}

impl Shared {
    async fn talk(self: &Arc<Self>, connection: &Arc<Connection>, listener: &Arc<dyn Listener>) {
        let mut batch: VecDeque<Bytes> = VecDeque::new();
        let mut unfinished = BytesMut::new();
        while connection.outbox.next(&mut batch).await {
            for piece in batch.drain(..) {
                connection.outbox.took(piece.len());
                unfinished.extend_from_slice(&piece);
                while let Some(end) = memchr::memchr(b'\n', &unfinished) {
                    let mut line = unfinished.split_to(end + 1);
                    line.truncate(end);
                    self.message(connection, listener, &line.freeze());
                }
            }
        }
        // Nothing more comes; it ends when it is stopped.
        std::future::pending::<()>().await;
    }

    fn message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
        line: &Bytes,
    ) {
        match Envelope::parse(line) {
            Ok(Envelope::Request { id, method, params }) => {
                let Some(number) = id.as_u64() else { return };
                let reply = match &*method {
                    "tools/call" => {
                        let params =
                            params.map(|params| line.slice_ref(params)).unwrap_or_default();
                        return self.begin(connection, listener, number, params);
                    }
                    "initialize" => Reply::Result(self.introduction()),
                    "tools/list" => Reply::Result(Bytes::from(self.api.tools().to_owned())),
                    "ping" => Reply::Result(Bytes::from_static(b"{}")),
                    _ => Reply::Error(Bytes::from_static(
                        br#"{"code":-32601,"message":"an API has tools only"}"#,
                    )),
                };
                connection.deliver(number, reply, &**listener);
            }
            Ok(Envelope::Notification { method, params })
                if method == "notifications/cancelled" =>
            {
                let id = params.and_then(|params| object::pick(params, ["requestId"]).ok());
                let number = id.and_then(|[id]| std::str::from_utf8(id?).ok()?.parse::<u64>().ok());
                if let Some(call) = number.and_then(|number| self.calls.lock().remove(&number)) {
                    call.abort();
                }
            }
            _ => {}
        }
    }

    fn begin(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
        number: u64,
        params: Bytes,
    ) {
        let (shared, connection) = (Arc::clone(self), Arc::clone(connection));
        let listener = Arc::clone(listener);
        // Under the lock, so that it cannot have ended before it is in the table.
        let mut calls = self.calls.lock();
        if calls.len() >= MAX_CALLS {
            let fact = Fact::Limited { retry_after: None };
            let delivery = metamcp_calls::replay::Delivery::NotSent;
            drop(calls);
            return connection.deliver(number, Reply::Broke { fact, delivery }, &*listener);
        }
        let call = task::spawn("api call", async move {
            let reply = shared.call(&params).await;
            shared.calls.lock().remove(&number);
            connection.deliver(number, reply, &*listener);
        });
        calls.insert(number, call.abort_handle());
    }

    /// The result of `initialize`.
    fn introduction(&self) -> Bytes {
        let Api { title, version, about, notes, .. } = &*self.api;
        let count = self.api.operations().len();
        let mut told =
            format!("{count} of {} operations of the API at {}.", self.api.total, self.api.base);
        for note in notes {
            told.push_str(&format!(" {note}."));
        }
        let instructions = if about.is_empty() { told } else { format!("{about}\n\n{told}") };
        let name = if title.is_empty() { &self.name } else { title };
        let result = json!({
            "protocolVersion": Revision::LATEST.name(),
            "capabilities": { "tools": {} },
            "serverInfo": { "name": self.name, "title": name, "version": version },
            "instructions": instructions,
        });
        Bytes::from(result.to_string())
    }
}
