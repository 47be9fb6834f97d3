//! The gateway's side of a zygote: has workers forked and reaped.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal,
    waitid,
};

use super::Launch;
use super::spawn::command;
use crate::run_clock;
use crate::worker::{NUMBER, UNKNOWN, ZYGOTE};

/// Workers of one zygote share their address layout, so an address leak in one script would help a later one. After so
/// many forks the next zygote has a new layout.
const MAX_FORKS: u32 = 256;

/// The same after this time, which also picks up a changed time zone.
const MAX_AGE: Duration = Duration::from_mins(10);

/// Time for a reply. It takes less than a millisecond, and the start a few.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// One zygote. Dropping it kills it and every worker it forked.
#[derive(Debug)]
pub(super) struct Zygote {
    process: Child,
    orders: OwnedFd,
    reap_queue: OwnedFd,
    began: Instant,
    forks: AtomicU32,
}

impl Zygote {
    /// Starts one. It dies with the thread that does this.
    pub(super) fn start(launch: &Launch) -> io::Result<Zygote> {
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let ((orders, their_orders), (reap_queue, their_reap_queue)) = (pair()?, pair()?);
        let process = command(launch)
            .arg(ZYGOTE)
            .stdin(Stdio::from(their_orders))
            .stdout(Stdio::from(their_reap_queue))
            .spawn()?;
        for end in [&orders, &reap_queue] {
            set_socket_timeout(end, Timeout::Recv, Some(REPLY_TIMEOUT))?;
        }
        let forks = AtomicU32::new(0);
        Ok(Zygote { process, orders, reap_queue, began: run_clock::now(), forks })
    }

    /// Whether it is due for replacement.
    pub(super) fn is_old(&self) -> bool {
        self.forks.load(Ordering::Relaxed) >= MAX_FORKS || self.began.elapsed() > MAX_AGE
    }

    /// Has a worker forked that gets `theirs` as its socket.
    ///
    /// # Errors
    /// The zygote is gone, or its state is unknown: it must not be used again.
    pub(super) fn fork_worker(&self, theirs: &UnixStream) -> io::Result<ForkResult> {
        let socket = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        attached.push(SendAncillaryMessage::ScmRights(&socket));
        sendmsg(&self.orders, &[IoSlice::new(&[1])], &mut attached, SendFlags::NOSIGNAL)?;
        let number = i32::from_le_bytes(receive(&self.orders)?);
        let Some(pid) = Pid::from_raw(number.max(0)) else {
            return Ok(ForkResult::Failed(io::Error::from_raw_os_error(-number)));
        };
        self.forks.fetch_add(1, Ordering::Relaxed);
        // The pid cannot be reused before the zygote reaps it; the pidfd stays valid even if the zygote is killed.
        // Without a pidfd the worker finds its socket closed and exits.
        Ok(match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => ForkResult::Worker(number, process),
            Err(error) => ForkResult::Failed(error.into()),
        })
    }

    /// Kills it and every worker it forked.
    pub(super) fn end(&self) {
        kill_process(Pid::from_child(&self.process), Signal::KILL).ok();
    }

    /// Kills and reaps a worker. A process that has exited already keeps its own status. For one thread only: the zygote
    /// reaps one at a time.
    pub(super) fn reap(&self, pid: i32, process: &OwnedFd) -> Option<ExitStatus> {
        pidfd_send_signal(process, Signal::KILL).ok();
        self.reaped(pid).unwrap_or_else(|| {
            // Without the zygote its children are ours, if we are a subreaper.
            let ended = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED).ok()??;
            let exited = ended.exit_status().map(|code| (code & 0xff) << 8);
            exited.or(ended.terminating_signal()).map(ExitStatus::from_raw)
        })
    }

    /// The exit status as the zygote reports it; `None` if it does not reply.
    #[expect(
        clippy::option_option,
        reason = "outside: whether it replies; inside: whether it knows a status"
    )]
    fn reaped(&self, pid: i32) -> Option<Option<ExitStatus>> {
        send(&self.reap_queue, &pid.to_le_bytes(), SendFlags::NOSIGNAL).ok()?;
        loop {
            let answer: [u8; 2 * NUMBER] = receive(&self.reap_queue).ok()?;
            let (of, status) = answer.split_first_chunk::<NUMBER>()?;
            let status = i32::from_le_bytes(*status.first_chunk::<NUMBER>()?);
            // A late reply to an earlier request that timed out.
            if i32::from_le_bytes(*of) == pid {
                return Some((status != UNKNOWN).then(|| ExitStatus::from_raw(status)));
            }
        }
    }
}

pub(super) enum ForkResult {
    /// Its pid and pidfd.
    Worker(i32, OwnedFd),
    /// `fork` or `pidfd_open` failed.
    Failed(io::Error),
}

/// Receives a reply of this length.
fn receive<const N: usize>(end: &OwnedFd) -> io::Result<[u8; N]> {
    let mut answer = [0; N];
    let (_, heard) = retry_on_intr(|| recv(end, &mut answer[..], RecvFlags::empty()))?;
    if heard == N {
        Ok(answer)
    } else {
        Err(io::Error::other("the process that forks workers is gone"))
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
