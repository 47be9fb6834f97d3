//! Limits of Windows: a job object that the worker creates around itself, and what a process can give up there.
//!
//! The handle of the job stays open until the process ends. The gateway has a job of its own around this one, which ends
//! the worker with it.

use std::ffi::c_void;
use std::io::Error;
use std::mem::size_of;
use std::sync::OnceLock;
use std::time::Duration;

use metamcp_sandbox::layer;
use metamcp_sandbox::limits::MAX_CPU;
use metamcp_sandbox::worker::Report;
use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_ACTIVE_PROCESS,
    JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION, JOB_OBJECT_LIMIT_PROCESS_MEMORY,
    JOB_OBJECT_LIMIT_PROCESS_TIME, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes};

/// Memory that a worker may commit: the module's own limit, the binary's data, frames in transit. Reserved address space
/// does not count.
const MEMORY: usize = 256 * 1024 * 1024;

/// Units of 100 ns, in which the system counts.
const TICKS_PER_SECOND: u64 = 10_000_000;

/// The handle of the job, as a number.
static JOB: OnceLock<isize> = OnceLock::new();

/// Removes what the system put into the environment that the gateway left empty.
pub(super) fn clear_environment() {
    for (name, _) in std::env::vars_os() {
        // SAFETY: on Windows the environment has a lock of its own, so this is sound with any number of threads.
        #[expect(unsafe_code, reason = "unsafe on other systems only")]
        unsafe {
            std::env::remove_var(name);
        }
    }
}

pub(super) fn apply(report: &mut Report) {
    match job() {
        Ok(limits) => {
            report.note(layer::JOB_OBJECT, Ok(()));
            report.note(layer::JOB_LIMITS, limits);
        }
        Err(reason) => report.note(layer::JOB_OBJECT, Err(reason)),
    }
}

/// Creates the job, enters it, and reads its limits back: whether they are kept.
fn job() -> Result<Result<(), String>, String> {
    // SAFETY: both arguments may be null; the handle is checked, and never closed.
    #[expect(unsafe_code, reason = "no safe crate creates a job with these limits")]
    let handle = unsafe { CreateJobObjectW(std::ptr::null(), std::ptr::null()) };
    if handle.is_null() {
        return Err(format!("it cannot be created: {}", Error::last_os_error()));
    }
    let job = *JOB.get_or_init(|| handle as isize);
    set(job, MAX_CPU + Duration::from_secs(5))?;
    // SAFETY: both handles are valid: the one of above, and the constant that means this process.
    #[expect(unsafe_code, reason = "no safe crate creates a job with these limits")]
    let entered = unsafe { AssignProcessToJobObject(handle_of(job), GetCurrentProcess()) };
    if entered == 0 {
        return Err(format!("it cannot be entered: {}", Error::last_os_error()));
    }
    match read_back(job)? {
        ReadBack::Same => Ok(Ok(())),
        ReadBack::Nothing => {
            Ok(Err("this system takes the limits of a job and keeps none, as Wine does".to_owned()))
        }
        ReadBack::Others => Err("its limits read back as others".to_owned()),
    }
}

/// Limits the CPU time of the process from now on.
pub(super) fn limit_cpu(more: Duration) -> Result<(), String> {
    match JOB.get() {
        Some(&job) => set(job, user_time() + more),
        None => Err("there is no job".to_owned()),
    }
}

fn limits(cpu: Duration) -> JOBOBJECT_EXTENDED_LIMIT_INFORMATION {
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_ACTIVE_PROCESS
        | JOB_OBJECT_LIMIT_PROCESS_MEMORY
        | JOB_OBJECT_LIMIT_PROCESS_TIME
        | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION;
    limits.BasicLimitInformation.ActiveProcessLimit = 1;
    limits.BasicLimitInformation.PerProcessUserTimeLimit =
        i64::try_from(cpu.as_nanos() / 100).unwrap_or(i64::MAX);
    limits.ProcessMemoryLimit = MEMORY;
    limits
}

fn set(job: isize, cpu: Duration) -> Result<(), String> {
    let limits = limits(cpu);
    // SAFETY: the job is valid, and the system reads as many bytes as there are.
    #[expect(unsafe_code, reason = "no safe crate sets these limits of a job")]
    let is_set = unsafe {
        SetInformationJobObject(
            handle_of(job),
            JobObjectExtendedLimitInformation,
            (&raw const limits).cast::<c_void>(),
            size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>() as u32,
        )
    };
    if is_set == 0 {
        return Err(format!("its limits cannot be set: {}", Error::last_os_error()));
    }
    Ok(())
}

/// What the system says of the limits that it took.
enum ReadBack {
    Same,
    Nothing,
    Others,
}

fn read_back(job: isize) -> Result<ReadBack, String> {
    let wanted = limits(Duration::ZERO);
    let mut now = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    // SAFETY: the job is valid, the system writes at most as many bytes as there are, and any bytes are such a value.
    #[expect(unsafe_code, reason = "no safe crate reads these limits of a job")]
    let is_read = unsafe {
        QueryInformationJobObject(
            handle_of(job),
            JobObjectExtendedLimitInformation,
            (&raw mut now).cast::<c_void>(),
            size_of::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>() as u32,
            std::ptr::null_mut(),
        )
    };
    if is_read == 0 {
        return Err(format!("its limits cannot be read: {}", Error::last_os_error()));
    }
    let (wanted_basic, basic) = (&wanted.BasicLimitInformation, &now.BasicLimitInformation);
    let holds = basic.LimitFlags & wanted_basic.LimitFlags == wanted_basic.LimitFlags
        && basic.ActiveProcessLimit == wanted_basic.ActiveProcessLimit
        && now.ProcessMemoryLimit == wanted.ProcessMemoryLimit;
    Ok(match (holds, basic.LimitFlags) {
        (true, _) => ReadBack::Same,
        (false, 0) => ReadBack::Nothing,
        (false, _) => ReadBack::Others,
    })
}

/// User time of this process, which is what the limit is about.
fn user_time() -> Duration {
    let none = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let (mut created, mut ended, mut kernel, mut user) = (none, none, none, none);
    // SAFETY: the handle is the constant that means this process, and all four places are ours.
    #[expect(unsafe_code, reason = "beside the limit that it is for")]
    let is_read = unsafe {
        GetProcessTimes(GetCurrentProcess(), &mut created, &mut ended, &mut kernel, &mut user)
    };
    if is_read == 0 {
        return Duration::ZERO;
    }
    let ticks = u64::from(user.dwHighDateTime) << 32 | u64::from(user.dwLowDateTime);
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / TICKS_PER_SECOND))
}

fn handle_of(job: isize) -> *mut c_void {
    job as *mut c_void
}
