//! The worker's end of the connection: buffered writes, blocking reads.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{read, write};

use crate::lockdown::{LinkKind, SOCKET};
use crate::protocol::{Frames, FromWorker, ToWorker};
use crate::run_clock;

/// Buffered bytes above which they are flushed.
const MAX_BUFFERED: usize = 64 * 1024;

/// Buffered requests above which they are flushed, so that the gateway works on the first while the script makes the next.
/// Not fewer: waking the gateway takes as long as making several.
const MAX_BUFFERED_REQUESTS: u32 = 32;

/// Maximum size of the read buffer.
const PIECE: usize = 64 * 1024;

/// Its initial size: most messages are shorter, and an idle worker holds this memory.
const FIRST_PIECE: usize = 4 * 1024;

/// Its growth factor when a read filled it.
const GROWTH: usize = 4;

/// Why the connection is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The gateway closed its end, or is dead.
    Gone,
    /// It sent an invalid message.
    Garbled,
}

#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) kind: LinkKind,
    outbox: Vec<u8>,
    /// Requests in it.
    buffered_requests: u32,
    inbox: Frames,
    piece: Vec<u8>,
}

impl Link {
    /// Buffers a message; flushes when there is enough.
    pub(super) fn send(&mut self, message: &FromWorker) {
        message.encode(&mut self.outbox);
        self.buffered_requests += u32::from(matches!(message, FromWorker::Request { .. }));
        if self.outbox.len() > MAX_BUFFERED || self.buffered_requests > MAX_BUFFERED_REQUESTS {
            // The next receive notices a closed socket.
            self.flush().ok();
        }
    }

    /// Sends what is buffered. While the gateway does not read, what it writes is read, so that the two
    /// cannot deadlock.
    pub(super) fn flush(&mut self) -> Result<(), Closed> {
        let mut sent = 0;
        while sent < self.outbox.len() {
            if self.kind == LinkKind::Pipes {
                // The process that copies pipes always reads, so this does not block for long.
                match write(io::stdout(), &self.outbox[sent..]) {
                    Ok(count) => sent += count,
                    Err(Errno::EINTR) => {}
                    Err(_) => return Err(Closed::Gone),
                }
                continue;
            }
            match send(
                SOCKET,
                &self.outbox[sent..],
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            ) {
                Ok(count) => sent += count,
                Err(Errno::EAGAIN) => {
                    let ready = wait(PollFlags::POLLOUT | PollFlags::POLLIN, None);
                    if ready.contains(PollFlags::POLLIN) {
                        self.read_more(MsgFlags::MSG_DONTWAIT)?;
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => return Err(Closed::Gone),
            }
        }
        self.outbox.clear();
        self.buffered_requests = 0;
        Ok(())
    }

    /// Waits for the next message; `None` if `until` comes first.
    pub(super) fn receive(&mut self, until: Option<Instant>) -> Result<Option<ToWorker>, Closed> {
        self.flush()?;
        loop {
            if let Some(message) = self.at_hand()? {
                return Ok(Some(message));
            }
            if let Some(until) = until {
                let left = until.saturating_duration_since(run_clock::now());
                if left.is_zero() || wait(PollFlags::POLLIN, Some(left)).is_empty() {
                    return Ok(None);
                }
            }
            self.read_more(MsgFlags::empty())?;
        }
    }

    /// A message that has arrived already, without waiting.
    pub(super) fn at_hand(&mut self) -> Result<Option<ToWorker>, Closed> {
        match self.inbox.next_frame() {
            Ok(Some(frame)) => ToWorker::decode(frame).map(Some).map_err(|_| Closed::Garbled),
            Ok(None) => Ok(None),
            Err(_) => Err(Closed::Garbled),
        }
    }

    /// Waits for the gateway to close its end, ignoring what it sends.
    pub(super) fn linger(&mut self) {
        // Pipes are closed by the exit of this process, so there is nothing to wait for.
        if self.kind == LinkKind::Socket {
            while recv(SOCKET, &mut self.piece, MsgFlags::empty()).is_ok_and(|count| count > 0) {}
        }
    }

    fn read_more(&mut self, flags: MsgFlags) -> Result<(), Closed> {
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
                self.inbox.push(&self.piece[..count]);
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
