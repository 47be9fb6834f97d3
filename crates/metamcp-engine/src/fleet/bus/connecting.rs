//! The way to the bus: addresses, credentials, TLS, and how often it is tried.
//! Owns: what a node needs to be let in.      Never: keeps a credential longer than the connection.
//! In: settings.  Out: a connected client, or why not.
//! Tests: `metamcp/tests/fleet/messages.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};
use metamcp_config::config::TlsFiles;
use metamcp_fleet::identity::NodeName;
use metamcp_types::secret::Secret;

use super::error::{BusError, chain};
use super::link::Links;
use crate::clock;
use crate::cluster_key::Keyring;
use crate::web::tls_config;

/// One attempt with one server.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long a first connection is tried for: a bus that starts together with its gateways takes some seconds.
const FIRST: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(300);
/// Later, the pause between attempts grows to this and never ends.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Without a sign of the bus for so long, twice, the connection is given up: well within the time a lease holds.
const PING: Duration = Duration::from_secs(1);
/// Messages that wait for a reader here; more are dropped, and the protocol says them again.
const QUEUE: usize = 8192;
/// Commands that wait for the connection; whoever has another one waits.
const OUTGOING: usize = 2048;

/// How a node says who it is. Values are resolved already.
#[derive(Debug, Clone, Default)]
pub enum Credentials {
    #[default]
    None,
    /// A file with a JWT and a seed, as `nsc` writes it.
    File(PathBuf),
    User {
        name: String,
        password: Secret,
    },
    /// The seed of an nkey.
    Nkey(Secret),
    Token(Secret),
}

#[derive(Clone)]
pub struct BusConfig {
    /// `nats://` or `tls://`.
    pub servers: Vec<String>,
    pub credentials: Credentials,
    /// Certificates besides those of the built-in authorities.
    pub tls: TlsFiles,
    pub node: NodeName,
    /// What subjects and buckets begin with: fleets that share an account have different ones.
    pub prefix: String,
    /// On how many servers of the bus each bucket is kept.
    pub replicas: usize,
    pub keyring: Arc<Keyring>,
}

pub(super) async fn client(config: &BusConfig, links: &Links) -> Result<Client, BusError> {
    let mut addresses = Vec::with_capacity(config.servers.len());
    for server in &config.servers {
        let address: ServerAddr =
            server.trim().parse().map_err(|_| BusError::Address(server.clone()))?;
        let is_one = matches!(address.scheme(), "nats" | "tls") && !address.host().is_empty();
        if !is_one || address.has_user_pass() {
            return Err(BusError::Address(shown(&address)));
        }
        addresses.push(address);
    }
    if addresses.is_empty() {
        return Err(BusError::Address(String::new()));
    }
    let servers = addresses.iter().map(shown).collect::<Vec<_>>().join(", ");
    let began = clock::instant();
    loop {
        let options = options(config, links, &addresses).await?;
        let error = match options.connect(&addresses[..]).await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        let why = chain(&error);
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                return Err(BusError::NotAuthorized { servers });
            }
            ConnectErrorKind::Tls => return Err(BusError::Tls { servers, why }),
            ConnectErrorKind::ServerParse => return Err(BusError::Address(servers)),
            _ if why.contains("certificate") => return Err(BusError::Tls { servers, why }),
            _ => {}
        }
        let after = clock::instant().duration_since(began);
        if after >= FIRST {
            return Err(BusError::Unreachable { servers, after, why });
        }
        tracing::debug!("the cluster's bus does not answer yet: {why}");
        tokio::time::sleep(FIRST_PAUSE).await;
    }
}

fn shown(address: &ServerAddr) -> String {
    format!("{}://{}:{}", address.scheme(), address.host(), address.port())
}

async fn options(
    config: &BusConfig,
    links: &Links,
    addresses: &[ServerAddr],
) -> Result<ConnectOptions, BusError> {
    let options = match &config.credentials {
        Credentials::None => ConnectOptions::new(),
        Credentials::File(file) => {
            let read = ConnectOptions::with_credentials_file(file).await;
            read.map_err(|error| BusError::Credentials {
                file: file.clone(),
                why: error.to_string(),
            })?
        }
        Credentials::User { name, password } => {
            ConnectOptions::with_user_and_password(name.clone(), password.expose().to_owned())
        }
        Credentials::Nkey(seed) => ConnectOptions::with_nkey(seed.expose().to_owned()),
        Credentials::Token(token) => ConnectOptions::with_token(token.expose().to_owned()),
    };
    let certificates =
        tls_config(&config.tls).map_err(|error| BusError::Certificates(chain(&error)))?;
    let links = links.clone();
    Ok(options
        .name(format!("metamcp {}", config.node.as_str()))
        .custom_inbox_prefix(format!("_INBOX.{}", config.node.as_str()))
        .tls_client_config(certificates)
        .require_tls(addresses.iter().any(|address| address.scheme() == "tls"))
        .ignore_discovered_servers()
        .connection_timeout(ATTEMPT)
        .ping_interval(PING)
        .subscription_capacity(QUEUE)
        .client_capacity(OUTGOING)
        .max_reconnects(None)
        .reconnect_delay_callback(|attempts| {
            let pause = Duration::from_millis(25 << attempts.min(10));
            pause.min(LONGEST_PAUSE)
        })
        .event_callback(move |event| {
            links.event(&event);
            std::future::ready(())
        }))
}
