//! Children on Windows: each server in a job object of its own, which ends with the gateway.
//! Owns: the same API as on Unix.      Never: runs a server before it is in its job; lets one out of it.
//! In: `Spec`, `Escalation`.  Out: `Child`, `Handle`, `ExitWatch`.
//! Tests: `cargo xtask test --windows`, with real processes.
//!
//! The gateway is in a job itself, whose only handle it holds: however it dies, the system closes the handle and ends
//! everything in the job. A server is born in that job, suspended, is put into its own one inside it, and only then runs.
//! Neither job lets a server out: what it starts is in both, and `CREATE_BREAKAWAY_FROM_JOB` fails for it.
//! Out of reach is what a server has other programs of the system start: a scheduled task, a service, WMI.
//!
//! What is asked to end has its input closed, then hears Ctrl-C and Ctrl-Break on its console (`windows/console.rs`), and
//! then its job is ended.

mod console;
mod job;
mod launch;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metamcp_types::escalation::{Escalation, Next, Step};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{Notify, watch};

use self::console::{Event, Sending};
use self::job::ServerJob;
use self::launch::{Launched, Running};
use crate::clock;
use crate::spec::{Containment, Exit, ShimCommand, SpawnError, Spec, Tier};
use crate::stderr_tail::StderrTail;

pub use self::job::start_outliving;
pub(crate) use self::job::{memory_of, memory_of_job};

pub type Stdin = ChildStdin;
pub type Stdout = ChildStdout;

/// How often a job is looked at whose leader has ended: it does not say when the rest has.
const LOOK: Duration = Duration::from_millis(10);

/// There are no shims here; this program in the place of one sends a console event.
pub fn shim_main(args: impl Iterator<Item = OsString>) -> i32 {
    console::main(args.map(|word| word.to_string_lossy().into_owned()))
}

/// Starts children. Cheap to clone.
#[derive(Clone)]
pub struct Spawner {
    containment: Containment,
    /// Sends console events.
    sender: Arc<ShimCommand>,
}

impl Spawner {
    /// See the Unix twin; there is no thread here, and no shim above a server. Puts this process into a job that ends with
    /// it.
    pub fn start(shim: ShimCommand, containment: Containment) -> io::Result<Spawner> {
        job::contain_this_process()?;
        Ok(Spawner { containment, sender: Arc::new(shim) })
    }

    /// Starts a child. Dropping the future ends what was started.
    pub async fn spawn(&self, spec: Spec) -> Result<Child, SpawnError> {
        if self.containment == Containment::Namespace {
            let source = io::Error::from(io::ErrorKind::Unsupported);
            return Err(SpawnError::Namespace { step: "new namespaces", source });
        }
        if spec.sandbox_policy.is_some() {
            return Err(SpawnError::Sandbox { source: io::ErrorKind::Unsupported.into() });
        }
        // Looking a program up reads folders, which may be on a slow share, and starting it takes a look at every thread
        // of the system.
        let launched = move || launch::start(launch::look_up(spec)?);
        let launched = tokio::task::spawn_blocking(launched).await;
        let Launched { stdin, stdout, stderr, running, job, pid } =
            launched.map_err(|_| SpawnError::Lost)??;
        let inner = Arc::new(Inner {
            pid,
            job: Arc::clone(&job),
            tail: StderrTail::default(),
            state: watch::Sender::new(State::default()),
            orders: Arc::default(),
        });
        job::remember(pid, &job);
        let server = Server { pid, running, job, sender: Arc::clone(&self.sender) };
        let supervised = supervise(server, inner.state.clone(), Arc::clone(&inner.orders));
        #[expect(
            clippy::disallowed_methods,
            reason = "tasks have names in the engine, which is above"
        )]
        let _both = (tokio::spawn(drain(stderr, inner.tail.clone())), tokio::spawn(supervised));
        Ok(Child { stdin, stdout, handle: Handle { inner } })
    }

    /// How children are contained.
    pub fn tier(&self) -> Tier {
        Tier::Job
    }
}

/// What the handles of a server ask of its task.
#[derive(Default)]
struct Orders {
    due: Mutex<Due>,
    changed: Notify,
}

#[derive(Default)]
struct Due {
    /// The shutdown escalation, and when it began.
    stopping: Option<(Instant, Escalation)>,
    killing: bool,
}

impl Orders {
    /// A second escalation takes the place of the first if it is over sooner.
    fn stop(&self, escalation: Escalation) {
        let now = clock::now();
        let mut due = self.due.lock();
        let is_sooner = due
            .stopping
            .as_ref()
            .is_none_or(|(began, first)| now + escalation.length() < *began + first.length());
        if is_sooner {
            due.stopping = Some((now, escalation));
        }
        drop(due);
        self.changed.notify_one();
    }

    fn kill(&self) {
        self.due.lock().killing = true;
        self.changed.notify_one();
    }

    /// The last handle is gone: without a stop in progress everything is killed.
    fn release(&self) {
        if self.due.lock().stopping.is_none() {
            self.kill();
        }
    }

    /// What is to be done now.
    fn ask(&self) -> Asked {
        let mut due = self.due.lock();
        let mut asked = Asked::default();
        if let Some((began, escalation)) = &mut due.stopping {
            let elapsed = clock::now().duration_since(*began);
            loop {
                match escalation.next(elapsed) {
                    Next::Take(Step::KillAll) => asked.kills = true,
                    // Of those that were missed, the last.
                    Next::Take(step) => asked.sends = Event::of(step).or(asked.sends),
                    Next::Wait(left) => break asked.wait = Some(left),
                    Next::Finished => break,
                }
            }
        }
        due.killing |= asked.kills;
        asked.kills = due.killing;
        asked
    }
}

#[derive(Default)]
struct Asked {
    kills: bool,
    sends: Option<Event>,
    /// When to ask again.
    wait: Option<Duration>,
}

/// What the task of a server holds.
struct Server {
    pid: u32,
    running: Running,
    job: Arc<ServerJob>,
    sender: Arc<ShimCommand>,
}

/// Waits for the end of the server and then for that of its job, and asks and kills both when told to.
async fn supervise(server: Server, state: watch::Sender<State>, orders: Arc<Orders>) {
    let Server { pid, mut running, job, sender } = server;
    let mut has_ended = false;
    // One that is still on its way when the next is due was too slow.
    let mut _sending: Option<Sending> = None;
    loop {
        let Asked { kills, sends, wait } = orders.ask();
        if kills {
            // Again and again: a process that was just being started may have missed it.
            running.kill_all();
        } else if let Some(event) = sends
            && !has_ended
        {
            // While its process is known to run the pid is its own.
            _sending = Some(console::send(&sender, event, pid));
        }
        if has_ended && job.is_empty() {
            break;
        }
        let pause = if kills || has_ended { Some(LOOK) } else { wait };
        let pause = async {
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            exit = running.exited(), if !has_ended => {
                has_ended = true;
                state.send_modify(|state| state.exit = Some(exit));
            }
            () = orders.changed.notified() => {}
            () = pause => {}
        }
    }
    state.send_modify(|state| state.empty = true);
}

async fn drain(mut stderr: ChildStderr, tail: StderrTail) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(read) = stderr.read(&mut chunk).await {
        if read == 0 {
            break;
        }
        tail.push(&chunk[..read]);
    }
}

/// A running server: its streams and a handle.
pub struct Child {
    pub stdin: Stdin,
    pub stdout: Stdout,
    handle: Handle,
}

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

/// A handle on a server's whole job. When the last clone is dropped the job is killed, unless a `stop` is in progress.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    pid: u32,
    job: Arc<ServerJob>,
    tail: StderrTail,
    state: watch::Sender<State>,
    orders: Arc<Orders>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.orders.release();
    }
}

impl Handle {
    /// Ends the job by the shutdown escalation, with console events in place of signals, and returns once nothing is left in
    /// it. Closing stdin is the caller's job: drop the [`Stdin`] first. It goes on when this future is dropped.
    pub async fn stop(&self, escalation: Escalation) {
        self.inner.orders.stop(escalation);
        self.watch().empty().await;
    }

    /// Kills everything in the job, without waiting for it.
    pub fn kill_now(&self) {
        self.inner.orders.kill();
    }

    /// The server's pid.
    pub fn pid(&self) -> u32 {
        self.inner.pid
    }

    /// There is no shim here.
    pub fn keeper_pid(&self) -> u32 {
        0
    }

    /// The end of what the server wrote to stderr.
    pub fn stderr(&self) -> StderrTail {
        self.inner.tail.clone()
    }

    pub fn watch(&self) -> ExitWatch {
        ExitWatch { state: self.inner.state.subscribe() }
    }

    /// A counter that changes between two calls if the job was active in the meantime: wrote to stderr, used processor
    /// time, started or ended a process.
    pub fn activity(&self) -> u64 {
        self.inner.tail.total().wrapping_add(self.inner.job.activity())
    }

    /// How this one is contained.
    pub fn tier(&self) -> Tier {
        Tier::Job
    }
}

/// What is known of a job's end.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    exit: Option<Exit>,
    empty: bool,
}

/// Waits for the end of a job without keeping it alive.
#[derive(Debug, Clone)]
pub struct ExitWatch {
    state: watch::Receiver<State>,
}

impl ExitWatch {
    /// Waits until the server itself ended. Others of its job may still run.
    pub async fn exited(&self) -> Exit {
        match self.state.clone().wait_for(|state| state.exit.is_some() || state.empty).await {
            Ok(state) => state.exit.unwrap_or_default(),
            Err(_) => Exit::default(),
        }
    }

    /// Waits until nothing is left in the job.
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
