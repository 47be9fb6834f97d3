//! Job objects: the gateway's own, and one for each server inside it.
//! Owns: their limits, who is in them, memory of all in one.      Never: starts a server.
//! In: processes.  Out: what is left of a job.
//! Tests: `cargo xtask test --windows`.

use std::collections::HashMap;
use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::os::windows::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};
use win32job::{ExtendedLimitInfo, Job};

/// Starts a process outside of the jobs of its parent, where these let it.
const CREATE_BREAKAWAY_FROM_JOB: u32 = 0x0100_0000;

/// The job of this process, whose only handle ends with it.
static OURS: Mutex<Option<Job>> = Mutex::new(None);

/// Puts this process into a job that is killed with it. What it starts itself may leave that job, by request
/// ([`start_outliving`]); a server may not, because its own job forbids it.
pub(super) fn contain_this_process() -> io::Result<()> {
    let mut ours = OURS.lock();
    if ours.is_none() {
        let mut limits = ExtendedLimitInfo::new();
        limits.limit_kill_on_job_close().limit_breakaway_ok();
        let job = Job::create_with_limit_info(&limits).map_err(io::Error::from)?;
        job.assign_current_process().map_err(io::Error::from)?;
        *ours = Some(job);
    }
    Ok(())
}

/// See the twin for other systems. A job around ours may forbid that; then it ends with that job.
pub fn start_outliving(command: &mut Command) -> io::Result<Child> {
    let started = command.creation_flags(CREATE_BREAKAWAY_FROM_JOB).spawn();
    match started {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            command.creation_flags(0).spawn()
        }
        started => started,
    }
}

/// The job of one server.
#[derive(Debug)]
pub(super) struct ServerJob {
    job: Job,
}

impl ServerJob {
    pub(super) fn new() -> io::Result<ServerJob> {
        let mut limits = ExtendedLimitInfo::new();
        limits.limit_kill_on_job_close();
        Ok(ServerJob { job: Job::create_with_limit_info(&limits).map_err(io::Error::from)? })
    }

    /// Takes a process in, with everything that it starts from now on.
    pub(super) fn take(&self, process: std::os::windows::io::BorrowedHandle<'_>) -> io::Result<()> {
        self.job.assign_process(process.as_raw_handle() as isize).map_err(io::Error::from)
    }

    /// Whether nothing is left in it. If that cannot be said, something is.
    pub(super) fn is_empty(&self) -> bool {
        self.job.query_process_id_list().is_ok_and(|pids| pids.is_empty())
    }

    fn pids(&self) -> Vec<Pid> {
        let pids = self.job.query_process_id_list().unwrap_or_default();
        pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).map(Pid::from_u32).collect()
    }

    /// A number that changes with the processes in the job and the processor time they used.
    pub(super) fn activity(&self) -> u64 {
        let pids = self.pids();
        let system = looked_at(&pids, ProcessRefreshKind::nothing().with_cpu());
        let of = |pid: &Pid| {
            let used = system.process(*pid).map_or(0, sysinfo::Process::accumulated_cpu_time);
            u64::from(pid.as_u32()).wrapping_mul(1 << 32).wrapping_add(used)
        };
        pids.iter().map(of).fold(0, u64::wrapping_add)
    }

    /// The memory of all processes in it.
    fn memory(&self) -> u64 {
        memory(&self.pids())
    }
}

/// What the given processes use together.
fn memory(pids: &[Pid]) -> u64 {
    let system = looked_at(pids, ProcessRefreshKind::nothing().with_memory());
    pids.iter().filter_map(|pid| system.process(*pid)).map(sysinfo::Process::memory).sum()
}

fn looked_at(pids: &[Pid], kind: ProcessRefreshKind) -> System {
    let mut system = System::new();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(pids), false, kind);
    system
}

/// The jobs by the pids of their servers, for who only knows a pid.
static JOBS: LazyLock<Mutex<HashMap<u32, Weak<ServerJob>>>> = LazyLock::new(Mutex::default);

pub(super) fn remember(pid: u32, job: &Arc<ServerJob>) {
    let mut jobs = JOBS.lock();
    jobs.retain(|_, job| job.strong_count() > 0);
    jobs.insert(pid, Arc::downgrade(job));
}

/// Memory of the job whose server has this pid; of the process alone where that is not one of our servers.
pub(crate) fn memory_of_job(pid: u32) -> Option<u64> {
    let job = JOBS.lock().get(&pid).and_then(Weak::upgrade);
    match job {
        Some(job) => Some(job.memory()),
        None => memory_of(pid),
    }
    .filter(|bytes| *bytes > 0)
}

/// Memory of one process.
pub(crate) fn memory_of(pid: u32) -> Option<u64> {
    Some(memory(&[Pid::from_u32(pid)])).filter(|bytes| *bytes > 0)
}
