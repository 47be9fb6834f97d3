//! Sockets travel between processes, with whoever waits in their queues.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;

use metamcp_wire::local::{Hello, Kind, MAX_HELLO, Reply};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::net::TcpListener;

use super::{Daemon, HAND_OVER, Listener, MOST, Stream, VERSION};
use crate::runtime_folder::Places;

/// A listening socket, kept beside the one that is used.
pub(super) type Socket = OwnedFd;

pub(super) fn socket(listener: &TcpListener) -> io::Result<Socket> {
    listener.as_fd().try_clone_to_owned()
}

/// How many are sent.
pub(super) fn follow(given: &[Listener]) -> u32 {
    u32::try_from(given.len()).unwrap_or(u32::MAX)
}

pub(super) async fn give(stream: Stream, given: Vec<Listener>) -> io::Result<()> {
    let stream = stream.into_std()?;
    let sent = tokio::task::spawn_blocking(move || send(&stream, &given)).await;
    sent.unwrap_or_else(|error| Err(io::Error::other(error)))
}

pub(super) fn reopened(socket: Socket) -> Option<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true).ok()?;
    TcpListener::from_std(listener).ok()
}

/// Takes them from a daemon that steps aside.
pub(super) fn take(daemon: &Daemon, old: &Path) -> io::Result<usize> {
    let mut stream = Places::connect_to(old)?;
    stream.set_read_timeout(Some(HAND_OVER))?;
    stream.set_write_timeout(Some(HAND_OVER))?;
    let hello = Hello::plain(VERSION, Kind::Listeners, std::process::id());
    stream.write_all(&hello.to_line())?;
    let line = read_line(&stream)?;
    let follow = match Reply::parse(&line).map_err(io::Error::other)? {
        Reply::Accepted(accepted) => accepted.follow.min(MOST),
        Reply::Refused(refusal) => return Err(io::Error::other(refusal.error)),
    };
    for _ in 0..follow {
        let listener = receive(&stream)?;
        daemon.adopted.lock().push(listener);
    }
    Ok(follow as usize)
}

fn send(mut stream: &StdStream, given: &[Listener]) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(HAND_OVER))?;
    for listener in given {
        // The socket travels with one byte, which the line that says whose it is follows.
        let sockets = [listener.socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        attached.push(SendAncillaryMessage::ScmRights(&sockets));
        sendmsg(stream, &[IoSlice::new(b"L")], &mut attached, SendFlags::empty())?;
        let mut hello = Hello::plain(VERSION, Kind::Listen, std::process::id());
        hello.folder.clone_from(&listener.folder);
        hello.flags.clone_from(&listener.flags);
        stream.write_all(&hello.to_line())?;
    }
    Ok(())
}

/// One line, byte by byte: the socket that follows it must not be read past.
fn read_line(mut stream: &StdStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let mut next = [0];
        stream.read_exact(&mut next)?;
        if next[0] == b'\n' || line.len() > MAX_HELLO {
            return Ok(line);
        }
        line.push(next[0]);
    }
}

fn receive(stream: &StdStream) -> io::Result<Listener> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut attached, flags)?;
    let socket = attached.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    let socket = socket.ok_or_else(|| io::Error::other("no socket came"))?;
    // Set on arrival where the system can.
    #[cfg(not(target_os = "linux"))]
    nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let line = read_line(stream)?;
    let hello = Hello::parse(&line).map_err(io::Error::other)?;
    let Hello { folder, flags, .. } = hello;
    let listener = std::net::TcpListener::from(socket);
    let port = listener.local_addr().ok().map(|bound| bound.port());
    let (socket, address) = (OwnedFd::from(listener), String::new());
    Ok(Listener { socket, address, folder, flags, port, moved: Arc::default() })
}
