//! The worker's end of the socket: what goes out is gathered, what comes in is waited for.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{read, write};

use crate::lockdown::{LinkKind, SOCKET};
use crate::protocol::{Frames, FromWorker, ToWorker};

/// Gathered bytes above which they are sent without waiting for more.
const GATHER: usize = 64 * 1024;

/// Questions gathered, above which the same: the gateway answers the first ones while the script puts the next. Each time
/// it has to be woken, which takes as long as to put several, so not for a few.
const QUESTIONS: u32 = 32;

/// Bytes taken from the socket at once, at most.
const PIECE: usize = 64 * 1024;

/// The same at first: most scripts and answers are shorter, and a worker that waits holds what it has room for.
const FIRST_PIECE: usize = 4 * 1024;

/// How much larger a piece becomes when one was full.
const GROWTH: usize = 4;

/// Why nothing more can be heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The gateway closed its end, or is dead.
    Gone,
    /// It said something that is no message.
    Garbled,
}

/// Both directions.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) link_kind: LinkKind,
    outbox: Vec<u8>,
    /// Questions in it.
    questions: u32,
    inbox: Frames,
    piece: Vec<u8>,
}

impl Link {
    /// Gathers a message; a great heap of them leaves by itself.
    pub(super) fn send(&mut self, message: &FromWorker) {
        message.encode(&mut self.outbox);
        self.questions += u32::from(matches!(message, FromWorker::Request { .. }));
        if self.outbox.len() > GATHER || self.questions > QUESTIONS {
            // A closed socket is noticed by whoever waits for an answer next.
            self.flush().ok();
        }
    }

    /// Sends what is gathered. While the gateway does not read, what it writes is taken in, so that the
    /// two never wait for each other.
    pub(super) fn flush(&mut self) -> Result<(), Closed> {
        let mut sent = 0;
        while sent < self.outbox.len() {
            if self.link_kind == LinkKind::Pipes {
                // Whoever copies them on reads at all times, so this never waits for long.
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
                        self.take_in(MsgFlags::MSG_DONTWAIT)?;
                    }
                }
                Err(Errno::EINTR) => {}
                Err(_) => return Err(Closed::Gone),
            }
        }
        self.outbox.clear();
        self.questions = 0;
        Ok(())
    }

    /// The next message, or none if `until` comes first.
    pub(super) fn receive(&mut self, until: Option<Instant>) -> Result<Option<ToWorker>, Closed> {
        self.flush()?;
        loop {
            if let Some(message) = self.at_hand()? {
                return Ok(Some(message));
            }
            if let Some(until) = until {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || wait(PollFlags::POLLIN, Some(left)).is_empty() {
                    return Ok(None);
                }
            }
            self.take_in(MsgFlags::empty())?;
        }
    }

    /// A message that has arrived already.
    pub(super) fn at_hand(&mut self) -> Result<Option<ToWorker>, Closed> {
        match self.inbox.next_frame() {
            Ok(Some(frame)) => ToWorker::decode(frame).map(Some).map_err(|_| Closed::Garbled),
            Ok(None) => Ok(None),
            Err(_) => Err(Closed::Garbled),
        }
    }

    /// Waits for the gateway to close its end. Whatever it still says comes too late.
    pub(super) fn linger(&mut self) {
        // Behind pipes nobody closes them: the end of the process is what is waited for there.
        if self.link_kind == LinkKind::Socket {
            while recv(SOCKET, &mut self.piece, MsgFlags::empty()).is_ok_and(|count| count > 0) {}
        }
    }

    fn take_in(&mut self, flags: MsgFlags) -> Result<(), Closed> {
        // Kept from one time to the next: clearing so much for each answer took longer than reading it.
        if self.piece.is_empty() {
            self.piece.resize(FIRST_PIECE, 0);
        }
        let taken = match self.link_kind {
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

/// Waits for the socket; what it is ready for, or nothing when the time is over.
fn wait(events: PollFlags, timeout: Option<Duration>) -> PollFlags {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), events)];
    match ppoll(&mut polled, timeout.map(Into::into), None) {
        Ok(0) => PollFlags::empty(),
        Ok(_) => polled[0].revents().unwrap_or(events),
        // Interrupted, as by the clock of an engine: nothing is ready as far as is known, and the caller looks again.
        // Called ready, a socket without a word in it would be read until one comes, past any timer.
        Err(_) => PollFlags::empty(),
    }
}
