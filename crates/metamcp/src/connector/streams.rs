//! Our stdin and stdout, whatever the client connected, without waiting for it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use nix::fcntl::OFlag;
use nix::sys::socket::{MsgFlags, send};

/// What a pipe takes without waiting once it says that it takes something.
const ATOMIC: usize = 512;

/// Where lines for the client go.
#[derive(Debug)]
pub(super) enum Output {
    /// A FIFO, opened once more: making the client's own end non-blocking would affect whoever shares it.
    Pipe(File),
    Socket(io::Stdout),
    /// A FIFO that cannot be opened: written in parts that it has room for.
    Narrow(io::Stdout),
    /// A terminal or a file.
    Other(io::Stdout),
}

impl Output {
    pub(super) fn open() -> Output {
        let stdout = io::stdout();
        let owned = stdout.as_fd().try_clone_to_owned().map(File::from);
        let Ok(kind) = owned.and_then(|file| file.metadata()).map(|found| found.file_type()) else {
            return Output::Other(stdout);
        };
        if kind.is_socket() {
            return Output::Socket(stdout);
        }
        if !kind.is_fifo() {
            return Output::Other(stdout);
        }
        let flags = OFlag::O_NONBLOCK.bits();
        match OpenOptions::new().write(true).custom_flags(flags).open("/proc/self/fd/1") {
            Ok(pipe) => {
                metamcp_engine::stream::widen(&pipe);
                Output::Pipe(pipe)
            }
            Err(_) => Output::Narrow(stdout),
        }
    }

    /// Writes what there is room for.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self {
            Output::Pipe(pipe) => nix::unistd::write(pipe, bytes),
            Output::Socket(stdout) => send(stdout.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT),
            Output::Narrow(stdout) => {
                nix::unistd::write(stdout, &bytes[..bytes.len().min(ATOMIC)])
            }
            Output::Other(stdout) => nix::unistd::write(stdout, bytes),
        };
        Ok(written?)
    }

    /// Whether a write may only follow the word that there is room.
    pub(super) fn must_be_asked(&self) -> bool {
        matches!(self, Output::Narrow(_))
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Output::Pipe(pipe) => pipe.as_fd(),
            Output::Socket(stdout) | Output::Narrow(stdout) | Output::Other(stdout) => {
                stdout.as_fd()
            }
        }
    }
}
