//! Running processes: by process tree, by an inherited environment variable, and their resource usage.
//! Owns: reading /proc.  Never: trusts a process group; hostile children leave theirs.
//! In: a pid or a mark.  Out: processes.
//! Tests: below and `tests/it/hazards.rs`.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::patience::eventually;

/// The environment variable every process of a test carries, and passes on to what it starts.
pub const MARK: &str = "TESTKIT_MARK";

/// How long a process may take to stand still: until its current system call lets it.
const FREEZING: Duration = Duration::from_secs(10);

/// A process as /proc shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// `R`, `S`, `T`, `Z` and so on.
    pub state: char,
    /// Its command line, or its short name if it has none.
    pub command: String,
}

pub fn all() -> Vec<Process> {
    pids().filter_map(process).collect()
}

/// All running processes with this mark in their environment, wherever in the process tree.
pub fn marked(mark: &str) -> Vec<Process> {
    pids().filter(|&pid| is_marked(pid, mark)).filter_map(process).collect()
}

/// All running processes of a test: by their mark, or by a working directory inside `directory`, which also finds
/// those started without any environment.
pub fn of_test(mark: &str, directory: &Path) -> Vec<Process> {
    pids().filter(|&pid| is_of_test(pid, mark, directory)).filter_map(process).collect()
}

/// All running processes that have a file or folder below `folder` open.
pub fn holding_below(folder: &Path) -> Vec<Process> {
    let holds = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|path| path.starts_with(folder))
    };
    pids().filter(holds).filter_map(process).collect()
}

/// Waits for processes to exit without reading `/proc/<pid>`: reading it while a process is being reaped delays the
/// reaping process.
pub struct ExitWatch(Vec<OwnedFd>);

impl ExitWatch {
    /// Starts to watch these; one that has already exited needs no waiting.
    pub fn over(processes: &[Process]) -> ExitWatch {
        let descriptor = |one: &Process| {
            let pid = rustix::process::Pid::from_raw(i32::try_from(one.pid).ok()?)?;
            pidfd_open(pid, PidfdFlags::empty()).ok()
        };
        ExitWatch(processes.iter().filter_map(descriptor).collect())
    }

    /// True if all of them have exited before the deadline.
    pub fn all_ended_within(mut self, deadline: Duration) -> bool {
        let end = Instant::now() + deadline;
        while !self.0.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let mut watched: Vec<PollFd<'_>> =
                self.0.iter().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN)).collect();
            poll(&mut watched, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)).ok();
            let ended: Vec<bool> = watched.iter().map(|one| one.any().unwrap_or(true)).collect();
            let mut ended = ended.into_iter();
            self.0.retain(|_| !ended.next().unwrap_or(false));
        }
        true
    }
}

/// All descendants of a process, zombies included.
pub fn descendants(pid: u32) -> Vec<Process> {
    let all = all();
    let mut family = vec![pid];
    let mut found = Vec::new();
    while let Some(parent) = family.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            family.push(process.pid);
            found.push(process.clone());
        }
    }
    found
}

/// Kills each with SIGKILL; one that has already exited is ignored.
pub fn kill_all(processes: &[Process]) {
    for process in processes {
        if let Ok(pid) = i32::try_from(process.pid) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

/// Stops a process with SIGSTOP; returns whether it is stopped.
pub fn freeze(process: &Process) -> bool {
    if let Ok(pid) = i32::try_from(process.pid) {
        kill(Pid::from_raw(pid), Signal::SIGSTOP).ok();
    }
    let stands = || self::process(process.pid).is_some_and(|process| process.state == 'T');
    eventually(FREEZING, stands)
}

/// What a process has as its standard input, such as `pipe:[4711]`; the same in every process namespace.
pub fn input(pid: u32) -> Option<String> {
    Some(fs::read_link(format!("/proc/{pid}/fd/0")).ok()?.to_string_lossy().into_owned())
}

/// Resident memory in bytes, or `None` if the process is gone.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    status_kib(pid, "VmRSS:")
}

/// Peak resident memory in bytes.
pub fn peak_resident_bytes(pid: u32) -> Option<u64> {
    status_kib(pid, "VmHWM:")
}

/// Proportional memory in bytes: what is shared with others is divided among them.
pub fn proportional_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// The number of open file descriptors of a process.
pub fn open_files(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// CPU time of all threads that still exist, in nanosecond resolution.
pub fn processor_time(pid: u32) -> Option<Duration> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let nanoseconds = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    Some(Duration::from_nanos(nanoseconds))
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process that is exiting no longer has a working directory or an environment.
fn is_of_test(pid: u32, mark: &str, directory: &Path) -> bool {
    let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
    cwd.is_ok_and(|cwd| cwd.starts_with(directory)) || is_marked(pid, mark)
}

fn is_marked(pid: u32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| {
        let value = entry.strip_prefix(MARK.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value == Some(mark.as_bytes())
    })
}

fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain spaces and brackets; what follows the last bracket cannot.
    let (name, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let command = if line.is_empty() {
        name.split_once('(')?.1.to_owned()
    } else {
        line.trim_end().to_owned()
    };
    Some(Process { pid, parent, state, command })
}

fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_without_an_environment_is_found_by_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep")
            .arg("60")
            .env_clear()
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let found = of_test("no such mark", directory.path());
        assert_eq!(found.iter().map(|one| one.pid).collect::<Vec<_>>(), [child.id()]);
        assert!(!ExitWatch::over(&found).all_ended_within(Duration::from_millis(1)));
        let vigil = ExitWatch::over(&found);
        child.kill().unwrap();
        assert!(vigil.all_ended_within(Duration::from_secs(10)));
        child.wait().unwrap();
        assert!(ExitWatch::over(&found).all_ended_within(Duration::ZERO));
        assert_eq!(of_test("no such mark", directory.path()), []);
    }

    #[test]
    fn a_process_is_found_by_mark_and_by_family() {
        let mark = format!("census-{}", std::process::id());
        let mut child =
            Command::new("sleep").arg("60").env(MARK, &mark).stdin(Stdio::null()).spawn().unwrap();
        // Until it has called exec it still shows the parent's environment.
        assert!(eventually(Duration::from_secs(10), || marked(&mark).len() == 1));
        assert_eq!(marked(&mark)[0].pid, child.id());
        assert!(of_test(&mark, Path::new("/nowhere")).iter().any(|one| one.pid == child.id()));
        assert!(descendants(std::process::id()).iter().any(|process| process.pid == child.id()));
        assert!(resident_bytes(child.id()).unwrap() > 0);
        assert!(peak_resident_bytes(child.id()).unwrap() > 0);
        assert!(proportional_bytes(child.id()).unwrap() <= resident_bytes(child.id()).unwrap());
        assert!(open_files(child.id()).unwrap() >= 3);
        assert_eq!(input(child.id()).as_deref(), Some("/dev/null"));
        assert!(processor_time(child.id()).is_some());
        assert!(freeze(&marked(&mark)[0]));
        kill_all(&marked(&mark));
        child.wait().unwrap();
        assert_eq!(marked(&mark), []);
    }
}
