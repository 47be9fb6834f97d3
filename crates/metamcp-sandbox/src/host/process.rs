//! The process of a worker: its CPU clock, how it is ended, and what its end means.

use std::io;
use std::process::{Child, ExitStatus};
use std::time::Duration;

#[cfg(target_os = "linux")]
use std::{os::fd::OwnedFd, sync::Arc};

#[cfg(target_os = "linux")]
use super::zygote::Zygote;

/// The process of a worker. Its owner reaps it.
#[derive(Debug)]
pub(super) enum Process {
    /// A child of this process.
    Own(Child, Containment),
    /// Forked from a zygote, which it keeps alive: pid, pidfd and that zygote.
    #[cfg(target_os = "linux")]
    Forked(i32, OwnedFd, Arc<Zygote>),
}

impl Process {
    pub(super) fn id(&self) -> u32 {
        match self {
            Process::Own(child, _) => child.id(),
            #[cfg(target_os = "linux")]
            Process::Forked(pid, ..) => pid.unsigned_abs(),
        }
    }

    /// Kills and reaps it. A process that has exited already keeps its own status.
    pub(super) fn reap(self) -> Option<ExitStatus> {
        match self {
            Process::Own(mut child, _) => {
                child.kill().ok();
                child.wait().ok()
            }
            #[cfg(target_os = "linux")]
            Process::Forked(pid, process, zygote) => zygote.reap(pid, &process),
        }
    }
}

/// What the gateway puts around a worker.
#[cfg(not(windows))]
#[derive(Debug)]
pub(super) struct Containment;

#[cfg(not(windows))]
impl Containment {
    /// Nothing here: a worker limits itself, and its layers say so.
    #[expect(clippy::unnecessary_wraps, reason = "on Windows it can fail")]
    pub(super) fn of(_child: &Child) -> io::Result<Containment> {
        Ok(Containment)
    }
}

/// A job object that ends the worker with the gateway, however that ends: the last handle to it is ours.
#[cfg(windows)]
#[derive(Debug)]
pub(super) struct Containment {
    _job: win32job::Job,
}

#[cfg(windows)]
impl Containment {
    pub(super) fn of(child: &Child) -> io::Result<Containment> {
        use std::os::windows::io::AsRawHandle as _;
        let mut limits = win32job::ExtendedLimitInfo::new();
        limits.limit_kill_on_job_close();
        let job = win32job::Job::create_with_limit_info(&limits).map_err(io::Error::other)?;
        job.assign_process(child.as_raw_handle() as isize).map_err(io::Error::other)?;
        Ok(Containment { _job: job })
    }
}

/// CPU time of a process so far; `None` if it cannot be read.
#[cfg(target_os = "linux")]
pub(super) fn processor_time(pid: u32) -> Option<Duration> {
    use nix::time::{clock_getcpuclockid, clock_gettime};
    let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

#[cfg(windows)]
pub(super) fn processor_time(pid: u32) -> Option<Duration> {
    use winsafe::{HPROCESS, co};
    let process = HPROCESS::OpenProcess(co::PROCESS::QUERY_LIMITED_INFORMATION, false, pid).ok()?;
    crate::run_clock::cpu_time_of(&process)
}

/// No safe way to ask: the kernel's limit on CPU time, which the worker sets for its script, stands in for this clock.
#[cfg(not(any(target_os = "linux", windows)))]
pub(super) fn processor_time(_pid: u32) -> Option<Duration> {
    None
}

/// Whether an error means that there are no descriptors left.
#[cfg(unix)]
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    use nix::errno::Errno;
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

#[cfg(windows)]
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    /// `ERROR_TOO_MANY_OPEN_FILES`, and `ERROR_NO_SYSTEM_RESOURCES`.
    const NONE_LEFT: [i32; 2] = [4, 1450];
    error.raw_os_error().is_some_and(|code| NONE_LEFT.contains(&code))
}

/// How a worker that reported no end died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Death {
    /// By the system's limit on CPU time.
    Cpu,
    /// Out of memory: an allocation outside of the engine's heap failed, or the system took the process.
    Memory(String),
    /// By a system call that is not allowed.
    Forbidden(String),
    /// By a fault.
    Fault(String),
    /// With an exit code, or nobody knows.
    Exit(Option<i32>),
}

impl Death {
    #[cfg(unix)]
    pub(super) fn of(status: Option<ExitStatus>) -> Death {
        use nix::sys::signal::Signal;
        use std::os::unix::process::ExitStatusExt as _;
        let signal = status
            .and_then(|status| status.signal())
            .and_then(|number| Signal::try_from(number).ok());
        match signal {
            Some(Signal::SIGXCPU) => Death::Cpu,
            // A failed allocation outside of the engine's heap aborts; the kernel's OOM killer kills.
            Some(signal @ (Signal::SIGABRT | Signal::SIGKILL)) => Death::Memory(signal.to_string()),
            Some(signal @ Signal::SIGSYS) => Death::Forbidden(signal.to_string()),
            Some(signal) => Death::Fault(signal.to_string()),
            None => Death::Exit(status.and_then(|status| status.code())),
        }
    }

    #[cfg(windows)]
    pub(super) fn of(status: Option<ExitStatus>) -> Death {
        /// `STATUS_NO_MEMORY`, `STATUS_COMMITMENT_LIMIT`, `STATUS_QUOTA_EXCEEDED`, `STATUS_STACK_BUFFER_OVERRUN`, which
        /// is what a failed allocation aborts with, and `ERROR_NOT_ENOUGH_QUOTA`.
        const MEMORY: [u32; 5] = [0xC000_0017, 0xC000_012D, 0xC000_0044, 0xC000_0409, 1816];
        /// From here on exit codes are errors of the system.
        const ERRORS: u32 = 0xC000_0000;
        match status.and_then(|status| status.code()) {
            Some(code) if MEMORY.contains(&code.cast_unsigned()) => {
                Death::Memory(format!("{code:#x}"))
            }
            Some(code) if code.cast_unsigned() >= ERRORS => Death::Fault(format!("{code:#x}")),
            code => Death::Exit(code),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn a_silent_death_is_told_by_its_signal() {
        let of = |raw| Death::of(Some(ExitStatus::from_raw(raw)));
        assert_eq!(of(Signal::SIGXCPU as i32), Death::Cpu);
        assert_eq!(of(Signal::SIGABRT as i32), Death::Memory("SIGABRT".into()));
        assert_eq!(of(Signal::SIGKILL as i32), Death::Memory("SIGKILL".into()));
        assert_eq!(of(Signal::SIGSYS as i32), Death::Forbidden("SIGSYS".into()));
        assert_eq!(of(Signal::SIGSEGV as i32), Death::Fault("SIGSEGV".into()));
        assert_eq!(of(70 << 8), Death::Exit(Some(70)));
        assert_eq!(Death::of(None), Death::Exit(None));
    }
}
