//! Starting workers and burying them, on two threads of their own.
//!
//! A worker or a nursery dies with the *thread* that started it, so that thread has to stay: threads of the runtime
//! come and go. And waiting for the dead blocks, so that is a second thread's work, and no other's.

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

/// What a worker is called in a list of processes.
const NAME: &str = "metamcp-sandbox";

/// A process that was just started, and our end of its socket.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) process: Process,
    pub(super) socket: UnixStream,
}

/// The process of a worker. Whoever has it buries it.
#[derive(Debug)]
pub(super) enum Process {
    /// Started by us.
    Own(Child),
    /// Forked from a nursery, which it keeps alive: its number, what it is killed by, and that nursery.
    Forked(i32, OwnedFd, Arc<Zygote>),
}

impl Process {
    /// Its number.
    pub(super) fn id(&self) -> u32 {
        match self {
            Process::Own(child) => child.id(),
            Process::Forked(pid, ..) => pid.unsigned_abs(),
        }
    }

    /// Kills it and waits for its end. One that is ending by itself keeps its own status: a signal comes too late for it.
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

/// The two threads. They end when the last of these is gone.
#[derive(Debug, Clone)]
pub(super) struct Spawner {
    start: mpsc::Sender<oneshot::Sender<io::Result<Started>>>,
    reap: mpsc::Sender<(Process, oneshot::Sender<ExitStatus>)>,
}

impl Spawner {
    pub(super) fn new(launch: Launch) -> io::Result<Spawner> {
        let (start, orders) = mpsc::channel::<oneshot::Sender<io::Result<Started>>>();
        let (reap, dead) = mpsc::channel::<(Process, oneshot::Sender<ExitStatus>)>();
        let unwanted = reap.clone();
        thread::Builder::new().name("sandbox-start".into()).spawn(move || {
            let mut zygote = None;
            for order in orders {
                // If nobody waits any more, the socket closes and the worker ends by itself; it is buried
                // from here, since nobody else knows of it.
                let started = start_one(&launch, &mut zygote);
                if let Err(Ok(Started { process, socket })) = order.send(started) {
                    drop(socket);
                    unwanted.send((process, oneshot::channel().0)).ok();
                }
            }
        })?;
        thread::Builder::new().name("sandbox-reap".into()).spawn(move || {
            for (process, told) in dead {
                if let Some(status) = process.reap() {
                    told.send(status).ok();
                }
            }
        })?;
        Ok(Spawner { start, reap })
    }

    /// Starts a worker.
    pub(super) async fn start(&self) -> io::Result<Started> {
        let (told, started) = oneshot::channel();
        self.start.send(told).map_err(io::Error::other)?;
        started.await.map_err(io::Error::other)?
    }

    /// Kills a worker and says how it ended, unless it had ended before. Needs no one to wait for it.
    pub(super) fn reap(&self, process: Process) -> oneshot::Receiver<ExitStatus> {
        let (told, reaped) = oneshot::channel();
        // The thread outlives us: it ends after the last sender.
        self.reap.send((process, told)).ok();
        reaped
    }
}

fn start_one(launch: &Launch, zygote: &mut Option<Arc<Zygote>>) -> io::Result<Started> {
    if !launch.forks {
        let (socket, theirs) = pair()?;
        let own = command(launch).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn()?;
        return Ok(Started { process: Process::Own(own), socket });
    }
    if let Some(young) = zygote.take_if(|zygote| !zygote.is_old()) {
        match forked(&young) {
            Ok(started) => {
                *zygote = Some(young);
                return started;
            }
            // Somebody killed it, or it is out of step.
            Err(_) => young.end(),
        }
    }
    // None yet, or one that is old; its workers keep that, if it has any.
    let new = Arc::new(Zygote::start(launch)?);
    let started = forked(&new)?;
    *zygote = Some(new);
    started
}

/// A worker of this nursery, or why the system lets there be none.
///
/// # Errors
/// The nursery is of no use any more. A worker it may have made has a socket of its own, whose other end is closed.
fn forked(zygote: &Arc<Zygote>) -> io::Result<io::Result<Started>> {
    // What we lack says nothing about the nursery; to end it would kill the workers that run.
    let (socket, theirs) = match pair() {
        Ok(pair) => pair,
        Err(error) => return Ok(Err(error)),
    };
    Ok(match zygote.fork_worker(&theirs)? {
        ForkResult::Worker(pid, process) => {
            Ok(Started { process: Process::Forked(pid, process, Arc::clone(zygote)), socket })
        }
        ForkResult::Failed(error) => Err(error),
    })
}

/// Our end of a socket and theirs.
fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((ours, theirs))
}

/// What both kinds of processes have in common.
pub(super) fn command(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.program);
    command
        .arg0(NAME)
        .args(&launch.args)
        .env_clear()
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .stderr(Stdio::null())
        // An interrupt typed at the terminal is for the gateway, which then ends its runs in order.
        .process_group(0);
    command
}
