//! Who descends from the shim.
//! Owns: asking at the right moments, where that matters.      Never: signals anyone.
//! In: the process table.  Out: pids and groups.
//! Tests: `tests/it/containment.rs`; `family.rs` has the decisions of systems without a parent for orphans.

#[cfg(not(target_os = "linux"))]
mod followed;

#[cfg(target_os = "linux")]
use std::{collections::BTreeSet, time::Duration};

#[cfg(target_os = "linux")]
use nix::unistd::{Pid, getpgid, getpgrp, getpid};

#[cfg(not(target_os = "linux"))]
pub(super) use followed::Tree;

#[cfg(target_os = "linux")]
use super::{ends::ChildEnds, kill::Look};
#[cfg(target_os = "linux")]
use crate::{message::Start, processes};

/// On Linux orphans become the shim's children, so that reading the tree when it is needed is enough.
#[cfg(target_os = "linux")]
pub(super) struct Tree;

#[cfg(target_os = "linux")]
impl Tree {
    pub(super) fn of(_start: &Start) -> Tree {
        Tree
    }

    pub(super) fn follow(&mut self, _ends: &ChildEnds) {}

    /// When to follow again without an event.
    pub(super) fn due(&self) -> Option<Duration> {
        None
    }

    /// Everything that descends from the shim.
    pub(super) fn below(&mut self, look: Look) -> Vec<Pid> {
        let me = getpid().as_raw();
        let found = match look {
            Look::Quick => processes::younger_descendants(me),
            Look::Whole => processes::descendants(me),
        };
        found.into_iter().map(Pid::from_raw).collect()
    }

    /// Every group but our own was made inside the container: a group belongs to one session, and
    /// nobody can enter a session that is not theirs.
    pub(super) fn groups(&self, all: &[Pid]) -> BTreeSet<Pid> {
        let groups = all.iter().filter_map(|&pid| getpgid(Some(pid)).ok());
        groups.filter(|&group| group != getpgrp() && group.as_raw() > 1).collect()
    }

    /// Whether nothing is left, once the shim has no child: it would have inherited every orphan.
    pub(super) fn is_empty(&mut self) -> bool {
        true
    }
}
