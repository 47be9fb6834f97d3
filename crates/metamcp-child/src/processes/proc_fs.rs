//! The process tree from `/proc`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;

use crate::activity::Usage;

/// Longer than the line of a process. Read in one piece: a file of unknown length would take six reads.
const LINE: usize = 1024;

/// The fields of `/proc/<pid>/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    /// CPU ticks of the process and of its children that were waited for.
    pub(crate) ticks: u64,
    /// Ticks between boot and the start of the process.
    pub(crate) started: u64,
}

/// What the kernel reports of a process; `None` once it is gone.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    let mut line = [0; LINE];
    let read = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    // A name may be any bytes; invalid UTF-8 is replaced, and not used.
    parse_stat(&String::from_utf8_lossy(&line[..read]))
}

fn parse_stat(line: &str) -> Option<Stat> {
    // The name is in parentheses and may contain anything, parentheses and spaces too.
    let (_, fields) = line.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        started: number(19)?,
    })
}

/// The children of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    if has_children_list() { listed(pid) } else { of(&family(all()), pid) }
}

/// The children of a process as the kernel lists them, over all its threads.
fn listed(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return found };
    for thread in threads.flatten() {
        // A thread that is gone meanwhile has none.
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

fn has_children_list() -> bool {
    fs::exists("/proc/thread-self/children").unwrap_or(false)
}

/// Processes with their parents, for kernels built without the list.
fn family(pids: Vec<i32>) -> Vec<(i32, i32)> {
    pids.into_iter().filter_map(|pid| Some((stat(pid)?.parent, pid))).collect()
}

fn of(family: &[(i32, i32)], parent: i32) -> Vec<i32> {
    family.iter().filter(|(of, _)| *of == parent).map(|&(_, pid)| pid).collect()
}

fn all() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Everything below a process, parents before their children.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    if has_children_list() {
        return below(root, listed);
    }
    // Reads every process, but once for the whole tree.
    let family = family(all());
    below(root, |parent| of(&family, parent))
}

/// The same among processes younger than `root`, as its descendants are until pids wrap around. If every process has to be
/// read, this skips most.
pub(crate) fn younger_descendants(root: i32) -> Vec<i32> {
    if has_children_list() {
        return below(root, listed);
    }
    let mut pids = all();
    pids.retain(|&pid| pid > root);
    let family = family(pids);
    below(root, |parent| of(&family, parent))
}

fn below(root: i32, children: impl Fn(i32) -> Vec<i32>) -> Vec<i32> {
    let mut found = children(root);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        for child in children(pid) {
            // A process that is reparented between two reads may appear twice.
            if !found.contains(&child) {
                found.push(child);
            }
        }
        next += 1;
    }
    found
}

/// What everything below a process has used.
pub(crate) fn usage_below(root: i32) -> BTreeMap<i32, Usage> {
    let usage = |pid| {
        Some((pid, Usage { ticks: stat(pid)?.ticks, io_bytes: io_bytes(pid), stderr_bytes: 0 }))
    };
    descendants(root).into_iter().filter_map(usage).collect()
}

/// Bytes read and written by a process, through any system call.
fn io_bytes(pid: i32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/io")) else { return 0 };
    text.lines()
        .filter_map(|line| line.strip_prefix("rchar: ").or_else(|| line.strip_prefix("wchar: ")))
        .filter_map(|number| number.parse::<u64>().ok())
        .sum()
}

/// The pid of a process inside its innermost namespace.
pub(crate) fn innermost_pid(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use super::{
        Stat, all, below, children, descendants, family, innermost_pid, of, parse_stat, stat,
        younger_descendants,
    };
    use std::process::{Command, Stdio};

    #[test]
    fn a_hostile_name_does_not_shift_the_fields() {
        let line = "12 (a) S 1 (b) R 7 12 9 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 555 6 7";
        let expected = Stat { state: 'R', parent: 7, session: 9, ticks: 100, started: 555 };
        assert_eq!(parse_stat(line), Some(expected));
        assert_eq!(parse_stat("12 (a"), None);
    }

    #[test]
    fn all_generations_are_found_once_and_a_loop_ends() {
        // Processes are reparented while the tree is read, so the result can be inconsistent.
        let family = [(1, 2), (2, 3), (3, 4), (4, 2), (1, 3), (9, 10)];
        assert_eq!(below(1, |parent| of(&family, parent)), [2, 3, 4]);
        assert_eq!(below(7, |parent| of(&family, parent)), [0; 0]);
    }

    #[test]
    fn a_child_is_found_below_its_parent() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & cat; kill $!"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (me, pid) = (std::process::id() as i32, child.id() as i32);
        assert!(children(me).contains(&pid));
        assert!(of(&family(all()), me).contains(&pid));
        assert!(descendants(me).contains(&pid));
        assert_eq!(younger_descendants(me).contains(&pid), pid > me);
        assert_eq!(stat(pid).unwrap().parent, me);
        assert_eq!(innermost_pid(pid), Some(pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(stat(pid), None);
    }
}
