//! The daemon: one process of the user that serves every client on the machine, each in its own context.
//! Owns: the local socket, who is served in which context, when it ends.      Never: reads flags or renders (its `Host` does), decides about calls.
//! In: connections on the local socket.  Out: sessions, replies, the end of the process.
//! Tests: `metamcp/tests/daemon/`.

pub mod admin;
mod connection;
mod contexts;
mod listening;
pub mod local;
mod page;
mod report;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use metamcp_calls::shutdown::{Event, Shutdown};
use metamcp_config::settings::Settings;
use metamcp_sandbox::host::Launch;
use metamcp_types::moment::Moment;
use metamcp_wire::local::{CommandLine, Hello, Refusal};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};

use self::contexts::Contexts;
use super::wind_up;
use crate::config::Loaded;
use crate::env::Variables;
use crate::gateway::{Gateway, Machine};
use crate::history::History;
use crate::observe::{Identity, Subscriber};
use crate::runtime_folder::{Held, Places};
use crate::serve::http::Plan;
use crate::task;

/// The version that connectors compare with theirs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Clients at once: far more than a person has, and few enough that the process keeps its file descriptors.
const MAX_CONNECTIONS: usize = 2000;
/// How often idle contexts and an idle daemon are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Pause after a failed `accept`, as when the process has no file descriptors left.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What the daemon has to be told by the program around it.
pub trait Host: Send + Sync {
    /// The configuration of a client, or what to tell it instead.
    fn load(&self, client: &ClientContext) -> Result<Loaded, Refusal>;
    /// How scripts of this configuration are run.
    fn worker(&self, loaded: &Loaded) -> Launch;
    /// Remarks for the person who started the client.
    fn remarks(&self, loaded: &Loaded) -> Vec<String>;
    /// Who may come in over HTTP, by this configuration, and what to tell the person who started it.
    fn plan(&self, loaded: &Loaded, client: &ClientContext)
    -> Result<(Plan, Vec<String>), Refusal>;
    /// Runs a command of a shell, to its last frame.
    fn command(&self, command: Command, stream: local::Stream) -> Boxed<()>;
    /// Runs one on behalf of the page, and returns what it printed.
    fn run(&self, command: Command) -> Boxed<CommandOutput>;
}

/// What a command printed, and its exit code.
#[derive(Debug, Clone, Default)]
pub struct CommandOutput {
    pub code: u8,
    pub out: String,
    pub err: String,
}

/// A future of the host's.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A command of a shell, with its context.
pub struct Command {
    pub hello: Hello,
    pub line: CommandLine,
    pub loaded: Arc<Loaded>,
    pub gateway: Arc<Gateway>,
}

/// What a client brings along that decides about its configuration.
#[derive(Debug, Clone)]
pub struct ClientContext {
    pub folder: PathBuf,
    pub flags: Vec<String>,
    pub variables: Variables,
}

/// See the module.
pub struct Daemon {
    machine: Arc<Machine>,
    settings: Settings,
    host: Arc<dyn Host>,
    places: Places,
    /// The lock that makes this the user's daemon, until it steps aside for a newer one.
    held: Mutex<Option<Held>>,
    contexts: Contexts,
    /// Listeners of a daemon that this one replaced, until their connectors come.
    adopted: Mutex<Vec<listening::Listener>>,
    connections: Mutex<Vec<Arc<Connected>>>,
    calls: Arc<CallCounter>,
    page: page::Page,
    history: Arc<History>,
    /// Takes no new sessions.
    is_draining: AtomicBool,
    /// Asked to end.
    stopping: watch::Sender<bool>,
    /// Moves whenever a connection ended.
    departures: watch::Sender<()>,
    /// Something ended: it may be time to go.
    changed: Notify,
    started: Moment,
    busy_at: AtomicU64,
}

/// One connection that is served.
pub struct Connected {
    pub(super) session: u64,
    kind: &'static str,
    pid: u32,
    folder: String,
    since: Moment,
    client: Mutex<Option<std::sync::Weak<super::Session>>>,
    context: Option<Arc<contexts::OpenContext>>,
    variables: Variables,
    /// The HTTP listener that lives as long as it does.
    listener: Mutex<Option<listening::Listener>>,
    /// Its context no longer fits it: it is asked to come back.
    leave: Notify,
}

/// Counts calls by session, for people to look at.
#[derive(Default)]
struct CallCounter(Mutex<std::collections::HashMap<u64, u64>>);

impl Subscriber for CallCounter {
    fn interest(&self) -> crate::observe::Interest {
        crate::observe::Interest::CALLS
    }

    fn on_event(&self, event: &crate::observe::Event<'_>) {
        if let crate::observe::Event::Call(record, _) = event {
            // Only of connections: sessions over HTTP come and go without a word.
            if let Some(count) = self.0.lock().get_mut(&record.identity.session) {
                *count += 1;
            }
        }
    }
}

impl Daemon {
    /// The daemon of one home, on its socket. Must be called inside a runtime.
    pub fn new(
        machine: Arc<Machine>,
        settings: Settings,
        host: Arc<dyn Host>,
        places: Places,
        held: Held,
    ) -> Arc<Daemon> {
        let calls = Arc::new(CallCounter::default());
        machine.observe(Arc::clone(&calls) as Arc<dyn Subscriber>);
        let history = Arc::new(History::new(machine.router.clock));
        machine.observe(Arc::clone(&history) as Arc<dyn Subscriber>);
        let started = machine.router.clock.now();
        Arc::new(Daemon {
            machine,
            settings,
            host,
            places,
            held: Mutex::new(Some(held)),
            contexts: Contexts::default(),
            adopted: Mutex::default(),
            connections: Mutex::default(),
            calls,
            page: page::Page::default(),
            history,
            is_draining: AtomicBool::new(false),
            stopping: watch::channel(false).0,
            departures: watch::channel(()).0,
            changed: Notify::new(),
            started,
            busy_at: AtomicU64::new(0),
        })
    }

    /// Serves until it is told to stop, or nobody has needed it for a while; then drains, and ends every server.
    pub async fn serve(self: &Arc<Self>, listener: local::Listener, mut stop: mpsc::Receiver<()>) {
        let mut stopping = self.stopping.subscribe();
        self.touch();
        tracing::info!("the daemon of version {VERSION} serves as process {}", std::process::id());
        loop {
            tokio::select! {
                accepted = listener.accept() => self.accept(accepted).await,
                Some(()) = stop.recv() => break,
                _ = stopping.wait_for(|stops| *stops) => break,
                () = tokio::time::sleep(LOOK) => {}
                () = self.changed.notified() => {}
            }
            self.contexts.forget_idle(self.now(), self.linger());
            if self.is_over() {
                break;
            }
        }
        self.end(stop).await;
    }

    fn now(&self) -> Moment {
        self.machine.router.clock.now()
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.now().elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How long a context outlives its last session, so that the next finds its servers warm.
    fn linger(&self) -> Duration {
        const LEAST: Duration = Duration::from_mins(10);
        self.settings.daemon.idle_exit.max(LEAST)
    }

    /// Notes that somebody was here.
    fn touch(&self) {
        self.busy_at.store(self.millis(), Ordering::Relaxed);
    }

    /// Whether nobody needs it any more.
    fn is_over(&self) -> bool {
        if !self.connections.lock().is_empty() {
            self.touch();
            return false;
        }
        if self.page.is_watched(self.now()) || self.contexts.are_running() {
            self.touch();
        }
        if self.is_draining.load(Ordering::Relaxed) {
            return true;
        }
        let limit = self.settings.daemon.idle_exit;
        let idle = self.millis().saturating_sub(self.busy_at.load(Ordering::Relaxed));
        !limit.is_zero() && u128::from(idle) >= limit.as_millis()
    }

    async fn accept(self: &Arc<Self>, accepted: std::io::Result<(local::Stream, bool)>) {
        let (stream, is_ours) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot take a connection on the local socket: {error}");
                return tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        };
        // Nobody else gets into the folder; should somebody all the same, nothing is said to them.
        if !is_ours {
            tracing::warn!(
                "a process of another user connected to the local socket; it was turned away"
            );
            return;
        }
        task::spawn("local connection", connection::serve(Arc::clone(self), stream));
    }

    /// Takes no new sessions and gives its name to a newer daemon; lives until its last session ends.
    fn step_aside(&self) -> std::io::Result<PathBuf> {
        self.is_draining.store(true, Ordering::Relaxed);
        let held = self.held.lock().take();
        let socket = match held {
            Some(held) => self.places.step_aside(held)?,
            None => self.places.old_socket(std::process::id()),
        };
        self.changed.notify_one();
        Ok(socket)
    }

    /// Takes nobody any more, and tells every session that it ends. The name first: a connector that finds its session
    /// ended knows by it that nobody died, and who comes now starts another daemon instead of being turned away.
    fn begin_end(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        match self.held.lock().take() {
            Some(held) => self.places.remove_socket(&held),
            None => drop(std::fs::remove_file(self.places.old_socket(std::process::id()))),
        }
        self.stopping.send_replace(true);
    }

    async fn end(self: &Arc<Self>, mut stop: mpsc::Receiver<()>) {
        self.begin_end();
        let mut shutdown = Shutdown::new(self.settings.timeouts.drain);
        shutdown.hear(Event::Signal, self.now());
        let limit = self.settings.timeouts.drain + Duration::from_secs(1);
        let drained = async {
            while !self.connections.lock().is_empty() {
                self.changed.notified().await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(limit, drained) => {}
            _ = stop.recv() => { shutdown.hear(Event::Signal, self.now()); }
        }
        self.machine.router.stop_now();
        wind_up(&self.machine, &mut stop, shutdown).await;
        self.contexts.written().await;
        self.machine.end();
    }

    /// Registers a connection for as long as the ticket lives.
    fn enter(self: &Arc<Self>, connected: Connected) -> Option<Ticket> {
        let mut connections = self.connections.lock();
        if connections.len() >= MAX_CONNECTIONS {
            return None;
        }
        let connected = Arc::new(connected);
        connections.push(Arc::clone(&connected));
        self.calls.0.lock().insert(connected.session, 0);
        Some(Ticket { daemon: Arc::clone(self), connected })
    }
}

/// A connection that counts.
struct Ticket {
    daemon: Arc<Daemon>,
    connected: Arc<Connected>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let daemon = &self.daemon;
        daemon.connections.lock().retain(|known| !Arc::ptr_eq(known, &self.connected));
        daemon.calls.0.lock().remove(&self.connected.session);
        if let Some(context) = &self.connected.context {
            context.left(daemon.now());
        }
        daemon.touch();
        daemon.departures.send_replace(());
        daemon.changed.notify_one();
    }
}

/// A session's number, for connections that have no session.
fn number() -> u64 {
    Identity::owner().session
}
