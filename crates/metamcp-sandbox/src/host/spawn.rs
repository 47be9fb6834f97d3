//! Starting and reaping workers, on two dedicated threads.
//!
//! The parent-death signal of a worker or zygote is tied to the *thread* that started it, so that thread must not end as
//! threads of the runtime do. Reaping blocks, so it has its own thread.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::Launch;
use super::zygote::{ForkResult, Zygote};

/// Process name of a worker.
const NAME: &str = "metamcp-sandbox";

/// A new process and our end of its socket. Whoever waited for it may give up at any moment, also between its start and
/// taking it: then nobody else knows of it, so it is reaped when this is dropped.
#[derive(Debug)]
pub(super) struct Started {
    parts: Option<(Process, UnixStream)>,
    reap: ReapQueue,
}

impl Started {
    pub(super) fn into_parts(mut self) -> (Process, UnixStream) {
        self.parts.take().expect("taken once, by value")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some((process, socket)) = self.parts.take() {
            drop(socket);
            self.reap.send((process, oneshot::channel().0)).ok();
        }
    }
}

type ReapQueue = mpsc::Sender<(Process, oneshot::Sender<ExitStatus>)>;

/// The process of a worker. Its owner reaps it.
#[derive(Debug)]
pub(super) enum Process {
    /// A child of this process.
    Own(Child),
    /// Forked from a zygote, which it keeps alive: pid, pidfd and that zygote.
    Forked(i32, OwnedFd, Arc<Zygote>),
}

impl Process {
    pub(super) fn id(&self) -> u32 {
        match self {
            Process::Own(child) => child.id(),
            Process::Forked(pid, ..) => pid.unsigned_abs(),
        }
    }

    /// Kills and reaps it. A process that has exited already keeps its own status.
    fn reap(self) -> Option<ExitStatus> {
        match self {
            Process::Own(mut child) => {
                child.kill().ok();
                child.wait().ok()
            }
            Process::Forked(pid, process, zygote) => zygote.reap(pid, &process),
        }
    }
}

/// Handle to the two threads, which end with the last handle.
#[derive(Debug, Clone)]
pub(super) struct Spawner {
    start: mpsc::Sender<oneshot::Sender<io::Result<Started>>>,
    reap: ReapQueue,
}

impl Spawner {
    #[expect(
        clippy::disallowed_methods,
        reason = "the runs and workers that are admitted bound both, and an async caller must not block"
    )]
    pub(super) fn new(launch: Launch) -> io::Result<Spawner> {
        let (start, orders) = mpsc::channel::<oneshot::Sender<io::Result<Started>>>();
        let (reap, dead) = mpsc::channel::<(Process, oneshot::Sender<ExitStatus>)>();
        let reap_unwanted = reap.clone();
        thread::Builder::new().name("sandbox-start".into()).spawn(move || {
            let mut zygote = None;
            for order in orders {
                let started = start_one(&launch, &mut zygote);
                let reap = reap_unwanted.clone();
                let started = started.map(|parts| Started { parts: Some(parts), reap });
                // If nobody waits any more, it is dropped.
                drop(order.send(started));
            }
        })?;
        thread::Builder::new().name("sandbox-reap".into()).spawn(move || {
            for (process, status_sender) in dead {
                if let Some(status) = process.reap() {
                    status_sender.send(status).ok();
                }
            }
        })?;
        Ok(Spawner { start, reap })
    }

    /// Starts a worker.
    pub(super) async fn start(&self) -> io::Result<Started> {
        let (sender, started) = oneshot::channel();
        self.start.send(sender).map_err(io::Error::other)?;
        started.await.map_err(io::Error::other)?
    }

    /// Kills and reaps a worker; the receiver of its exit status may be dropped.
    pub(super) fn reap(&self, process: Process) -> oneshot::Receiver<ExitStatus> {
        let (sender, reaped) = oneshot::channel();
        // The thread outlives us: it ends after the last sender.
        self.reap.send((process, sender)).ok();
        reaped
    }
}

fn start_one(
    launch: &Launch,
    zygote: &mut Option<Arc<Zygote>>,
) -> io::Result<(Process, UnixStream)> {
    if !launch.forks {
        let (socket, theirs) = pair()?;
        let own = command(launch).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn()?;
        return Ok((Process::Own(own), socket));
    }
    if let Some(young) = zygote.take_if(|zygote| !zygote.is_old()) {
        match forked(&young) {
            Ok(started) => {
                *zygote = Some(young);
                return started;
            }
            // It was killed, or violated the protocol.
            Err(_) => young.end(),
        }
    }
    // No zygote yet, or an old one, which stays alive as long as it has workers.
    let new = Arc::new(Zygote::start(launch)?);
    let started = forked(&new)?;
    *zygote = Some(new);
    started
}

/// Forks a worker from this zygote; the inner error is the system's.
///
/// # Errors
/// The zygote is unusable. A worker it may have forked finds its socket closed and exits.
fn forked(zygote: &Arc<Zygote>) -> io::Result<io::Result<(Process, UnixStream)>> {
    // Not the zygote's fault, and ending it would kill running workers.
    let (socket, theirs) = match pair() {
        Ok(pair) => pair,
        Err(error) => return Ok(Err(error)),
    };
    Ok(match zygote.fork_worker(&theirs)? {
        ForkResult::Worker(pid, process) => {
            Ok((Process::Forked(pid, process, Arc::clone(zygote)), socket))
        }
        ForkResult::Failed(error) => Err(error),
    })
}

/// Our end, non-blocking, and the worker's.
fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((ours, theirs))
}

/// The command of a worker or a zygote.
#[expect(
    clippy::disallowed_methods,
    reason = "workers are started here, and give up more than a server does"
)]
pub(super) fn command(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.program);
    command
        .arg0(NAME)
        .args(&launch.args)
        .env_clear()
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .stderr(Stdio::null())
        // Its own process group: Ctrl-C is for the gateway, which ends its runs in order.
        .process_group(0);
    command
}
