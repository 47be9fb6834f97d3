//! The shim: our own binary started again, standing between the gateway and one server.
//! Owns: the server's whole process tree.      Never: touches the server's bytes, starts threads, outlives the gateway.
//! In: orders on the control socket, which is its stdin; closing it is an order too.  Out: reports.
//! Tests: `tests/it/`.
//!
//! One server takes up to three stages, each a fresh execution of this binary, because a single
//! execution cannot do it without code that runs between fork and exec:
//! - `isolate` (namespaces only) leaves our namespaces, starts `init` as the first process of the new
//!   one, says so and ends;
//! - `hold` or `init` is the one that stays: it adopts, reaps, signals and kills;
//! - `exec` prepares itself as the server is to find itself, then becomes the server.

mod ends;
mod exec;
mod keeper;
mod kill;
mod kill_interval;
#[cfg(target_os = "linux")]
mod namespace;
mod tree;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::unistd;

use crate::message::{Report, Stage};

/// The name of a shim in a process list, where its path would say nothing.
pub(crate) const NAME: &str = "metamcp-shim";

/// Stage names, as given on the command line of the shim.
pub(crate) const HOLD: &str = "hold";
pub(crate) const ISOLATE: &str = "isolate";
/// Lets `isolate` make a user namespace where there is no other way.
pub(crate) const USER: &str = "user";
#[cfg(target_os = "linux")]
pub(crate) const INIT: &str = "init";
pub(crate) const EXEC: &str = "exec";

/// The exit code of a shim that left nothing behind. After any other the gateway checks itself.
pub(crate) const CLEAN: i32 = 0;

/// The exit code of a shim that was started by hand or lost its gateway before it began.
const MISUSED: i32 = 64;

/// Runs a stage of the shim and returns the exit code of the process.
///
/// `args` is what follows the shim word on the command line. The caller does this first thing in
/// `main`, before any runtime or thread exists.
pub fn shim_main(args: impl Iterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.collect();
    let Some((stage, rest)) = args.split_first() else { return MISUSED };
    let reexec = Reexec::of_this_process(args.len());
    match stage.to_str() {
        Some(HOLD) => keeper::hold(&reexec),
        #[cfg(target_os = "linux")]
        Some(ISOLATE) => namespace::isolate(&reexec, rest),
        #[cfg(target_os = "linux")]
        Some(INIT) => namespace::init(&reexec, rest),
        Some(EXEC) => exec::become_server(rest),
        _ => MISUSED,
    }
}

/// How to start this binary again as another stage.
pub(crate) struct Reexec {
    leading: Vec<OsString>,
}

impl Reexec {
    /// `own` is how many of the last arguments belong to the stage; those before lead to it.
    fn of_this_process(own: usize) -> Reexec {
        let mut leading: Vec<OsString> = std::env::args_os().skip(1).collect();
        leading.truncate(leading.len().saturating_sub(own));
        Reexec { leading }
    }

    /// The command of another stage, without any environment.
    #[expect(clippy::disallowed_methods, reason = "this is what contains servers")]
    fn command(&self, stage: &str) -> Command {
        let mut command = Command::new(this_binary());
        command.arg0(NAME).args(&self.leading).arg(stage).env_clear();
        command
    }
}

/// This binary, also after it was replaced on disk.
pub(crate) fn this_binary() -> PathBuf {
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_default()
    }
}

/// Closes descriptors leaked by our parent, so that the server does not inherit them. Only the three
/// standard descriptors are meant to be open, and nothing of ours is open yet.
fn close_inherited() {
    let listed: Vec<RawFd> = fs::read_dir(descriptors()).map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().filter_map(|entry| number(&entry.file_name())).collect(),
    );
    for descriptor in listed.into_iter().filter(|&descriptor| descriptor > 2) {
        // The listing's own descriptor is in the list and closed already; that error means nothing.
        unistd::close(descriptor).ok();
    }
}

/// Takes over a pipe end known by number only: opens it anew, which also marks it close-on-exec,
/// and closes the number.
fn adopt_pipe(descriptor: RawFd, write: bool) -> io::Result<File> {
    let path = format!("{}/{descriptor}", descriptors());
    let file = File::options().read(!write).write(write).open(path);
    unistd::close(descriptor)?;
    // Not all systems make a new descriptor of it, with flags of its own.
    #[cfg(not(target_os = "linux"))]
    if let Ok(file) = &file {
        use nix::fcntl::{FcntlArg, FdFlag, fcntl};
        fcntl(file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    file
}

fn descriptors() -> &'static str {
    if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" }
}

fn number(text: &OsStr) -> Option<RawFd> {
    text.to_str()?.parse().ok()
}

/// The control socket, which arrives as stdin.
fn control() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// The server's stdout and stderr, which arrive in those places; from here on ours are `/dev/null`,
/// because a copy kept here would hide the end of the stream from the gateway.
fn take_outputs() -> io::Result<(OwnedFd, OwnedFd)> {
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    let stderr = io::stderr().as_fd().try_clone_to_owned()?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    unistd::dup2_stdin(&nothing)?;
    unistd::dup2_stdout(&nothing)?;
    unistd::dup2_stderr(&nothing)?;
    Ok((stdout, stderr))
}

/// Sends a report. If nobody listens any more, the closed socket shows that elsewhere.
fn report(mut control: &UnixStream, report: Report) {
    control.write_all(&report.encode()).ok();
}

/// Reports a failed step and returns the exit code.
fn failed(control: &UnixStream, stage: Stage, error: &io::Error) -> i32 {
    report(control, Report::Failed { stage, errno: errno(error) });
    CLEAN
}

/// The error number; an error without one was refused before the kernel saw it.
fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(nix::libc::EINVAL)
}

/// The raw number of something open, for the next stage's command line.
fn raw(descriptor: &impl AsFd) -> OsString {
    descriptor.as_fd().as_raw_fd().to_string().into()
}
