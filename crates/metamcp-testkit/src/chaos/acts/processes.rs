//! 46 to 60 without 56 and 57: what a process can do to the processes and files around it.

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
use crate::chaos::stage::{Stage, die, linger};
use crate::journal::{Record, What};

/// Memory is taken in steps of this size, looking around in between.
const STEP: usize = 16 << 20;

/// How long the memory is held: long enough to be seen, short enough for a test.
const HOLD: Duration = Duration::from_millis(500);

/// The working directory is filled with files of this size.
const FILE: usize = 1 << 20;

pub(in crate::chaos) fn ignore_end(stage: &Arc<Stage>, _: u64) {
    linger(stage.options.lifetime);
}

pub(in crate::chaos) fn ignore_signals(_: &Arc<Stage>, _: u64) {
    be_deaf();
}

pub(in crate::chaos) fn stop_itself(_: &Arc<Stage>, _: u64, _: &Call) -> Next {
    if kill(getpid(), Signal::SIGSTOP).is_err() {
        die(4);
    }
    // Reached only if someone continues us.
    Next::Honest
}

pub(in crate::chaos) fn session_grandchild(stage: &Arc<Stage>, _: u64) {
    // Not waited for: it outlives us if nobody stops it.
    if spawn(stage, "session", Streams::None).is_err() {
        die(4);
    }
}

pub(in crate::chaos) fn daemon(stage: &Arc<Stage>, _: u64) {
    let started = spawn(stage, "daemon", Streams::Ours).and_then(|mut first| Ok(first.wait()?));
    if started.is_err() {
        die(4);
    }
}

pub(in crate::chaos) fn fork_bomb(stage: &Arc<Stage>, count: u64, _: &Call) -> Next {
    if stage.first(51) {
        for _ in 0..count {
            // A limit on processes stops the bomb, not the child.
            if spawn(stage, "lingering", Streams::None).is_err() {
                break;
            }
        }
    }
    Next::Honest
}

pub(in crate::chaos) fn eat_memory(stage: &Arc<Stage>, bytes: u64, _: &Call) -> Next {
    if stage.first(52) {
        let mut eaten: Vec<Vec<u8>> = Vec::new();
        while (eaten.len() * STEP) as u64 + (STEP as u64) <= bytes {
            let mut step = Vec::new();
            // Whoever started us is gone, so nobody is left to measure: stop at once.
            if getppid() != stage.parent || step.try_reserve_exact(STEP).is_err() {
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

pub(in crate::chaos) fn fill_directory(stage: &Arc<Stage>, bytes: u64, _: &Call) -> Next {
    if stage.first(53) {
        let block = vec![b'f'; FILE];
        for number in 0..bytes / FILE as u64 {
            // A full disk or a read-only directory ends the filling, not the child.
            if fs::write(format!("chaos-fill-{}-{number}", std::process::id()), &block).is_err() {
                break;
            }
        }
    }
    Next::Honest
}

pub(in crate::chaos) fn kill_parent(stage: &Arc<Stage>, _: u64, _: &Call) -> Next {
    // SIGKILL only: the kernel shields the first process of a namespace from it, so a child that was
    // orphaned meanwhile cannot take the machine with it. Zero means the parent is in another namespace.
    if stage.parent.as_raw() > 1 && getppid() == stage.parent {
        // A parent we may not signal is a parent well protected.
        kill(stage.parent, Signal::SIGKILL).ok();
    }
    Next::Honest
}

pub(in crate::chaos) fn zombies(stage: &Arc<Stage>, count: u64, _: &Call) -> Next {
    if stage.first(55) {
        for _ in 0..count {
            if spawn(stage, "brief", Streams::None).is_err() {
                break;
            }
        }
    }
    Next::Honest
}

pub(in crate::chaos) fn dump_core(_: &Arc<Stage>, _: u64, _: &Call) -> Next {
    // As large a core as the limits we were given allow.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
        setrlimit(Resource::RLIMIT_CORE, hard, hard).ok();
    }
    raise(Signal::SIGABRT).ok();
    die(4)
}

pub(in crate::chaos) fn move_away(_: &Arc<Stage>, _: u64) {
    umask(Mode::empty());
    if std::env::set_current_dir(Path::new("/")).is_err() {
        die(4);
    }
}

pub(in crate::chaos) fn look_around(stage: &Arc<Stage>, _: u64) {
    stage.record(&Record { detail: stage.surroundings.clone(), ..Record::new(What::Surroundings) });
}
