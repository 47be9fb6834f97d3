//! The stages that give a server its own process and mount namespace.
//! Owns: entering it.      Never: hides files, changes who the server is, grants it anything.
//! In: the control socket, unread, as stdin.  Out: `Born` and then the init of the namespace, or `Failed`.
//! Tests: `tests/it/containment.rs`, as root and as an ordinary user.
//!
//! An ordinary user needs a user namespace too, and must be root in it to mount `/proc`. A second user
//! namespace inside the first gives the server its own uid back.

use std::ffi::OsString;
use std::fs;
use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid, setsid};

use super::keeper::keep;
use super::kill::KillScope;
use super::{CLEAN, INIT, MISUSED, Reexec, USER, close_inherited, control, failed, report};
use crate::message::{Report, Stage};

/// The `isolate` stage: leaves our namespaces, starts the init of the new ones and ends. It does not
/// stay, because two processes per server would cost twice the memory and guard nothing more.
pub(super) fn isolate(reexec: &Reexec, args: &[OsString]) -> i32 {
    close_inherited();
    // The gateway tells the init from a stray orphan by this session.
    setsid().ok();
    let Ok(control) = control() else { return MISUSED };
    let ids = match leave(args.iter().any(|arg| arg == USER)) {
        Ok(ids) => ids,
        Err((stage, error)) => return failed(&control, stage, &error),
    };
    let mut command = reexec.command(INIT);
    if let Some((user, group)) = ids {
        command.arg(user.to_string()).arg(group.to_string());
    }
    match command.spawn() {
        Ok(init) => {
            report(&control, Report::Born { pid: init.id().cast_signed() });
            CLEAN
        }
        Err(error) => failed(&control, Stage::Shim, &error),
    }
}

/// The `init` stage: first process of the namespace, ends with the gateway, and everything with it.
pub(super) fn init(reexec: &Reexec, args: &[OsString]) -> i32 {
    close_inherited();
    let Ok(control) = control() else { return MISUSED };
    if std::process::id() != 1 {
        return MISUSED;
    }
    nix::sys::prctl::set_name(c"metamcp-init").ok();
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(error) = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>) {
        return failed(&control, Stage::Proc, &error.into());
    }
    if let [user, group] = args
        && let Err(error) = become_user(user, group)
    {
        return failed(&control, Stage::Map, &error);
    }
    drop(control);
    keep(reexec, KillScope::Namespace)
}

/// Ids of the user where a user namespace was needed.
type Ids = Option<(u32, u32)>;

fn leave(may_use_user_namespace: bool) -> Result<Ids, (Stage, io::Error)> {
    let (user, group) = (geteuid(), getegid());
    let both = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    // Root needs no user namespace, but root in a container often may not do without.
    let as_root = unshare(both);
    if let Err(error) = as_root {
        if !may_use_user_namespace {
            return Err((Stage::Unshare, error.into()));
        }
        unshare(both | CloneFlags::CLONE_NEWUSER)
            .map_err(|error| (Stage::Unshare, error.into()))?;
        map(0, user.as_raw(), 0, group.as_raw()).map_err(|error| (Stage::Map, error))?;
    }
    // What is mounted on the machine later still appears inside; nothing from inside appears outside.
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
        .map_err(|error| (Stage::Mounts, error.into()))?;
    Ok(as_root.is_err().then(|| (user.as_raw(), group.as_raw())))
}

/// From root of the first user namespace back to the ids the user has outside.
fn become_user(user: &OsString, group: &OsString) -> io::Result<()> {
    let id = |text: &OsString| text.to_str().and_then(|text| text.parse::<u32>().ok());
    let (Some(user), Some(group)) = (id(user), id(group)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    unshare(CloneFlags::CLONE_NEWUSER)?;
    map(user, 0, group, 0)
}

/// Writes the maps of a new user namespace: one id inside for one id outside.
fn map(user: u32, outer_user: u32, group: u32, outer_group: u32) -> io::Result<()> {
    // The kernel requires this before an ordinary user may map groups.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {outer_user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {outer_group} 1"))
}
