//! Sockets cannot travel here: the older daemon stops listening, and the newer one listens at the same address when the
//! connectors ask it to. Clients that come in between are turned away by the system, and come again.

use std::convert::Infallible;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;

use metamcp_wire::local::{Hello, Kind, MAX_REPLY, Reply};
use tokio::net::TcpListener;

use super::{Daemon, HAND_OVER, Listener, Stream, VERSION};
use crate::runtime_folder::Places;

/// Nothing is kept beside the socket that is used.
#[derive(Debug)]
pub(super) struct Socket;

#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
pub(super) fn socket(_listener: &TcpListener) -> Result<Socket, Infallible> {
    Ok(Socket)
}

/// How many are sent.
pub(super) fn follow(_given: &[Listener]) -> u32 {
    0
}

#[expect(
    clippy::unused_async,
    clippy::unnecessary_wraps,
    reason = "elsewhere there is much to wait for"
)]
pub(super) async fn give(stream: Stream, given: Vec<Listener>) -> io::Result<()> {
    drop((stream, given));
    Ok(())
}

pub(super) fn reopened(_socket: Socket) -> Option<TcpListener> {
    None
}

/// Has a daemon that steps aside free its addresses.
pub(super) fn take(_daemon: &Daemon, old: &Path) -> io::Result<usize> {
    // The runtime of this thread is the daemon's.
    let asked = std::thread::scope(|scope| scope.spawn(|| ask(old)).join());
    asked.unwrap_or_else(|_| Err(io::Error::other("asking for them failed")))
}

fn ask(old: &Path) -> io::Result<usize> {
    let mut stream = Places::connect_to(old)?;
    stream.set_read_timeout(Some(HAND_OVER))?;
    stream.set_write_timeout(Some(HAND_OVER))?;
    stream.write_all(&Hello::plain(VERSION, Kind::Listeners, std::process::id()).to_line())?;
    let mut line = Vec::new();
    BufReader::new(stream).take(MAX_REPLY as u64).read_until(b'\n', &mut line)?;
    match Reply::parse(line.trim_ascii_end()).map_err(io::Error::other)? {
        Reply::Accepted(_) => Ok(0),
        Reply::Refused(refusal) => Err(io::Error::other(refusal.error)),
    }
}
