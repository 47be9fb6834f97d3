//! The zygote: a process initialized like a worker, but not locked down, that forks a worker on request.
//!
//! Most of a worker's start is always the same: the loader, the realm, the prelude. The zygote does that once. It has one
//! thread and never sees guest code; a script gets a forked copy, which is locked down like a worker started directly.
//!
//! Fork requests arrive on standard input, each with the socket of the worker, and are answered with its pid. Reap
//! requests arrive on standard output, one pid at a time, and are answered with the pid and its wait status. Nothing is
//! reaped unasked: its pid could be reused before the gateway kills it.

use std::ffi::CStr;
use std::io::{self, IoSliceMut, stdin, stdout};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use fork::{Fork, ensure_waitable_children, fork};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, chdir, getpid, getppid};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use rustix::stdio::dup2_stdin;

/// Bytes of a pid or status in a message.
pub(crate) const NUMBER: usize = size_of::<i32>();

/// Process names; the command lines of both are the same.
const NAME: &CStr = c"metamcp-zygote";
const CHILD: &CStr = c"metamcp-worker";

/// In place of the status of a process that is not our child.
pub(crate) const UNKNOWN: i32 = -1;

/// What a process is when [`fork_workers`] returns.
pub(super) enum Role {
    /// A worker, with its socket in place.
    Worker,
    /// The zygote itself, whose gateway is gone.
    Over,
}

/// Forks workers until the gateway is gone. Returns in each of them, and in the zygote at the end.
///
/// # Errors
/// A failed system call.
pub(super) fn fork_workers() -> io::Result<Role> {
    prctl::set_name(NAME)?;
    // An ignored SIGCHLD is inherited, and the kernel would reap our children.
    ensure_waitable_children()?;
    // Redundant: the loop ends as well when the gateway closes its socket.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // Do not keep the gateway's working directory busy.
    chdir("/")?;
    let mut deaths = SigSet::empty();
    deaths.add(Signal::SIGCHLD);
    deaths.thread_block()?;
    let sigchld = SignalFd::with_flags(&deaths, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut dying = None;
    let zygote_pid = getpid();
    loop {
        let (orders, reap_queue) = (stdin(), stdout());
        let mut polled = [orders.as_fd(), reap_queue.as_fd(), sigchld.as_fd()]
            .map(|end| PollFd::new(end, PollFlags::POLLIN));
        match poll(&mut polled, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let [ordered, to_reap, died] = polled.map(|end| end.any().unwrap_or(true));
        if ordered {
            let Some(socket) = order()? else { return Ok(Role::Over) };
            let born = match fork() {
                Ok(Fork::Child) => {
                    prctl::set_name(CHILD)?;
                    prctl::set_pdeathsig(Signal::SIGKILL)?;
                    if getppid() != zygote_pid {
                        // The zygote died before the signal was set.
                        return Ok(Role::Over);
                    }
                    deaths.thread_unblock()?;
                    dup2_stdin(&socket)?;
                    return Ok(Role::Worker);
                }
                Ok(Fork::Parent(pid)) => pid,
                Err(error) => -error.raw_os_error().unwrap_or(0),
            };
            send(stdin(), &born.to_le_bytes(), SendFlags::NOSIGNAL)?;
        }
        if to_reap {
            let mut number = [0; NUMBER];
            if recv(stdout(), &mut number, RecvFlags::empty())?.1 < NUMBER {
                return Ok(Role::Over);
            }
            dying = Some(Pid::from_raw(i32::from_le_bytes(number)));
        }
        if died {
            while sigchld.read_signal()?.is_some() {}
        }
        if let Some(pid) = dying
            && let Some(status) = ended(pid)
        {
            dying = None;
            let answer = [pid.as_raw(), status].map(i32::to_le_bytes);
            send(stdout(), answer.as_flattened(), SendFlags::NOSIGNAL)?;
        }
    }
}

/// Receives a fork request: the socket of the worker; `None` when the gateway is gone.
fn order() -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0];
    let heard = recvmsg(
        stdin(),
        &mut [IoSliceMut::new(&mut word)],
        &mut attached,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let socket = attached.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok(socket.filter(|_| heard.bytes > 0))
}

/// The wait status of a child; `None` while it runs.
fn ended(pid: Pid) -> Option<i32> {
    match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::StillAlive) => None,
        Ok(WaitStatus::Exited(_, code)) => Some((code & 0xff) << 8),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(signal as i32),
        Ok(_) | Err(_) => Some(UNKNOWN),
    }
}
