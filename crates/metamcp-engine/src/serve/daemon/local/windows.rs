//! Pipes, which know no half-close: the client says by a byte of its own that its input ended, and the daemon by another
//! that the client is to come anew (`wire::local`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use interprocess::os::windows::named_pipe::pipe_mode::Bytes;
use interprocess::os::windows::named_pipe::tokio::{RecvPipeStream, SendPipeStream};
use metamcp_wire::local::{COME_ANEW, INPUT_ENDED};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::outbox::Outbox;
use crate::runtime_folder::{self, Pipe, peer_is_us};

/// Where local connections come in.
#[derive(Debug)]
pub struct Listener(runtime_folder::Listener);

impl Listener {
    /// Must be called inside a runtime.
    #[expect(clippy::unnecessary_wraps, reason = "a socket's may fail")]
    pub fn new(listener: runtime_folder::Listener) -> io::Result<Listener> {
        Ok(Listener(listener))
    }

    /// The next connection, and whether it is this user's.
    pub(in crate::serve::daemon) async fn accept(&self) -> io::Result<(Stream, bool)> {
        let pipe = self.0.accept().await?;
        // Who is gone already was let in by the pipe's own list, which has this user only.
        let is_ours = peer_is_us(&pipe).unwrap_or(true);
        Ok((Stream { pipe, input: Input::default() }, is_ours))
    }
}

/// A local connection.
#[derive(Debug)]
pub struct Stream {
    pipe: Pipe,
    input: Input,
}

/// What is known of the client's side.
#[derive(Debug, Default)]
struct Input {
    /// What came with the first line and belongs to the session.
    ahead: Vec<u8>,
    has_ended: bool,
    /// The client closed the pipe, or died.
    is_gone: Arc<AtomicBool>,
}

impl Input {
    fn poll(
        &mut self,
        pipe: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.has_ended {
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        if self.ahead.is_empty() {
            ready!(pipe.poll_read(cx, into))?;
        } else {
            let count = self.ahead.len().min(into.remaining());
            into.put_slice(&self.ahead[..count]);
            self.ahead.drain(..count);
        }
        let new = &into.filled()[before..];
        if new.is_empty() && into.remaining() > 0 {
            self.has_ended = true;
            self.is_gone.store(true, Ordering::Relaxed);
        } else if let Some(at) = memchr::memchr(INPUT_ENDED, new) {
            self.has_ended = true;
            into.set_filled(before + at);
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream {
    /// Both directions, to be used side by side.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let (pipe, output) = self.pipe.split();
        (ReadHalf { pipe, input: self.input }, WriteHalf(output))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Stream { pipe, input } = self.get_mut();
        input.poll(Pin::new(pipe), cx, into)
    }
}

/// The client's lines.
#[derive(Debug)]
pub struct ReadHalf {
    pipe: RecvPipeStream<Bytes>,
    input: Input,
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let ReadHalf { pipe, input } = self.get_mut();
        input.poll(Pin::new(pipe), cx, into)
    }
}

/// Lines for the client.
#[derive(Debug)]
pub struct WriteHalf(SendPipeStream<Bytes>);

/// To flush a pipe means to wait until the other side has read everything, which nobody may make us wait for. The system
/// keeps what was written for as long as the client has the pipe open.
macro_rules! written_at_once {
    ($of:ty, $pipe:tt) => {
        impl AsyncWrite for $of {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.get_mut().$pipe).poll_write(cx, bytes)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }
    };
}

written_at_once!(Stream, pipe);
written_at_once!(WriteHalf, 0);

/// The first line. What came with it is kept for who reads on.
pub(in crate::serve::daemon) async fn first_line(
    stream: &mut Stream,
    most: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::with_capacity(8 * 1024);
    loop {
        let from = line.len();
        match stream.read_buf(&mut line).await? {
            0 if line.is_empty() => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        if let Some(at) = memchr::memchr(b'\n', &line[from..]) {
            let mut rest = line.split_off(from + at + 1);
            line.pop();
            if std::mem::take(&mut stream.input.has_ended) {
                rest.push(INPUT_ENDED);
            }
            stream.input.ahead = rest;
            return Ok(Some(line));
        }
        if line.len() > most {
            return Err(io::Error::other("the hello is too long"));
        }
        line.reserve(8 * 1024);
    }
}

/// A connection seen from beside, while others read and write it.
pub(in crate::serve::daemon) struct Watch {
    is_gone: Arc<AtomicBool>,
}

impl Watch {
    #[expect(clippy::unnecessary_wraps, reason = "a socket's may fail")]
    pub(in crate::serve::daemon) fn of(stream: &Stream) -> io::Result<Watch> {
        Ok(Watch { is_gone: Arc::clone(&stream.input.is_gone) })
    }

    /// Whether the client could still read, as far as was noticed: after the end of its input only a write shows it.
    pub(in crate::serve::daemon) fn has_reader(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed)
    }

    /// Asks the client to come anew: it says at the end of a line that it has heard it, and keeps the next line for whoever
    /// serves it then.
    pub(in crate::serve::daemon) fn send_away(&self, outbox: &Outbox) {
        outbox.push(|line| line.extend_from_slice(&[COME_ANEW, b'\n']));
    }
}
