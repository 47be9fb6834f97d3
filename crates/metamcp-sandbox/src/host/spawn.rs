//! Starting workers and burying them, on two threads of their own.
//!
//! A worker dies with the *thread* that started it, so that thread has to stay: threads of the runtime
//! come and go. And waiting for the dead blocks, so that is a second thread's work.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use super::Launch;

/// What a worker is called in a list of processes.
const NAME: &str = "metamcp-sandbox";

/// A process that was just started, and our end of its socket.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) socket: UnixStream,
}

/// The two threads. They end when the last of these is gone.
#[derive(Debug, Clone)]
pub(super) struct Spawner {
    start: mpsc::Sender<oneshot::Sender<io::Result<Started>>>,
    bury: mpsc::Sender<(Child, oneshot::Sender<ExitStatus>)>,
}

impl Spawner {
    pub(super) fn new(launch: Launch) -> io::Result<Spawner> {
        let (start, orders) = mpsc::channel::<oneshot::Sender<io::Result<Started>>>();
        thread::Builder::new().name("sandbox-start".into()).spawn(move || {
            for order in orders {
                // If nobody waits any more, the socket closes and the worker ends by itself; it is
                // waited for here, since nobody else knows of it.
                if let Err(Ok(Started { mut child, socket })) = order.send(start_one(&launch)) {
                    drop(socket);
                    child.kill().ok();
                    child.wait().ok();
                }
            }
        })?;
        let (bury, dead) = mpsc::channel::<(Child, oneshot::Sender<ExitStatus>)>();
        thread::Builder::new().name("sandbox-bury".into()).spawn(move || {
            for (mut child, told) in dead {
                // One that is ending by itself keeps its own status: a signal comes too late for it.
                child.kill().ok();
                if let Ok(status) = child.wait() {
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
    pub(super) fn bury(&self, child: Child) -> oneshot::Receiver<ExitStatus> {
        let (told, buried) = oneshot::channel();
        // The thread outlives us: it ends after the last sender.
        self.bury.send((child, told)).ok();
        buried
    }
}

fn start_one(launch: &Launch) -> io::Result<Started> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = Command::new(&launch.program)
        .arg0(NAME)
        .args(&launch.args)
        .env_clear()
        .envs(launch.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // An interrupt typed at the terminal is for the gateway, which then ends its runs in order.
        .process_group(0)
        .spawn()?;
    Ok(Started { child, socket: ours })
}
