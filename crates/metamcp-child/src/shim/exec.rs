//! The last stage: makes this process what the server is to find itself in, then becomes the server.
//! Owns: nothing for longer than a moment.      Never: returns when all went well.
//! In: status pipe, parent, directory, walls, program, arguments; the environment is already the server's.
//! Out: on the status pipe the failed stage and error number; nothing at all on success.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;
use nix::unistd::{getppid, setsid};

use super::{MISUSED, adopt_pipe, errno, number};
use crate::message::Stage;
use crate::walls;

/// Added to the server's badness, so that a machine out of memory takes it before the gateway.
const OOM_ADJUSTMENT: i32 = 500;

pub(super) fn become_server(args: &[OsString]) -> i32 {
    let [status, parent, cwd, rest @ ..] = args else { return MISUSED };
    let Some((walls, [program, arguments @ ..])) = walls::from_words(rest) else { return MISUSED };
    let (Some(status), Some(parent)) = (number(status), number(parent)) else { return MISUSED };
    let Ok(mut status) = adopt_pipe(status, true) else { return MISUSED };
    // Its own session and group: what it sends to its group cannot reach the shim, and nothing it
    // starts can ever be in the gateway's session.
    setsid().ok();
    if !die_with_parent(parent) {
        return MISUSED;
    }
    // The shim blocks signals and a mask survives exec; the server starts with none blocked.
    SigSet::empty().thread_set_mask().ok();
    // A dump of a server's memory would hold its secrets and fill the disk.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).ok();
    offer_to_the_oom_killer();
    if !cwd.is_empty()
        && let Err(error) = std::env::set_current_dir(Path::new(cwd))
    {
        return tell(&mut status, Stage::Directory, &error);
    }
    // Last of all: what was done before may need what is given up here.
    if let Some(walls) = walls
        && let Err(error) = walls::raise(&walls)
    {
        return tell(&mut status, Stage::Walls, &error);
    }
    let error = Command::new(program).args(arguments).exec();
    tell(&mut status, Stage::Exec, &error)
}

/// Asks the kernel to kill the server when the shim dies: the second line, for a shim that was itself
/// killed. The parent may have died before the asking, which the second look finds out.
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
