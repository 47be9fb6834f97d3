//! The last stage: sets up this process for the server, then becomes the server.
//! Owns: nothing for longer than a moment.      Never: returns when all went well.
//! In: the numbers of two pipes and the parent; on the first pipe what to run, with the server's variables.
//! Out: on the second the failed stage and error number; nothing at all on success.
//!
//! The variables come as data because they are the server's: in our own environment they could make the loader
//! run its code in this process, before it is sandboxed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;
use nix::unistd::{getppid, setsid};

use super::{MISUSED, adopt_pipe, errno, number};
use crate::message::{HEADER, Stage, Start};
use crate::process_sandbox;

/// Added to the server's OOM score, so that the kernel kills it before the gateway.
const OOM_ADJUSTMENT: i32 = 500;

pub(super) fn become_server(args: &[OsString]) -> i32 {
    let [order, status, parent] = args else { return MISUSED };
    let (Some(order), Some(status)) = (number(order), number(status)) else { return MISUSED };
    let Some(parent) = number(parent) else { return MISUSED };
    let Ok(mut status) = adopt_pipe(status, true) else { return MISUSED };
    // First of all: the shim waits until it is read.
    let start = match adopt_pipe(order, false).and_then(read_start) {
        Ok(start) => start,
        Err(error) => return tell(&mut status, Stage::Shim, &error),
    };
    // Its own session and group: what it sends to its group cannot reach the shim, and nothing it
    // starts can ever be in the gateway's session.
    setsid().ok();
    if !die_with_parent(parent) {
        return MISUSED;
    }
    // The shim blocks signals and a mask survives exec; the server starts with none blocked.
    SigSet::empty().thread_set_mask().ok();
    // A core dump would contain the server's secrets and fill the disk.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).ok();
    offer_to_the_oom_killer();
    if let Some(cwd) = start.cwd.as_deref().filter(|cwd| !cwd.as_os_str().is_empty())
        && let Err(error) = std::env::set_current_dir(cwd)
    {
        return tell(&mut status, Stage::Directory, &error);
    }
    // Last of all: the steps before may need what is given up here.
    let mut start = start;
    if let Some(sandbox_policy) = start.sandbox_policy.take() {
        // The program of a sandbox of macOS would say it in words of its own, after we said that the server runs.
        if cfg!(target_os = "macos") && !is_there(&start) {
            return tell(&mut status, Stage::Exec, &Errno::ENOENT.into());
        }
        start = match process_sandbox::enter(&sandbox_policy, start) {
            Ok(start) => start,
            Err(error) => return tell(&mut status, Stage::Sandbox, &error),
        };
    }
    #[expect(clippy::disallowed_methods, reason = "this is what contains servers")]
    let mut server = Command::new(start.program);
    // Searched in the `PATH` of these variables.
    let error = server.args(start.args).env_clear().envs(start.env).exec();
    tell(&mut status, Stage::Exec, &error)
}

/// Whether there is such a program, in the `PATH` of these variables or at its path.
fn is_there(start: &Start) -> bool {
    let program = Path::new(&start.program);
    if program.components().count() > 1 {
        return program.exists();
    }
    let folders = start.env.iter().find(|(name, _)| name == "PATH").map(|(_, folders)| folders);
    folders
        .is_some_and(|all| std::env::split_paths(all).any(|folder| folder.join(program).exists()))
}

fn read_start(mut pipe: File) -> io::Result<Start> {
    let mut first = [0; HEADER];
    pipe.read_exact(&mut first)?;
    Start::read_behind(first, pipe)
}

/// Asks the kernel to kill the server when the shim dies: a second line of defence, for a shim that was itself
/// killed. The parent may have died before this call, which the second check finds out.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: i32) -> bool {
    let asked = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    asked.is_ok() && getppid().as_raw() == parent
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(parent: i32) -> bool {
    getppid().as_raw() == parent
}

fn offer_to_the_oom_killer() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let now = fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if let Some(now) = now {
        fs::write(FILE, (now + OOM_ADJUSTMENT).min(1000).to_string()).ok();
    }
}

fn tell(status: &mut File, stage: Stage, error: &io::Error) -> i32 {
    let mut bytes = vec![stage as u8];
    bytes.extend(errno(error).to_le_bytes());
    status.write_all(&bytes).ok();
    MISUSED
}
