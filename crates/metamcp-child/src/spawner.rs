//! The API of this crate: start a child, hold it, wait for it, end it.
//! Owns: the types that callers hold.      Never: does the work; `supervisor.rs` does.
//! In: `Spec`, `Escalation`.  Out: `Child`, `Handle`, `ExitWatch`.
//! Tests: `tests/it/`.

#[cfg(not(target_os = "linux"))]
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use metamcp_types::escalation::Escalation;
use parking_lot::Mutex;
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};

use crate::activity::Activity;
use crate::environment;
use crate::message::Start;
use crate::spec::{Containment, Exit, ShimCommand, SpawnError, Spec, Tier};
use crate::stderr_tail::StderrTail;
use crate::supervisor::{self, Request, Requests};

/// A server's stdin; dropping it is the end of input for the server.
pub type Stdin = pipe::Sender;
pub type Stdout = pipe::Receiver;

/// Starts children, on its own thread. Cheap to clone.
#[derive(Clone)]
pub struct Spawner {
    requests: Requests,
    tier: Arc<Mutex<Tier>>,
}

impl Spawner {
    /// Starts the thread. It lives as long as any `Spawner` or `Handle`, because the kernel ties a
    /// child's death notice to the thread that started it, not to the process.
    ///
    /// Makes this process the adopter of orphaned descendants, so that what a killed shim leaves
    /// behind is killed here.
    pub fn start(shim: ShimCommand, containment: Containment) -> io::Result<Spawner> {
        let tier = Arc::new(Mutex::new(Tier::Untried));
        let requests = supervisor::start(shim, containment, tier.clone())?;
        Ok(Spawner { requests, tier })
    }

    /// Starts a child and waits until it runs or has failed to. Needs a tokio runtime with I/O.
    ///
    /// Dropping the future ends what was started.
    pub async fn spawn(&self, spec: Spec) -> Result<Child, SpawnError> {
        spec.check()?;
        let home = spec.sandbox_policy.as_ref().map(|sandbox_policy| sandbox_policy.home.as_path());
        let env = environment::for_server(spec.own_variables(), &spec.env, &spec.pass_env, home);
        #[cfg(not(target_os = "linux"))]
        let env = marked(env);
        let Spec { program, args, cwd, sandbox_policy, .. } = spec;
        let start = Start { program, args, env, cwd, sandbox_policy };
        let shared = Arc::new(Shared::default());
        let handle = Handle {
            inner: Arc::new(HandleInner {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                requests: self.requests.clone(),
                shared: shared.clone(),
            }),
        };
        let (reply, answer) = oneshot::channel();
        let id = handle.inner.id;
        self.requests.send(Request::Spawn { id, start, shared, reply })?;
        let pipes = answer.await.map_err(|_| SpawnError::NoSpawner)??;
        let shim = |source| SpawnError::Shim { source };
        Ok(Child {
            stdin: pipe::Sender::from_owned_fd(pipes.stdin).map_err(shim)?,
            stdout: pipe::Receiver::from_owned_fd(pipes.stdout).map_err(shim)?,
            handle,
        })
    }

    /// How children are contained, as far as that was tried.
    pub fn tier(&self) -> Tier {
        self.tier.lock().clone()
    }
}

/// With a mark by which the server's processes are known again; see `family.rs`.
#[cfg(not(target_os = "linux"))]
fn marked(mut env: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Two numbers that the standard library drew for its hash tables: not to be guessed, and not secret.
    let number = || RandomState::new().build_hasher().finish();
    env.push((crate::family::MARK.into(), format!("{:016x}{:016x}", number(), number()).into()));
    env
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A running server: its streams and a handle.
pub struct Child {
    pub stdin: Stdin,
    pub stdout: Stdout,
    handle: Handle,
}

/// The parts of a [`Child`], so that each stream can belong to its own task.
pub struct Parts {
    pub stdin: Stdin,
    pub stdout: Stdout,
    pub handle: Handle,
}

impl Child {
    pub fn into_parts(self) -> Parts {
        Parts { stdin: self.stdin, stdout: self.stdout, handle: self.handle }
    }

    /// See [`Handle`].
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// See [`Handle::pid`].
    pub fn pid(&self) -> u32 {
        self.handle.pid()
    }

    /// See [`Handle::stderr`].
    pub fn stderr(&self) -> StderrTail {
        self.handle.stderr()
    }

    /// See [`Handle::watch`].
    pub fn watch(&self) -> ExitWatch {
        self.handle.watch()
    }

    /// See [`Handle::activity`].
    pub fn activity(&self) -> u64 {
        self.handle.activity()
    }
}

/// A handle on a server's whole container. When the last clone is dropped the container is killed, unless
/// a `stop` is in progress.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<HandleInner>,
}

struct HandleInner {
    id: u64,
    requests: Requests,
    shared: Arc<Shared>,
}

impl Drop for HandleInner {
    fn drop(&mut self) {
        // If the thread is gone, so is the container.
        self.requests.send(Request::Release { id: self.id }).ok();
    }
}

impl Handle {
    /// Ends the container by the shutdown escalation and returns once nothing is left in it.
    ///
    /// Closing stdin is the caller's job: drop the [`Stdin`] first. Keep reading stdout meanwhile, since a
    /// server blocked on a full pipe cannot exit. The escalation runs on the supervisor's thread:
    /// it goes on when this future is dropped, and a second call joins the first, unless its own is over sooner.
    pub async fn stop(&self, escalation: Escalation) {
        self.inner.requests.send(Request::Stop { id: self.inner.id, escalation }).ok();
        self.watch().empty().await;
    }

    /// Kills everything in the container, without waiting for it.
    pub fn kill_now(&self) {
        self.inner.requests.send(Request::Kill { id: self.inner.id }).ok();
    }

    /// The server's pid as seen from here; 0 if it was gone before it could be found.
    pub fn pid(&self) -> u32 {
        self.inner.shared.leader.load(Ordering::Relaxed).cast_unsigned()
    }

    /// The pid of the shim or init that holds the container; 0 once that is over.
    pub fn keeper_pid(&self) -> u32 {
        self.inner.shared.keeper.load(Ordering::Relaxed).cast_unsigned()
    }

    /// The end of what the server wrote to stderr.
    pub fn stderr(&self) -> StderrTail {
        self.inner.shared.tail.clone()
    }

    pub fn watch(&self) -> ExitWatch {
        ExitWatch { state: self.inner.shared.state.subscribe() }
    }

    /// A counter that changes between two calls if the container was active in the meantime: wrote to
    /// stderr, used CPU, read or wrote, started or ended a process.
    pub fn activity(&self) -> u64 {
        let shared = &self.inner.shared;
        let keeper = shared.keeper.load(Ordering::Relaxed);
        let mut activity = shared.activity.lock();
        activity.look(keeper, shared.tail.total())
    }

    /// How this one is contained.
    pub fn tier(&self) -> Tier {
        self.inner.shared.tier.lock().clone()
    }
}

/// Waits for the end of a container without keeping it alive.
#[derive(Debug, Clone)]
pub struct ExitWatch {
    state: watch::Receiver<State>,
}

impl ExitWatch {
    /// Waits until the server itself ended. Others of its container may still run.
    pub async fn exited(&self) -> Exit {
        match self.state.clone().wait_for(|state| state.exit.is_some() || state.empty).await {
            Ok(state) => state.exit.unwrap_or_default(),
            Err(_) => Exit::default(),
        }
    }

    /// Waits until nothing is left in the container.
    pub async fn empty(&self) {
        // The other end is dropped only after everything is.
        self.state.clone().wait_for(|state| state.empty).await.ok();
    }

    /// How the server ended, if it did.
    pub fn exit(&self) -> Option<Exit> {
        let state = self.state.borrow();
        state.exit.or(state.empty.then(Exit::default))
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.state.borrow().empty
    }
}

/// What is known of a container's end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    pub(crate) exit: Option<Exit>,
    pub(crate) empty: bool,
}

/// What the supervisor writes and the handles read.
pub(crate) struct Shared {
    pub(crate) tail: StderrTail,
    pub(crate) state: watch::Sender<State>,
    pub(crate) keeper: AtomicI32,
    pub(crate) leader: AtomicI32,
    pub(crate) tier: Mutex<Tier>,
    activity: Mutex<Activity>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            tail: StderrTail::default(),
            state: watch::Sender::new(State::default()),
            keeper: AtomicI32::new(0),
            leader: AtomicI32::new(0),
            tier: Mutex::new(Tier::Untried),
            activity: Mutex::default(),
        }
    }
}

/// Our ends of a server's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
}
