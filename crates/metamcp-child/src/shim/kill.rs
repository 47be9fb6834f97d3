//! Signals to a whole container.
//! Owns: which processes belong to it.      Never: signals anything outside the container.
//! In: how the container is separated.  Out: signals.
//! Tests: `tests/it/containment.rs`.

use std::collections::BTreeSet;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getpid};

use crate::processes;

/// What separates the container from the rest of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillScope {
    /// Descent from the shim.
    Plain,
    /// A process namespace whose init the shim is.
    Namespace,
}

/// How the tree is read: after a gateway was killed, all its shims do it at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Only where descendants usually are.
    Quick,
    /// Everywhere.
    Whole,
}

impl KillScope {
    /// Sends a signal to every process but the shim.
    pub(super) fn signal_all(self, signal: Signal, leader: Option<Pid>) {
        if self.is_alone() {
            kill(Pid::from_raw(-1), signal).ok();
            return;
        }
        for pid in below(leader, Look::Whole) {
            kill(pid, signal).ok();
        }
    }

    /// Kills every current process but the shim, and returns which. New forks
    /// are found by calling this again; whole groups go first because no fork escapes that.
    pub(super) fn kill_all(self, leader: Option<Pid>, look: Look) -> BTreeSet<Pid> {
        if self.is_alone() {
            kill(Pid::from_raw(-1), Signal::SIGKILL).ok();
            return BTreeSet::new();
        }
        let all = below(leader, look);
        // Every group but our own was made inside the container: a group belongs to one session, and
        // nobody can enter a session that is not theirs.
        let groups: BTreeSet<Pid> = all.iter().filter_map(|&pid| getpgid(Some(pid)).ok()).collect();
        for group in groups.into_iter().filter(|&group| group != getpgrp() && group.as_raw() > 1) {
            killpg(group, Signal::SIGKILL).ok();
        }
        for &pid in &all {
            kill(pid, Signal::SIGKILL).ok();
        }
        all.into_iter().collect()
    }

    /// Where orphans are not reparented to the shim, "no child left" says nothing of the others in the leader's
    /// group; they are killed with it.
    pub(super) fn kill_strays(self, leader: Pid) {
        if cfg!(not(target_os = "linux")) {
            killpg(leader, Signal::SIGKILL).ok();
        }
    }

    /// Whether "all processes" means only the namespace. The pid is checked again because
    /// the same call outside a namespace would kill every process of the user.
    fn is_alone(self) -> bool {
        self == KillScope::Namespace && getpid().as_raw() == 1
    }
}

/// Everything that descends from the shim. Where the system shows no process tree, the leader's group
/// is what is left to aim at.
fn below(leader: Option<Pid>, look: Look) -> Vec<Pid> {
    if cfg!(target_os = "linux") {
        let me = getpid().as_raw();
        let found = match look {
            Look::Quick => processes::younger_descendants(me),
            Look::Whole => processes::descendants(me),
        };
        found.into_iter().map(Pid::from_raw).collect()
    } else {
        leader.map(|leader| Pid::from_raw(-leader.as_raw())).into_iter().collect()
    }
}
