//! One remote server, as both HTTP transports reach it: each message is an HTTP request of its own.
//! Owns: its session, its streams, the requests under way.      Never: knows calls; decides what becomes of one that broke off.
//! In: messages from the connection's outbox.  Out: what it says, through `Connection` to the `Listener`; why it is lost.
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
pub(super) use self::exchange::not_even_fresh;
use self::message::Message;
pub(super) use self::post::Broken;
pub use self::site::{Site, Sites};
pub(super) use self::stream::{End, Place, is_stream, next_data};
use super::connection::{Connection, Listener};
use super::transport::Surroundings;
use crate::task;
use crate::web::{Guarded, Web};

/// How long a probe may go unanswered: every request has a response of its own here, and a login may come before it.
pub(super) const PROBE_PATIENCE: Duration = Duration::from_secs(15);
/// How long the receipt of `notifications/initialized` is waited for: what follows shall not overtake it.
const INITIALIZED: Duration = Duration::from_secs(10);
/// Messages without an answer that may be under way at once: a server that asks for more than that gets no answer.
const MENTIONS: usize = 64;
/// How long a server is given to hear that its session is over.
const FAREWELL: Duration = Duration::from_secs(1);

/// Finds the parameters of a tool that its server wants repeated in headers.
pub type Mirrors = Arc<dyn Fn(&str) -> Vec<Mirror> + Send + Sync>;

/// See the module.
pub struct Remote {
    site: Site,
    guarded: Guarded,
    /// The way to it, without connections that were found dead.
    web: Mutex<Web>,
    state: Mutex<State>,
    renewing: tokio::sync::Mutex<()>,
    exchanges: Mutex<HashMap<u64, AbortHandle>>,
    mentions: AtomicUsize,
    fate: watch::Sender<Fate>,
}

#[derive(Default)]
struct State {
    /// The session, where the server keeps one.
    session: Option<HeaderValue>,
    /// Moves with each session.
    generation: u64,
    /// Our `initialize`, for when the session is forgotten.
    greeting: Option<Message>,
    /// Where messages are posted to, with the transport of 2024.
    endpoint: Option<Address>,
    /// Where a redirect led to, for as long as it works.
    moved: Option<Address>,
    /// What reads the general stream.
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
    /// The server of this name and address, to which nothing was said yet.
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
            guarded: Guarded::default(),
            state: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
            exchanges: Mutex::default(),
            mentions: AtomicUsize::new(0),
            fate: watch::Sender::new(Fate::Running),
        })
    }

    /// Where it is, by its configuration.
    pub(super) fn address(&self) -> &Address {
        &self.site.address
    }

    /// From now on it is spoken to by the transport of 2024: what it says comes over one stream, which `listening`
    /// reads, and messages are posted to `endpoint`.
    pub(super) fn posts_to(&self, endpoint: Address, listening: AbortHandle) {
        let mut state = self.state();
        state.endpoint = Some(endpoint);
        state.listening = Some(listening);
    }

    /// Ends it; `politely` tells the server.
    pub fn stop(&self, politely: bool) {
        self.fate.send_replace(Fate::Stopped { politely });
    }

    /// Whether it turned out to speak the transport of 2024.
    pub fn is_sse(&self) -> bool {
        self.state().endpoint.is_some()
    }

    /// Speaks with it, once it is opened, until it is lost, and says why, or until it was stopped.
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
            // Nothing more is to be said; it ends when it is told to.
            std::future::pending().await
        };
        tokio::select! {
            fact = talk => Some(fact),
            fact = self.ended() => fact,
        }
    }

    /// Sees to it that nothing of it is left.
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
            // Whether it heard is its own concern: sessions end by themselves too.
            drop(tokio::time::timeout(FAREWELL, self.delete(session)).await);
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

    /// The whole connection is of no use any more.
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

    /// One message of ours.
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
                        self.call_off(params);
                        if stateless {
                            // Its stream is closed, which says the same.
                            return;
                        }
                    }
                    "notifications/initialized" => {
                        let message = Message::plain(line.clone(), &method);
                        let told = self.tell(connection, &message);
                        drop(tokio::time::timeout(INITIALIZED, told).await);
                        return self.listen(connection, listener);
                    }
                    _ if stateless => return,
                    _ => {}
                }
                self.mention(connection, Message::plain(line.clone(), &method));
            }
            Envelope::Result { .. } | Envelope::Error { .. } => {
                self.mention(connection, Message::plain(line.clone(), ""));
            }
            // Nobody here writes one.
            Envelope::Batch(_) => {}
        }
    }

    /// Sends something that has no answer.
    fn mention(self: &Arc<Self>, connection: &Arc<Connection>, message: Message) {
        if self.mentions.fetch_add(1, Ordering::Relaxed) >= MENTIONS {
            self.mentions.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (remote, connection) = (Arc::clone(self), Arc::clone(connection));
        task::spawn("mention", async move {
            let told = remote.tell(&connection, &message);
            // A server that does not take it within the time of a handshake will not take it later.
            drop(tokio::time::timeout(INITIALIZED, told).await);
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

    /// Nobody waits for the answer to this request any more.
    fn call_off(&self, params: Option<&[u8]>) {
        let id = params.and_then(|params| metamcp_wire::object::pick(params, ["requestId"]).ok());
        let number = id.and_then(|[id]| std::str::from_utf8(id?).ok()?.parse().ok());
        let exchange = number.and_then(|number: u64| self.exchanges().remove(&number));
        if let Some(exchange) = exchange {
            exchange.abort();
            // It may have been waited for in vain because its connection is dead.
            self.drop_kept();
        }
    }

    /// The way to the server, as it is now.
    fn web(&self) -> Web {
        self.web.lock().clone()
    }

    /// One connection to the server died: those that are kept for the next requests are not used any more, so that each
    /// of them does not cost a call of its own.
    fn drop_kept(&self) {
        let mut web = self.web.lock();
        *web = web.afresh();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn exchanges(&self) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
        self.exchanges.lock()
    }
}
