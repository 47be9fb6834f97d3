//! The gateway's side of a nursery: orders workers, and buries them.

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
use crate::worker::{NUMBER, UNKNOWN, ZYGOTE};

/// Workers of one nursery have their memory at the same addresses, so that what a hole in the engine tells a script
/// of its own would help a later one. After so many the next nursery has new ones.
const MAX_FORKS: u32 = 256;

/// And after this long, whatever their number. Also a changed time zone is known then.
const MAX_AGE: Duration = Duration::from_secs(10 * 60);

/// How long an answer of it may take. It takes less than a millisecond, and its start a few.
const PATIENCE: Duration = Duration::from_secs(10);

/// One nursery. Dropping it ends it, and with it every worker it made.
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
            set_socket_timeout(end, Timeout::Recv, Some(PATIENCE))?;
        }
        let forks = AtomicU32::new(0);
        Ok(Zygote { process, orders, reap_queue, began: Instant::now(), forks })
    }

    /// Whether the next worker is for another one to make.
    pub(super) fn is_old(&self) -> bool {
        self.forks.load(Ordering::Relaxed) >= MAX_FORKS || self.began.elapsed() > MAX_AGE
    }

    /// Has a worker made.
    ///
    /// # Errors
    /// The nursery is gone, or nothing is known of what it did; then nobody may go on with it.
    pub(super) fn fork_worker(&self, theirs: &UnixStream) -> io::Result<ForkResult> {
        let socket = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        attached.push(SendAncillaryMessage::ScmRights(&socket));
        sendmsg(&self.orders, &[IoSlice::new(&[1])], &mut attached, SendFlags::NOSIGNAL)?;
        let number = i32::from_le_bytes(hear(&self.orders)?);
        let Some(pid) = Pid::from_raw(number.max(0)) else {
            return Ok(ForkResult::Failed(io::Error::from_raw_os_error(-number)));
        };
        self.forks.fetch_add(1, Ordering::Relaxed);
        // Its number is its own as long as the nursery has not buried it; this stays so if the nursery is killed. Where we
        // have no descriptor for it, it finds its socket closed and ends, as the others may go on.
        Ok(match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => ForkResult::Worker(number, process),
            Err(error) => ForkResult::Failed(error.into()),
        })
    }

    /// Ends it, and every worker it made.
    pub(super) fn end(&self) {
        kill_process(Pid::from_child(&self.process), Signal::KILL).ok();
    }

    /// Kills a worker, and says how it ended. One that is ending by itself keeps its own status. For one thread only:
    /// the nursery buries one at a time.
    pub(super) fn reap(&self, pid: i32, process: &OwnedFd) -> Option<ExitStatus> {
        pidfd_send_signal(process, Signal::KILL).ok();
        self.reaped(pid).unwrap_or_else(|| {
            // Without the nursery its children are ours, where we take in orphans, or nobody's that we know.
            let ended = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED).ok()??;
            let exited = ended.exit_status().map(|code| (code & 0xff) << 8);
            exited.or(ended.terminating_signal()).map(ExitStatus::from_raw)
        })
    }

    /// What the nursery says of the end of a process; nothing if it says nothing.
    fn reaped(&self, pid: i32) -> Option<Option<ExitStatus>> {
        send(&self.reap_queue, &pid.to_le_bytes(), SendFlags::NOSIGNAL).ok()?;
        loop {
            let answer: [u8; 2 * NUMBER] = hear(&self.reap_queue).ok()?;
            let (of, status) = answer.split_first_chunk::<NUMBER>()?;
            let status = i32::from_le_bytes(*status.first_chunk::<NUMBER>()?);
            // An answer that came after we had given up on it is not ours.
            if i32::from_le_bytes(*of) == pid {
                return Some((status != UNKNOWN).then(|| ExitStatus::from_raw(status)));
            }
        }
    }
}

/// What came of an order.
pub(super) enum ForkResult {
    /// A worker: the number of its process, and what it is killed by.
    Worker(i32, OwnedFd),
    /// None: the system did not let it fork, or us hold it.
    Failed(io::Error),
}

/// The next answer, which has this length. Looked for again when a signal came between.
fn hear<const N: usize>(end: &OwnedFd) -> io::Result<[u8; N]> {
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
