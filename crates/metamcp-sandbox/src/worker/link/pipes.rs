//! The connection of a worker without the lockdown: standard input, read by a thread, and standard output.
//!
//! Not every system can wait for a pipe and a timer at once; a thread that blocks can be waited for anywhere. It is the
//! lifeline as well: whatever a script does, the process ends when the gateway closes the pipe or dies.

use std::io::{self, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::{Closed, PIECE};
use crate::protocol::Frames;
use crate::worker::DONE;

#[derive(Debug)]
pub(super) struct Pipes {
    arrived: Receiver<Vec<u8>>,
    to: Outward,
}

impl Pipes {
    #[expect(
        clippy::disallowed_methods,
        reason = "the gateway bounds what it sends before it is read, and must not wait for a script that computes"
    )]
    pub(super) fn new() -> io::Result<Pipes> {
        let (mut from, to) = standard()?;
        let (sender, arrived) = mpsc::channel();
        thread::Builder::new().name("lifeline".into()).spawn(move || {
            let mut piece = vec![0; PIECE];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                if sender.send(piece[..count].to_vec()).is_err() {
                    break;
                }
            }
            gone();
        })?;
        Ok(Pipes { arrived, to })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        self.to.write_all(bytes).map_err(|_| Closed::Gone)
    }

    /// Waits for bytes, at most for a time; whether there are some.
    pub(super) fn wait(
        &mut self,
        left: Option<Duration>,
        inbox: &mut Frames,
    ) -> Result<bool, Closed> {
        let piece = match left {
            Some(left) => self.arrived.recv_timeout(left),
            None => self.arrived.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match piece {
            Ok(piece) => inbox.push(&piece),
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => return Err(Closed::Gone),
        }
        Ok(true)
    }

    /// Takes what the thread has read.
    pub(super) fn take_arrived(&mut self, inbox: &mut Frames) {
        for piece in self.arrived.try_iter() {
            inbox.push(&piece);
        }
    }

    pub(super) fn linger(&mut self) {
        while self.arrived.recv().is_ok() {}
    }
}

/// Standard input and output without the buffers and locks that the library puts around them. No further descriptor is
/// opened: whatever is, is closed later.
#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "on Windows it can fail")]
fn standard() -> io::Result<(Inward, Outward)> {
    Ok((Inward, Outward))
}

#[cfg(unix)]
#[derive(Debug)]
struct Inward;

#[cfg(unix)]
#[derive(Debug)]
struct Outward;

#[cfg(unix)]
impl Read for Inward {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        loop {
            match nix::unistd::read(io::stdin(), piece) {
                Err(nix::errno::Errno::EINTR) => {}
                read => return Ok(read?),
            }
        }
    }
}

#[cfg(unix)]
impl Write for Outward {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // `write_all` tries again if it is interrupted.
        Ok(nix::unistd::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(windows)]
type Inward = std::fs::File;
#[cfg(windows)]
type Outward = std::fs::File;

#[cfg(windows)]
fn standard() -> io::Result<(Inward, Outward)> {
    use std::os::windows::io::AsHandle as _;
    let from = io::stdin().as_handle().try_clone_to_owned()?;
    let to = io::stdout().as_handle().try_clone_to_owned()?;
    Ok((from.into(), to.into()))
}

/// Ends the process from the thread that noticed: the other one may be in a script that never yields.
#[expect(clippy::exit, reason = "there is nobody left to return to")]
fn gone() {
    std::process::exit(DONE);
}
