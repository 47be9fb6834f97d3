//! Exits of children: waiting for them, and whether any child is left.

#[cfg(not(target_os = "linux"))]
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
#[cfg(not(target_os = "linux"))]
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
#[cfg(target_os = "linux")]
use nix::{
    errno::Errno,
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

/// Elsewhere a kernel queue announces them, and forks of whom it watches.
#[cfg(not(target_os = "linux"))]
pub(super) struct ChildEnds {
    queue: Option<Kqueue>,
    forked: Cell<bool>,
    /// Whether somebody could not be watched, and so has to be polled.
    is_blind: Cell<bool>,
}

#[cfg(not(target_os = "linux"))]
impl ChildEnds {
    pub(super) fn new() -> ChildEnds {
        let queue = Kqueue::new().ok();
        let is_blind = Cell::new(queue.is_none());
        ChildEnds { queue, forked: Cell::new(false), is_blind }
    }

    /// Announces forks and the end of a process from now on.
    pub(super) fn watch(&self, pid: i32) {
        let Some(queue) = &self.queue else { return };
        let wanted = KEvent::new(
            pid.cast_unsigned() as usize,
            EventFilter::EVFILT_PROC,
            EvFlags::EV_ADD | EvFlags::EV_CLEAR,
            FilterFlag::NOTE_EXIT | FilterFlag::NOTE_FORK,
            0,
            0,
        );
        if queue.kevent(&[wanted], &mut [], Some(AT_ONCE)).is_err() {
            // It ended meanwhile, which nobody will announce.
            self.is_blind.set(true);
        }
    }

    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.queue.as_ref().map(|queue| PollFd::new(queue.as_fd(), PollFlags::POLLIN))
    }

    pub(super) fn clear(&self) {
        let Some(queue) = &self.queue else { return };
        let nothing =
            KEvent::new(0, EventFilter::EVFILT_PROC, EvFlags::empty(), FilterFlag::empty(), 0, 0);
        let mut events = [nothing; 32];
        while let Ok(count @ 1..) = queue.kevent(&[], &mut events, Some(AT_ONCE)) {
            if events[..count].iter().any(|event| event.fflags().contains(FilterFlag::NOTE_FORK)) {
                self.forked.set(true);
            }
        }
    }

    /// Whether anyone forked since this was last asked.
    pub(super) fn has_forked(&self) -> bool {
        self.forked.replace(false)
    }

    pub(super) fn round(&self) -> Option<Duration> {
        self.is_blind.get().then_some(REAP_INTERVAL)
    }
}

#[cfg(not(target_os = "linux"))]
const AT_ONCE: nix::libc::timespec = nix::libc::timespec { tv_sec: 0, tv_nsec: 0 };

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
