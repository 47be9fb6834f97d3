//! The thread that starts shims and holds the other end of their lifelines.
//! Owns: every container of this process, its stderr, its shutdown escalation.      Never: waits for one child while others have events.
//! In: requests from handles, reports from shims.  Out: `Shared` state, orders, and the last resort of SIGKILL.
//! Tests: `tests/it/`.
//!
//! A thread and not a task, because death notices are tied to the thread that started a process, because
//! an escalation must go on when the caller has gone, and because a flood on stderr must not compete with
//! the data path.

mod container;
mod launch;
mod lifeline;
mod start_error;
mod sweep;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use metamcp_types::escalation::Escalation;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock;
use crate::message::Start;
use crate::spawner::{Pipes, Shared};
use crate::spec::{Containment, ShimCommand, SpawnError, Tier};
use container::{Container, Event};
use launch::{Mode, Way};
use lifeline::Lifeline;

/// Bytes of one read: the capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// Stack of the thread: it does not recurse, and its one large buffer is on the heap.
const STACK: usize = 256 * 1024;

/// Requests of handles to the thread.
pub(crate) enum Request {
    Spawn {
        id: u64,
        start: Start,
        shared: Arc<Shared>,
        reply: Reply,
    },
    /// Start the shutdown escalation.
    Stop {
        id: u64,
        escalation: Escalation,
    },
    /// Kill everything in a container.
    Kill {
        id: u64,
    },
    /// The last handle was dropped.
    Release {
        id: u64,
    },
}

pub(crate) type Reply = oneshot::Sender<Result<Pipes, SpawnError>>;

/// The queue to the thread. Unbounded: a handle sends a handful of requests in its life, and blocking an
/// async caller here would be worse than any queue.
#[derive(Clone)]
pub(crate) struct Requests {
    sender: Sender<Request>,
    wake: Arc<UnixStream>,
}

impl Requests {
    pub(crate) fn send(&self, request: Request) -> Result<(), SpawnError> {
        self.sender.send(request).map_err(|_| SpawnError::NoSpawner)?;
        // A full socket means the thread has been woken already.
        (&*self.wake).write_all(&[0]).ok();
        Ok(())
    }
}

/// Starts the thread.
#[expect(
    clippy::disallowed_methods,
    reason = "unbounded for the sake of async callers: see `Requests`"
)]
pub(crate) fn start(
    shim: ShimCommand,
    containment: Containment,
    tier: Arc<Mutex<Tier>>,
) -> io::Result<Requests> {
    sweep::adopt_orphans();
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let (sender, requests) = mpsc::channel();
    let lifeline = Lifeline::start()?;
    let supervisor =
        Supervisor { shim, containment, tier, requests, woken, lifeline, containers: Vec::new() };
    thread::Builder::new().name("children".into()).stack_size(STACK).spawn(|| supervisor.run())?;
    Ok(Requests { sender, wake: Arc::new(wake) })
}

struct Supervisor {
    shim: ShimCommand,
    containment: Containment,
    tier: Arc<Mutex<Tier>>,
    requests: Receiver<Request>,
    woken: UnixStream,
    lifeline: Option<Lifeline>,
    containers: Vec<Container>,
}

impl Supervisor {
    fn run(mut self) {
        let mut buffer = vec![0; CHUNK];
        loop {
            let wanted = self.take_requests();
            let due = self.tick(clock::now());
            if !wanted && self.containers.is_empty() {
                return;
            }
            self.wait(due, &mut buffer);
        }
    }

    /// False once all senders are gone.
    fn take_requests(&mut self) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(Request::Spawn { id, start, shared, reply }) => {
                    let mode = self.mode();
                    self.launch(id, mode, start, shared, reply);
                }
                Ok(Request::Stop { id, escalation }) => {
                    self.each(id, |one| one.stop(escalation.clone()));
                }
                Ok(Request::Kill { id }) => self.each(id, Container::kill),
                Ok(Request::Release { id }) => self.each(id, Container::release),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn each(&mut self, id: u64, act: impl FnMut(&mut Container)) {
        self.containers.iter_mut().filter(|one| one.id == id).for_each(act);
    }

    /// How the next child is to be contained: as demanded, or as worked before.
    fn mode(&self) -> Mode {
        match self.containment {
            Containment::Shim => Mode::Plain,
            Containment::Namespace => Mode::Isolated { user: true },
            Containment::Auto if matches!(*self.tier(), Tier::Shim { .. }) => Mode::Plain,
            Containment::Auto if cfg!(not(target_os = "linux")) => Mode::Plain,
            Containment::Auto if !geteuid().is_root() => {
                let because = "it would take a user namespace, which breaks setuid programs";
                *self.tier() = Tier::Shim { because: Some(because.into()) };
                Mode::Plain
            }
            Containment::Auto => Mode::Isolated { user: false },
        }
    }

    fn tier(&self) -> parking_lot::MutexGuard<'_, Tier> {
        self.tier.lock()
    }

    fn launch(&mut self, id: u64, mode: Mode, start: Start, shared: Arc<Shared>, reply: Reply) {
        let lifeline = self.lifeline.as_ref().map(|lifeline| &lifeline.reader);
        let way = Way { own: &self.shim, mode, lifeline };
        match Container::launch(id, &way, start, shared, reply) {
            Ok(container) => self.containers.push(container),
            Err((reply, error)) => drop(reply.send(Err(error))),
        }
    }

    /// Does what is due, reaps what ended, and returns when to be called again.
    fn tick(&mut self, now: Instant) -> Option<Duration> {
        let mut due: Option<Duration> = None;
        self.containers.retain_mut(|container| {
            let wait = container.tick(now);
            due = [due, wait].into_iter().flatten().min();
            !container.is_buried()
        });
        due
    }

    fn wait(&mut self, due: Option<Duration>, buffer: &mut [u8]) {
        let mut watched = vec![PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
        let mut whose = Vec::new();
        for (at, container) in self.containers.iter().enumerate() {
            if let Some(control) = container.control() {
                watched.push(PollFd::new(control, PollFlags::POLLIN));
                whose.push((at, Event::Control));
            }
            if let Some(stderr) = container.stderr() {
                watched.push(PollFd::new(stderr, PollFlags::POLLIN));
                whose.push((at, Event::Stderr));
            }
        }
        // Rounded up, or the last fraction of a millisecond would be a busy loop.
        let timeout = due.map(|due| Duration::from_micros(due.as_micros() as u64 + 999));
        let timeout =
            timeout.and_then(|due| PollTimeout::try_from(due).ok()).unwrap_or(PollTimeout::NONE);
        poll(&mut watched, timeout).ok();
        let ready: Vec<bool> = watched.iter().map(|one| one.any().unwrap_or(true)).collect();
        drop(watched);
        if ready.first() == Some(&true) {
            while matches!((&self.woken).read(buffer), Ok(read) if read > 0) {}
        }
        let mut again = Vec::new();
        for ((at, event), _) in whose.into_iter().zip(ready.into_iter().skip(1)).filter(|(_, r)| *r)
        {
            let Some(container) = self.containers.get_mut(at) else { continue };
            match event {
                Event::Stderr => container.read_stderr(buffer),
                Event::Control => {
                    again.extend(container.read_control(&self.tier, self.containment));
                }
            }
        }
        for launch::Retry { id, start, shared, reply } in again {
            self.launch(id, Mode::Plain, start, shared, reply);
        }
    }
}
