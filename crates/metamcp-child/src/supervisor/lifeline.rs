//! A pipe that closes with this process, and before the rest of it.
//! Owns: one sleeping thread.      Never: writes to the pipe; closing it is the message.
//! In: nothing.  Out: the end that every shim watches.
//! Tests: below; `metamcp/tests/promises/kill.rs`.
//!
//! A killed process closes its descriptors only after the last of its threads has freed all memory, which takes
//! milliseconds of a core that twenty servers may be busy on. A thread with its own descriptor table frees
//! that table as it ends, and it has nothing else to do.

use std::io::{self, PipeReader};
#[cfg(target_os = "linux")]
use std::{
    fs,
    os::fd::{AsRawFd, RawFd},
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
};

/// Stack of the thread, which sleeps.
#[cfg(target_os = "linux")]
const STACK: usize = 64 * 1024;

/// The pipe, for as long as this is held.
pub(super) struct Lifeline {
    /// What shims watch.
    pub(super) reader: PipeReader,
    /// The thread ends with this.
    #[cfg(target_os = "linux")]
    _held: SyncSender<()>,
}

#[cfg(target_os = "linux")]
impl Lifeline {
    /// Nothing where the system does not allow a thread its own descriptors; the control sockets do the same, later.
    pub(super) fn start() -> io::Result<Option<Lifeline>> {
        let (reader, writer) = io::pipe()?;
        let (held, until) = mpsc::sync_channel(0);
        let (tell, told) = mpsc::sync_channel(1);
        let number = writer.as_raw_fd();
        thread::Builder::new()
            .name("lifeline".into())
            .stack_size(STACK)
            .spawn(move || hold(number, &tell, &until))?;
        // From here on the thread has its own copy of the end, or has ended. Ours would keep the pipe open.
        let alone = told.recv().is_ok();
        drop(writer);
        Ok(alone.then_some(Lifeline { reader, _held: held }))
    }
}

/// Holds one descriptor and nothing else until the other side lets go or the process ends.
#[cfg(target_os = "linux")]
fn hold(number: RawFd, tell: &SyncSender<()>, until: &Receiver<()>) {
    use nix::sched::{CloneFlags, unshare};
    if unshare(CloneFlags::CLONE_FILES).is_err() {
        return;
    }
    // Copies held here would hide the end of other streams from their readers.
    let Ok(listed) = fs::read_dir("/proc/thread-self/fd") else { return };
    let listed: Vec<RawFd> = listed
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&descriptor| descriptor != number)
        .collect();
    for descriptor in listed {
        // The listing's own descriptor is in the list and closed already.
        nix::unistd::close(descriptor).ok();
    }
    if tell.send(()).is_ok() {
        // Nothing is ever sent: an error ends this.
        until.recv().ok();
    }
}

#[cfg(not(target_os = "linux"))]
impl Lifeline {
    /// Elsewhere threads share their descriptors.
    #[expect(clippy::unnecessary_wraps, reason = "as where it can fail")]
    pub(super) fn start() -> io::Result<Option<Lifeline>> {
        Ok(None)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::Lifeline;

    #[test]
    fn the_pipe_ends_when_it_is_let_go_and_holds_no_other_open() {
        let (mut other, writer) = std::io::pipe().unwrap();
        let lifeline = Lifeline::start().unwrap().unwrap();
        drop(writer);
        // Were a copy left in the thread, this would wait for ever.
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        let mut reader = lifeline.reader.try_clone().unwrap();
        let mut watched = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut watched, PollTimeout::ZERO), Ok(0), "it is held");
        drop(lifeline);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
}
