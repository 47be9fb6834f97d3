//! Orphans of a killed shim: they become our children, and are killed here.
//! Owns: distinguishing such orphans from other children of this process.      Never: waits.
//! In: which shims are alive.  Out: SIGKILL and reaping, one pass per call.
//! Tests: `tests/it/containment.rs`.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
#[cfg(target_os = "linux")]
use nix::{
    sys::wait::{WaitPidFlag, waitpid},
    unistd::getpid,
};
use parking_lot::{Mutex, MutexGuard};

use crate::processes;

/// The sessions of living shims, over all supervisors of this process. A shim is the leader of its
/// session, so this is its pid; the init of a namespace is in the session of the stage that made it.
static SESSIONS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Makes orphaned descendants of this process its children.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true).ok();
}

/// Starts a shim and records it as alive, atomically for any sweep: another supervisor's
/// sweep between the two would take the shim for an orphan.
pub(super) fn start_shim(command: &mut Command) -> io::Result<Child> {
    let mut sessions = sessions();
    let shim = command.spawn()?;
    sessions.insert(shim.id().cast_signed());
    Ok(shim)
}

pub(super) fn shim_is_buried(pid: i32) {
    sessions().remove(&pid);
}

/// Kills and reaps what dead shims left, and returns whether nothing was found.
///
/// An orphan of a container is never in our session, because the last stage before the server makes
/// a new one and no process can enter a session that exists. What this process starts otherwise is in
/// our session; living shims are known; and nothing older than the shim in question can be its.
#[cfg(target_os = "linux")]
pub(super) fn sweep(since: u64) -> bool {
    let me = getpid().as_raw();
    let Some(own) = processes::stat(me) else { return true };
    let spared = sessions();
    let mut found = false;
    for pid in processes::children(me) {
        let Some(stat) = processes::stat(pid) else { continue };
        let is_orphan = stat.session != own.session
            && !spared.contains(&stat.session)
            && !spared.contains(&pid)
            && stat.started >= since;
        if !is_orphan {
            continue;
        }
        found = true;
        for below in processes::descendants(pid).into_iter().rev().chain([pid]) {
            kill(Pid::from_raw(below), Signal::SIGKILL).ok();
        }
        waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)).ok();
    }
    !found
}

fn sessions() -> MutexGuard<'static, BTreeSet<i32>> {
    SESSIONS.lock()
}

/// What a dead shim left where orphans become init's.
#[cfg(not(target_os = "linux"))]
pub(super) struct Left(crate::family::Family);

#[cfg(not(target_os = "linux"))]
impl Left {
    pub(super) fn new(start: &crate::message::Start) -> Left {
        Left(crate::family::Family::new(None, crate::family::mark(&start.env)))
    }

    /// Kills what is left of the server and returns whether nothing was found.
    pub(super) fn sweep(&mut self, leader: Option<i32>) -> bool {
        self.0.has_group(leader.unwrap_or(0));
        self.0.see(&processes::table());
        for group in self.0.groups() {
            nix::sys::signal::killpg(Pid::from_raw(group), Signal::SIGKILL).ok();
        }
        for pid in self.0.members() {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
        self.0.is_empty()
    }
}
