//! Sockets: the client's end of its input is a half-close, and so is ours when it is to come anew.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};

use crate::outbox::Outbox;
use crate::runtime_folder::{self, peer_is_us};

/// A local connection.
pub type Stream = UnixStream;

/// Where local connections come in.
#[derive(Debug)]
pub struct Listener(UnixListener);

impl Listener {
    /// Must be called inside a runtime.
    pub fn new(listener: runtime_folder::Listener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Listener)
    }

    /// The next connection, and whether it is this user's.
    pub(in crate::serve::daemon) async fn accept(&self) -> io::Result<(Stream, bool)> {
        let (stream, _) = self.0.accept().await?;
        let is_ours = peer_is_us(&stream).unwrap_or(false);
        Ok((stream, is_ours))
    }
}

/// The first line. Read byte-exact: what follows it belongs to the session.
pub(in crate::serve::daemon) async fn first_line(
    stream: &mut Stream,
    most: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::with_capacity(8 * 1024);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        stream.readable().await?;
        // Looked at first, and taken only up to the newline.
        let seen = match stream.try_io(tokio::io::Interest::READABLE, || peek(stream, &mut buffer))
        {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(seen) => seen,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let newline = memchr::memchr(b'\n', &buffer[..seen]);
        let take = newline.map_or(seen, |at| at + 1);
        stream.read_exact(&mut buffer[..take]).await?;
        line.extend_from_slice(&buffer[..take]);
        if newline.is_some() {
            line.pop();
            return Ok(Some(line));
        }
        if line.len() > most {
            return Err(io::Error::other("the hello is too long"));
        }
    }
}

fn peek(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(recv(stream.as_raw_fd(), buffer, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT)?)
}

/// A connection seen from beside, while others read and write it.
pub(in crate::serve::daemon) struct Watch(OwnedFd);

impl Watch {
    pub(in crate::serve::daemon) fn of(stream: &Stream) -> io::Result<Watch> {
        stream.as_fd().try_clone_to_owned().map(Watch)
    }

    /// Whether the client could still read: its end of the socket is not closed for good.
    pub(in crate::serve::daemon) fn has_reader(&self) -> bool {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::empty())];
        match poll(&mut polled, PollTimeout::ZERO) {
            Ok(1..) => !polled[0]
                .revents()
                .is_some_and(|seen| seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)),
            _ => true,
        }
    }

    /// Asks the client to come anew: what it wrote until now is read and answered; the next line it keeps for whoever
    /// serves it then.
    pub(in crate::serve::daemon) fn send_away(&self, _outbox: &Outbox) {
        let _closed_already = shutdown(self.0.as_raw_fd(), Shutdown::Read);
    }
}
