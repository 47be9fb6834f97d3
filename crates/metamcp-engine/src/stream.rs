//! Our own stdin and stdout, whatever the host connected: FIFO, socket pair, terminal or file.
//! Owns: how the two are opened for asynchronous use, and one read into lines.      Never: parses a line.
//! In: file descriptors 0 and 1.  Out: `Input` and `Output`.
//! Tests: every test with a real client; hosts written in Node hand us sockets, those in Python FIFOs.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use metamcp_wire::frame::Lines;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// How long an idle reader keeps the buffer of a long line.
const SPARE_BUFFER_TTL: Duration = Duration::from_secs(1);

/// Lines of one peer read in a row before it yields: a flood should delay its sender most, and responses go out while the
/// next lines are parsed, so that both peers work concurrently with us.
const MAX_LINES_IN_A_ROW: u32 = 16;
/// The same for the bytes of long lines.
const MAX_BYTES_IN_A_ROW: usize = 1024 * 1024;

/// Reads once into `lines`, however long it takes; returns the number of bytes.
pub async fn read_lines<R: AsyncRead + Unpin>(
    reader: &mut R,
    lines: &mut Lines,
) -> io::Result<usize> {
    if lines.has_spare() {
        match tokio::time::timeout(SPARE_BUFFER_TTL, reader.read_buf(lines.buffer())).await {
            Ok(read) => return read,
            Err(_) => lines.drop_spare(),
        }
    }
    reader.read_buf(lines.buffer()).await
}

/// How much of one peer was read since the last yield.
#[derive(Debug, Default)]
pub struct ReadBudget {
    lines: u32,
    bytes: usize,
}

impl ReadBudget {
    /// Counts bytes, and yields once there were enough.
    pub async fn read(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.yield_if_spent().await;
    }

    /// Counts a line, in the same way.
    pub async fn heard(&mut self) {
        self.lines += 1;
        self.yield_if_spent().await;
    }

    /// The runtime yields too, but counts reads, and one read may contain a thousand lines.
    async fn yield_if_spent(&mut self) {
        if self.lines >= MAX_LINES_IN_A_ROW || self.bytes >= MAX_BYTES_IN_A_ROW {
            *self = ReadBudget::default();
            tokio::task::yield_now().await;
        }
    }
}

/// Pipe capacity for large messages: at the usual 64 KiB, writer and reader of ten megabytes alternate 160 times, and that
/// waiting is most of what a large result costs. Memory is only used while the pipe is full.
#[cfg(target_os = "linux")]
const WIDE: i32 = 1024 * 1024;

/// Enlarges a pipe, where the system allows it; a refusal only costs time.
#[cfg(target_os = "linux")]
pub fn widen(pipe: impl std::os::fd::AsFd) {
    let _as_it_was = nix::fcntl::fcntl(pipe, nix::fcntl::FcntlArg::F_SETPIPE_SZ(WIDE));
}

#[cfg(not(target_os = "linux"))]
pub fn widen<T>(_pipe: T) {}

#[derive(Debug)]
pub enum Input {
    /// A FIFO.
    #[cfg(unix)]
    Pipe(tokio::net::unix::pipe::Receiver),
    /// One end of a socket pair.
    #[cfg(unix)]
    Socket(tokio::net::UnixStream),
    /// Anything that cannot be polled: read on a thread.
    Other(tokio::io::Stdin),
}

#[derive(Debug)]
pub enum Output {
    /// A FIFO.
    #[cfg(unix)]
    Pipe(tokio::net::unix::pipe::Sender),
    /// One end of a socket pair.
    #[cfg(unix)]
    Socket(tokio::net::UnixStream),
    /// Anything that cannot be polled: written on a thread.
    Other(tokio::io::Stdout),
}

/// Opens stdin. A FIFO is reopened through `/proc`, so that making it non-blocking does not affect other processes that
/// share it.
pub fn input() -> Input {
    #[cfg(unix)]
    {
        match kind(&io::stdin()) {
            Kind::Pipe => {
                let pipe =
                    tokio::net::unix::pipe::OpenOptions::new().open_receiver("/proc/self/fd/0");
                if let Ok(pipe) = pipe {
                    return Input::Pipe(pipe);
                }
            }
            Kind::Socket => {
                if let Ok(socket) = socket(&io::stdin()) {
                    return Input::Socket(socket);
                }
            }
            Kind::Other => {}
        }
    }
    Input::Other(tokio::io::stdin())
}

/// Opens stdout, in the same way.
pub fn output() -> Output {
    #[cfg(unix)]
    match kind(&io::stdout()) {
        Kind::Pipe => {
            let pipe = tokio::net::unix::pipe::OpenOptions::new().open_sender("/proc/self/fd/1");
            if let Ok(pipe) = pipe {
                widen(&pipe);
                return Output::Pipe(pipe);
            }
        }
        Kind::Socket => {
            if let Ok(socket) = socket(&io::stdout()) {
                return Output::Socket(socket);
            }
        }
        Kind::Other => {}
    }
    Output::Other(tokio::io::stdout())
}

/// Whether stdout still has a reader. A pipe reports that at once, without a byte written.
#[cfg(unix)]
pub fn has_reader() -> bool {
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let stdout = io::stdout();
    // No event is requested; a closed end is always reported.
    let mut ends = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let broken = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    match poll(&mut ends, PollTimeout::ZERO) {
        Ok(_) => !ends[0].revents().is_some_and(|seen| seen.intersects(broken)),
        Err(_) => true,
    }
}

/// Unknown here before something is written.
#[cfg(windows)]
pub fn has_reader() -> bool {
    true
}

#[cfg(unix)]
enum Kind {
    Pipe,
    Socket,
    Other,
}

#[cfg(unix)]
fn kind(fd: &impl std::os::fd::AsFd) -> Kind {
    use std::os::unix::fs::FileTypeExt;
    let Ok(owned) = fd.as_fd().try_clone_to_owned() else { return Kind::Other };
    match std::fs::File::from(owned).metadata().map(|meta| meta.file_type()) {
        Ok(kind) if kind.is_fifo() => Kind::Pipe,
        Ok(kind) if kind.is_socket() => Kind::Socket,
        _ => Kind::Other,
    }
}

#[cfg(unix)]
fn socket(fd: &impl std::os::fd::AsFd) -> io::Result<tokio::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd.as_fd().try_clone_to_owned()?);
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

impl AsyncRead for Input {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            #[cfg(unix)]
            Input::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buf),
            #[cfg(unix)]
            Input::Socket(socket) => Pin::new(socket).poll_read(cx, buf),
            Input::Other(other) => Pin::new(other).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Output {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            #[cfg(unix)]
            Output::Pipe(pipe) => Pin::new(pipe).poll_write(cx, buf),
            #[cfg(unix)]
            Output::Socket(socket) => Pin::new(socket).poll_write(cx, buf),
            Output::Other(other) => Pin::new(other).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            #[cfg(unix)]
            Output::Pipe(pipe) => Pin::new(pipe).poll_write_vectored(cx, slices),
            #[cfg(unix)]
            Output::Socket(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Output::Other(other) => {
                let first =
                    slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
                Pin::new(other).poll_write(cx, first)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        !matches!(self, Output::Other(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            #[cfg(unix)]
            Output::Pipe(pipe) => Pin::new(pipe).poll_flush(cx),
            #[cfg(unix)]
            Output::Socket(socket) => Pin::new(socket).poll_flush(cx),
            Output::Other(other) => Pin::new(other).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
