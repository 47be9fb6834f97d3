//! The connection under the lockdown: one thread, and system calls of the allowlist alone.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{read, write};

use super::{Closed, PIECE};
use crate::lockdown::{LinkKind, SOCKET};
use crate::protocol::Frames;

/// Initial size of the read buffer: most messages are shorter, and an idle worker holds this memory.
const FIRST_PIECE: usize = 4 * 1024;

/// Its growth factor when a read filled it.
const GROWTH: usize = 4;

#[derive(Debug)]
pub(super) struct Descriptors {
    kind: LinkKind,
    piece: Vec<u8>,
}

impl Descriptors {
    pub(super) fn new(kind: LinkKind) -> Descriptors {
        if kind == LinkKind::Pipes {
            // So that a full pipe can be told from one that takes more. If that fails, writing waits, and only a gateway
            // that waits for us at the same time would make that a standstill until the time limit.
            let flags = fcntl(io::stdout(), FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
            flags
                .and_then(|flags| fcntl(io::stdout(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)))
                .ok();
        }
        Descriptors { kind, piece: Vec::new() }
    }

    pub(super) fn write(&mut self, bytes: &[u8], inbox: &mut Frames) -> Result<(), Closed> {
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = &bytes[sent..];
            let taken = match self.kind {
                LinkKind::Socket => {
                    send(SOCKET, rest, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
                }
                LinkKind::Pipes => write(io::stdout(), rest),
            };
            match taken {
                Ok(count) => sent += count,
                Err(Errno::EAGAIN) if self.is_readable_before_writable() => {
                    self.read_more(MsgFlags::MSG_DONTWAIT, inbox)?;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(_) => return Err(Closed::Gone),
            }
        }
        Ok(())
    }

    /// Waits until something can be written or read; whether it is the latter.
    fn is_readable_before_writable(&self) -> bool {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let ready = match self.kind {
            LinkKind::Socket => {
                return wait(PollFlags::POLLOUT | PollFlags::POLLIN, None)
                    .contains(PollFlags::POLLIN);
            }
            LinkKind::Pipes => {
                let mut polled = [
                    PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                    PollFd::new(stdout.as_fd(), PollFlags::POLLOUT),
                ];
                ppoll(&mut polled, None, None).map(|_| polled[0].any().unwrap_or(true))
            }
        };
        // Interrupted, as by an engine's CPU timer: the caller tries again.
        ready.unwrap_or(false)
    }

    /// Waits for bytes, at most for a time; whether there may be some.
    pub(super) fn wait(
        &mut self,
        left: Option<Duration>,
        inbox: &mut Frames,
    ) -> Result<bool, Closed> {
        if left.is_some_and(|left| wait(PollFlags::POLLIN, Some(left)).is_empty()) {
            return Ok(false);
        }
        self.read_more(MsgFlags::empty(), inbox)?;
        Ok(true)
    }

    pub(super) fn linger(&mut self) {
        // Pipes are closed by the exit of this process, so there is nothing to wait for.
        if self.kind == LinkKind::Socket {
            while recv(SOCKET, &mut self.piece, MsgFlags::empty()).is_ok_and(|count| count > 0) {}
        }
    }

    fn read_more(&mut self, flags: MsgFlags, inbox: &mut Frames) -> Result<(), Closed> {
        // Reused: zeroing a buffer for each read took longer than the read.
        if self.piece.is_empty() {
            self.piece.resize(FIRST_PIECE, 0);
        }
        let taken = match self.kind {
            LinkKind::Socket => recv(SOCKET, &mut self.piece, flags),
            LinkKind::Pipes => read(io::stdin(), &mut self.piece),
        };
        match taken {
            Ok(0) => Err(Closed::Gone),
            Ok(count) => {
                inbox.push(&self.piece[..count]);
                if count == self.piece.len() {
                    self.piece.resize((count * GROWTH).min(PIECE), 0);
                }
                Ok(())
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(_) => Err(Closed::Gone),
        }
    }
}

/// Polls the socket; empty after the timeout.
fn wait(events: PollFlags, timeout: Option<Duration>) -> PollFlags {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), events)];
    match ppoll(&mut polled, timeout.map(Into::into), None) {
        Ok(0) => PollFlags::empty(),
        Ok(_) => polled[0].revents().unwrap_or(events),
        // Interrupted, as by an engine's CPU timer: the caller tries again. Reporting it as ready would block in a read
        // past any timer.
        Err(_) => PollFlags::empty(),
    }
}
