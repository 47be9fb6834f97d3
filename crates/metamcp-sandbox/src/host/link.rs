//! The gateway's end of the connection to a worker: a socket, or two pipes.
//!
//! A pipe cannot be waited for together with anything else on every system, so each has a thread that blocks in its
//! place. Both queues are short: a worker that does not read, or a run that does not, stops the other side as a full
//! socket does.

use std::io::{self, Read, Write};
use std::thread;

#[cfg(target_os = "linux")]
use tokio::io::AsyncReadExt as _;
#[cfg(target_os = "linux")]
use tokio::net::UnixStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::workers::PIECE;

/// Pieces of at most [`PIECE`] bytes that wait in each direction. Two keep both sides busy.
const MAX_PIECES: usize = 2;

/// Stack of a thread that copies: a buffer on the heap, and the system call.
const STACK: usize = 128 * 1024;

/// The connection to a worker.
#[derive(Debug)]
pub(super) enum Link {
    /// One socket.
    #[cfg(target_os = "linux")]
    Socket(UnixStream),
    /// Standard input and output of the worker.
    Pipes(FromPipe, ToPipe),
}

/// The receiving half.
pub(super) enum Inward<'a> {
    #[cfg(target_os = "linux")]
    Socket(tokio::net::unix::ReadHalf<'a>),
    Pipe(&'a mut FromPipe),
}

/// The sending half.
pub(super) enum Outward<'a> {
    #[cfg(target_os = "linux")]
    Socket(tokio::net::unix::WriteHalf<'a>),
    Pipe(&'a ToPipe),
}

impl Link {
    /// A connection through the two pipes of a child.
    pub(super) fn pipes(
        from: impl Read + Send + 'static,
        to: impl Write + Send + 'static,
    ) -> io::Result<Link> {
        Ok(Link::Pipes(FromPipe::new(from)?, ToPipe::new(to)?))
    }

    pub(super) fn halves(&mut self) -> (Inward<'_>, Outward<'_>) {
        match self {
            #[cfg(target_os = "linux")]
            Link::Socket(socket) => {
                let (inward, outward) = socket.split();
                (Inward::Socket(inward), Outward::Socket(outward))
            }
            Link::Pipes(from, to) => (Inward::Pipe(from), Outward::Pipe(to)),
        }
    }

    /// Writes what fits.
    ///
    /// # Errors
    /// `WouldBlock` if nothing does; any other if the worker has closed its end.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            #[cfg(target_os = "linux")]
            Link::Socket(socket) => socket.try_write(bytes),
            Link::Pipes(_, to) => to.try_write(bytes),
        }
    }

    /// Whether the worker has closed nothing and sent nothing.
    pub(super) fn is_quiet(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Link::Socket(socket) => matches!(
                socket.try_read(&mut [0]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock
            ),
            Link::Pipes(from, _) => from.is_quiet(),
        }
    }
}

impl Inward<'_> {
    /// Reads some bytes; zero once the worker has closed its end. Nothing is lost if this is dropped.
    pub(super) async fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            #[cfg(target_os = "linux")]
            Inward::Socket(socket) => socket.read(piece).await,
            Inward::Pipe(from) => Ok(from.read(piece).await),
        }
    }
}

impl Outward<'_> {
    /// Waits until something can be written, or the worker has closed its end.
    pub(super) async fn writable(&self) {
        match self {
            #[cfg(target_os = "linux")]
            // An error shows in the write that follows.
            Outward::Socket(socket) => drop(socket.writable().await),
            Outward::Pipe(to) => drop(to.pieces.reserve().await),
        }
    }
}

/// What a worker writes.
#[derive(Debug)]
pub(super) struct FromPipe {
    pieces: Receiver<Vec<u8>>,
    /// The rest of a piece that did not fit where it was read to.
    rest: Vec<u8>,
}

impl FromPipe {
    fn new(mut from: impl Read + Send + 'static) -> io::Result<FromPipe> {
        let (sender, pieces) = mpsc::channel(MAX_PIECES);
        thread::Builder::new().name("sandbox-read".into()).stack_size(STACK).spawn(move || {
            let mut piece = vec![0; PIECE];
            // Ends with the worker, which is killed when its run is over.
            while let Ok(count @ 1..) = from.read(&mut piece) {
                if sender.blocking_send(piece[..count].to_vec()).is_err() {
                    return;
                }
            }
        })?;
        Ok(FromPipe { pieces, rest: Vec::new() })
    }

    async fn read(&mut self, piece: &mut [u8]) -> usize {
        if self.rest.is_empty() {
            match self.pieces.recv().await {
                Some(next) => self.rest = next,
                None => return 0,
            }
        }
        let count = self.rest.len().min(piece.len());
        piece[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        count
    }

    fn is_quiet(&self) -> bool {
        self.rest.is_empty() && self.pieces.is_empty() && !self.pieces.is_closed()
    }
}

/// What a worker reads.
#[derive(Debug)]
pub(super) struct ToPipe {
    pieces: Sender<Vec<u8>>,
}

impl ToPipe {
    fn new(mut to: impl Write + Send + 'static) -> io::Result<ToPipe> {
        let (pieces, mut orders) = mpsc::channel::<Vec<u8>>(MAX_PIECES);
        thread::Builder::new().name("sandbox-write".into()).stack_size(STACK).spawn(move || {
            while let Some(piece) = orders.blocking_recv() {
                if to.write_all(&piece).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
        })?;
        Ok(ToPipe { pieces })
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.pieces.try_reserve() {
            Ok(place) => {
                let count = bytes.len().min(PIECE);
                place.send(bytes[..count].to_vec());
                Ok(count)
            }
            Err(TrySendError::Full(())) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TrySendError::Closed(())) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn what_a_worker_wrote_is_read_in_any_pieces_and_then_its_end() {
        let (from, mut worker) = io::pipe().unwrap();
        let (gone, to) = io::pipe().unwrap();
        let mut link = Link::pipes(from, to).unwrap();
        assert!(link.is_quiet());
        let all: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        let expected = all.clone();
        let writer = thread::spawn(move || worker.write_all(&all));
        let mut found = Vec::new();
        runtime().block_on(async {
            let (mut inward, _) = link.halves();
            let mut piece = [0; 4096];
            while let count @ 1.. = inward.read(&mut piece).await.unwrap() {
                found.extend_from_slice(&piece[..count]);
            }
        });
        writer.join().unwrap().unwrap();
        assert!(found == expected);
        assert!(!link.is_quiet(), "its end is closed");
        drop(gone);
        // The thread notices at its next write.
        let refused = runtime().block_on(async {
            loop {
                match link.try_write(b"x") {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
                    _ => link.halves().1.writable().await,
                }
            }
        });
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_worker_that_does_not_read_takes_little_and_one_that_does_takes_all() {
        let (from, worker) = io::pipe().unwrap();
        let (mut reader, to) = io::pipe().unwrap();
        let mut link = Link::pipes(from, to).unwrap();
        let all = vec![7; 8 * 1024 * 1024];
        let mut sent = 0;
        while let Ok(count) = link.try_write(&all[sent..]) {
            sent += count;
        }
        assert!(sent < all.len() / 2, "{sent} bytes are waiting");
        let reading = thread::spawn(move || {
            let mut found = Vec::new();
            reader.read_to_end(&mut found).map(|_| found)
        });
        runtime().block_on(async {
            while sent < all.len() {
                match link.try_write(&all[sent..]) {
                    Ok(count) => sent += count,
                    Err(_) => link.halves().1.writable().await,
                }
            }
        });
        drop((link, worker));
        assert!(reading.join().unwrap().unwrap() == all);
    }
}
