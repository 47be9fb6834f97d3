//! What the settings make of serving over HTTP: everything is checked before the first connection is taken.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use metamcp_core::settings::{ServeSettings, Settings, Transport};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::access::{Access, Expected, KeySet, KeySource, Signed, SourceError, tokens_of};
use super::door::Ways;
use super::guard::{self, Rules};
use super::tls::{Tls, TlsError};

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Nobody would be kept out.
    #[error(
        "{host} can be reached from other machines, and nothing says who may use it; give --token-file, --token-env or --jwks, or listen on 127.0.0.1"
    )]
    NoAuthentication {
        /// The address to listen on.
        host: String,
    },
    /// The address is none.
    #[error("cannot listen on {host:?}: it is no address of this machine")]
    Host {
        /// As it was given.
        host: String,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
    /// Somebody else has it.
    #[error("cannot listen on {address}")]
    Listen {
        /// Address and port.
        address: SocketAddr,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
    /// There is no file.
    #[error("cannot read the tokens in {}", path.display())]
    TokenFile {
        /// Where it should be.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
    /// The file lets nobody in.
    #[error("there is no token in {}; it holds one a line", path.display())]
    NoTokens {
        /// Which file.
        path: PathBuf,
    },
    /// The variable lets nobody in.
    #[error("--token-env names the variable {name}, which is not set or empty")]
    TokenVariable {
        /// Which one.
        name: String,
    },
    /// Tokens of anybody for anybody would do.
    #[error(
        "--jwks needs --jwt-issuer and --jwt-audience, so that tokens for others are not taken"
    )]
    Unaddressed,
    /// There are no keys.
    #[error("cannot use the keys of --jwks")]
    Keys(#[from] SourceError),
    /// A part is missing.
    #[error("--tls, --tls-cert and --tls-key belong together; {missing} is missing")]
    TlsIncomplete {
        /// Which part.
        missing: &'static str,
    },
    /// A part cannot be used.
    #[error("cannot serve with TLS")]
    Tls(#[from] TlsError),
}

/// See the module.
pub struct Plan {
    /// How requests are taken.
    pub ways: Ways,
    /// TLS, where it is wanted.
    pub tls: Option<Arc<Tls>>,
    /// Where keys of signed tokens come from.
    pub keys: Option<KeySource>,
    addresses: Vec<SocketAddr>,
}

impl Plan {
    /// Checks the settings. `variable` looks into the environment.
    pub fn of(
        settings: &Settings,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Plan, PlanError> {
        let serve = &settings.serve;
        let addresses = resolve(&serve.host, serve.port)?;
        let local = addresses.iter().all(|address| address.ip().is_loopback());
        let tls = tls(serve)?;
        let (keys, signed) = signed(serve)?.unzip();
        let access = Access::new(tokens(serve, variable)?, signed);
        if !local && access.is_open() && !serve.allow_unauthenticated {
            return Err(PlanError::NoAuthentication { host: serve.host.clone() });
        }
        let rules = Rules {
            local,
            hosts: words(&serve.allowed_hosts),
            origins: words(&serve.allowed_origins),
            legacy: serve.transport == Transport::Sse,
            toolsets: Vec::new(),
            stateless: serve.stateless,
            json: serve.json_response,
        };
        let ways = Ways {
            rules,
            access,
            body_bytes: settings.limits.line_bytes,
            session_timeout: serve.session_timeout,
            scheme: if tls.is_some() { "https" } else { "http" },
        };
        Ok(Plan { ways, tls, keys, addresses })
    }

    /// Takes the port; says where clients find us.
    pub async fn listen(&self) -> Result<(TcpListener, String), PlanError> {
        let mut failed = None;
        for &address in &self.addresses {
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    let bound = listener.local_addr().unwrap_or(address);
                    let path = if self.ways.rules.legacy { guard::SSE } else { guard::MCP };
                    return Ok((listener, format!("{}://{bound}{path}", self.ways.scheme)));
                }
                Err(source) => failed = Some(PlanError::Listen { address, source }),
            }
        }
        Err(failed.unwrap_or_else(|| PlanError::Host {
            host: String::new(),
            source: io::ErrorKind::AddrNotAvailable.into(),
        }))
    }
}

fn resolve(host: &str, port: u32) -> Result<Vec<SocketAddr>, PlanError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let port = u16::try_from(port).unwrap_or(u16::MAX);
    let failed = |source| PlanError::Host { host: host.to_owned(), source };
    let addresses: Vec<SocketAddr> = (bare, port).to_socket_addrs().map_err(failed)?.collect();
    if addresses.is_empty() {
        return Err(failed(io::ErrorKind::AddrNotAvailable.into()));
    }
    Ok(addresses)
}

fn tls(serve: &ServeSettings) -> Result<Option<Arc<Tls>>, PlanError> {
    let missing = |missing| Err(PlanError::TlsIncomplete { missing });
    match (serve.tls, &serve.tls_cert, &serve.tls_key) {
        (false, None, None) => Ok(None),
        // Whoever names a certificate does not want to be heard in the clear.
        (false, _, _) => missing("--tls"),
        (true, None, _) => missing("--tls-cert"),
        (true, _, None) => missing("--tls-key"),
        (true, Some(cert), Some(key)) => Ok(Some(Arc::new(Tls::load(cert, key)?))),
    }
}

fn tokens(
    serve: &ServeSettings,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<String>, PlanError> {
    let mut tokens = Vec::new();
    if let Some(path) = &serve.token_file {
        let text = fs::read_to_string(path)
            .map_err(|source| PlanError::TokenFile { path: path.clone(), source })?;
        tokens.extend(tokens_of(&text));
        if tokens.is_empty() {
            return Err(PlanError::NoTokens { path: path.clone() });
        }
    }
    if !serve.token_env.is_empty() {
        let token = variable(&serve.token_env).map(|token| token.trim().to_owned());
        let token = token.filter(|token| !token.is_empty());
        tokens
            .push(token.ok_or_else(|| PlanError::TokenVariable { name: serve.token_env.clone() })?);
    }
    Ok(tokens)
}

fn signed(serve: &ServeSettings) -> Result<Option<(KeySource, Signed)>, PlanError> {
    if serve.jwks.is_empty() {
        return Ok(None);
    }
    if serve.jwt_issuer.is_empty() || serve.jwt_audience.is_empty() {
        return Err(PlanError::Unaddressed);
    }
    let (source, keys): (KeySource, KeySet) = KeySource::open(&serve.jwks)?;
    let expected =
        Expected { issuer: serve.jwt_issuer.clone(), audience: serve.jwt_audience.clone() };
    Ok(Some((source, Signed { keys: RwLock::new(keys), expected, unknown: Notify::new() })))
}

fn words(list: &str) -> Vec<String> {
    let words = list.split(',').map(|word| word.trim().trim_end_matches('/').to_ascii_lowercase());
    words.filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut ServeSettings)) -> Result<Plan, PlanError> {
        let mut settings = Settings::default();
        change(&mut settings.serve);
        Plan::of(&settings, &|name| (name == "TOKEN").then(|| "secret".to_owned()))
    }

    #[test]
    fn what_others_can_reach_needs_a_token() {
        for host in ["127.0.0.1", "::1", "[::1]", "127.9.9.9"] {
            let plan = plan(|serve| serve.host = host.into()).unwrap();
            assert!(plan.ways.rules.local && plan.ways.access.is_open(), "{host}");
        }
        for host in ["0.0.0.0", "::", "192.0.2.1"] {
            let error = plan(|serve| serve.host = host.into()).err().unwrap();
            assert!(matches!(error, PlanError::NoAuthentication { .. }), "{host}: {error}");
            let guarded = plan(|serve| {
                serve.host = host.into();
                serve.token_env = "TOKEN".into();
            });
            assert!(!guarded.unwrap().ways.rules.local, "{host}");
            let reckless = plan(|serve| {
                serve.host = host.into();
                serve.allow_unauthenticated = true;
            });
            assert!(reckless.is_ok(), "{host}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = |change: fn(&mut ServeSettings)| plan(change).err().unwrap().to_string();
        assert!(message(|serve| serve.token_env = "NONE".into()).contains("variable NONE"));
        assert!(message(|serve| serve.token_file = Some("/nowhere".into())).contains("/nowhere"));
        assert!(message(|serve| serve.tls = true).contains("--tls-cert is missing"));
        assert!(message(|serve| serve.tls_cert = Some("x".into())).contains("--tls is missing"));
        assert!(message(|serve| serve.jwks = "keys.json".into()).contains("--jwt-issuer"));
        assert!(message(|serve| serve.host = "not an address".into()).contains("not an address"));
    }

    #[test]
    fn lists_are_read_as_people_write_them() {
        assert_eq!(words(" https://App.example.org/ ,, b"), ["https://app.example.org", "b"]);
        assert_eq!(words(""), [""; 0]);
    }
}
