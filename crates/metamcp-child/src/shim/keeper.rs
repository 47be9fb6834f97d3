//! The stage that stays: starts the server, adopts and reaps its descendants, and kills them all.
//! Owns: the event loop of the shim.      Never: ends while anything below it lives, unless killed.
//! In: orders, the end of the socket, exits of children.  Out: reports; signals.
//! Tests: `tests/it/`.

use std::fs::File;
use std::io::{self, IoSliceMut, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, setsid};

use super::ends::{ChildEnds, has_no_child};
use super::kill::{KillScope, Look};
use super::kill_interval::{KillInterval, MIN_KILL_INTERVAL};
use super::tree::Tree;
use super::{CLEAN, EXEC, MISUSED, Reexec, close_inherited, control, errno, failed, raw, report};
use crate::clock;
use crate::message::{HEADER, Order, Report, Stage, Start, header};

/// The delay between an exit and reaping it, while everything is being killed. The last thread of a
/// process reports its exit before it has removed its own entries from `/proc`; if reaped in that moment, the kernel
/// spins on a core that all the other exits need.
const SETTLING: Duration = Duration::from_millis(1);

/// The `hold` stage: the shim without a namespace.
pub(super) fn hold(reexec: &Reexec) -> i32 {
    close_inherited();
    // Away from the terminal, and out of the gateway's session.
    setsid().ok();
    adopt_orphans();
    keep(reexec, KillScope::Plain)
}

/// Makes us the parent of every descendant whose own parent ended. A child that stops us cannot keep
/// us from seeing the gateway's end either: its death sends us SIGCONT.
#[cfg(target_os = "linux")]
fn adopt_orphans() {
    use nix::sys::prctl;
    prctl::set_child_subreaper(true).ok();
    prctl::set_pdeathsig(Signal::SIGCONT).ok();
    prctl::set_name(c"metamcp-shim").ok();
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}

/// Runs the server named by the first order and stays until nothing of it is left.
pub(super) fn keep(reexec: &Reexec, kill_scope: KillScope) -> i32 {
    let Ok(control) = control() else { return MISUSED };
    // Only the socket drives the shim; blocked signals are also how exits of children are
    // read from a descriptor.
    SigSet::all().thread_block().ok();
    let child_ends = ChildEnds::new();
    let outputs = match super::take_outputs() {
        Ok(outputs) => outputs,
        Err(error) => return failed(&control, Stage::Shim, &error),
    };
    let Begin { start, stdin, lifeline } = match receive_start(&control) {
        Ok(received) => received,
        Err(error) => return failed(&control, Stage::Shim, &error),
    };
    let tree = Tree::of(&start);
    match launch(reexec, start, stdin, outputs) {
        Ok((leader, status)) => {
            #[cfg(not(target_os = "linux"))]
            child_ends.watch(leader.id().cast_signed());
            let mut keeper = Keeper {
                control,
                lifeline,
                kill_scope,
                tree,
                leader,
                status: Some(status),
                inbox: Vec::new(),
                ended: false,
            };
            keeper.run(&child_ends)
        }
        Err(error) => failed(&control, Stage::Shim, &error),
    }
}

/// The first order and the descriptors that come with it.
struct Begin {
    start: Start,
    stdin: File,
    /// Closes with the gateway; none where it could not close any sooner than the control socket.
    lifeline: Option<File>,
}

fn receive_start(mut control: &UnixStream) -> io::Result<Begin> {
    let mut first = [0; HEADER];
    let mut space = nix::cmsg_space!([RawFd; 2]);
    let (read, attached) = {
        let mut parts = [IoSliceMut::new(&mut first)];
        let message =
            recvmsg::<()>(control.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())?;
        let descriptors = message.cmsgs()?.find_map(|part| match part {
            ControlMessageOwned::ScmRights(list) => Some(list),
            _ => None,
        });
        (message.bytes, descriptors.unwrap_or_default())
    };
    let mut attached = attached.into_iter();
    let stdin = attached.next().ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let stdin = super::adopt_pipe(stdin, false)?;
    let lifeline = attached.next().map(|number| super::adopt_pipe(number, false)).transpose()?;
    control.read_exact(&mut first[read..])?;
    Ok(Begin { start: Start::read_behind(first, control)?, stdin, lifeline })
}

/// Starts the last stage with the server's own streams and sends it what to run. Our copies of the streams are closed with
/// this function, so that only the gateway and the server hold the pipes.
fn launch(
    reexec: &Reexec,
    start: Start,
    stdin: File,
    (stdout, stderr): (OwnedFd, OwnedFd),
) -> io::Result<(Child, PipeReader)> {
    let (order, mut ordered) = io::pipe()?;
    let (status, told) = io::pipe()?;
    // The two descriptors that have to survive this exec. There is no other thread that could leak them.
    fcntl(&order, FcntlArg::F_SETFD(FdFlag::empty()))?;
    fcntl(&told, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let mut command = reexec.command(EXEC);
    command
        .arg(raw(&order))
        .arg(raw(&told))
        .arg(std::process::id().to_string())
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr);
    let mut leader = command.spawn()?;
    // If the stage ended, we must not wait for our own end of the pipe.
    drop(order);
    // May be longer than a pipe holds: the stage reads all of it before anything else.
    if let Err(error) = ordered.write_all(&Order::Start(start).encode()) {
        leader.kill().ok();
        leader.wait().ok();
        return Err(error);
    }
    Ok((leader, status))
}

struct Keeper {
    control: UnixStream,
    lifeline: Option<File>,
    kill_scope: KillScope,
    tree: Tree,
    leader: Child,
    /// Open until the last stage became the server or failed to.
    status: Option<PipeReader>,
    inbox: Vec<u8>,
    /// Whether the leader was reaped, after which its pid may be reused.
    ended: bool,
}

impl Keeper {
    fn run(&mut self, child_ends: &ChildEnds) -> i32 {
        if self.control.set_nonblocking(true).is_err() {
            return self.kill_until_empty(child_ends);
        }
        loop {
            let round = [child_ends.round(), self.tree.due()].into_iter().flatten().min();
            let ready = self.wait(child_ends, round);
            if ready.status {
                self.read_status();
            }
            // First of all: once the gateway is gone, nothing is more urgent than the kill.
            if ready.lifeline || ready.control && !self.obey() {
                return self.kill_until_empty(child_ends);
            }
            child_ends.clear();
            self.tree.follow(child_ends);
            if self.reap_is_empty() {
                if self.tree.is_empty() {
                    return CLEAN;
                }
                // Orphans that did not become our children.
                return self.kill_until_empty(child_ends);
            }
        }
    }

    fn wait(&self, child_ends: &ChildEnds, timeout: Option<Duration>) -> Ready {
        let mut watched = vec![PollFd::new(self.control.as_fd(), PollFlags::POLLIN)];
        let status_at = self.status.as_ref().map(|status| {
            watched.push(PollFd::new(status.as_fd(), PollFlags::POLLIN));
            watched.len() - 1
        });
        let lifeline_at = self.lifeline.as_ref().map(|lifeline| {
            watched.push(PollFd::new(lifeline.as_fd(), PollFlags::POLLIN));
            watched.len() - 1
        });
        watched.extend(child_ends.poll_fd());
        let timeout =
            timeout.and_then(|t| PollTimeout::try_from(t).ok()).unwrap_or(PollTimeout::NONE);
        poll(&mut watched, timeout).ok();
        let is_ready = |at: usize| watched[at].any().unwrap_or(true);
        Ready {
            control: is_ready(0),
            status: status_at.is_some_and(is_ready),
            lifeline: lifeline_at.is_some_and(is_ready),
        }
    }

    /// Reads how the last stage went: end of file means it became the server.
    fn read_status(&mut self) {
        let Some(mut status) = self.status.take() else { return };
        let mut told = Vec::new();
        let read = status.read_to_end(&mut told);
        let outcome = match (read, told.split_first_chunk::<1>()) {
            (Ok(0), _) => Report::Started { pid: self.leader.id().cast_signed() },
            (Ok(_), Some(([stage], number))) => Report::Failed {
                stage: Stage::from_byte(*stage).unwrap_or(Stage::Shim),
                errno: number
                    .first_chunk()
                    .map_or(nix::libc::EIO, |bytes| i32::from_le_bytes(*bytes)),
            },
            (Err(error), _) => Report::Failed { stage: Stage::Shim, errno: errno(&error) },
            (Ok(_), None) => Report::Failed { stage: Stage::Shim, errno: nix::libc::EIO },
        };
        if matches!(outcome, Report::Failed { .. }) {
            // Its exit is not reported: it never was the server.
            self.leader.wait().ok();
            self.ended = true;
        }
        report(&self.control, outcome);
    }

    /// Reaps exited children. True when there is no child left: then there is no descendant either,
    /// because we would have inherited it.
    fn reap_is_empty(&mut self) -> bool {
        if !self.ended
            && let Ok(Some(status)) = self.leader.try_wait()
        {
            self.leader_ended(status);
        }
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return false,
                // The leader may exit between the two calls.
                Ok(WaitStatus::Exited(pid, code)) if self.is_leader(pid) => {
                    self.leader_ended(ExitStatus::from_raw(code << 8));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if self.is_leader(pid) => {
                    self.leader_ended(ExitStatus::from_raw(signal as i32));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                // A child ended by a signal without a name here; was it the leader?
                Err(Errno::EINVAL) if !self.ended && kill(self.leader_pid(), None).is_err() => {
                    self.ended = true;
                    report(&self.control, Report::Exited { code: None, signal: None });
                }
                Err(Errno::EINVAL) => {}
                Err(_) => return true,
            }
        }
    }

    fn leader_ended(&mut self, status: ExitStatus) {
        // What it reported before it exited comes first.
        if self.status.is_some() {
            self.ended = true;
            self.read_status();
        }
        self.ended = true;
        report(&self.control, Report::Exited { code: status.code(), signal: status.signal() });
    }

    fn is_leader(&self, pid: Pid) -> bool {
        !self.ended && pid == self.leader_pid()
    }

    fn leader_pid(&self) -> Pid {
        Pid::from_raw(self.leader.id().cast_signed())
    }

    /// Carries out the received orders. False when everything has to be killed: by order, or because
    /// the gateway is gone.
    fn obey(&mut self) -> bool {
        let mut chunk = [0; 256];
        loop {
            match (&self.control).read(&mut chunk) {
                Ok(0) => return false,
                Ok(read) => self.inbox.extend(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        while let Some(first) = self.inbox.first_chunk::<HEADER>() {
            let Ok((length, tag)) = header(*first) else { return false };
            if self.inbox.len() < HEADER + length {
                break;
            }
            let order = Order::decode(tag, &self.inbox[HEADER..HEADER + length]);
            self.inbox.drain(..HEADER + length);
            match order {
                Ok(Order::SignalLeader(number)) => self.signal_leader(number),
                Ok(Order::SignalAll(numbers)) => self.signal_all(&numbers),
                Ok(Order::KillAll | Order::Start(_)) | Err(_) => return false,
            }
        }
        true
    }

    fn signal_leader(&self, number: i32) {
        if let Ok(signal) = Signal::try_from(number)
            && !self.ended
        {
            kill(self.leader_pid(), signal).ok();
        }
    }

    fn signal_all(&mut self, numbers: &[i32]) {
        for signal in numbers.iter().filter_map(|&number| Signal::try_from(number).ok()) {
            self.kill_scope.signal_all(signal, &mut self.tree);
        }
    }

    fn kill_until_empty(&mut self, child_ends: &ChildEnds) -> i32 {
        if !self.ended && self.kill_scope == KillScope::Plain {
            // The leader's own group needs no read of the tree, and most servers are no more than that.
            killpg(self.leader_pid(), Signal::SIGKILL).ok();
            if self.is_empty_within(MIN_KILL_INTERVAL, child_ends) && self.tree.is_empty() {
                return CLEAN;
            }
        }
        let mut interval = KillInterval::default();
        let mut look = Look::Quick;
        loop {
            let struck = self.kill_scope.kill_all(&mut self.tree, look);
            look = Look::Whole;
            if self.is_empty_within(interval.after(struck), child_ends) && self.tree.is_empty() {
                return CLEAN;
            }
        }
    }

    /// Reaps children that exit within `pause`; true as soon as none is left.
    fn is_empty_within(&mut self, pause: Duration, child_ends: &ChildEnds) -> bool {
        let next = clock::now() + pause;
        loop {
            if has_no_child() {
                return true;
            }
            let left = next.saturating_duration_since(clock::now());
            if left.is_zero() {
                return false;
            }
            let mut watched: Vec<PollFd<'_>> = child_ends.poll_fd().into_iter().collect();
            // Rounded up: a timeout of zero would make this a busy loop.
            let left = left.max(MIN_KILL_INTERVAL / 2);
            poll(&mut watched, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)).ok();
            thread::sleep(SETTLING);
            child_ends.clear();
            if self.reap_is_empty() {
                return true;
            }
        }
    }
}

struct Ready {
    control: bool,
    status: bool,
    lifeline: bool,
}
