//! What a process can do to the processes and files around it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{getpid, getppid};

use super::Next;
use crate::chaos::descendant::{Streams, be_deaf, spawn};
use crate::chaos::message::Call;
use crate::chaos::server_state::{ServerState, die, linger};
use crate::journal::{EventKind, Record};

/// Memory is allocated in steps of this size, with a check in between.
const STEP: usize = 16 << 20;

/// How long the memory stays allocated: long enough to be measured, short enough for a test.
const HOLD: Duration = Duration::from_millis(500);

/// The working directory is filled with files of this size.
const FILE: usize = 1 << 20;

pub(in crate::chaos) fn ignore_end(server: &Arc<ServerState>, _: u64) {
    linger(server.options.lifetime);
}

pub(in crate::chaos) fn ignore_signals(_: &Arc<ServerState>, _: u64) {
    be_deaf();
}

pub(in crate::chaos) fn stop_itself(_: &Arc<ServerState>, _: u64, _: &Call) -> Next {
    if kill(getpid(), Signal::SIGSTOP).is_err() {
        die(4);
    }
    // Reached only if another process sends SIGCONT.
    Next::Honest
}

pub(in crate::chaos) fn session_grandchild(server: &Arc<ServerState>, _: u64) {
    // Not waited for: it outlives this process unless it is killed.
    if spawn(server, "session", Streams::None).is_err() {
        die(4);
    }
}

pub(in crate::chaos) fn daemon(server: &Arc<ServerState>, _: u64) {
    let started = spawn(server, "daemon", Streams::Ours).and_then(|mut first| Ok(first.wait()?));
    if started.is_err() {
        die(4);
    }
}

pub(in crate::chaos) fn fork_bomb(server: &Arc<ServerState>, count: u64, _: &Call) -> Next {
    if server.first("fork-bomb") {
        for _ in 0..count {
            // A process limit stops the fork bomb, not the child.
            if spawn(server, "lingering", Streams::None).is_err() {
                break;
            }
        }
    }
    Next::Honest
}

pub(in crate::chaos) fn eat_memory(server: &Arc<ServerState>, bytes: u64, _: &Call) -> Next {
    if server.first("eat-memory") {
        let mut eaten: Vec<Vec<u8>> = Vec::new();
        while (eaten.len() * STEP) as u64 + (STEP as u64) <= bytes {
            let mut step = Vec::new();
            // The parent is gone, so nothing is left to measure: stop at once.
            if getppid() != server.parent || step.try_reserve_exact(STEP).is_err() {
                die(1);
            }
            // Touches every page.
            step.resize(STEP, 1);
            eaten.push(step);
        }
        thread::sleep(HOLD);
        drop(eaten);
    }
    Next::Honest
}

pub(in crate::chaos) fn fill_directory(server: &Arc<ServerState>, bytes: u64, _: &Call) -> Next {
    if server.first("fill-directory") {
        let block = vec![b'f'; FILE];
        for number in 0..bytes / FILE as u64 {
            // A full disk or a read-only directory stops the filling, not the child.
            if fs::write(format!("chaos-fill-{}-{number}", std::process::id()), &block).is_err() {
                break;
            }
        }
    }
    Next::Honest
}

pub(in crate::chaos) fn kill_parent(server: &Arc<ServerState>, _: u64, _: &Call) -> Next {
    // SIGKILL only: the kernel shields the init process of a namespace from it, so an orphaned child cannot take the
    // machine down. Zero means the parent is in another namespace.
    if server.parent.as_raw() > 1 && getppid() == server.parent {
        // A parent we may not signal is well protected.
        kill(server.parent, Signal::SIGKILL).ok();
    }
    Next::Honest
}

pub(in crate::chaos) fn zombies(server: &Arc<ServerState>, count: u64, _: &Call) -> Next {
    if server.first("zombies") {
        for _ in 0..count {
            if spawn(server, "brief", Streams::None).is_err() {
                break;
            }
        }
    }
    Next::Honest
}

pub(in crate::chaos) fn dump_core(_: &Arc<ServerState>, _: u64, _: &Call) -> Next {
    // The largest core file that the hard limit allows.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
        setrlimit(Resource::RLIMIT_CORE, hard, hard).ok();
    }
    raise(Signal::SIGABRT).ok();
    die(4)
}

pub(in crate::chaos) fn move_away(_: &Arc<ServerState>, _: u64) {
    umask(Mode::empty());
    if std::env::set_current_dir(Path::new("/")).is_err() {
        die(4);
    }
}

pub(in crate::chaos) fn look_around(server: &Arc<ServerState>, _: u64) {
    server.record(&Record {
        detail: server.surroundings.clone(),
        ..Record::new(EventKind::Surroundings)
    });
}
