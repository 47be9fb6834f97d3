//! One remote server, for both HTTP transports: each message is an HTTP request.
//! Owns: its session, its streams, the requests under way.      Never: knows calls; decides whether a failed one is retried.
//! In: messages from the connection's outbox.  Out: what the server sends, through `Connection` to the `Listener`; why the connection ended.
//! Tests: `metamcp/tests/remote/`, `metamcp/tests/real/`.

mod credentials;
mod exchange;
mod message;
mod post;
mod session;
mod site;
mod stream;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::header::HeaderValue;
use metamcp_calls::failure::Fact;
use metamcp_config::config::RemoteEndpoint;
use metamcp_types::web::Address;
use metamcp_wire::envelope::Envelope;
use metamcp_wire::modern::headers::Mirror;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use self::credentials::Credentials;
pub(super) use self::exchange::fresh_token_refused;
use self::message::Message;
pub(super) use self::post::Broken;
pub use self::site::{Site, Sites};
pub(super) use self::stream::{End, ResumePoint, is_stream, next_data};
use super::connection::{Connection, Listener};
use super::transport::Surroundings;
use crate::task;
use crate::web::{GuardedClient, Web};

/// Probe timeout: every request has its own HTTP response here, and a login may come before it.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the next message waits for `notifications/initialized` to be received: it must not overtake it.
const INITIALIZED_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages without a response that may be in flight at once; beyond that, server requests are not answered.
const MAX_UNANSWERED: usize = 64;
/// How long the deletion of a session may take.
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);

/// Finds the parameters of a tool that its server wants repeated in headers (`x-mcp-header`).
pub type Mirrors = Arc<dyn Fn(&str) -> Vec<Mirror> + Send + Sync>;

pub struct Remote {
    site: Site,
    guarded: GuardedClient,
    /// The HTTP client; replaced when pooled connections were found dead.
    web: Mutex<Web>,
    state: Mutex<State>,
    renewing: tokio::sync::Mutex<()>,
    exchanges: Mutex<HashMap<u64, AbortHandle>>,
    mentions: AtomicUsize,
    fate: watch::Sender<Fate>,
}

#[derive(Default)]
struct State {
    /// The session id, if the server has sessions.
    session: Option<HeaderValue>,
    /// Changes with each session.
    generation: u64,
    /// Our `initialize`, to begin a new session with.
    greeting: Option<Message>,
    /// Where messages are posted to, with the transport of 2024.
    endpoint: Option<Address>,
    /// The target of a redirect, as long as it works.
    moved: Option<Address>,
    /// The task that reads the general stream.
    listening: Option<AbortHandle>,
}

#[derive(Clone, Debug)]
enum Fate {
    Running,
    Lost(Fact),
    Stopped { politely: bool },
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.site.address.origin())
    }
}

impl Remote {
    /// Sends nothing yet.
    pub fn new(
        name: &str,
        endpoint: &RemoteEndpoint,
        surroundings: Surroundings<'_>,
    ) -> Result<Remote, Fact> {
        let Surroundings { launcher, line_bytes, mirrors, .. } = surroundings;
        let site = launcher.sites.site(name, endpoint, line_bytes, mirrors)?;
        Ok(Remote {
            web: Mutex::new(site.web.clone()),
            site,
            guarded: GuardedClient::default(),
            state: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
            exchanges: Mutex::default(),
            mentions: AtomicUsize::new(0),
            fate: watch::Sender::new(Fate::Running),
        })
    }

    /// The configured address.
    pub(super) fn address(&self) -> &Address {
        &self.site.address
    }

    /// Switches to the transport of 2024: responses come over one stream, which `listening` reads, and messages are posted to
    /// `endpoint`.
    pub(super) fn posts_to(&self, endpoint: Address, listening: AbortHandle) {
        let mut state = self.state();
        state.endpoint = Some(endpoint);
        state.listening = Some(listening);
    }

    /// Ends the connection; `politely` deletes the session first.
    pub fn stop(&self, politely: bool) {
        self.fate.send_replace(Fate::Stopped { politely });
    }

    /// Whether it speaks the transport of 2024.
    pub fn is_sse(&self) -> bool {
        self.state().endpoint.is_some()
    }

    /// Runs the connection until it is lost, and returns why, or until it was stopped.
    pub async fn serve(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
        opened: impl Future<Output = Result<(), Fact>>,
    ) -> Option<Fact> {
        let talk = async {
            if let Err(fact) = opened.await {
                return fact;
            }
            self.talk(connection, listener).await;
            // Nothing more to send; it ends when it is stopped.
            std::future::pending().await
        };
        tokio::select! {
            fact = talk => Some(fact),
            fact = self.ended() => fact,
        }
    }

    /// Ends all its tasks and streams.
    pub async fn end(&self) {
        let politely = matches!(*self.fate.borrow(), Fate::Stopped { politely: true });
        let under_way: Vec<AbortHandle> =
            self.exchanges().drain().map(|(_, exchange)| exchange).collect();
        under_way.iter().for_each(AbortHandle::abort);
        let (session, listening) = {
            let mut state = self.state();
            (state.session.take(), state.listening.take())
        };
        if let Some(listening) = listening {
            listening.abort();
        }
        if let (Some(session), true) = (session, politely) {
            // Whether the deletion succeeded does not matter: sessions expire too.
            drop(tokio::time::timeout(DELETE_TIMEOUT, self.delete(session)).await);
        }
    }

    async fn ended(&self) -> Option<Fact> {
        let mut fate = self.fate.subscribe();
        let ended = fate.wait_for(|fate| !matches!(fate, Fate::Running)).await;
        match ended.as_deref() {
            Ok(Fate::Lost(fact)) => Some(fact.clone()),
            _ => None,
        }
    }

    /// Ends the whole connection.
    pub(super) fn lose(&self, fact: Fact) {
        self.fate.send_if_modified(|fate| {
            let running = matches!(fate, Fate::Running);
            if running {
                *fate = Fate::Lost(fact);
            }
            running
        });
    }

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
                    self.pass_on(connection, listener, line.freeze()).await;
                }
            }
        }
    }

    /// Sends one message.
    async fn pass_on(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
        line: Bytes,
    ) {
        let Ok(envelope) = Envelope::parse(&line) else { return };
        match envelope {
            Envelope::Request { id, method, params } => {
                let Some(number) = id.as_u64() else { return };
                let message = self.request(connection, &line, &method, params);
                self.begin(connection, listener, number, message);
            }
            Envelope::Notification { method, params } => {
                let stateless = connection.is_stateless();
                match &*method {
                    "notifications/cancelled" => {
                        self.cancel_request(params);
                        if stateless {
                            // Closing its stream cancels the request.
                            return;
                        }
                    }
                    "notifications/initialized" => {
                        let message = Message::plain(line.clone(), &method);
                        let told = self.tell(connection, &message);
                        drop(tokio::time::timeout(INITIALIZED_TIMEOUT, told).await);
                        return self.listen(connection, listener);
                    }
                    _ if stateless => return,
                    _ => {}
                }
                self.send_notification(connection, Message::plain(line.clone(), &method));
            }
            Envelope::Result { .. } | Envelope::Error { .. } => {
                self.send_notification(connection, Message::plain(line.clone(), ""));
            }
            // We never write a batch.
            Envelope::Batch(_) => {}
        }
    }

    /// Sends a message that has no response.
    fn send_notification(self: &Arc<Self>, connection: &Arc<Connection>, message: Message) {
        if self.mentions.fetch_add(1, Ordering::Relaxed) >= MAX_UNANSWERED {
            self.mentions.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (remote, connection) = (Arc::clone(self), Arc::clone(connection));
        task::spawn("mention", async move {
            let told = remote.tell(&connection, &message);
            // A server that does not accept it within the timeout will not accept it later.
            drop(tokio::time::timeout(INITIALIZED_TIMEOUT, told).await);
            remote.mentions.fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn begin(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
        number: u64,
        message: Message,
    ) {
        let (remote, connection) = (Arc::clone(self), Arc::clone(connection));
        let listener = Arc::clone(listener);
        // Under the lock, so that it cannot have ended before it is in the table.
        let mut exchanges = self.exchanges();
        let exchange = task::spawn("exchange", async move {
            remote.exchange(&connection, &listener, number, message).await;
        });
        exchanges.insert(number, exchange.abort_handle());
    }

    /// Cancels the HTTP request for this id.
    fn cancel_request(&self, params: Option<&[u8]>) {
        let id = params.and_then(|params| metamcp_wire::object::pick(params, ["requestId"]).ok());
        let number = id.and_then(|[id]| std::str::from_utf8(id?).ok()?.parse().ok());
        let exchange = number.and_then(|number: u64| self.exchanges().remove(&number));
        if let Some(exchange) = exchange {
            exchange.abort();
            // Perhaps there was no response because the connection is dead.
            self.drop_idle_connections();
        }
    }

    fn web(&self) -> Web {
        self.web.lock().clone()
    }

    /// One connection to the server died: the idle ones in the pool are dropped too, or each would cost a call.
    fn drop_idle_connections(&self) {
        let mut web = self.web.lock();
        *web = web.with_empty_pool();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn exchanges(&self) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
        self.exchanges.lock()
    }
}
