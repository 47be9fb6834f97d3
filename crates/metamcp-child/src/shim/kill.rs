//! Signals to a whole container.
//! Owns: which processes belong to it.      Never: signals anything outside the container.
//! In: how the container is separated.  Out: signals.
//! Tests: `tests/it/containment.rs`.

use std::collections::BTreeSet;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpid};

use super::tree::Tree;

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
    pub(super) fn signal_all(self, signal: Signal, tree: &mut Tree) {
        if self.is_alone() {
            kill(Pid::from_raw(-1), signal).ok();
            return;
        }
        for pid in tree.below(Look::Whole) {
            kill(pid, signal).ok();
        }
    }

    /// Kills every current process but the shim, and returns which. New forks
    /// are found by calling this again; whole groups go first because no fork escapes that.
    pub(super) fn kill_all(self, tree: &mut Tree, look: Look) -> BTreeSet<Pid> {
        if self.is_alone() {
            kill(Pid::from_raw(-1), Signal::SIGKILL).ok();
            return BTreeSet::new();
        }
        let all = tree.below(look);
        for group in tree.groups(&all) {
            killpg(group, Signal::SIGKILL).ok();
        }
        for &pid in &all {
            kill(pid, Signal::SIGKILL).ok();
        }
        all.into_iter().collect()
    }

    /// Whether "all processes" means only the namespace. The pid is checked again because
    /// the same call outside a namespace would kill every process of the user.
    fn is_alone(self) -> bool {
        self == KillScope::Namespace && getpid().as_raw() == 1
    }
}
