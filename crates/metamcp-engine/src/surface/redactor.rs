//! The redactor of everything that leaves this process, built anew when a server or a token has other secrets.
//! Owns: when it is built.      Never: decides what a secret is (`types::secret` does).
//! In: the secrets of all servers, and tokens.  Out: a `Redactor` that knows them.
//! Tests: `metamcp/tests/surface/`, `metamcp/tests/audit/`.

use std::sync::{Arc, Weak};

use metamcp_types::secret::Redactor;
use parking_lot::Mutex;

use crate::login::Tokens;
use crate::router::Router;

/// See the module.
pub struct SharedRedactor {
    /// Not strongly: the router publishes to who holds this.
    router: Weak<Router>,
    tokens: Arc<Tokens>,
    redacts: bool,
    last: Mutex<CachedRedactor>,
}

/// A redactor, with the generations of servers' secrets and of tokens it was built for.
struct CachedRedactor {
    servers: u64,
    version: u64,
    redactor: Arc<Redactor>,
}

impl SharedRedactor {
    pub fn new(router: &Arc<Router>, tokens: Arc<Tokens>, redacts: bool) -> SharedRedactor {
        let last = Mutex::new(CachedRedactor::new(router, &tokens, redacts));
        SharedRedactor { router: Arc::downgrade(router), tokens, redacts, last }
    }

    /// For the current configuration of servers, with the secrets that were resolved for it.
    pub fn now(&self) -> Arc<Redactor> {
        let mut last = self.last.lock();
        if let Some(router) = self.router.upgrade()
            && (last.servers != router.secrets_version() || last.version != self.tokens.version())
        {
            *last = CachedRedactor::new(&router, &self.tokens, self.redacts);
        }
        Arc::clone(&last.redactor)
    }
}

impl CachedRedactor {
    /// With the secrets of every server of this process: what one client's server knows is nobody else's business.
    fn new(router: &Router, tokens: &Tokens, redacts: bool) -> CachedRedactor {
        // Read before the values: one that arrives in between is picked up the next time.
        let (servers, version) = (router.secrets_version(), tokens.version());
        let (own, tokens) = (router.secrets(), tokens.secrets());
        let redactor = match redacts {
            true => Redactor::new(own.iter().chain(&tokens)),
            false => Redactor::off(),
        };
        CachedRedactor { servers, version, redactor: Arc::new(redactor) }
    }
}
