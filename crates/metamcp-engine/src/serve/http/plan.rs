//! Checks the settings for serving over HTTP, before the first connection is accepted.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metamcp_config::config::Config;
use metamcp_config::settings::{ClusterSettings, ServeSettings, Transport};
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::access::{
    Access, ApproverError, Expected, Generated, GeneratedError, KeySet, KeySource, LineError,
    Purpose, Role, Signed, SourceError, Token, tokens_of,
};
use super::continuation::Continuation;
use super::guard::{self, Rules};
use super::handler::HttpConfig;
use super::tls::{Tls, TlsError};
use crate::cluster_key::Keyring;

/// The name of the environment variable's token in `approvers`, as `token:NAME`.
const OF_VARIABLE: &str = "env";

/// Why the settings cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No authentication on a public address.
    #[error(
        "{host} can be reached from other machines, and nothing says who may use it; give --token-file, --token-env or --jwks, or listen on 127.0.0.1 (the token that is generated for this machine is for others only if you name its file, {})",
        generated.display()
    )]
    NoAuthentication {
        /// The address to listen on.
        host: String,
        /// Where the generated token is, or would be.
        generated: PathBuf,
    },
    /// Two settings contradict each other.
    #[error("--no-auth lets everybody in, and {other} says whom to let in; leave one of them out")]
    NoAuthWith {
        /// The other one.
        other: &'static str,
    },
    /// The token could not be generated.
    #[error("cannot use the generated token")]
    Generated(#[from] GeneratedError),
    /// A token is bound to a toolset that is not served.
    #[error(
        "a token is bound to the toolset {toolset:?}, which the configuration does not have{}",
        if *.kept { " (with --toolset only that one is served)" } else { "" }
    )]
    Toolset {
        /// Which one.
        toolset: String,
        /// Whether the gateway itself is restricted to one.
        kept: bool,
    },
    /// An invalid name in `approvers`.
    #[error(transparent)]
    Approver(#[from] ApproverError),
    /// The host does not resolve.
    #[error("cannot listen on {host:?}: it is no address of this machine")]
    Host {
        /// As it was given.
        host: String,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
    /// The port cannot be bound.
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
    /// The file cannot be understood.
    #[error("cannot use the tokens in {}", path.display())]
    TokenLine {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: LineError,
    },
    /// The file holds no token.
    #[error("there is no token in {}; it holds one a line", path.display())]
    NoTokens {
        /// Which file.
        path: PathBuf,
    },
    /// The variable holds no token.
    #[error("--token-env names the variable {name}, which is not set or empty")]
    TokenVariable {
        /// Which one.
        name: String,
    },
    /// The same token is in both.
    #[error(
        "the token of the variable {name} stands in {} too; take it out of one of them",
        path.display()
    )]
    TokenAgain {
        /// The variable.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// Keys without an issuer and an audience.
    #[error(
        "--jwks needs --jwt-issuer and --jwt-audience, so that tokens for others are not taken"
    )]
    Unaddressed,
    /// The keys cannot be used.
    #[error("cannot use the keys of --jwks")]
    Keys(#[from] SourceError),
    /// An incomplete set of TLS settings.
    #[error("--tls, --tls-cert and --tls-key belong together; {missing} is missing")]
    TlsIncomplete {
        /// Which part.
        missing: &'static str,
    },
    /// A fleet without tokens that all of its gateways know.
    #[error(
        "a fleet needs tokens that all of its gateways accept, and --cluster-key makes this gateway one of a fleet; give --token-file, --token-env or --jwks, the same for all"
    )]
    FleetTokens,
    /// Certificate or key cannot be used.
    #[error("cannot serve with TLS")]
    Tls(#[from] TlsError),
}

/// See the module.
pub struct Plan {
    /// For the handler.
    pub http_config: HttpConfig,
    /// TLS, if configured.
    pub tls: Option<Arc<Tls>>,
    /// The source of the keys of signed tokens.
    pub keys: Option<KeySource>,
    /// The file of the generated token, if that is in use.
    pub generated: Option<PathBuf>,
    addresses: Vec<SocketAddr>,
}

impl Plan {
    /// Checks the settings. `variable` looks into the environment.
    pub fn of(
        config: &Config,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Plan, PlanError> {
        let settings = &config.settings;
        let serve = &settings.serve;
        let addresses = resolve(&serve.host, serve.port)?;
        let local = addresses.iter().all(|address| address.ip().is_loopback());
        let tls = tls(serve)?;
        let (keys, signed) = signed(serve)?.unzip();
        let configured = Access::new(tokens(serve, variable)?, signed);
        check_toolsets(config, &configured)?;
        if !settings.cluster.key.is_empty() && configured.is_open() {
            return Err(PlanError::FleetTokens);
        }
        let everybody = serve.no_auth || serve.allow_unauthenticated;
        if serve.no_auth && !configured.is_open() {
            return Err(PlanError::NoAuthWith { other: configured_by(serve) });
        }
        let mut generated = None;
        let access = if !configured.is_open() {
            configured
        } else if !local && !serve.allow_unauthenticated {
            let (host, generated) = (serve.host.clone(), Generated::path_in(&settings.home));
            return Err(PlanError::NoAuthentication { host, generated });
        } else if everybody {
            configured
        } else {
            let token = Generated::of(&settings.home, Purpose::Clients)?;
            let access = Access::generated(settings.home.clone(), &token);
            generated = Some(token.path);
            access
        };
        let access = match access.is_open() {
            // Without authentication there are no principals to approve.
            true => access,
            false => {
                let access = access.with_metrics(settings.home.clone());
                access.with_approvers(listed(&serve.approvers))?
            }
        };
        let rules = Rules {
            local,
            hosts: words(&serve.allowed_hosts),
            origins: words(&serve.allowed_origins),
            legacy: serve.transport == Transport::Sse,
            toolsets: Vec::new(),
            restricted_to: Some(settings.toolset.clone()).filter(|name| !name.is_empty()),
            stateless: serve.stateless,
            json: serve.json_response,
        };
        let http_config = HttpConfig {
            rules,
            access,
            body_bytes: settings.limits.line_bytes,
            session_timeout: serve.session_timeout,
            fast_path: serve.http_fast_path,
            scheme: if tls.is_some() { "https" } else { "http" },
            continuation: None,
        };
        Ok(Plan { http_config, tls, keys, generated, addresses })
    }

    /// As one of a fleet: its gateways go on with each other's sessions.
    pub fn share(&mut self, keyring: Arc<Keyring>, settings: &ClusterSettings) {
        let continuation = Continuation::new(keyring, settings.session_lifetime);
        self.http_config.continuation = Some(continuation);
    }

    /// Whether no token is needed.
    pub fn is_open(&self) -> bool {
        self.http_config.access.is_open()
    }

    /// Binds the port; returns the listener and its URL.
    pub async fn listen(&self) -> Result<(TcpListener, String), PlanError> {
        let mut failed = None;
        for &address in &self.addresses {
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    let bound = listener.local_addr().unwrap_or(address);
                    return Ok((listener, self.address(bound)));
                }
                Err(source) => failed = Some(PlanError::Listen { address, source }),
            }
        }
        Err(failed.unwrap_or_else(|| PlanError::Host {
            host: String::new(),
            source: io::ErrorKind::AddrNotAvailable.into(),
        }))
    }

    /// The address of the main endpoint on this socket.
    pub fn address(&self, bound: SocketAddr) -> String {
        let path = if self.http_config.rules.legacy { guard::SSE } else { guard::MCP };
        format!("{}://{bound}{path}", self.http_config.scheme)
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
        // A certificate without --tls must not silently mean plain HTTP.
        (false, _, _) => missing("--tls"),
        (true, None, _) => missing("--tls-cert"),
        (true, _, None) => missing("--tls-key"),
        (true, Some(cert), Some(key)) => Ok(Some(Arc::new(Tls::load(cert, key)?))),
    }
}

fn tokens(
    serve: &ServeSettings,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Token>, PlanError> {
    let mut tokens = Vec::new();
    if let Some(path) = &serve.token_file {
        let text = fs::read_to_string(path)
            .map_err(|source| PlanError::TokenFile { path: path.clone(), source })?;
        if let Some(warning) = open_to_others(path) {
            tracing::warn!("{warning}");
        }
        tokens = tokens_of(&text)
            .map_err(|source| PlanError::TokenLine { path: path.clone(), source })?;
        if tokens.is_empty() {
            return Err(PlanError::NoTokens { path: path.clone() });
        }
    }
    if !serve.token_env.is_empty() {
        let token = variable(&serve.token_env).map(|token| token.trim().to_owned());
        let token = token.filter(|token| !token.is_empty());
        let token =
            token.ok_or_else(|| PlanError::TokenVariable { name: serve.token_env.clone() })?;
        if let Some(path) = &serve.token_file
            && tokens.iter().any(|known| known.text == token)
        {
            let (name, path) = (serve.token_env.clone(), path.clone());
            return Err(PlanError::TokenAgain { name, path });
        }
        // Whoever starts the gateway sets it.
        tokens.push(Token { role: Role::Owner, ..Token::named(OF_VARIABLE, token) });
    }
    Ok(tokens)
}

/// The warning for a token file that other users can read. It is used all the same: container secrets are files of mode
/// 0444, and there are no other users.
#[cfg(unix)]
fn open_to_others(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let path = path.display();
    (mode & 0o077 != 0).then(|| {
        format!("the tokens in {path} can be read by other users of this machine; `chmod 600 {path}` keeps them to you")
    })
}

#[cfg(windows)]
fn open_to_others(_path: &Path) -> Option<String> {
    None
}

/// A token bound to a toolset that is not served would open nothing: most likely a mistake.
fn check_toolsets(config: &Config, access: &Access) -> Result<(), PlanError> {
    let restricted_to = config.settings.toolset.as_str();
    let is_served = |name: &str| match restricted_to {
        "" => config.toolsets.iter().any(|toolset| toolset.name == name),
        restricted_to => name == restricted_to,
    };
    match access.toolsets().find(|name| !is_served(name)) {
        None => Ok(()),
        Some(name) => {
            Err(PlanError::Toolset { toolset: name.to_owned(), kept: !restricted_to.is_empty() })
        }
    }
}

/// The setting that configures authentication.
fn configured_by(serve: &ServeSettings) -> &'static str {
    match serve {
        serve if serve.token_file.is_some() => "--token-file",
        serve if !serve.token_env.is_empty() => "--token-env",
        _ => "--jwks",
    }
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

/// Names as they were written.
fn listed(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn words(list: &str) -> Vec<String> {
    let words = list.split(',').map(|word| word.trim().trim_end_matches('/').to_ascii_lowercase());
    words.filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn plan(change: impl FnOnce(&mut ServeSettings)) -> Result<Plan, PlanError> {
        let home = tempfile::tempdir().unwrap();
        plan_in(home.path(), |config| change(&mut config.settings.serve))
    }

    fn plan_in(home: &Path, change: impl FnOnce(&mut Config)) -> Result<Plan, PlanError> {
        let known = |_: &str| None;
        let text = r#"{ "mcpServers": {}, "toolsets": { "docs": { "servers": [] } } }"#;
        let mut config = metamcp_config::config::parse(text, &known).unwrap().config;
        config.settings.home = home.to_owned();
        change(&mut config);
        Plan::of(&config, &|name| (name == "TOKEN").then(|| "secret".to_owned()))
    }

    #[test]
    fn a_token_is_asked_for_unless_the_owner_says_otherwise() {
        for host in ["127.0.0.1", "::1", "[::1]", "127.9.9.9"] {
            let guarded = plan(|serve| serve.host = host.into()).unwrap();
            assert!(guarded.http_config.rules.local && !guarded.is_open(), "{host}");
            assert!(guarded.generated.is_some(), "{host}");
            let open = plan(|serve| {
                serve.host = host.into();
                serve.no_auth = true;
            });
            let open = open.unwrap();
            assert!(open.is_open() && open.generated.is_none(), "{host}");
        }
        for host in ["0.0.0.0", "::", "192.0.2.1"] {
            for no_auth in [false, true] {
                let error = plan(|serve| {
                    serve.host = host.into();
                    serve.no_auth = no_auth;
                });
                let error = error.err().unwrap();
                assert!(matches!(error, PlanError::NoAuthentication { .. }), "{host}: {error}");
            }
            let guarded = plan(|serve| {
                serve.host = host.into();
                serve.token_env = "TOKEN".into();
            });
            let guarded = guarded.unwrap();
            assert!(!guarded.http_config.rules.local && !guarded.is_open(), "{host}");
            assert!(guarded.generated.is_none(), "others configured, so none is generated");
            let reckless = plan(|serve| {
                serve.host = host.into();
                serve.allow_unauthenticated = true;
            });
            assert!(reckless.unwrap().is_open(), "{host}");
        }
        let both = plan(|serve| {
            serve.no_auth = true;
            serve.token_env = "TOKEN".into();
        });
        assert!(both.err().unwrap().to_string().contains("--token-env"));
    }

    #[test]
    fn a_token_is_bound_to_a_toolset_that_is_served() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("tokens");
        let with = |toolset: &str, restricted_to: &str| {
            fs::write(&file, format!("secret toolset={toolset}\n")).unwrap();
            plan_in(home.path(), |config| {
                config.settings.serve.token_file = Some(file.clone());
                config.settings.toolset = restricted_to.to_owned();
            })
        };
        assert!(with("docs", "").is_ok() && with("docs", "docs").is_ok());
        assert!(matches!(with("web", ""), Err(PlanError::Toolset { .. })));
        assert!(matches!(with("web", "docs"), Err(PlanError::Toolset { kept: true, .. })));
    }

    #[test]
    fn a_token_opens_what_it_is_bound_to_and_stands_once() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("tokens");
        let with = |text: &str| {
            fs::write(&file, text).unwrap();
            plan_in(home.path(), |config| {
                config.settings.serve.token_file = Some(file.clone());
                config.settings.serve.token_env = "TOKEN".into();
            })
        };
        assert!(with("other toolset=docs\n").is_ok());
        assert!(matches!(with("secret toolset=docs\n"), Err(PlanError::TokenAgain { .. })));
        assert!(matches!(with("a toolset=docs\na\n"), Err(PlanError::TokenLine { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn tokens_that_others_can_read_are_warned_of() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("tokens");
        fs::write(&file, "secret\n").unwrap();
        for (mode, is_told) in [(0o600, false), (0o400, false), (0o640, true), (0o444, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_to_others(&file).is_some(), is_told, "{mode:o}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = |change: fn(&mut ServeSettings)| plan(change).err().unwrap().to_string();
        assert!(message(|serve| serve.approvers = "token:nobody".into()).contains("token:nobody"));
        assert!(message(|serve| serve.token_env = "NONE".into()).contains("variable NONE"));
        assert!(message(|serve| serve.token_file = Some("/nowhere".into())).contains("/nowhere"));
        assert!(message(|serve| serve.tls = true).contains("--tls-cert is missing"));
        assert!(message(|serve| serve.tls_cert = Some("x".into())).contains("--tls is missing"));
        assert!(message(|serve| serve.jwks = "keys.json".into()).contains("--jwt-issuer"));
        assert!(message(|serve| serve.host = "not an address".into()).contains("not an address"));
    }

    #[test]
    fn the_fast_path_is_switched_by_its_setting() {
        assert!(plan(|_| {}).unwrap().http_config.fast_path);
        assert!(!plan(|serve| serve.http_fast_path = false).unwrap().http_config.fast_path);
    }

    #[test]
    fn lists_are_read_as_people_write_them() {
        assert_eq!(words(" https://App.example.org/ ,, b"), ["https://app.example.org", "b"]);
        assert_eq!(words(""), [""; 0]);
    }
}
