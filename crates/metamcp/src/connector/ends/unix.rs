//! One thread and one `poll`.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub(in super::super) use super::super::signals::Signals;
use super::super::streams::Output;
use super::{Seen, Wanted};

/// The other end: a daemon, or the gateway of this very process.
pub(in super::super) type Link = UnixStream;

pub(in super::super) fn link(stream: UnixStream) -> Link {
    stream
}

pub(in super::super) struct Ends {
    signals: Signals,
    output: Output,
    /// None while nobody needs one.
    daemon: Option<UnixStream>,
}

impl Ends {
    pub(in super::super) fn open() -> io::Result<Ends> {
        Ok(Ends { signals: Signals::new()?, output: Output::open(), daemon: None })
    }

    pub(in super::super) fn has_daemon(&self) -> bool {
        self.daemon.is_some()
    }

    pub(in super::super) fn attach(&mut self, daemon: Link) -> io::Result<()> {
        daemon.set_nonblocking(true)?;
        self.daemon = Some(daemon);
        Ok(())
    }

    pub(in super::super) fn leave_daemon(&mut self) {
        self.daemon = None;
    }

    /// Nothing if a signal that means nothing came in between.
    pub(in super::super) fn wait(&mut self, wanted: Wanted) -> io::Result<Option<Seen>> {
        let mut at_daemon = PollFlags::empty();
        at_daemon.set(PollFlags::POLLIN, wanted.daemon_in);
        at_daemon.set(PollFlags::POLLOUT, wanted.daemon_out);
        let mut at_client = PollFlags::empty();
        at_client.set(PollFlags::POLLOUT, wanted.client_out);
        let stdin = io::stdin();
        let mut polled = Vec::with_capacity(4);
        polled.push(PollFd::new(self.output.as_fd(), at_client));
        polled.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        let daemon = self.daemon.as_ref().filter(|_| !at_daemon.is_empty());
        if let Some(daemon) = daemon {
            polled.push(PollFd::new(daemon.as_fd(), at_daemon));
        }
        if wanted.client_in {
            polled.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        let timeout = wanted.at_most.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut polled, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let seen =
            |at: usize| polled.get(at).and_then(PollFd::revents).unwrap_or(PollFlags::empty());
        let broken = PollFlags::POLLERR | PollFlags::POLLNVAL | PollFlags::POLLHUP;
        let readable = broken | PollFlags::POLLIN;
        let stdin_at = if daemon.is_some() { 3 } else { 2 };
        Ok(Some(Seen {
            client_in: seen(stdin_at).intersects(readable),
            client_out: seen(0).contains(PollFlags::POLLOUT),
            client_is_gone: seen(0).intersects(broken),
            daemon_in: daemon.is_some() && seen(2).intersects(readable),
            is_sent_away: false,
            signal: seen(1).intersects(readable),
        }))
    }

    /// How many signals arrived since this was last asked.
    pub(in super::super) fn signals(&self) -> usize {
        self.signals.arrived()
    }

    pub(in super::super) fn read_client(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(io::stdin(), into)?)
    }

    /// Writes what there is room for.
    pub(in super::super) fn write_client(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    /// Whether a write to the client may only follow the word that there is room.
    pub(in super::super) fn must_be_asked(&self) -> bool {
        self.output.must_be_asked()
    }

    pub(in super::super) fn read_daemon(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.daemon.as_mut().map_or_else(none, |daemon| daemon.read(into))
    }

    /// Writes what there is room for.
    pub(in super::super) fn write_daemon(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.daemon.as_mut().map_or_else(none, |daemon| daemon.write(bytes))
    }

    /// Tells the daemon that nothing more comes.
    pub(in super::super) fn end_daemon_input(&mut self) -> io::Result<()> {
        self.daemon.as_ref().map_or(Ok(()), |daemon| daemon.shutdown(Shutdown::Write))
    }
}

fn none<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotConnected.into())
}

/// Why waiting for a daemon's end stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Stop {
    Signal,
    DaemonGone,
}

impl Stop {
    /// Waits for a signal or the end of the daemon, which says nothing.
    pub(in super::super) fn wait(mut stream: &UnixStream, signals: &Signals) -> io::Result<Stop> {
        loop {
            let mut polled = [
                PollFd::new(stream.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            if poll(&mut polled, PollTimeout::NONE).is_err() {
                continue;
            }
            if signals.arrived() > 0 {
                return Ok(Stop::Signal);
            }
            let is_over = polled[0].revents().is_some_and(|seen| !seen.is_empty())
                && !matches!(stream.read(&mut [0; 64]), Ok(1..));
            if is_over {
                return Ok(Stop::DaemonGone);
            }
        }
    }
}

/// Tells a daemon that nothing more comes.
pub(in super::super) fn no_more(stream: &UnixStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)
}
