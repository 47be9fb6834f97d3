//! The parameters of a remote server: address, headers, HTTP client, credentials.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use metamcp_calls::failure::Fact;
use metamcp_config::config::{HttpKind, HttpOptions, RemoteEndpoint, TlsFiles};
use metamcp_config::settings::Settings;
use metamcp_types::web::Address;
use parking_lot::Mutex;

use super::{Credentials, Mirrors};
use crate::login::{Login, LoginStorage, SharedLogins, Tokens};
use crate::observe::Observer;
use crate::upstream::launch::chain;
use crate::web::{ClientOptions, Proxy, Web};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections pooled for each host without HTTP/2: as many as calls usually run at once.
const MAX_IDLE_CONNECTIONS: usize = 16;

pub struct Site {
    pub address: Address,
    /// Headers of every request.
    pub headers: HeaderMap,
    /// Whether the transport of 2024 is tried if the current one is refused.
    pub may_be_sse: bool,
    pub web: Web,
    /// The same client's options, for the guarded client of redirects.
    pub client_options: ClientOptions,
    pub line_bytes: usize,
    pub credentials: Credentials,
    /// Whether a refused request may begin a sign-in.
    pub is_login_wanted: bool,
    pub mirrors: Mirrors,
}

/// What remote servers share: HTTP clients, one for each set of TLS files, and the logins.
pub struct Sites {
    ways: Mutex<HashMap<TlsFiles, Web>>,
    login_storage: LoginStorage,
    logins: Mutex<HashMap<String, Arc<Login>>>,
}

impl Sites {
    /// Empty; tokens are stored where the settings say.
    pub fn new(settings: &Settings, observer: &Arc<Observer>) -> Sites {
        Sites {
            ways: Mutex::default(),
            login_storage: LoginStorage::new(&settings.home, settings.token_store)
                .observed_by(Arc::clone(observer)),
            logins: Mutex::default(),
        }
    }

    /// Has the logins in common with the other gateways of a fleet.
    pub fn share_logins(&self, logins: Arc<dyn SharedLogins>) {
        self.login_storage.share(logins);
    }

    /// The tokens of all logins at remote servers.
    pub fn tokens(&self) -> Arc<Tokens> {
        self.login_storage.tokens()
    }

    pub fn site(
        &self,
        name: &str,
        endpoint: &RemoteEndpoint,
        line_bytes: usize,
        mirrors: Mirrors,
    ) -> Result<Site, Fact> {
        let RemoteEndpoint { url, headers, kind, options } = endpoint;
        let address = Address::parse(url)
            .map_err(|error| Fact::Unreachable { reason: format!("its address {error}") })?;
        let client_options = ClientOptions {
            http2: true,
            tls: options.tls.clone(),
            proxy: Proxy::from_env(),
            ..ClientOptions::new(CONNECT_TIMEOUT, MAX_IDLE_CONNECTIONS)
        };
        let web = {
            let mut ways = self.ways.lock();
            match ways.get(&options.tls) {
                Some(web) => web.clone(),
                None => {
                    let web = Web::new(client_options.clone())
                        .map_err(|error| Fact::Insecure { reason: chain(&error) })?;
                    ways.insert(options.tls.clone(), web.clone());
                    web
                }
            }
        };
        let mut fixed = HeaderMap::new();
        for (header, value) in headers {
            let pair = (HeaderName::from_str(header), HeaderValue::from_str(value.expose()));
            let (Ok(header), Ok(mut value)) = pair else {
                let reason = format!("its header {header:?} cannot be sent");
                return Err(Fact::Unsupported { reason });
            };
            value.set_sensitive(true);
            fixed.insert(header, value);
        }
        let credentials = if fixed.contains_key(AUTHORIZATION) {
            Credentials::Configured
        } else {
            Credentials::Login(self.login(name, &address, options))
        };
        Ok(Site {
            address,
            headers: fixed,
            may_be_sse: *kind == HttpKind::Either,
            web,
            client_options,
            line_bytes,
            credentials,
            is_login_wanted: options.login.wanted,
            mirrors,
        })
    }

    /// The login at a server, shared by its connections: an authorization may be pending.
    fn login(&self, name: &str, address: &Address, options: &HttpOptions) -> Arc<Login> {
        let mut logins = self.logins.lock();
        let known = logins.entry(name.to_owned());
        Arc::clone(
            known.or_insert_with(|| Login::new(address.clone(), options, &self.login_storage)),
        )
    }

    /// Waits for a pending authorization at a server, up to `limit`.
    pub async fn authorization_finished(&self, name: &str, limit: Duration) {
        let login = {
            let logins = self.logins.lock();
            logins.get(name).cloned()
        };
        if let Some(login) = login {
            // The call finds out whether it succeeded.
            drop(tokio::time::timeout(limit, login.authorization_finished()).await);
        }
    }
}
