//! Standard output in pieces: splitting a line, and writing it.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes written by one system call, and how long to wait after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub bytes: Vec<u8>,
    pub pause: Duration,
}

impl Piece {
    pub(super) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), pause: Duration::ZERO }
    }
}

/// The child's stdout: unbuffered, one line at a time.
#[derive(Debug, Default)]
pub(super) struct Output {
    turn: Mutex<()>,
}

impl Output {
    /// Writes pieces without letting another thread's line in between.
    pub(super) fn write(&self, pieces: &[Piece]) -> io::Result<()> {
        self.exclusively(|raw| {
            for piece in pieces {
                raw.write_all(&piece.bytes)?;
                if !piece.pause.is_zero() {
                    thread::sleep(piece.pause);
                }
            }
            Ok(())
        })
    }

    /// Locks stdout for `write`, for something too large to hold in memory.
    pub(super) fn exclusively<T>(&self, write: impl FnOnce(&mut RawStdout) -> T) -> T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut RawStdout)
    }
}

/// File descriptor 1 without a buffer, because Rust's own stdout is line-buffered.
pub(super) struct RawStdout;

impl Write for RawStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
