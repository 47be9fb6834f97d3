//! Limits of a Unix system: descriptors, rlimits, and the sandbox of macOS if the gateway put one around us.

use std::fs;
use std::os::fd::RawFd;
use std::time::Duration;

use metamcp_sandbox::layer;
use metamcp_sandbox::limits::MAX_CPU;
use metamcp_sandbox::worker::Report;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::time::{ClockId, clock_gettime};
use nix::unistd;

/// The open descriptors of this process, as files.
const OPEN: &str = if cfg!(target_os = "macos") { "/dev/fd" } else { "/proc/self/fd" };

/// The two pipes.
const KEPT: [RawFd; 2] = [0, 1];

/// The rlimits. Memory is limited by the engine: macOS has no limit on address space that it keeps. `RLIMIT_NPROC` does
/// not bind root.
const RESOURCES: &[(&str, Resource, rlim_t)] = &[
    ("core size", Resource::RLIMIT_CORE, 0),
    ("file size", Resource::RLIMIT_FSIZE, 0),
    ("descriptors", Resource::RLIMIT_NOFILE, KEPT.len() as rlim_t),
    // On macOS its sandbox denies them.
    #[cfg(not(target_os = "macos"))]
    ("processes", Resource::RLIMIT_NPROC, 0),
    // Before the limit of the script is known.
    ("processor time", Resource::RLIMIT_CPU, MAX_CPU.as_secs() + 5),
];

/// Nothing to do: the gateway gives none, and no system adds any.
pub(super) fn clear_environment() {}

pub(super) fn apply(report: &mut Report) {
    // Do not keep the gateway's working directory busy.
    unistd::chdir("/").ok();
    // Before the limits, under which nothing can be opened anyway.
    #[cfg(target_os = "macos")]
    report.note(layer::SEATBELT, seatbelt());
    report.note(layer::DESCRIPTORS, descriptors());
    report.note(layer::RESOURCE_LIMITS, resource_limits());
}

/// Closes every inherited descriptor but the pipes.
fn descriptors() -> Result<(), String> {
    for descriptor in others()? {
        // The listing includes its own descriptor, which is closed already: that error is expected.
        unistd::close(descriptor).ok();
    }
    // The listing includes its own descriptor again.
    let left = others()?.len();
    if left > 1 { Err(format!("{left} descriptors are still open")) } else { Ok(()) }
}

fn others() -> Result<Vec<RawFd>, String> {
    let entries = fs::read_dir(OPEN).map_err(|error| format!("{OPEN}: {error}"))?;
    let open = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(open.filter(|descriptor| !KEPT.contains(descriptor)).collect())
}

fn resource_limits() -> Result<(), String> {
    RESOURCES.iter().try_for_each(|&(name, resource, most)| limit(name, resource, most))
}

fn limit(name: &str, resource: Resource, most: rlim_t) -> Result<(), String> {
    let failed = |error| format!("{name}: {error}");
    // A lower hard limit stays.
    let (_, hard) = getrlimit(resource).map_err(failed)?;
    let most = most.min(hard);
    setrlimit(resource, most, most).map_err(failed)?;
    let now = getrlimit(resource).map_err(failed)?;
    if now == (most, most) { Ok(()) } else { Err(format!("{name} reads back as {now:?}")) }
}

/// Limits the CPU time of the process from now on, in whole seconds.
pub(super) fn limit_cpu(more: Duration) -> Result<(), String> {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from);
    let used = used.map_err(|error| error.to_string())?;
    limit("processor time", Resource::RLIMIT_CPU, (used + more).as_secs() + 1)
}

/// Looks whether the sandbox denies what it should.
#[cfg(target_os = "macos")]
fn seatbelt() -> Result<(), String> {
    use std::io::{ErrorKind, Result as IoResult};
    use std::net::{Ipv4Addr, TcpListener};
    let denied = |what: &str, tried: IoResult<()>| match tried {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(format!("{what} gives {error}")),
        Ok(()) => Err(format!("{what} is possible")),
    };
    denied("reading /etc/passwd", fs::File::open("/etc/passwd").map(drop))?;
    denied("binding a port", TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop))
}
