//! The worker's end of the connection: buffered writes, blocking reads.

#[cfg(target_os = "linux")]
mod descriptors;
mod pipes;

use std::io;
use std::time::Instant;

#[cfg(target_os = "linux")]
use self::descriptors::Descriptors;
use self::pipes::Pipes;
#[cfg(target_os = "linux")]
use crate::lockdown::LinkKind;
use crate::protocol::{Frames, FromWorker, ToWorker};
use crate::run_clock;

/// Buffered bytes above which they are flushed.
const MAX_BUFFERED: usize = 64 * 1024;

/// Buffered requests above which they are flushed, so that the gateway works on the first while the script makes the next.
/// Not fewer: waking the gateway takes as long as making several.
const MAX_BUFFERED_REQUESTS: u32 = 32;

/// Maximum size of the read buffer.
const PIECE: usize = 64 * 1024;

/// Why the connection is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The gateway closed its end, or is dead.
    Gone,
    /// It sent an invalid message.
    Garbled,
}

#[derive(Debug)]
pub(super) struct Link {
    channel: Channel,
    outbox: Vec<u8>,
    /// Requests in it.
    buffered_requests: u32,
    inbox: Frames,
}

/// What carries the bytes.
#[derive(Debug)]
enum Channel {
    /// A socket or two pipes, used with the few system calls of the lockdown.
    #[cfg(target_os = "linux")]
    Descriptors(Descriptors),
    /// Two pipes, one of them read by a thread.
    Pipes(Pipes),
}

impl Link {
    /// A connection for a worker under the lockdown.
    #[cfg(target_os = "linux")]
    pub(super) fn descriptors(kind: LinkKind) -> Link {
        Link::new(Channel::Descriptors(Descriptors::new(kind)))
    }

    /// A connection for a worker without it. From here on the process ends with the gateway.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub(super) fn pipes() -> io::Result<Link> {
        Ok(Link::new(Channel::Pipes(Pipes::new()?)))
    }

    fn new(channel: Channel) -> Link {
        Link { channel, outbox: Vec::new(), buffered_requests: 0, inbox: Frames::default() }
    }

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
        match &mut self.channel {
            #[cfg(target_os = "linux")]
            Channel::Descriptors(descriptors) => {
                descriptors.write(&self.outbox, &mut self.inbox)?;
            }
            Channel::Pipes(pipes) => pipes.write(&self.outbox)?,
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
            let left = until.map(|until| until.saturating_duration_since(run_clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let has_read = match &mut self.channel {
                #[cfg(target_os = "linux")]
                Channel::Descriptors(descriptors) => descriptors.wait(left, &mut self.inbox)?,
                Channel::Pipes(pipes) => pipes.wait(left, &mut self.inbox)?,
            };
            if !has_read {
                return Ok(None);
            }
        }
    }

    /// A message that has arrived already, without waiting.
    pub(super) fn at_hand(&mut self) -> Result<Option<ToWorker>, Closed> {
        match &mut self.channel {
            // Reading would take a system call more; what comes is read when it is waited for.
            #[cfg(target_os = "linux")]
            Channel::Descriptors(_) => {}
            Channel::Pipes(pipes) => pipes.take_arrived(&mut self.inbox),
        }
        match self.inbox.next_frame() {
            Ok(Some(frame)) => ToWorker::decode(frame).map(Some).map_err(|_| Closed::Garbled),
            Ok(None) => Ok(None),
            Err(_) => Err(Closed::Garbled),
        }
    }

    /// Waits for the gateway to close its end, ignoring what it sends.
    pub(super) fn linger(&mut self) {
        match &mut self.channel {
            #[cfg(target_os = "linux")]
            Channel::Descriptors(descriptors) => descriptors.linger(),
            Channel::Pipes(pipes) => pipes.linger(),
        }
    }
}
