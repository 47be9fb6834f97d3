//! A worker under the Linux lockdown, with whatever engine: forked from a zygote, started directly, or in a container.

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use super::link::Link;
use super::realm::Realm;
use super::zygote::{self, Role};
use super::{BROKEN, DONE, Engine, HostHandle, State, run_job};
use crate::layer;
use crate::lockdown::{self, LinkKind};

/// What an engine adds to the lockdown and requires of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerSetup {
    /// Layers the engine itself provides.
    pub layers: &'static [&'static str],
    /// Address space it reserves without using it.
    pub reserved: u64,
    /// The connection to the gateway.
    pub link_kind: LinkKind,
    /// Whether it is a zygote.
    pub forks: bool,
}

/// The argument of a zygote.
pub const ZYGOTE: &str = "zygote";
/// The argument of a worker in a container.
pub const IN_CONTAINER: &str = "container";
/// The pid of the first process of a container.
const FIRST_PROCESS: i32 = 1;

/// Runs the worker with the native engine and returns the exit code of the process.
///
/// To be called first in `main`, before any runtime or thread exists. `args` is what follows the hidden
/// argument on the command line: nothing, [`ZYGOTE`] or [`IN_CONTAINER`].
pub fn worker_main(mut args: impl Iterator<Item = OsString>) -> i32 {
    let word = args.next();
    let setup = if word.as_ref().is_some_and(|word| word == IN_CONTAINER) {
        let is_alone = nix::unistd::getpid().as_raw() == FIRST_PROCESS;
        let layers: &[&str] = if is_alone { &[layer::CONTAINER] } else { &[] };
        WorkerSetup { layers, link_kind: LinkKind::Pipes, ..WorkerSetup::default() }
    } else {
        WorkerSetup { forks: word.is_some_and(|word| word == ZYGOTE), ..WorkerSetup::default() }
    };
    serve(setup, |outside| Realm::build(&outside.0))
}

/// Runs the worker with the caller's engine, which is built before the lockdown.
pub fn serve<E: Engine>(setup: WorkerSetup, build: impl FnOnce(HostHandle) -> Option<E>) -> i32 {
    // Nobody would see the message, and the system call to write it would kill us before the exit code is set.
    std::panic::set_hook(Box::new(|_| {}));
    let state = Rc::new(State::new(Link::descriptors(setup.link_kind)));
    // Never dropped: the exit frees it all at once, and the engine aborts in its destructor if something of a
    // script is still referenced.
    let engine = build(HostHandle(Rc::clone(&state))).map(ManuallyDrop::new);
    let Some(mut engine) = engine else { return BROKEN };
    if setup.forks {
        // Returns in every forked worker, each with a copy of the engine.
        match zygote::fork_workers() {
            Ok(Role::Worker) => engine.warm_up(),
            Ok(Role::Over) => return DONE,
            Err(_) => return BROKEN,
        }
    }
    // The gateway decides whether that is enough, and sends no code otherwise.
    let mut report = lockdown::apply(setup.reserved, setup.link_kind);
    report.layers.extend(setup.layers.iter().map(|&layer| layer.to_owned()));
    run_job(&mut *engine, &state, report, |_| {})
}
