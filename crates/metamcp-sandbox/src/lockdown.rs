//! Giving up every right, before any code of a guest exists.
//! Owns: the order and the proof of the layers.      Never: runs with less and says nothing.
//! In: a process with one thread and its socket as descriptor 0.  Out: which layers hold, which do not, and why.
//! Tests: `tests/hostile.rs` tries to get out; `tests/workers.rs` looks at `/proc` from outside.
//!
//! Each layer is read back or tried after it was applied, where the kernel lets us: a limit that was set
//! is read, a file is opened, a port bound and the parent signalled to see them refused. The one that
//! cannot be asked from inside is seccomp, since asking is forbidden; the gateway reads it in
//! `/proc/PID/status`.
//!
//! Files and network are behind two doors each. Landlock denies them by right, seccomp by having no
//! system call for them. Which doors a profile demands is in `layer`; all that the kernel has are shut.

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
use crate::protocol::MissingLayer;

/// The descriptor of the socket to the gateway, or of the pipe that comes from it.
pub const SOCKET: RawFd = 0;
/// The descriptor of the pipe to the gateway, where there is one.
pub const OUTWARD: RawFd = 1;

/// What a worker speaks to the gateway over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkKind {
    /// One socket.
    #[default]
    Socket,
    /// Standard input and output, which is all that crosses the wall of a container.
    Pipes,
}

impl LinkKind {
    fn keeps(self, descriptor: RawFd) -> bool {
        descriptor == SOCKET || (self == LinkKind::Pipes && descriptor == OUTWARD)
    }
}

/// All the memory a worker can map: the binary, the stack, the largest heap, and frames on their way.
const ADDRESS_SPACE: u64 = 256 * 1024 * 1024;

/// A little more than the most processor time a script can be granted, in seconds. The gateway ends a
/// script long before; this is for a worker that everybody forgot.
const CPU_SECONDS: u64 = crate::limits::MAX_CPU.as_secs() + 5;

/// Kernel-held limits: what, and how much. One descriptor is the socket itself, so that nothing can be
/// opened. `RLIMIT_NPROC` does not bind root, the seccomp list does.
const RESOURCES: [(&str, Resource, u64); 7] = [
    ("address space", Resource::RLIMIT_AS, ADDRESS_SPACE),
    // What can be written to, apart from address space that an engine only reserves.
    ("data", Resource::RLIMIT_DATA, ADDRESS_SPACE),
    ("core size", Resource::RLIMIT_CORE, 0),
    ("file size", Resource::RLIMIT_FSIZE, 0),
    ("descriptors", Resource::RLIMIT_NOFILE, 1),
    ("processes", Resource::RLIMIT_NPROC, 0),
    ("processor time", Resource::RLIMIT_CPU, CPU_SECONDS),
];

/// What the lockdown came to.
#[derive(Debug, Default)]
pub struct Report {
    /// Layers in force.
    pub layers: Vec<String>,
    /// Layers that are not.
    pub missing: Vec<MissingLayer>,
}

/// Gives up every right. Never fails: what is not to be had is in the report. `reserved` is address space that an
/// engine holds and never uses, on top of what anything may map.
pub fn apply(reserved: u64, link_kind: LinkKind) -> Report {
    let mut report = Report::default();
    // The directory the gateway was started in is not kept busy by a process that cannot use it.
    unistd::chdir("/").ok();
    // Small pages: an idle worker is smaller, and what a script touches can be counted.
    prctl::set_thp_disable(true).ok();
    report.note(layer::ENVIRONMENT, environment());
    report.note(layer::DESCRIPTORS, descriptors(link_kind));
    report.note(layer::PARENT_DEATH, parent_death());
    // From here on /proc/self belongs to root, so what reads it is done.
    report.note(layer::NOT_DUMPABLE, not_dumpable());
    report.note(layer::NO_NEW_PRIVILEGES, no_new_privileges());
    report.note(layer::CAPABILITIES, capabilities());
    rights::give_up(&mut report);
    report.note(layer::RESOURCE_LIMITS, resource_limits(reserved));
    report.note(layer::SECCOMP, seccomp::install(link_kind));
    report
}

impl Report {
    fn note(&mut self, layer: &str, applied: Result<(), String>) {
        match applied {
            Ok(()) => self.layers.push(layer.to_owned()),
            Err(reason) => self.missing.push(MissingLayer { layer: layer.to_owned(), reason }),
        }
    }
}

/// The gateway starts us without an environment; what the kernel remembers of it is looked at as well.
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

/// Closes whatever we were started with, but for the way to the gateway.
fn descriptors(link_kind: LinkKind) -> Result<(), String> {
    for descriptor in files::open_descriptors()?.into_iter().filter(|&open| !link_kind.keeps(open))
    {
        // The listing's own descriptor is in the list and closed already; that error means nothing.
        unistd::close(descriptor).ok();
    }
    // The listing sees itself once more, under a number that is free afterwards.
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

/// A worker of root's has the rights of root over whatever a hole in the other layers lets it reach.
fn capabilities() -> Result<(), String> {
    for number in 0..u64::BITS {
        // Forbidden to all but those who have the most of them, and an error for numbers that stand for nothing.
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

fn resource_limits(reserved: u64) -> Result<(), String> {
    for (name, resource, most) in RESOURCES {
        let most = if resource == Resource::RLIMIT_AS { most + reserved } else { most };
        // A hard limit below ours was set by somebody who may: it stays.
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
