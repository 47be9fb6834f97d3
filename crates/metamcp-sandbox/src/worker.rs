//! The worker: our own binary started again, to run one script without any privileges.
//! Owns: the lifecycle of that process, and its event loop.      Never: starts a thread, opens anything, runs a second script.
//! In: one job on the socket at descriptor 0, or on a pipe.  Out: requests, console lines and progress of the script, and how it ended.
//! Tests: `tests/`.
//!
//! Realm and prelude are built first, then the lockdown is applied and reported to the gateway, and only
//! then does guest code arrive. The event loop detects deadlocks: when no job of the engine is left, no
//! timer is set and no request is open, nothing can settle the script's promise any more.

mod clock;
mod link;
mod natives;
pub mod position;
mod realm;
mod zygote;

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use self::clock::{CpuClock, Timers};
use self::link::{Closed, Link};
use self::realm::Realm;
use self::zygote::Role;
pub(crate) use self::zygote::{NUMBER, UNKNOWN};
use crate::layer;
use crate::lockdown::{self, LinkKind};
use crate::protocol::{End, FromWorker, Op, ScriptError, Server, ToWorker, WorkerLimits};
use crate::run_clock::{self, CLOCK_CHECK_INTERVAL};

/// Exit code of a worker that is done, or whose gateway is gone.
const DONE: i32 = 0;
/// Exit code of a worker that could not build its realm.
const BROKEN: i32 = 70;
/// Exit code of a worker that received an invalid message.
const REFUSED: i32 = 77;

/// What the event loop needs of an engine: one realm, one script.
pub trait Engine {
    /// Starts the script.
    ///
    /// # Errors
    /// The end, if it could not start.
    fn begin(&mut self, code: &str, servers: &[Server], limits: &WorkerLimits) -> Result<(), End>;
    /// Runs the engine's jobs until none is left or the script ended.
    ///
    /// # Errors
    /// The end, if a limit was hit.
    fn run(&mut self) -> Result<(), End>;
    /// How the script ended, if it did.
    fn ended(&mut self) -> Option<End>;
    /// Settles a request of the script: result or error, both as JSON.
    ///
    /// # Errors
    /// The end, if a limit was hit.
    fn settle(&mut self, id: u32, answer: Result<String, String>) -> Result<(), End>;
    /// Fires a timer of the script.
    ///
    /// # Errors
    /// The end, if a limit was hit.
    fn due(&mut self, number: u32) -> Result<(), End>;
    /// Whether memory ran out where no exception could be thrown.
    fn ran_out(&mut self) -> bool;
    /// Touches the memory a script will write to, in a worker that was just forked (copy-on-write).
    fn warm_up(&mut self) {}
}

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
    let state = Rc::new(State::default());
    state.link.borrow_mut().kind = setup.link_kind;
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
    let lockdown::Report { mut layers, missing } = lockdown::apply(setup.reserved, setup.link_kind);
    layers.extend(setup.layers.iter().map(|&layer| layer.to_owned()));
    let mut link = state.link.borrow_mut();
    link.send(&FromWorker::Ready { layers, missing });
    if link.flush().is_err() {
        return DONE;
    }
    let job = link.receive(None);
    drop(link);
    let (code, limits, servers) = match job {
        Ok(Some(ToWorker::Job { code, limits, servers })) => (code, limits, servers),
        Err(Closed::Gone) => return DONE,
        Ok(_) | Err(Closed::Garbled) => return REFUSED,
    };
    state.begin(limits);
    let end = match engine.begin(&code, &servers, &limits) {
        Ok(()) => run(&mut *engine, &state).unwrap_or_else(|end| end),
        Err(end) => end,
    };
    state.end(end);
    // Exiting takes as long as a short script, on the core on which the gateway is to read the result. It kills us
    // once it has.
    state.link.borrow_mut().linger();
    DONE
}

/// The event loop. An end by a limit is an error, any other a value.
fn run(engine: &mut impl Engine, state: &State) -> Result<End, End> {
    loop {
        engine.run()?;
        if let Some(end) = engine.ended() {
            return Ok(end);
        }
        let (open, next) = (state.open.get(), state.timers.borrow().next());
        if open == 0 && next.is_none() {
            let ran_out = engine.ran_out();
            return Ok(if ran_out { End::MemoryLimit(out_of_memory()) } else { End::Deadlock });
        }
        // A separate statement: a timer's callback may set timers, so the borrow must have ended.
        let due = state.timers.borrow_mut().take_due();
        if let Some(number) = due {
            engine.due(number)?;
            continue;
        }
        let waiting_since = run_clock::now();
        let received = state
            .link
            .borrow_mut()
            .receive(next.map(|next| next.min(waiting_since + CLOCK_CHECK_INTERVAL)));
        // Timers exclude pauses, or a script's own timeout for a call would fire before the gateway, which was stopped as
        // well, has read the response.
        if next.is_some() {
            state.timers.borrow_mut().put_off(run_clock::missed(waiting_since.elapsed()));
        }
        match received {
            Ok(Some(ToWorker::Reply { id, answer })) => {
                deliver(engine, state, id, answer)?;
                // All that has arrived, before the engine runs: one run for many responses.
                loop {
                    let more = state.link.borrow_mut().at_hand();
                    match more {
                        Ok(Some(ToWorker::Reply { id, answer })) => {
                            deliver(engine, state, id, answer)?;
                        }
                        Ok(None) => break,
                        Ok(Some(ToWorker::Job { .. })) | Err(_) => return Ok(gone()),
                    }
                }
            }
            Ok(None) => {}
            Ok(Some(ToWorker::Job { .. })) | Err(_) => return Ok(gone()),
        }
    }
}

fn deliver(
    engine: &mut impl Engine,
    state: &State,
    id: u32,
    answer: Result<String, String>,
) -> Result<(), End> {
    state.open.set(state.open.get().saturating_sub(1));
    engine.settle(id, answer)
}

/// The gateway is gone or broken: nobody will read this end.
fn gone() -> End {
    End::Deadlock
}

/// An engine's access to the outside: the connection, timers and clocks of the worker.
pub struct HostHandle(Rc<State>);

impl HostHandle {
    /// Sends a request; its id, or `None` for an unknown operation.
    pub fn request(&self, op: u8, payload: String) -> Option<u32> {
        Some(self.0.ask(Op::of(op).ok()?, payload))
    }

    /// Sends a console line.
    pub fn log(&self, level: u8, text: String) {
        self.0.log(level, text);
    }

    /// Sends progress.
    pub fn progress(&self, value: f64, total: Option<f64>, message: Option<String>) {
        self.0.progress(value, total, message);
    }

    /// Sets a timer; returns its number.
    pub fn timer(&self, milliseconds: f64) -> u32 {
        self.0.timers.borrow_mut().start(milliseconds)
    }

    /// Stops a timer.
    pub fn clear(&self, number: u32) {
        self.0.timers.borrow_mut().stop(number);
    }

    /// Whether the CPU limit is used up. Never before the script began.
    pub fn is_out_of_time(&self) -> bool {
        self.0.is_out_of_time()
    }
}

/// The error where the engine had no memory to create one.
fn out_of_memory() -> ScriptError {
    ScriptError {
        name: "InternalError".into(),
        message: "out of memory".into(),
        ..ScriptError::default()
    }
}

/// Shared by the native functions of the realm and the event loop.
#[derive(Default)]
struct State {
    link: RefCell<Link>,
    timers: RefCell<Timers>,
    /// The id of the next request.
    next: Cell<u32>,
    /// Requests without a response.
    open: Cell<u32>,
    cpu_clock: Cell<Option<CpuClock>>,
    /// Bytes left for console output.
    logs: Cell<u64>,
    dropped: Cell<u64>,
    logs_tail: RefCell<natives::LogsTail>,
    progress: Cell<u32>,
}

impl State {
    fn begin(&self, limits: WorkerLimits) {
        self.logs.set(limits.logs);
        self.cpu_clock.set(Some(CpuClock::start(limits.cpu)));
    }

    /// Whether the CPU limit is used up. Never before the script began.
    fn is_out_of_time(&self) -> bool {
        self.cpu_clock.get().is_some_and(CpuClock::is_over)
    }

    /// Sends the end, the last message.
    fn end(&self, end: End) {
        let Ok(mut link) = self.link.try_borrow_mut() else { return };
        if self.dropped.get() > 0 {
            link.send(&FromWorker::LogsDropped { bytes: self.dropped.get() });
        }
        if let Ok(mut tail) = self.logs_tail.try_borrow_mut() {
            for (level, text) in tail.take() {
                link.send(&FromWorker::Log { level, text });
            }
        }
        let cpu = self.cpu_clock.get().map_or(0, CpuClock::used);
        link.send(&FromWorker::Done { end, cpu });
        // An error means that the gateway is gone.
        link.flush().ok();
    }
}
