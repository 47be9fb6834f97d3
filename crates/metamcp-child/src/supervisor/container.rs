//! One container as the gateway sees it, from the first order until it is reaped.
//! Owns: the control socket, the shutdown escalation, the last resort.      Never: blocks.
//! In: readiness and time.  Out: orders to the shim; `Shared` state; a typed result for the caller of `spawn`.
//! Tests: `tests/it/`.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metamcp_types::escalation::{Escalation, Next, Step};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use parking_lot::Mutex;

use super::Reply;
use super::launch::{Launched, Mode, Retry, Way, launch};
use super::start_error::start_error;
use super::sweep;
#[cfg(not(target_os = "linux"))]
use super::sweep::Left;
use crate::clock;
use crate::message::{Order, Report, Stage, Start};
#[cfg(target_os = "linux")]
use crate::processes;
use crate::shim;
use crate::spawner::{Pipes, Shared};
use crate::spec::{Containment, Exit, SpawnError, Tier};
use crate::stderr_tail::CAPACITY;

/// How long a shim may take to carry out the order to kill before it is killed itself. It needs one or
/// two milliseconds, more on a crowded machine, and for ever if its child keeps stopping it. Too short
/// costs the exit status: at 40 ms and a load of eleven on two cores, one in a few hundred was lost.
const KILL_GRACE: Duration = Duration::from_millis(250);

/// Interval of wake-ups to a shim that does not report how the start went: its server may have run, and
/// stopped it, before it could.
const WAKE_INTERVAL: Duration = Duration::from_millis(50);

/// Poll interval of a container that is ending.
const REAP_INTERVAL: Duration = Duration::from_millis(1);

/// Which descriptor is ready.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Control,
    Stderr,
}

pub(super) struct Container {
    pub(super) id: u64,
    mode: Mode,
    shim: Child,
    #[cfg(target_os = "linux")]
    shim_started: u64,
    #[cfg(not(target_os = "linux"))]
    left: Left,
    /// The init of the namespace, once known; the shim itself otherwise.
    keeper: Option<Pid>,
    /// `None` once the lifeline has closed.
    control: Option<UnixStream>,
    inbox: Vec<u8>,
    stderr: Option<PipeReader>,
    shared: Arc<Shared>,
    starting: Option<Starting>,
    /// The pid of the server as the shim sees it, until it is announced.
    started: Option<i32>,
    stopping: Option<Stopping>,
    kill_at: Option<Instant>,
    nudge_at: Instant,
    first_stage_reaped: bool,
    end: End,
}

/// A start whose outcome is not known yet.
struct Starting {
    start: Start,
    reply: Reply,
    pipes: Pipes,
}

/// An escalation in progress.
struct Stopping {
    escalation: Escalation,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The shim may still live.
    NotYet,
    /// The shim was killed; its orphans are being searched for.
    Sweeping,
    /// Nothing is left.
    Reaped,
}

impl Container {
    pub(super) fn launch(
        id: u64,
        way: &Way<'_>,
        start: Start,
        shared: Arc<Shared>,
        reply: Reply,
    ) -> Result<Container, (Reply, SpawnError)> {
        let mode = way.mode;
        let Launched { shim, control, stdin, stdout, stderr } = match launch(way, &start) {
            Ok(launched) => launched,
            Err(source) => return Err((reply, SpawnError::Shim { source })),
        };
        let pid = shim.id().cast_signed();
        #[cfg(not(target_os = "linux"))]
        let left = Left::new(&start);
        let keeper = (mode == Mode::Plain).then_some(Pid::from_raw(pid));
        let pipes = Pipes { stdin: stdin.into(), stdout: stdout.into() };
        Ok(Container {
            id,
            mode,
            #[cfg(target_os = "linux")]
            shim_started: processes::stat(pid).map_or(0, |stat| stat.started),
            #[cfg(not(target_os = "linux"))]
            left,
            shim,
            keeper,
            control: Some(control),
            inbox: Vec::new(),
            stderr: Some(stderr),
            shared,
            starting: Some(Starting { start, reply, pipes }),
            started: None,
            stopping: None,
            kill_at: None,
            nudge_at: clock::now() + WAKE_INTERVAL,
            first_stage_reaped: false,
            end: End::NotYet,
        })
    }

    pub(super) fn control(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.stderr.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn is_buried(&self) -> bool {
        self.end == End::Reaped
    }

    /// Begins an escalation; one in progress goes on, unless this one is over sooner.
    pub(super) fn stop(&mut self, escalation: Escalation) {
        let now = clock::now();
        let end = |stopping: &Stopping| stopping.since + stopping.escalation.length();
        let begun = Stopping { escalation, since: now };
        if self.stopping.as_ref().is_none_or(|before| end(&begun) < end(before)) {
            self.stopping = Some(begun);
        }
    }

    /// Nobody holds it any more: it ends at once, unless an escalation is in progress.
    pub(super) fn release(&mut self) {
        if self.stopping.is_none() {
            self.stop(Escalation::immediate());
        }
    }

    /// Kills, whatever escalation is in progress.
    pub(super) fn kill(&mut self) {
        if self.kill_at.is_none() {
            self.stopping =
                Some(Stopping { escalation: Escalation::immediate(), since: clock::now() });
        }
    }

    /// Does what is due and returns when to be called again.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Duration> {
        if self.control.is_none() {
            self.reap();
            return Some(REAP_INTERVAL);
        }
        let next_step = self.descend(now);
        let last_resort = self.kill_at.map(|at| {
            let left = (at + KILL_GRACE).saturating_duration_since(now);
            if left.is_zero() {
                self.kill_keeper();
                return REAP_INTERVAL;
            }
            left
        });
        let waits = [next_step, last_resort, self.nudge(now), self.reap_first_stage()];
        waits.into_iter().flatten().min()
    }

    /// The stage that made a namespace ends right after its report, and must be reaped.
    fn reap_first_stage(&mut self) -> Option<Duration> {
        if self.mode == Mode::Plain || self.keeper.is_none() || self.first_stage_reaped {
            return None;
        }
        self.first_stage_reaped = !matches!(self.shim.try_wait(), Ok(None));
        (!self.first_stage_reaped).then_some(REAP_INTERVAL)
    }

    fn nudge(&mut self, now: Instant) -> Option<Duration> {
        self.starting.as_ref()?;
        if now >= self.nudge_at {
            self.nudge_at = now + WAKE_INTERVAL;
            self.wake_keeper();
        }
        Some(self.nudge_at - now)
    }

    fn descend(&mut self, now: Instant) -> Option<Duration> {
        loop {
            let stopping = self.stopping.as_mut()?;
            match stopping.escalation.next(now.saturating_duration_since(stopping.since)) {
                Next::Take(step) => self.take(step, now),
                Next::Wait(left) => return Some(left),
                Next::Finished => return None,
            }
        }
    }

    fn take(&mut self, step: Step, now: Instant) {
        let (term, int, cont) =
            (Signal::SIGTERM as i32, Signal::SIGINT as i32, Signal::SIGCONT as i32);
        match step {
            // The pipe is the caller's.
            Step::CloseStdin => {}
            Step::TerminateLeader => self.order(&Order::SignalLeader(term)),
            Step::TerminateAndResumeAll => self.order(&Order::SignalAll(vec![term, cont])),
            Step::InterruptAll => self.order(&Order::SignalAll(vec![int])),
            Step::TerminateAll => self.order(&Order::SignalAll(vec![term])),
            Step::KillAll => {
                self.kill_at = Some(now);
                self.order(&Order::KillAll);
            }
        }
    }

    fn order(&self, order: &Order) {
        if let Some(mut control) = self.control.as_ref() {
            // A shim that does not read is handled when killing is due.
            control.write_all(&order.encode()).ok();
        }
        self.wake_keeper();
    }

    /// A child may have stopped its shim.
    fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper {
            kill(keeper, Signal::SIGCONT).ok();
        }
    }

    fn kill_keeper(&self) {
        let shim = Pid::from_raw(self.shim.id().cast_signed());
        kill(self.keeper.unwrap_or(shim), Signal::SIGKILL).ok();
    }

    pub(super) fn read_stderr(&mut self, buffer: &mut [u8]) {
        let Some(stderr) = &mut self.stderr else { return };
        match stderr.read(buffer) {
            Ok(0) => self.stderr = None,
            Ok(read) => self.shared.tail.push(&buffer[..read]),
            Err(error) if is_passing(&error) => {}
            Err(_) => self.stderr = None,
        }
    }

    /// Reads what is on stderr now, up to the size of the tail: other processes of the container may go on writing.
    fn read_rest_of_stderr(&mut self) {
        let (mut rest, mut left) = ([0; 4096], CAPACITY);
        while left > 0
            && let Some(stderr) = &mut self.stderr
            && let Ok(read @ 1..) = stderr.read(&mut rest)
        {
            self.shared.tail.push(&rest[..read]);
            left = left.saturating_sub(read);
        }
    }

    /// Reads the shim's reports. Returns the start if it is to be retried without a namespace.
    pub(super) fn read_control(
        &mut self,
        tier: &Mutex<Tier>,
        containment: Containment,
    ) -> Option<Retry> {
        let mut chunk = [0; 256];
        let mut closed = false;
        while let Some(control) = &mut self.control {
            match control.read(&mut chunk) {
                Ok(0) => closed = true,
                Ok(read) => self.inbox.extend(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => closed = true,
            }
            if closed {
                self.control = None;
            }
        }
        let mut retry = None;
        loop {
            match Report::take(&mut self.inbox) {
                Ok(Some(report)) => retry = retry.or(self.hear(report, tier, containment)),
                Ok(None) => break,
                // Not a message of our shim: kill everything.
                Err(_) => {
                    self.inbox.clear();
                    self.kill();
                    break;
                }
            }
        }
        retry
    }

    fn hear(
        &mut self,
        report: Report,
        tier: &Mutex<Tier>,
        containment: Containment,
    ) -> Option<Retry> {
        match report {
            Report::Born { pid } => self.keeper = Some(Pid::from_raw(pid)),
            Report::Started { pid } => self.started = Some(pid),
            Report::Exited { code, signal } => {
                self.announce(tier);
                // The stderr tail is read first: whoever sees the exit will ask for it.
                self.read_rest_of_stderr();
                self.shared.state.send_modify(|state| state.exit = Some(Exit { code, signal }));
                return None;
            }
            Report::Failed { stage, errno } => return self.fail(stage, errno, tier, containment),
        }
        if self.keeper.is_some() && self.started.is_some() {
            self.announce(tier);
        }
        None
    }

    /// Reports to the caller of `spawn` that the server runs.
    fn announce(&mut self, tier: &Mutex<Tier>) {
        let Some(Starting { reply, pipes, .. }) = self.starting.take() else { return };
        let keeper = self.keeper.map_or(0, Pid::as_raw);
        let inside = self.started.unwrap_or(0);
        let leader = match self.mode {
            Mode::Plain => inside,
            Mode::Isolated { .. } => child_known_as(inside, keeper),
        };
        self.shared.keeper.store(keeper, Ordering::Relaxed);
        self.shared.leader.store(leader, Ordering::Relaxed);
        let held = match self.mode {
            Mode::Plain if cfg!(not(target_os = "linux")) => Tier::Group,
            Mode::Plain => match known(tier) {
                because @ Tier::Shim { .. } => because,
                _ => Tier::Shim { because: None },
            },
            Mode::Isolated { .. } => Tier::Namespace { user: is_user_namespace(keeper) },
        };
        if known(tier) == Tier::Untried {
            set(tier, held.clone());
        }
        set(&self.shared.tier, held);
        // A caller that went away releases its handle, and that ends the container.
        reply.send(Ok(pipes)).ok();
    }

    fn fail(
        &mut self,
        stage: Stage,
        errno: i32,
        tier: &Mutex<Tier>,
        containment: Containment,
    ) -> Option<Retry> {
        let Starting { start, reply, .. } = self.starting.take()?;
        let source = io::Error::from_raw_os_error(errno);
        if stage.is_isolation() && containment == Containment::Auto {
            // What worked before fails for lack of a resource now; only this child does without.
            if known(tier) == Tier::Untried {
                let because = format!("{}: {source}", stage.words());
                set(tier, Tier::Shim { because: Some(because) });
            }
            // The rest of this attempt has no owner.
            let id = std::mem::take(&mut self.id);
            let shared = std::mem::take(&mut self.shared);
            return Some(Retry { id, start, shared, reply });
        }
        reply.send(Err(start_error(stage, errno, start))).ok();
        None
    }

    /// After the lifeline closed: waits until the shim and everything it left are gone.
    fn reap(&mut self) {
        if self.end == End::NotYet {
            match self.shim_end() {
                None => return,
                Some(Ended::Clean) => self.end = End::Reaped,
                Some(Ended::Killed) => self.end = End::Sweeping,
            }
            sweep::shim_is_buried(self.shim.id().cast_signed());
        }
        if self.end == End::Sweeping && self.is_swept() {
            self.end = End::Reaped;
        }
        if self.end != End::Reaped {
            return;
        }
        self.read_rest_of_stderr();
        self.stderr = None;
        if let Some(Starting { reply, .. }) = self.starting.take() {
            reply.send(Err(SpawnError::Lost)).ok();
        }
    }

    #[cfg(target_os = "linux")]
    fn is_swept(&mut self) -> bool {
        sweep::sweep(self.shim_started)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_swept(&mut self) -> bool {
        self.left.sweep(self.started)
    }

    /// How the shim ended, if it did. A namespace is empty by the time its init can be reaped.
    fn shim_end(&mut self) -> Option<Ended> {
        let status = match self.shim.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.code(),
            Err(_) => None,
        };
        let clean = if status == Some(shim::CLEAN) { Ended::Clean } else { Ended::Killed };
        if self.mode == Mode::Plain {
            return Some(clean);
        }
        match self.keeper.map(|init| waitpid(init, Some(WaitPidFlag::WNOHANG))) {
            // It never got to a namespace.
            None => Some(clean),
            Some(Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)) => None,
            Some(Ok(_)) => Some(Ended::Clean),
            Some(Err(_)) => Some(Ended::Killed),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Nothing is left.
    Clean,
    /// It may have left orphans.
    Killed,
}

/// Waiters must learn of the end, also when it is the supervisor's own.
impl Drop for Container {
    fn drop(&mut self) {
        self.shared.keeper.store(0, Ordering::Relaxed);
        if self.id != 0 {
            self.shared.state.send_modify(|state| state.empty = true);
        }
    }
}

/// The child that the init of a namespace knows by this number.
#[cfg(target_os = "linux")]
fn child_known_as(inside: i32, init: i32) -> i32 {
    let is_it = |&pid: &i32| processes::innermost_pid(pid) == Some(inside);
    processes::children(init).into_iter().find(is_it).unwrap_or(0)
}

/// Only Linux has such namespaces.
#[cfg(not(target_os = "linux"))]
fn child_known_as(_inside: i32, _init: i32) -> i32 {
    0
}

/// Whether a process lives in another user namespace than ours.
fn is_user_namespace(pid: i32) -> bool {
    let namespace = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/user")).ok();
    namespace(&pid.to_string()) != namespace("self")
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn known(tier: &Mutex<Tier>) -> Tier {
    tier.lock().clone()
}

fn set(tier: &Mutex<Tier>, value: Tier) {
    *tier.lock() = value;
}
