//! Starting and reaping workers, on two dedicated threads.
//!
//! The parent-death signal of a worker or zygote is tied to the *thread* that started it, so that thread must not end as
//! threads of the runtime do. Reaping blocks, so it has its own thread.

use std::io;
#[cfg(target_os = "linux")]
use std::os::{fd::OwnedFd, unix::net::UnixStream};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use super::link::Link;
use super::process::{Containment, Process};
#[cfg(target_os = "linux")]
use super::zygote::{ForkResult, Zygote};
use super::{Launch, Profile};
use crate::protocol::MissingLayer;

/// Process name of a worker.
#[cfg(unix)]
const NAME: &str = "metamcp-sandbox";

/// A new process and our end of its connection. Whoever waited for it may give up at any moment, also between its start
/// and taking it: then nobody else knows of it, so it is reaped when this is dropped.
#[derive(Debug)]
pub(super) struct Started {
    parts: Option<(Process, Connection)>,
    /// Layers that the gateway tried to put around it, in vain.
    pub(super) missing: Vec<MissingLayer>,
    reap: ReapQueue,
}

/// Our end of a connection that no runtime knows yet.
#[derive(Debug)]
pub(super) enum Connection {
    #[cfg(target_os = "linux")]
    Socket(UnixStream),
    Pipes(ChildStdout, ChildStdin),
}

impl Connection {
    /// To be called in a runtime.
    pub(super) fn into_link(self) -> io::Result<Link> {
        match self {
            #[cfg(target_os = "linux")]
            Connection::Socket(socket) => {
                Ok(Link::Socket(tokio::net::UnixStream::from_std(socket)?))
            }
            Connection::Pipes(from, to) => Link::pipes(from, to),
        }
    }
}

impl Started {
    pub(super) fn into_parts(mut self) -> (Process, Connection) {
        self.parts.take().expect("taken once, by value")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some((process, connection)) = self.parts.take() {
            drop(connection);
            self.reap.send((process, oneshot::channel().0)).ok();
        }
    }
}

type ReapQueue = mpsc::Sender<(Process, oneshot::Sender<ExitStatus>)>;

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
    pub(super) fn new(launch: Launch, profile: Profile) -> io::Result<Spawner> {
        let (start, orders) = mpsc::channel::<oneshot::Sender<io::Result<Started>>>();
        let (reap, dead) = mpsc::channel::<(Process, oneshot::Sender<ExitStatus>)>();
        let reap_unwanted = reap.clone();
        thread::Builder::new().name("sandbox-start".into()).spawn(move || {
            let mut starter = Starter::new(launch, profile);
            for order in orders {
                let reap = reap_unwanted.clone();
                let started = starter.start().map(|parts| {
                    let missing = starter.missing.clone();
                    Started { parts: Some(parts), missing, reap }
                });
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

/// What the starting thread keeps between two workers.
struct Starter {
    launch: Launch,
    profile: Profile,
    missing: Vec<MissingLayer>,
    #[cfg(target_os = "linux")]
    zygote: Option<Arc<Zygote>>,
}

impl Starter {
    #[cfg_attr(not(target_os = "macos"), expect(unused_mut, reason = "only macOS has Seatbelt"))]
    fn new(launch: Launch, profile: Profile) -> Starter {
        let mut starter = Starter {
            launch,
            profile,
            missing: Vec::new(),
            #[cfg(target_os = "linux")]
            zygote: None,
        };
        #[cfg(target_os = "macos")]
        match super::seatbelt::confined(&starter.launch) {
            Ok(confined) => starter.launch = confined,
            Err(reason) => {
                let layer = crate::layer::SEATBELT.to_owned();
                starter.missing.push(MissingLayer { layer, reason });
            }
        }
        starter
    }

    fn start(&mut self) -> io::Result<(Process, Connection)> {
        if !self.profile.needs_lockdown() {
            return piped(&self.launch);
        }
        #[cfg(target_os = "linux")]
        return self.start_locked_down();
        #[cfg(not(target_os = "linux"))]
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(target_os = "linux")]
    fn start_locked_down(&mut self) -> io::Result<(Process, Connection)> {
        let launch = &self.launch;
        if !launch.forks {
            let (socket, theirs) = pair()?;
            let mut command = command(launch);
            let own = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn()?;
            return Ok((Process::Own(own, Containment), Connection::Socket(socket)));
        }
        if let Some(young) = self.zygote.take_if(|zygote| !zygote.is_old()) {
            match forked(&young) {
                Ok(started) => {
                    self.zygote = Some(young);
                    return started;
                }
                // It was killed, or violated the protocol.
                Err(_) => young.end(),
            }
        }
        // No zygote yet, or an old one, which stays alive as long as it has workers.
        let new = Arc::new(Zygote::start(launch)?);
        let started = forked(&new)?;
        self.zygote = Some(new);
        started
    }
}

/// Starts a worker that is connected by pipes.
fn piped(launch: &Launch) -> io::Result<(Process, Connection)> {
    let mut child = command(launch).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(from), Some(to)) = (child.stdout.take(), child.stdin.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    match Containment::of(&child) {
        Ok(containment) => Ok((Process::Own(child, containment), Connection::Pipes(from, to))),
        Err(error) => {
            child.kill().ok();
            child.wait().ok();
            Err(error)
        }
    }
}

/// Forks a worker from this zygote; the inner error is the system's.
///
/// # Errors
/// The zygote is unusable. A worker it may have forked finds its socket closed and exits.
#[cfg(target_os = "linux")]
fn forked(zygote: &Arc<Zygote>) -> io::Result<io::Result<(Process, Connection)>> {
    // Not the zygote's fault, and ending it would kill running workers.
    let (socket, theirs) = match pair() {
        Ok(pair) => pair,
        Err(error) => return Ok(Err(error)),
    };
    Ok(match zygote.fork_worker(&theirs)? {
        ForkResult::Worker(pid, process) => {
            let process = Process::Forked(pid, process, Arc::clone(zygote));
            Ok((process, Connection::Socket(socket)))
        }
        ForkResult::Failed(error) => Err(error),
    })
}

/// Our end, non-blocking, and the worker's.
#[cfg(target_os = "linux")]
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
        .args(&launch.args)
        .env_clear()
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .stderr(Stdio::null());
    // Ctrl-C is for the gateway, which ends its runs in order.
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        command.process_group(0);
        // What runs a program in a sandbox looks at its own name.
        if cfg!(not(target_os = "macos")) {
            command.arg0(NAME);
        }
    }
    #[cfg(windows)]
    {
        use std::os::windows::process::CommandExt as _;
        /// `DETACHED_PROCESS`: no console, so no window and no Ctrl-C.
        const DETACHED: u32 = 0x8;
        command.creation_flags(DETACHED);
    }
    command
}
