//! The gateway's side of a nursery: orders workers, and buries them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal, kill_process};

use super::Launch;
use super::spawn::command;
use crate::worker::{NUMBER, NURSERY, UNKNOWN};

/// Workers of one nursery have their memory at the same addresses, so that what a hole in the engine tells a script
/// of its own would help a later one. After so many the next nursery has new ones.
const BIRTHS: u32 = 256;

/// And after this long, whatever their number. Also a changed time zone is known then.
const AGE: Duration = Duration::from_secs(10 * 60);

/// How long an answer of it may take. It takes less than a millisecond, and its start a few.
const PATIENCE: Duration = Duration::from_secs(10);

/// One nursery. Dropping it ends it, and with it every worker it made.
#[derive(Debug)]
pub(super) struct Nursery {
    process: Child,
    orders: OwnedFd,
    graves: OwnedFd,
    began: Instant,
    births: AtomicU32,
}

impl Nursery {
    /// Starts one. It dies with the thread that does this.
    pub(super) fn start(launch: &Launch) -> io::Result<Nursery> {
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let ((orders, their_orders), (graves, their_graves)) = (pair()?, pair()?);
        let process = command(launch)
            .arg(NURSERY)
            .stdin(Stdio::from(their_orders))
            .stdout(Stdio::from(their_graves))
            .spawn()?;
        for end in [&orders, &graves] {
            set_socket_timeout(end, Timeout::Recv, Some(PATIENCE))?;
        }
        let births = AtomicU32::new(0);
        Ok(Nursery { process, orders, graves, began: Instant::now(), births })
    }

    /// Whether the next worker is for another one to make.
    pub(super) fn is_old(&self) -> bool {
        self.births.load(Ordering::Relaxed) >= BIRTHS || self.began.elapsed() > AGE
    }

    /// Has a worker made; its process.
    ///
    /// # Errors
    /// The nursery is gone, or could not fork.
    pub(super) fn make(&self, theirs: &UnixStream) -> io::Result<i32> {
        let socket = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        attached.push(SendAncillaryMessage::ScmRights(&socket));
        sendmsg(&self.orders, &[IoSlice::new(&[1])], &mut attached, SendFlags::NOSIGNAL)?;
        let mut number = [0; NUMBER];
        if recv(&self.orders, &mut number, RecvFlags::empty())?.1 < NUMBER {
            return Err(io::Error::other("the process that forks workers is gone"));
        }
        match i32::from_le_bytes(number) {
            pid if pid > 0 => {
                self.births.fetch_add(1, Ordering::Relaxed);
                Ok(pid)
            }
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Kills a worker, and says how it ended, if it was not killed before it could. Its number is its own until then.
    pub(super) fn bury(&self, pid: i32) -> Option<ExitStatus> {
        kill_process(Pid::from_raw(pid)?, Signal::KILL).ok();
        send(&self.graves, &pid.to_le_bytes(), SendFlags::NOSIGNAL).ok()?;
        let mut status = [0; NUMBER];
        let (_, heard) = recv(&self.graves, &mut status, RecvFlags::empty()).ok()?;
        let status = i32::from_le_bytes(status);
        (heard == NUMBER && status != UNKNOWN).then(|| ExitStatus::from_raw(status))
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
