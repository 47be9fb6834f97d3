//! Starting workers and burying them, on two threads of their own.
//!
//! A worker dies with the *thread* that started it, so that thread has to stay: threads of the runtime
//! come and go. And waiting for the dead blocks, so that is a second thread's work.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::Launch;
use super::nursery::Nursery;

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
    /// Forked from a nursery, which it keeps alive.
    Forked(i32, Arc<Nursery>),
}

impl Process {
    /// Its number.
    pub(super) fn id(&self) -> u32 {
        match self {
            Process::Own(child) => child.id(),
            Process::Forked(pid, _) => pid.unsigned_abs(),
        }
    }

    /// Kills it and waits for its end. One that is ending by itself keeps its own status: a signal comes too late for it.
    fn bury(self) -> Option<ExitStatus> {
        match self {
            Process::Own(mut child) => {
                child.kill().ok();
                child.wait().ok()
            }
            Process::Forked(pid, nursery) => nursery.bury(pid),
        }
    }
}

/// The two threads. They end when the last of these is gone.
#[derive(Debug, Clone)]
pub(super) struct Spawner {
    start: mpsc::Sender<oneshot::Sender<io::Result<Started>>>,
    bury: mpsc::Sender<(Process, oneshot::Sender<ExitStatus>)>,
}

impl Spawner {
    pub(super) fn new(launch: Launch) -> io::Result<Spawner> {
        let (start, orders) = mpsc::channel::<oneshot::Sender<io::Result<Started>>>();
        thread::Builder::new().name("sandbox-start".into()).spawn(move || {
            let mut nursery = None;
            for order in orders {
                // If nobody waits any more, the socket closes and the worker ends by itself; it is
                // waited for here, since nobody else knows of it.
                if let Err(Ok(Started { process, socket })) =
                    order.send(start_one(&launch, &mut nursery))
                {
                    drop(socket);
                    process.bury();
                }
            }
        })?;
        let (bury, dead) = mpsc::channel::<(Process, oneshot::Sender<ExitStatus>)>();
        thread::Builder::new().name("sandbox-bury".into()).spawn(move || {
            for (process, told) in dead {
                if let Some(status) = process.bury() {
                    told.send(status).ok();
                }
            }
        })?;
        Ok(Spawner { start, bury })
    }

    /// Starts a worker.
    pub(super) async fn start(&self) -> io::Result<Started> {
        let (told, started) = oneshot::channel();
        self.start.send(told).map_err(io::Error::other)?;
        started.await.map_err(io::Error::other)?
    }

    /// Kills a worker and says how it ended, unless it had ended before. Needs no one to wait for it.
    pub(super) fn bury(&self, process: Process) -> oneshot::Receiver<ExitStatus> {
        let (told, buried) = oneshot::channel();
        // The thread outlives us: it ends after the last sender.
        self.bury.send((process, told)).ok();
        buried
    }
}

fn start_one(launch: &Launch, nursery: &mut Option<Arc<Nursery>>) -> io::Result<Started> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let process = if launch.forks {
        forked(launch, nursery, &theirs)?
    } else {
        Process::Own(command(launch).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn()?)
    };
    Ok(Started { process, socket: ours })
}

fn forked(
    launch: &Launch,
    nursery: &mut Option<Arc<Nursery>>,
    theirs: &UnixStream,
) -> io::Result<Process> {
    if let Some(young) = nursery.take_if(|nursery| !nursery.is_old())
        && let Ok(pid) = young.make(theirs)
    {
        *nursery = Some(Arc::clone(&young));
        return Ok(Process::Forked(pid, young));
    }
    // None yet, one that is old, or one that somebody killed. Its workers keep it, if it has any.
    let new = Arc::new(Nursery::start(launch)?);
    let pid = new.make(theirs)?;
    *nursery = Some(Arc::clone(&new));
    Ok(Process::Forked(pid, new))
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
