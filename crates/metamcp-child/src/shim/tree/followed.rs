//! Systems where orphans become init's: the table is read whenever somebody of the server forked, so that children are known
//! before they lose their parents.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getpid};

use crate::clock;
use crate::family::{self, Family};
use crate::message::Start;
use crate::processes;
use crate::shim::ends::ChildEnds;
use crate::shim::kill::Look;

/// How soon the table is read again after a fork while every look finds somebody new.
const SOON: Duration = Duration::from_millis(20);

/// The same while nobody new is found: a server that forks all day costs a look a second.
const LATE: Duration = Duration::from_secs(1);

pub(in crate::shim) struct Tree {
    family: Family,
    /// When the table is to be read next; nothing until somebody forks.
    next: Option<Instant>,
    last: Option<Instant>,
    pause: Duration,
}

impl Tree {
    pub(in crate::shim) fn of(start: &Start) -> Tree {
        let family = Family::new(Some(getpid().as_raw()), family::mark(&start.env));
        Tree { family, next: None, last: None, pause: SOON }
    }

    /// Reads the table if somebody forked and the last look is long enough ago.
    pub(in crate::shim) fn follow(&mut self, ends: &ChildEnds) {
        let now = clock::now();
        if ends.has_forked() && self.next.is_none() {
            self.next = Some(self.last.map_or(now, |last| now.max(last + self.pause)));
        }
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        let new = self.family.see(&processes::table());
        self.pause = if new.is_empty() { (self.pause * 2).min(LATE) } else { SOON };
        // A child of somebody who is watched only from now on may have forked before.
        self.next = (!new.is_empty()).then(|| clock::now() + self.pause);
        self.last = Some(clock::now());
        new.into_iter().for_each(|pid| ends.watch(pid));
    }

    pub(in crate::shim) fn due(&self) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(clock::now()))
    }

    /// Everything known to belong to the server.
    pub(in crate::shim) fn below(&mut self, _look: Look) -> Vec<Pid> {
        self.family.see(&processes::table());
        self.family.members().map(Pid::from_raw).collect()
    }

    pub(in crate::shim) fn groups(&self, _all: &[Pid]) -> BTreeSet<Pid> {
        self.family.groups().map(Pid::from_raw).collect()
    }

    pub(in crate::shim) fn is_empty(&mut self) -> bool {
        self.below(Look::Whole).is_empty()
    }
}
