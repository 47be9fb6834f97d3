//! Logins at remote servers: tokens kept, shown, refreshed once for all gateways, and got from a person who agrees.
//! Owns: what is remembered of each login, the visit a person pays us, turns between processes.      Never: speaks OAuth itself (the official SDK's `auth` does, over our way out), opens a browser.
//! In: a refusal of a server.  Out: a token to show, or where a person has to go.
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
mod store;
mod tokens;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::login::oauth::OAuthError;
use metamcp_calls::failure::Fact;
use metamcp_config::config::{Grant, HttpOptions, Login as Wishes};
use metamcp_config::settings::TokenStore;
use metamcp_types::web::Address;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use self::discover::Challenge;
use self::key::Keys;
use self::store::{Record, Store};
pub use self::tokens::Tokens;
use crate::clock::unix_millis;
use crate::files::FileError;
use crate::observe::{Event, LoginChange, Observer};
use crate::web::{Guarded, Plan, SendError, SendErrorKind, TlsError, Tunnel};

/// A token that ends sooner is refreshed before it is shown.
const SOON: Duration = Duration::from_secs(30);
/// How long an authorization server may take to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// How often it is looked whether somebody logged in by another process.
const LOOK: Duration = Duration::from_secs(1);

/// Why a login did not lead to a token.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// Only a person can go on.
    #[error("{reason}")]
    Person {
        /// Why.
        reason: String,
    },
    /// No login helps: we have what the server says it wants.
    #[error("it says that our rights do not suffice, although they hold all that it names")]
    Enough,
    /// What a server says about logins cannot be used.
    #[error(transparent)]
    Protocol(#[from] OAuthError),
    /// Whoever has to be asked cannot be.
    #[error("{place} cannot be asked: {reason}")]
    Unreachable {
        /// Who.
        place: String,
        /// Why not.
        reason: String,
    },
    /// What is remembered cannot be read or written.
    #[error("what is remembered of logins cannot be used")]
    Store(#[from] FileError),
    /// The keyring was wanted and does not work.
    #[error(
        "the keyring of this system cannot be used: {why}; with `tokenStore` set to `file` it is not needed"
    )]
    Keyring {
        /// Why not.
        why: String,
    },
    /// The key that should prove us does not.
    #[error("the `privateKey` of its client cannot be used: {why}")]
    ClientAssertion {
        /// Why not.
        why: String,
    },
    /// The company that should vouch for the person does not.
    #[error("its `identityProvider` does not vouch for you: {why}")]
    Enterprise {
        /// Why not.
        why: String,
    },
    /// Other gateways take too long.
    #[error("another gateway has been refreshing the same token for too long")]
    Busy,
    /// Files for TLS.
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
}

impl LoginError {
    fn person(reason: impl Into<String>) -> LoginError {
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

/// What is known of a login, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginStatus {
    /// Who let us in.
    pub issuer: String,
    /// The rights we have, where that was said.
    pub scopes: Vec<String>,
    /// Milliseconds until the token ends, where that was said; zero if it has.
    pub expires_in_ms: Option<u64>,
    /// Whether it can be made again without a person.
    pub refreshes: bool,
}

/// Where a person has to go, and what comes of it.
#[derive(Debug)]
pub struct StartedLogin {
    /// The address to open in a browser on this machine.
    pub address: String,
    /// Hears how it ended.
    pub done: oneshot::Receiver<Result<(), String>>,
}

/// Where logins are remembered, the same for all of a process.
#[derive(Clone, Debug)]
pub struct LoginStorage {
    home: PathBuf,
    keys: Keys,
    tokens: Arc<Tokens>,
    observer: Arc<Observer>,
}

impl LoginStorage {
    /// Under this home, with the key where it is wanted. Touches nothing yet.
    pub fn new(home: &Path, place: TokenStore) -> LoginStorage {
        LoginStorage {
            home: home.to_owned(),
            keys: Keys::new(home, place),
            tokens: Arc::default(),
            observer: Arc::default(),
        }
    }

    /// The same, with what happens to logins published there.
    #[must_use]
    pub fn observed_by(self, observer: Arc<Observer>) -> LoginStorage {
        LoginStorage { observer, ..self }
    }

    /// The tokens that are held by its logins.
    pub fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens)
    }
}

/// The login at one server.
#[derive(Debug)]
pub struct Login {
    server: Address,
    wishes: Wishes,
    plan: Plan,
    store: Store,
    tokens: Arc<Tokens>,
    observer: Arc<Observer>,
    /// The way to everybody whom the server names.
    guarded: Guarded,
    turn: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
    /// Told whenever a visit is over.
    finished_flows: Notify,
    me: Weak<Login>,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether the store was read.
    read: bool,
    record: Option<Record>,
    /// The visit that is waited for: the rights it is for, and where the person has to go.
    waiting: Option<(Option<String>, String)>,
}

impl Login {
    /// At a server with this address. Touches nothing yet.
    pub fn new(server: Address, options: &HttpOptions, login_storage: &LoginStorage) -> Arc<Login> {
        let plan = Plan {
            http2: true,
            tls: options.tls.clone(),
            tunnel: Tunnel::from_surroundings(),
            // Logins are rare: a kept connection would mostly be one that the other side is just closing.
            ..Plan::plain(CONNECT, 0)
        };
        let store = Store::new(&login_storage.home, &server, login_storage.keys.clone());
        let wishes = options.login.clone();
        Arc::new_cyclic(|me| Login {
            server,
            wishes,
            plan,
            store,
            tokens: login_storage.tokens(),
            observer: Arc::clone(&login_storage.observer),
            guarded: Guarded::default(),
            turn: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            finished_flows: Notify::new(),
            me: me.clone(),
        })
    }

    /// The token to show, fresh if that can be had without a person.
    pub async fn token(&self) -> Option<String> {
        // What somebody on the way could read is no secret any more.
        if !self.wishes.wanted || !self.server.is_confidential() {
            return None;
        }
        self.read_once().await;
        let (access, soon) = {
            let known = self.known();
            let record = known.record.as_ref()?;
            (record.access.clone(), record.ends_within(SOON, unix_millis()))
        };
        if soon {
            // If it fails, the server is shown the old one and says itself what it thinks of it.
            let _as_it_was = self.refresh(Some(&access)).await;
        }
        let known = self.known();
        known.record.as_ref().map(|record| record.access.clone())
    }

    /// The server refused what it was shown. `Ok` if there is something else to show now.
    pub async fn refused(&self, challenges: &[String], shown: Option<&str>) -> Result<(), Fact> {
        let challenge = Challenge::read(&self.server, challenges.iter().map(String::as_str));
        if !self.wishes.wanted {
            return Err(needed("it wants a token, and `oauth` is switched off", None));
        }
        if !self.server.is_confidential() {
            return Err(needed("it wants a token, and its address is not encrypted", None));
        }
        let without = match self.without_a_person(&challenge, shown).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match without {
            LoginError::Person { reason } => {
                self.publish(LoginChange::Needed);
                match self.begin(&challenge).await {
                    Ok(started) => Err(needed(&reason, Some(started))),
                    Err(error) => Err(needed(&format!("{reason}; {}", chain(&error)), None)),
                }
            }
            other => {
                self.publish(LoginChange::Failed);
                Err(needed(&chain(&other), None))
            }
        }
    }

    async fn without_a_person(
        &self,
        challenge: &Challenge,
        shown: Option<&str>,
    ) -> Result<(), LoginError> {
        self.read_once().await;
        if !challenge.wants_more {
            match self.refresh(shown).await {
                Err(LoginError::Person { .. }) if self.wishes.grant == Grant::Machine => {}
                other => return other,
            }
        } else if let Some(record) = self.read_again().await? {
            if Some(record.access.as_str()) != shown {
                return Ok(());
            }
            let mut wanted = challenge.scope.as_deref().unwrap_or_default().split_whitespace();
            if wanted.all(|scope| record.scopes.iter().any(|granted| granted == scope)) {
                // A further login would bring the same, and the one after it too.
                return Err(LoginError::Enough);
            }
        }
        if self.wishes.grant == Grant::Machine {
            return self.machine(challenge, shown).await;
        }
        let wanted = challenge.scope.as_deref().unwrap_or("more rights");
        Err(LoginError::person(format!(
            "what we are allowed does not suffice; it wants {wanted:?}"
        )))
    }

    /// Where a person has to go. One visit is waited for at a time, unless other rights are wanted.
    async fn begin(&self, challenge: &Challenge) -> Result<String, LoginError> {
        let _turn = self.turn.lock().await;
        {
            let known = self.known();
            if let Some((scope, address)) = &known.waiting
                && *scope == challenge.scope
            {
                return Ok(address.clone());
            }
        }
        let (authorization_flow, address) = self.prepare(challenge).await?;
        self.known().waiting = Some((challenge.scope.clone(), address.clone()));
        self.await_visit(authorization_flow, address.clone());
        self.publish(LoginChange::Started);
        Ok(address)
    }

    /// Waits until the person who is expected has come back, or has logged in elsewhere. The caller sets a limit.
    pub async fn authorization_finished(&self) {
        let access = || self.known().record.as_ref().map(|record| record.access.clone());
        let before = access();
        loop {
            let over = self.finished_flows.notified();
            if self.known().waiting.is_none() {
                return;
            }
            tokio::select! {
                () = over => {}
                () = sleep(LOOK) => {
                    // What cannot be read now may be readable the next time.
                    drop(self.read_again().await);
                    if access() != before {
                        return;
                    }
                }
            }
        }
    }

    /// Logs out: what is remembered is forgotten. Says whether there was anything.
    pub async fn forget(&self) -> Result<bool, LoginError> {
        let _lock = self.store.lock().await?;
        let was = self.store.read().await?.is_some();
        self.store.remove().await?;
        *self.known() = Known::default();
        self.publish(LoginChange::Forgotten);
        Ok(was)
    }

    /// How the login stands.
    pub async fn status(&self) -> Result<Option<LoginStatus>, LoginError> {
        let record = self.read_again().await?;
        Ok(record.map(|record| LoginStatus {
            expires_in_ms: record.ends_at_ms.map(|end| end.saturating_sub(unix_millis())),
            refreshes: record.refresh.is_some() || self.wishes.grant == Grant::Machine,
            issuer: record.issuer,
            scopes: record.scopes,
        }))
    }

    async fn read_once(&self) {
        if !self.known().read {
            // What cannot be read is as good as not there; writing will say why.
            drop(self.read_again().await);
        }
    }

    /// What is remembered now, also by other gateways.
    async fn read_again(&self) -> Result<Option<Record>, LoginError> {
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
        self.store.write(&record).await?;
        let before = {
            let mut known = self.known();
            known.read = true;
            known.record.replace(record)
        };
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

/// A login that is started by a command and waited for.
pub async fn start(login: &Arc<Login>) -> Result<StartedLogin, LoginError> {
    let challenge = login.probe().await?;
    let (authorization_flow, address) = login.prepare(&challenge).await?;
    let (sender, done) = oneshot::channel();
    let login = Arc::clone(login);
    crate::task::spawn("login", async move {
        let ended = login.finish(authorization_flow).await.map_err(|error| chain(&error));
        // Whoever waited may have gone; the token is kept all the same.
        drop(sender.send(ended));
    });
    Ok(StartedLogin { address, done })
}

/// The same where no person is needed.
pub async fn start_machine(login: &Login) -> Result<(), LoginError> {
    let challenge = login.probe().await?;
    login.machine(&challenge, None).await
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
