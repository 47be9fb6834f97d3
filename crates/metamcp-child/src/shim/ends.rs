//! Exits of children: waiting for them, and whether any child is left.

#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::PollFd;
#[cfg(target_os = "linux")]
use nix::{
    errno::Errno,
    poll::PollFlags,
    sys::signal::{SigSet, Signal},
    sys::wait::{Id, WaitPidFlag, waitid},
};

/// How often exits are polled where no descriptor announces them.
const REAP_INTERVAL: Duration = Duration::from_millis(20);

/// Exits of children as something to wait for.
#[cfg(target_os = "linux")]
pub(super) struct ChildEnds(Option<nix::sys::signalfd::SignalFd>);

#[cfg(target_os = "linux")]
impl ChildEnds {
    pub(super) fn new() -> ChildEnds {
        use nix::sys::signalfd::{SfdFlags, SignalFd};
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        ChildEnds(SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok())
    }

    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.0.as_ref().map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN))
    }

    pub(super) fn clear(&self) {
        if let Some(signals) = &self.0 {
            while let Ok(Some(_)) = signals.read_signal() {}
        }
    }

    pub(super) fn round(&self) -> Option<Duration> {
        self.0.is_none().then_some(REAP_INTERVAL)
    }
}

/// Elsewhere they are polled.
#[cfg(not(target_os = "linux"))]
pub(super) struct ChildEnds;

#[cfg(not(target_os = "linux"))]
impl ChildEnds {
    pub(super) fn new() -> ChildEnds {
        ChildEnds
    }

    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        None
    }

    pub(super) fn clear(&self) {}

    pub(super) fn round(&self) -> Option<Duration> {
        Some(REAP_INTERVAL)
    }
}

/// Whether no child is left, without reaping any.
#[cfg(target_os = "linux")]
pub(super) fn has_no_child() -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, look) == Err(Errno::ECHILD)
}

/// Elsewhere only reaping shows that.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_no_child() -> bool {
    false
}
