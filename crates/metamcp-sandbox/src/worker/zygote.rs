//! The nursery: a process that is all a worker is before it gives up its rights, and forks one for each order.
//!
//! Most of a worker's start is the same for each of them: the loader, the realm, the prelude. A nursery does that once.
//! It has one thread and never sees a word of a guest; what a guest gets is a copy, which then gives up its rights like
//! a worker that was started by itself.
//!
//! Orders come on standard input, each with the socket of a worker, and are answered with the number of its process.
//! On standard output come numbers of those to bury, one at a time, and are answered with the number and how it ended. None is
//! buried unasked: its number could be another's by the time the gateway kills it.

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

/// Bytes of a number in either direction.
pub(crate) const NUMBER: usize = size_of::<i32>();

/// What both are called in a list of processes, which shows their words on the command line as the same.
const NAME: &CStr = c"metamcp-zygote";
const CHILD: &CStr = c"metamcp-worker";

/// In place of how a process ended that is none of ours.
pub(crate) const UNKNOWN: i32 = -1;

/// What a process is after its part in the nursery.
pub(super) enum Role {
    /// A worker, with its socket in place.
    Worker,
    /// The nursery itself, which nobody needs any more.
    Over,
}

/// Forks workers until nobody wants any. Returns in each of them, and at the end.
///
/// # Errors
/// What the kernel refused.
pub(super) fn fork_workers() -> io::Result<Role> {
    prctl::set_name(NAME)?;
    // Whoever started the gateway may have had its children buried by the kernel, which is inherited.
    ensure_waitable_children()?;
    // A second line: without a gateway there are no orders to wait for either.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The directory the gateway was started in is not kept busy.
    chdir("/")?;
    let mut deaths = SigSet::empty();
    deaths.add(Signal::SIGCHLD);
    deaths.thread_block()?;
    let told = SignalFd::with_flags(&deaths, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut dying = None;
    let zygote_pid = getpid();
    loop {
        let (orders, reap_queue) = (stdin(), stdout());
        let mut polled = [orders.as_fd(), reap_queue.as_fd(), told.as_fd()]
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
                        // It died before this was said, and nobody knows of us.
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
            while told.read_signal()?.is_some() {}
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

/// The socket of a worker that is wanted; none when the gateway is gone.
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

/// How a process of ours ended, as the kernel writes it; nothing while it lives.
fn ended(pid: Pid) -> Option<i32> {
    match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::StillAlive) => None,
        Ok(WaitStatus::Exited(_, code)) => Some((code & 0xff) << 8),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(signal as i32),
        Ok(_) | Err(_) => Some(UNKNOWN),
    }
}
