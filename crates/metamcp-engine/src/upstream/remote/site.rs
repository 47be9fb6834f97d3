//! What makes a remote server: where it is, what every request to it carries, and who we are to it.

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
use crate::login::{Login, LoginStorage, Tokens};
use crate::observe::Observer;
use crate::upstream::launch::chain;
use crate::web::{Plan, Tunnel, Web};

/// A remote host that does not take a connection in this time is not there.
const REACHED: Duration = Duration::from_secs(10);
/// Connections kept to each remote host that does not multiplex: as many as calls usually run at once.
const KEPT: usize = 16;

/// See the module.
pub struct Site {
    /// Where it is.
    pub address: Address,
    /// What every request carries.
    pub headers: HeaderMap,
    /// Whether the transport of 2024 is tried where the current one is refused.
    pub may_be_sse: bool,
    /// The way there.
    pub web: Web,
    /// The same way, to be guarded where the server itself sends us on.
    pub plan: Plan,
    /// The longest message it may send.
    pub line_bytes: usize,
    /// Who we are to it.
    pub credentials: Credentials,
    /// What its tools want in headers.
    pub mirrors: Mirrors,
}

/// What remote servers share: the ways out, one for each set of files for TLS, and the logins.
pub struct Sites {
    ways: Mutex<HashMap<TlsFiles, Web>>,
    login_storage: LoginStorage,
    logins: Mutex<HashMap<String, Arc<Login>>>,
}

impl Sites {
    /// None yet; tokens lie where the settings say.
    pub fn new(settings: &Settings, observer: &Arc<Observer>) -> Sites {
        Sites {
            ways: Mutex::default(),
            login_storage: LoginStorage::new(&settings.home, settings.token_store)
                .observed_by(Arc::clone(observer)),
            logins: Mutex::default(),
        }
    }

    /// The tokens that logins at remote servers hold.
    pub fn tokens(&self) -> Arc<Tokens> {
        self.login_storage.tokens()
    }

    /// The server of this name and address.
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
        let plan = Plan {
            http2: true,
            tls: options.tls.clone(),
            tunnel: Tunnel::from_surroundings(),
            ..Plan::plain(REACHED, KEPT)
        };
        let web = {
            let mut ways = self.ways.lock();
            match ways.get(&options.tls) {
                Some(web) => web.clone(),
                None => {
                    let web = Web::new(plan.clone())
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
            plan,
            line_bytes,
            credentials,
            mirrors,
        })
    }

    /// The login at a server, the same across its connections: a person may be on their way back to it.
    fn login(&self, name: &str, address: &Address, options: &HttpOptions) -> Arc<Login> {
        let mut logins = self.logins.lock();
        let known = logins.entry(name.to_owned());
        Arc::clone(
            known.or_insert_with(|| Login::new(address.clone(), options, &self.login_storage)),
        )
    }

    /// Waits for the person who was sent to log in at a server, at most so long.
    pub async fn authorization_finished(&self, name: &str, limit: Duration) {
        let login = {
            let logins = self.logins.lock();
            logins.get(name).cloned()
        };
        if let Some(login) = login {
            // Whether they came or not, the call finds out.
            drop(tokio::time::timeout(limit, login.authorization_finished()).await);
        }
    }
}
