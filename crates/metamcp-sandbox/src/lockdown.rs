//! The lockdown: drops every privilege before guest code arrives.
//! Owns: the order of the layers and their verification.      Never: hides a layer that failed.
//! In: a process with one thread and its socket as descriptor 0.  Out: which layers hold, which do not, and why.
//! Tests: `tests/hostile.rs` tries to get out; `tests/workers.rs` looks at `/proc` from outside.
//!
//! Each layer is verified after it was applied: an rlimit is read back, a file opened, a port bound and the
//! parent signalled to see them denied. Only seccomp cannot be verified from inside, since it denies the
//! query; the gateway reads it in `/proc/PID/status`.
//!
//! Files and network are denied twice: by Landlock, and by a seccomp allowlist without system calls for them.
//! What a profile requires is in `layer`; whatever the kernel supports is applied.

mod files;
mod rights;
mod seccomp;

use std::os::fd::RawFd;
use std::{env, fs};

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::layer;
pub use crate::worker::Report;

/// The descriptor of the socket, or of the pipe from the gateway.
pub const SOCKET: RawFd = 0;
/// The descriptor of the pipe to the gateway, where there is one.
pub const OUTWARD: RawFd = 1;

/// How a worker is connected to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkKind {
    /// One socket.
    #[default]
    Socket,
    /// Standard input and output, for a worker in a container.
    Pipes,
}

impl LinkKind {
    fn keeps(self, descriptor: RawFd) -> bool {
        descriptor == SOCKET || (self == LinkKind::Pipes && descriptor == OUTWARD)
    }
}

/// Address space of a worker: the binary, the stack, the largest heap, and frames in transit.
const ADDRESS_SPACE: u64 = 256 * 1024 * 1024;

/// A little above the maximum CPU limit, in seconds: the backstop if the gateway does not end a script.
const CPU_SECONDS: u64 = crate::limits::MAX_CPU.as_secs() + 5;

/// The rlimits. The one descriptor is the socket, so that nothing can be opened. `RLIMIT_NPROC` does not
/// bind root, seccomp does.
const RESOURCES: [(&str, Resource, u64); 7] = [
    ("address space", Resource::RLIMIT_AS, ADDRESS_SPACE),
    // Without address space that an engine reserves and never uses.
    ("data", Resource::RLIMIT_DATA, ADDRESS_SPACE),
    ("core size", Resource::RLIMIT_CORE, 0),
    ("file size", Resource::RLIMIT_FSIZE, 0),
    ("descriptors", Resource::RLIMIT_NOFILE, 1),
    ("processes", Resource::RLIMIT_NPROC, 0),
    ("processor time", Resource::RLIMIT_CPU, CPU_SECONDS),
];

/// What the lockdown needs and this kernel does not have, as far as can be told from outside of a worker.
pub fn unsupported() -> Option<String> {
    if !rights::can_restrict_files() {
        return Some("this kernel has no Landlock, or has it disabled".to_owned());
    }
    // Where nothing can be read, the worker finds out.
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let knows_seccomp = status.lines().any(|line| line.starts_with("Seccomp:"));
    (!knows_seccomp).then(|| "this kernel has no seccomp".to_owned())
}

/// Applies every layer. Never fails: failed layers are in the report. `reserved` is address space that an engine
/// reserves and never uses, in addition to the limit.
pub fn apply(reserved: u64, link_kind: LinkKind) -> Report {
    let mut report = Report::default();
    // Do not keep the gateway's working directory busy.
    unistd::chdir("/").ok();
    // No huge pages: an idle worker is smaller, and touched memory can be counted by page faults.
    prctl::set_thp_disable(true).ok();
    report.note(layer::ENVIRONMENT, environment());
    report.note(layer::DESCRIPTORS, descriptors(link_kind));
    report.note(layer::PARENT_DEATH, parent_death());
    // Not dumpable: /proc/self belongs to root from here on, so it was read before.
    report.note(layer::NOT_DUMPABLE, not_dumpable());
    report.note(layer::NO_NEW_PRIVILEGES, no_new_privileges());
    report.note(layer::CAPABILITIES, capabilities());
    rights::restrict_all(&mut report);
    report.note(layer::RESOURCE_LIMITS, resource_limits(reserved, link_kind));
    report.note(layer::SECCOMP, seccomp::install(link_kind));
    report
}

/// Checks that the environment is empty, also as the kernel has it.
fn environment() -> Result<(), String> {
    if let Some((name, _)) = env::vars_os().next() {
        return Err(format!("{} is set", name.display()));
    }
    match fs::read("/proc/self/environ") {
        Ok(bytes) if bytes.is_empty() => Ok(()),
        Ok(bytes) => Err(format!("{} bytes are left of it", bytes.len())),
        Err(error) => Err(format!("/proc/self/environ: {error}")),
    }
}

/// Closes every inherited descriptor but the connection to the gateway.
fn descriptors(link_kind: LinkKind) -> Result<(), String> {
    for descriptor in files::open_descriptors()?.into_iter().filter(|&open| !link_kind.keeps(open))
    {
        // The listing includes its own descriptor, which is closed already: that error is expected.
        unistd::close(descriptor).ok();
    }
    // The listing includes its own descriptor again.
    let left =
        files::open_descriptors()?.into_iter().filter(|&open| !link_kind.keeps(open)).count();
    if left > 1 { Err(format!("{left} descriptors are still open")) } else { Ok(()) }
}

fn parent_death() -> Result<(), String> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| error.to_string())?;
    match prctl::get_pdeathsig() {
        Ok(Some(Signal::SIGKILL)) => Ok(()),
        other => Err(format!("it reads back as {other:?}")),
    }
}

fn not_dumpable() -> Result<(), String> {
    prctl::set_dumpable(false).map_err(|error| error.to_string())?;
    match prctl::get_dumpable() {
        Ok(false) => Ok(()),
        other => Err(format!("it reads back as {other:?}")),
    }
}

fn no_new_privileges() -> Result<(), String> {
    prctl::set_no_new_privs().map_err(|error| error.to_string())?;
    match prctl::get_no_new_privs() {
        Ok(true) => Ok(()),
        other => Err(format!("it reads back as {other:?}")),
    }
}

/// Matters where the gateway runs as root: a hole in another layer would otherwise come with root's capabilities.
fn capabilities() -> Result<(), String> {
    for number in 0..u64::BITS {
        // Needs CAP_SETPCAP, and fails for unknown capabilities.
        let capability = CapabilitySet::from_bits_retain(1 << number);
        thread::remove_capability_from_bounding_set(capability).ok();
    }
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    thread::set_capabilities(None, none).map_err(|error| error.to_string())?;
    match thread::capabilities(None) {
        Ok(now) if now == none => Ok(()),
        other => Err(format!("they read back as {other:?}")),
    }
}

fn resource_limits(reserved: u64, link_kind: LinkKind) -> Result<(), String> {
    for (name, resource, most) in RESOURCES {
        let most = match (resource, link_kind) {
            (Resource::RLIMIT_AS, _) => most + reserved,
            // No more than this many can be polled at once, and both are open.
            (Resource::RLIMIT_NOFILE, LinkKind::Pipes) => most + 1,
            _ => most,
        };
        // A lower hard limit stays.
        let (_, hard) = getrlimit(resource).map_err(|error| format!("{name}: {error}"))?;
        let most = most.min(hard);
        setrlimit(resource, most, most).map_err(|error| format!("{name}: {error}"))?;
        let now = getrlimit(resource).map_err(|error| format!("{name}: {error}"))?;
        if now != (most, most) {
            return Err(format!("{name} reads back as {now:?}"));
        }
    }
    Ok(())
}
