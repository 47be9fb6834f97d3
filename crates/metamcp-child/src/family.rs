//! The processes of one server where orphans become init's: everything seen below its shim, in a group that one of them
//! made, or with the server's mark in its environment.
//! Owns: who belongs to it.      Never: reads the table, signals anyone.
//! In: process tables, in the order they were read.  Out: pids and groups.
//! Tests: below.
//!
//! A process that is looked at between its fork and its parent's end is known from then on, whatever becomes of the parent.
//! One that leaves its session, its group and its parent before anybody looks still has the environment it was born with,
//! where the mark is. Who also takes that off escapes; docs/platforms.md says so.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use crate::processes::table::Entry;

/// The variable that marks the processes of a server.
pub(crate) const MARK: &str = "METAMCP_SERVER";

/// The mark among the variables of a server, as its processes show it.
pub(crate) fn mark(env: &[(OsString, OsString)]) -> Option<String> {
    let (_, value) = env.iter().find(|(name, _)| name == MARK)?;
    Some(format!("{MARK}={}", value.to_str()?))
}

#[derive(Debug)]
pub(crate) struct Family {
    /// The shim, if it lives: what it started belongs to the server, it itself does not.
    shim: Option<i32>,
    /// The assignment that marks it.
    mark: Option<String>,
    /// Each with its start, which tells it from a later process of the same number.
    members: BTreeMap<i32, String>,
    groups: BTreeSet<i32>,
}

impl Family {
    pub(crate) fn new(shim: Option<i32>, mark: Option<String>) -> Family {
        Family { shim, mark, members: BTreeMap::new(), groups: BTreeSet::new() }
    }

    /// Adds the group of a server whose shim is gone, as far as it is still there.
    pub(crate) fn has_group(&mut self, group: i32) {
        if group > 1 {
            self.groups.insert(group);
        }
    }

    /// Takes in a table; returns who is new.
    pub(crate) fn see(&mut self, table: &[Entry]) -> Vec<i32> {
        let is_there = |pid: &i32, started: &mut String| {
            table.iter().any(|entry| entry.pid == *pid && entry.started == *started)
        };
        self.members.retain(is_there);
        let mut new = Vec::new();
        loop {
            let before = new.len();
            for entry in table {
                if !self.members.contains_key(&entry.pid) && self.belongs(entry) {
                    self.members.insert(entry.pid, entry.started.clone());
                    // What is still in the shim's group is about to leave it.
                    if entry.group > 1 && self.shim != Some(entry.group) {
                        self.groups.insert(entry.group);
                    }
                    new.push(entry.pid);
                }
            }
            if new.len() == before {
                break;
            }
        }
        // A number without a process may come back as somebody else's.
        self.groups.retain(|group| table.iter().any(|entry| entry.group == *group));
        new
    }

    fn belongs(&self, entry: &Entry) -> bool {
        entry.pid > 1
            && self.shim != Some(entry.pid)
            && (self.shim == Some(entry.parent)
                || self.members.contains_key(&entry.parent)
                || self.groups.contains(&entry.group)
                || self.mark.as_ref().is_some_and(|mark| entry.has(mark)))
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = i32> {
        self.members.keys().copied()
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = i32> {
        self.groups.iter().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, MARK, mark};
    use crate::processes::table::{Entry, parse};

    const SHIM: i32 = 700;

    /// Lines of pid, parent, group and environment.
    fn table(lines: &[(i32, i32, i32, &str)]) -> Vec<Entry> {
        let others = [(1, 0, 1, "launchd"), (500, 1, 500, "shell"), (SHIM, 500, SHIM, "shim")];
        let line = |(pid, parent, group, command): &(i32, i32, i32, &str)| {
            format!("{pid} {parent} {group} 0:00.00 Thu Nov 19 03:56:52 2026 {command}\n")
        };
        parse(&others.iter().chain(lines).map(line).collect::<String>())
    }

    fn family() -> Family {
        Family::new(Some(SHIM), Some(format!("{MARK}=ab12")))
    }

    fn members(family: &Family) -> Vec<i32> {
        family.members().collect()
    }

    #[test]
    fn all_below_the_shim_belong_and_nobody_else() {
        let mut family = family();
        let lines = [(801, 710, 710, "b"), (710, SHIM, 710, "a"), (501, 500, 500, "another")];
        let mut new = family.see(&table(&lines));
        new.sort_unstable();
        assert_eq!((new, members(&family)), (vec![710, 801], vec![710, 801]));
        assert_eq!(family.groups().collect::<Vec<_>>(), [710]);
        assert_eq!(family.see(&table(&lines)), [0; 0], "nobody is new");
    }

    #[test]
    fn an_orphan_that_was_seen_is_known_for_good() {
        let mut family = family();
        family.see(&table(&[(710, SHIM, 710, "a"), (720, 710, 720, "b"), (730, 720, 720, "c")]));
        // Both above it ended; it changed its group too.
        assert_eq!(family.see(&table(&[(730, 1, 730, "c")])), [0; 0]);
        assert_eq!(members(&family), [730]);
        assert_eq!(family.see(&table(&[(730, 1, 730, "c"), (731, 730, 730, "d")])), [731]);
    }

    #[test]
    fn an_orphan_that_nobody_saw_is_known_by_its_group_or_its_mark() {
        let mut family = family();
        family.see(&table(&[(710, SHIM, 710, "a")]));
        let daemon = (740, 1, 739, "daemon HOME=/ METAMCP_SERVER=ab12");
        let others = (741, 1, 741, "other METAMCP_SERVER=cd34");
        let all = [(710, SHIM, 710, "a"), (712, 1, 710, "left behind"), daemon, others];
        assert_eq!(family.see(&table(&all)), [712, 740]);
        // From its group others are known who took off the mark.
        assert_eq!(family.see(&table(&[daemon, (750, 1, 739, "x")])), [750]);
    }

    #[test]
    fn a_number_that_comes_back_is_somebody_else() {
        let mut family = family();
        family.see(&table(&[(710, SHIM, 710, "a")]));
        assert_eq!(family.see(&table(&[])), [0; 0]);
        assert!(family.is_empty());
        let later = "710 1 710 0:00.00 Thu Nov 19 04:00:00 2026 a letter\n";
        assert_eq!(family.see(&parse(later)), [0; 0], "the group was let go with its last process");
    }

    #[test]
    fn the_shim_its_parents_and_the_first_process_never_belong() {
        let mut family = family();
        family.see(&table(&[(710, SHIM, SHIM, "not yet in a session of its own")]));
        assert_eq!((members(&family), family.groups().count()), (vec![710], 0));
        family.has_group(1);
        assert_eq!(family.groups().count(), 0);
    }

    #[test]
    fn the_mark_is_looked_for_as_it_was_given() {
        let env =
            [("PATH", "/bin"), (MARK, "ab12")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(mark(&env).as_deref(), Some("METAMCP_SERVER=ab12"));
        assert_eq!(mark(&env[..1]), None);
    }

    #[test]
    fn what_a_dead_shim_left_is_found_by_group_and_mark() {
        let mut family = Family::new(None, Some(format!("{MARK}=ab12")));
        family.has_group(710);
        let left = [(711, 1, 710, "a"), (900, 1, 900, "b METAMCP_SERVER=ab12"), (901, 1, 901, "c")];
        assert_eq!(family.see(&table(&left)), [711, 900]);
    }
}
