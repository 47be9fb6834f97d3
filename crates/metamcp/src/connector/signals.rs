//! Signals that end the process, as something that can be polled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};

/// SIGTERM, SIGINT and SIGHUP, from now on held back and counted here.
#[derive(Debug)]
pub(super) struct Signals {
    fd: OwnedFd,
}

impl Signals {
    #[cfg(target_os = "linux")]
    pub(super) fn new() -> io::Result<Signals> {
        use nix::sys::signalfd::{SfdFlags, SignalFd};
        let set = held()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags)?;
        // Read as bytes, one record each: which of the signals it was makes no difference.
        Ok(Signals { fd: signals.as_fd().try_clone_to_owned()? })
    }

    /// A thread waits for them and writes a byte for each.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn new() -> io::Result<Signals> {
        use std::io::Write;
        let set = held()?;
        let (mut tell, heard) = std::os::unix::net::UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            while set.wait().is_ok() && tell.write_all(&[0; RECORD]).is_ok() {}
        })?;
        Ok(Signals { fd: heard.into() })
    }

    /// How many arrived since this was last asked.
    pub(super) fn arrived(&self) -> usize {
        let mut records = [0; RECORD * 4];
        nix::unistd::read(&self.fd, &mut records).map_or(0, |count| count / RECORD)
    }
}

/// Size of what is read for each.
const RECORD: usize = 128;

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn held() -> io::Result<SigSet> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(set)
}
