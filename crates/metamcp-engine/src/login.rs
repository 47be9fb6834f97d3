//! OAuth logins at remote servers: obtains, stores and presents tokens, and refreshes each one once for all gateways.
//! Owns: the stored login of each server, the authorization callback, the lock between processes.      Never: speaks OAuth itself (the official SDK's `auth` does, over our way out), opens a browser.
//! In: a server's 401 or 403.  Out: a token to present, or the authorization URL for the user.
//! Tests: `login/store.rs`, `metamcp/tests/remote/login.rs`.

mod authorization_flow;
mod client_assertion;
mod credential_store;
mod discover;
mod enterprise;
mod grant;
mod http_client;
mod key;
pub mod oauth;
mod shared;
mod store;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::login::oauth::OAuthError;
use metamcp_calls::failure::Fact;
use metamcp_config::config::{Grant, HttpOptions, Login as LoginOptions};
use metamcp_config::settings::TokenStore;
use metamcp_types::web::Address;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use self::discover::Challenge;
use self::key::Keys;
pub use self::shared::{Lease, SharedError, SharedLogins};
use self::store::{Record, Store};
pub use self::tokens::Tokens;
use crate::clock::unix_millis;
use crate::files::FileError;
use crate::observe::{Event, LoginChange, Observer};
use crate::web::{ClientOptions, GuardedClient, Proxy, SendError, SendErrorKind, TlsError};

/// A token that expires within this time is refreshed before use.
const REFRESH_BEFORE_EXPIRY: Duration = Duration::from_secs(30);
/// How long an authorization server may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the store is polled for a login that another process completed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How old the knowledge may be that nobody has logged out in another process.
const LOGOUT_NOTICED: Duration = Duration::from_secs(1);

/// Why a login did not lead to a token.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The user has to authorize in a browser.
    #[error("{reason}")]
    Person { reason: String },
    /// A new login would not help: the token already has every scope the server asks for.
    #[error("it reports insufficient scope, although the token has every scope it names")]
    Enough,
    /// The server's OAuth metadata or responses are invalid.
    #[error(transparent)]
    Protocol(#[from] OAuthError),
    #[error("{place} cannot be reached: {reason}")]
    Unreachable { place: String, reason: String },
    /// The stored logins cannot be read or written.
    #[error("the stored logins cannot be used")]
    Store(#[from] FileError),
    /// The configured keyring does not work.
    #[error(
        "the system keyring cannot be used: {why}; set `tokenStore` to `file` to do without it"
    )]
    Keyring { why: String },
    /// The private key cannot sign client assertions.
    #[error("the `privateKey` of its client cannot be used: {why}")]
    ClientAssertion { why: String },
    /// The identity provider issued no identity assertion.
    #[error("its `identityProvider` did not authorize you: {why}")]
    Enterprise { why: String },
    /// The logins of the fleet are out of reach, so nobody may request a token.
    #[error("the logins of the fleet cannot be used: {why}")]
    Fleet { why: String },
    /// The lock of another gateway timed out.
    #[error("another gateway has been refreshing the same token for too long")]
    Busy,
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
}

impl LoginError {
    fn user_needed(reason: impl Into<String>) -> LoginError {
        LoginError::Person { reason: reason.into() }
    }

    fn unreachable(place: &Address, error: SendError) -> LoginError {
        let reason = match error.kind {
            SendErrorKind::Unreachable { reason } | SendErrorKind::Insecure { reason } => {
                reason.to_owned()
            }
            SendErrorKind::Forbidden { reason } | SendErrorKind::OutOfFiles { reason } => reason,
            SendErrorKind::Closed => "it closed the connection".to_owned(),
        };
        LoginError::Unreachable { place: place.origin(), reason }
    }
}

/// The state of a login, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginStatus {
    pub issuer: String,
    /// The granted scopes, if the server named them.
    pub scopes: Vec<String>,
    /// Milliseconds until the token expires, if the server said so; zero once expired.
    pub expires_in_ms: Option<u64>,
    /// Whether the token can be renewed without the user.
    pub refreshes: bool,
}

/// A login that waits for the user.
#[derive(Debug)]
pub struct StartedLogin {
    /// The authorization URL, to open in a browser on this machine.
    pub address: String,
    /// Receives the outcome.
    pub done: oneshot::Receiver<Result<(), String>>,
}

/// Where the logins of this process are stored.
#[derive(Clone, Debug)]
pub struct LoginStorage {
    home: PathBuf,
    keys: Keys,
    tokens: Arc<Tokens>,
    observer: Arc<Observer>,
    /// Those of the whole fleet, once this gateway is one of it.
    shared: Arc<OnceLock<Arc<dyn SharedLogins>>>,
}

impl LoginStorage {
    /// Storage under this home, with the encryption key in `place`. Touches nothing yet.
    pub fn new(home: &Path, place: TokenStore) -> LoginStorage {
        LoginStorage {
            home: home.to_owned(),
            keys: Keys::new(home, place),
            tokens: Arc::default(),
            observer: Arc::default(),
            shared: Arc::default(),
        }
    }

    /// Has every login in common with the other gateways of a fleet from now on. The first one counts.
    pub fn share(&self, logins: Arc<dyn SharedLogins>) {
        drop(self.shared.set(logins));
    }

    /// The same, with login events published to `observer`.
    #[must_use]
    pub fn observed_by(self, observer: Arc<Observer>) -> LoginStorage {
        LoginStorage { observer, ..self }
    }

    /// All tokens in use.
    pub fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens)
    }
}

/// The login at one server.
#[derive(Debug)]
pub struct Login {
    server: Address,
    options: LoginOptions,
    client_options: ClientOptions,
    store: Store,
    tokens: Arc<Tokens>,
    observer: Arc<Observer>,
    /// SSRF-guarded clients for addresses that the server names.
    guarded: GuardedClient,
    token_lock: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
    /// Notified whenever an authorization flow ends.
    finished_flows: Notify,
    me: Weak<Login>,
}

#[derive(Debug, Default)]
struct Known {
    read: bool,
    record: Option<Record>,
    /// When it was last certain that the stored login is there, in milliseconds since 1970.
    seen_ms: u64,
    /// The pending authorization flow: its scope and its authorization URL.
    pending_flow: Option<(Option<String>, String)>,
}

impl Login {
    /// The login at the server with this address. Touches nothing yet.
    pub fn new(server: Address, options: &HttpOptions, login_storage: &LoginStorage) -> Arc<Login> {
        let client_options = ClientOptions {
            http2: true,
            tls: options.tls.clone(),
            proxy: Proxy::from_env(),
            // Logins are rare: a pooled connection would mostly be one the server is just closing.
            ..ClientOptions::new(CONNECT_TIMEOUT, 0)
        };
        let shared = Arc::clone(&login_storage.shared);
        let store = Store::new(&login_storage.home, &server, login_storage.keys.clone());
        let store = store.shared_by(shared);
        let options = options.login.clone();
        Arc::new_cyclic(|me| Login {
            server,
            options,
            client_options,
            store,
            tokens: login_storage.tokens(),
            observer: Arc::clone(&login_storage.observer),
            guarded: GuardedClient::default(),
            token_lock: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            finished_flows: Notify::new(),
            me: me.clone(),
        })
    }

    /// The access token to send, refreshed if that works without the user.
    pub async fn token(&self) -> Option<String> {
        // A token is not sent over an unencrypted connection.
        if !self.options.wanted || !self.server.is_confidential() {
            return None;
        }
        self.read_once().await;
        self.notice_logout().await;
        let (access, soon) = {
            let known = self.known();
            let record = known.record.as_ref()?;
            (record.access.clone(), record.ends_within(REFRESH_BEFORE_EXPIRY, unix_millis()))
        };
        if soon {
            // If the refresh fails, the old token is sent and the server decides.
            let _unchanged_on_failure = self.refresh(Some(&access)).await;
        }
        let known = self.known();
        known.record.as_ref().map(|record| record.access.clone())
    }

    /// Handles a 401 or 403 for the token `shown`. `Ok` if there is another token to try now.
    pub async fn refused(&self, challenges: &[String], shown: Option<&str>) -> Result<(), Fact> {
        let challenge = Challenge::read(&self.server, challenges.iter().map(String::as_str));
        if !self.options.wanted {
            return Err(needed("it requires a token, and `oauth` is disabled", None));
        }
        if !self.server.is_confidential() {
            return Err(needed("it requires a token, and its address is not encrypted", None));
        }
        let without = match self.without_user(&challenge, shown).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match without {
            LoginError::Person { reason } => match self.begin(&challenge).await {
                Ok(started) => Err(needed(&reason, Some(started))),
                Err(error) => Err(needed(&format!("{reason}; {}", chain(&error)), None)),
            },
            other => {
                self.publish(LoginChange::Failed);
                Err(needed(&chain(&other), None))
            }
        }
    }

    async fn without_user(
        &self,
        challenge: &Challenge,
        shown: Option<&str>,
    ) -> Result<(), LoginError> {
        self.read_once().await;
        if !challenge.wants_more {
            match self.refresh(shown).await {
                Err(LoginError::Person { .. }) if self.options.grant == Grant::Machine => {}
                other => return other,
            }
        } else if let Some(record) = self.reload().await? {
            if Some(record.access.as_str()) != shown {
                return Ok(());
            }
            let mut wanted = challenge.scope.as_deref().unwrap_or_default().split_whitespace();
            if wanted.all(|scope| record.scopes.iter().any(|granted| granted == scope)) {
                // Another login would get the same scopes again, in an endless loop.
                return Err(LoginError::Enough);
            }
        }
        if self.options.grant == Grant::Machine {
            return self.machine(challenge, shown).await;
        }
        let wanted = challenge.scope.as_deref().unwrap_or("more rights");
        Err(LoginError::user_needed(format!(
            "the token's scopes do not suffice; the server requires {wanted:?}"
        )))
    }

    /// The authorization URL. One flow is pending at a time, unless other scopes are required.
    async fn begin(&self, challenge: &Challenge) -> Result<String, LoginError> {
        let _lock = self.token_lock.lock().await;
        {
            let known = self.known();
            if let Some((scope, address)) = &known.pending_flow
                && *scope == challenge.scope
            {
                return Ok(address.clone());
            }
        }
        self.publish(LoginChange::Needed);
        let (authorization_flow, address) = self.prepare(challenge).await?;
        self.known().pending_flow = Some((challenge.scope.clone(), address.clone()));
        self.await_callback(authorization_flow, address.clone());
        self.publish(LoginChange::Started);
        Ok(address)
    }

    /// Waits until the pending authorization has ended, here or in another process. The caller sets a timeout.
    pub async fn authorization_finished(&self) {
        let access = || self.known().record.as_ref().map(|record| record.access.clone());
        let before = access();
        loop {
            let over = self.finished_flows.notified();
            if self.known().pending_flow.is_none() {
                return;
            }
            tokio::select! {
                () = over => {}
                () = sleep(POLL_INTERVAL) => {
                    // A store that cannot be read now may be readable at the next poll.
                    drop(self.reload().await);
                    if access() != before {
                        return;
                    }
                }
            }
        }
    }

    /// Logs out: deletes the stored login. Returns whether there was one.
    pub async fn forget(&self) -> Result<bool, LoginError> {
        let _lock = self.store.lock().await?;
        let was = self.store.read().await?.is_some();
        self.store.remove().await?;
        *self.known() = Known::default();
        self.publish(LoginChange::Forgotten);
        Ok(was)
    }

    /// The state of the login, if there is one.
    pub async fn status(&self) -> Result<Option<LoginStatus>, LoginError> {
        let record = self.reload().await?;
        Ok(record.map(|record| LoginStatus {
            expires_in_ms: record.ends_at_ms.map(|end| end.saturating_sub(unix_millis())),
            refreshes: record.refresh.is_some() || self.options.grant == Grant::Machine,
            issuer: record.issuer,
            scopes: record.scopes,
        }))
    }

    async fn read_once(&self) {
        if !self.known().read {
            // An unreadable store counts as empty; a write will report the error.
            drop(self.reload().await);
        }
    }

    /// Drops a token whose login somebody removed: `metamcp auth logout` is another process.
    async fn notice_logout(&self) {
        let now = unix_millis();
        {
            let mut known = self.known();
            let age = Duration::from_millis(now.saturating_sub(known.seen_ms));
            if known.record.is_none() || age < LOGOUT_NOTICED {
                return;
            }
            known.seen_ms = now;
        }
        // A store that cannot be looked at says nothing of a logout.
        if matches!(self.store.is_there().await, Ok(false)) {
            self.known().record = None;
            self.publish(LoginChange::Forgotten);
        }
    }

    /// Reads the store again: other gateways write to it too.
    async fn reload(&self) -> Result<Option<Record>, LoginError> {
        let record = self.store.read().await?;
        if let Some(record) = &record {
            self.tokens.note(record);
        }
        let mut known = self.known();
        known.read = true;
        known.record.clone_from(&record);
        Ok(record)
    }

    async fn keep(&self, record: Record) -> Result<(), LoginError> {
        self.tokens.note(&record);
        let written = self.store.write(&record).await;
        // It is in force, whether or not it could be stored: the one before may be used up.
        let before = {
            let mut known = self.known();
            known.read = true;
            known.record.replace(record)
        };
        written?;
        let replaced = before.is_some();
        self.publish(if replaced { LoginChange::Refreshed } else { LoginChange::Granted });
        Ok(())
    }

    fn publish(&self, change: LoginChange) {
        let server = self.server.origin();
        self.observer.publish(&Event::Login { server: &server, change });
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

/// Starts a login for a command that waits for it.
pub async fn start(login: &Arc<Login>) -> Result<StartedLogin, LoginError> {
    let challenge = login.probe().await?;
    let (authorization_flow, address) = login.prepare(&challenge).await?;
    let (sender, done) = oneshot::channel();
    login.publish(LoginChange::Started);
    let login = Arc::clone(login);
    crate::task::spawn("login", async move {
        let ended = login.finish(authorization_flow).await.map_err(|error| chain(&error));
        if ended.is_err() {
            login.publish(LoginChange::Failed);
        }
        // The caller may have stopped waiting; the token is stored all the same.
        drop(sender.send(ended));
    });
    Ok(StartedLogin { address, done })
}

/// The same for the client credentials grant, which needs no user.
pub async fn start_machine(login: &Login) -> Result<(), LoginError> {
    let challenge = login.probe().await?;
    let ended = login.machine(&challenge, None).await;
    if ended.is_err() {
        login.publish(LoginChange::Failed);
    }
    ended
}

fn needed(reason: &str, address: Option<String>) -> Fact {
    Fact::LoginNeeded { reason: reason.to_owned(), address }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
