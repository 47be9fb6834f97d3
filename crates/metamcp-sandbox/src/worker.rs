//! The worker: our own binary started again, with one script to run and no rights to run it with.
//! Owns: the order of things in that process, and its loop.      Never: starts a thread, opens anything, runs a second script.
//! In: one job on the socket it finds as descriptor 0, or on a pipe.  Out: what the script asks and says, and how it ended.
//! Tests: `tests/`.
//!
//! Realm and prelude are built first, then every right is given up, then the gateway is told so, and only
//! then does code of a guest arrive. The loop has one rule: when no job of the engine is left, no timer
//! is set and no question is open, then nobody can settle the script's promise any more.

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
use std::time::Instant;

use self::clock::{CpuClock, Timers};
use self::link::{Closed, Link};
use self::realm::Realm;
use self::zygote::Role;
pub(crate) use self::zygote::{NUMBER, UNKNOWN};
use crate::layer;
use crate::lockdown::{self, LinkKind};
use crate::protocol::{End, FromWorker, Op, ScriptError, Server, ToWorker, WorkerLimits};
use crate::run_clock::{self, CLOCK_CHECK_INTERVAL};

/// The exit code of a worker that did its work, or was told that none will come.
const DONE: i32 = 0;
/// The exit code of a worker that could not build its realm.
const BROKEN: i32 = 70;
/// The exit code of a worker that heard what it cannot understand.
const REFUSED: i32 = 77;

/// What the worker's loop needs of an engine: one realm, one script.
pub trait Engine {
    /// Starts the script.
    ///
    /// # Errors
    /// An end before the beginning.
    fn begin(&mut self, code: &str, servers: &[Server], limits: &WorkerLimits) -> Result<(), End>;
    /// Runs what can run, until nothing is left to do or the script ended.
    ///
    /// # Errors
    /// The end, if a limit struck.
    fn run(&mut self) -> Result<(), End>;
    /// How the script ended, if it did.
    fn ended(&mut self) -> Option<End>;
    /// Hands an answer to the script: a value or why there is none, JSON both.
    ///
    /// # Errors
    /// The end, if a limit struck.
    fn settle(&mut self, id: u32, answer: Result<String, String>) -> Result<(), End>;
    /// Tells the script that a timer is due.
    ///
    /// # Errors
    /// The end, if a limit struck.
    fn due(&mut self, number: u32) -> Result<(), End>;
    /// Whether memory ran out where the script could not be told.
    fn ran_out(&mut self) -> bool;
    /// Touches what a script will, in a worker that was just forked and shares all memory with the others.
    fn warm_up(&mut self) {}
}

/// What an engine adds to the lockdown, and needs of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerSetup {
    /// Layers it is itself.
    pub layers: &'static [&'static str],
    /// Address space it reserves and never uses.
    pub reserved: u64,
    /// What it speaks to the gateway over.
    pub link_kind: LinkKind,
    /// Whether workers are forked from it, instead of it being one.
    pub forks: bool,
}

/// The argument of a nursery, which forks workers and is none.
pub const ZYGOTE: &str = "zygote";
/// The argument of a worker in a container.
pub const IN_CONTAINER: &str = "container";
/// The first process of a container, which a worker is only where it has a world of its own.
const FIRST_PROCESS: i32 = 1;

/// Runs the worker with the native engine and returns the exit code of the process.
///
/// The caller does this first thing in `main`, before any runtime or thread exists. `args` is what
/// follows the hidden word on the command line: nothing, [`ZYGOTE`] or [`IN_CONTAINER`].
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

/// Runs the worker with an engine of the caller's, built before every right is given up.
pub fn serve<E: Engine>(setup: WorkerSetup, build: impl FnOnce(HostHandle) -> Option<E>) -> i32 {
    // Nobody would see the words, and the system call to write them would kill us before the code is told.
    std::panic::set_hook(Box::new(|_| {}));
    let state = Rc::new(State::default());
    state.link.borrow_mut().link_kind = setup.link_kind;
    // Never taken down: the process ends, which frees it all at once. Doing it piece by piece takes time, and
    // the engine aborts when something of a script is still held.
    let engine = build(HostHandle(Rc::clone(&state))).map(ManuallyDrop::new);
    let Some(mut engine) = engine else { return BROKEN };
    if setup.forks {
        // From here on there are many of us, each with a copy of the engine.
        match zygote::fork_workers() {
            Ok(Role::Worker) => engine.warm_up(),
            Ok(Role::Over) => return DONE,
            Err(_) => return BROKEN,
        }
    }
    // Whether that is enough is the gateway's to decide; without its word no code arrives.
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
    // Taking a process down takes as long as many a script, on the core that the gateway would read the end on. It
    // closes the socket, and kills us, when it has.
    state.link.borrow_mut().linger();
    DONE
}

/// Turns the loop until the script ended. An end by a limit comes as an error, any other as a value.
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
        // On a line of its own: the timers are the prelude's to set while one of them runs.
        let due = state.timers.borrow_mut().take_due();
        if let Some(number) = due {
            engine.due(number)?;
            continue;
        }
        let asked = Instant::now();
        let heard = state
            .link
            .borrow_mut()
            .receive(next.map(|next| next.min(asked + CLOCK_CHECK_INTERVAL)));
        // Timers of a script go on where they were, or its own limit for a call would strike before the gateway, which
        // was stopped as well, has read the answer.
        if next.is_some() {
            state.timers.borrow_mut().put_off(run_clock::missed(asked.elapsed()));
        }
        match heard {
            Ok(Some(ToWorker::Reply { id, answer })) => {
                deliver(engine, state, id, answer)?;
                // All that is here already, before the engine runs: one turn for many answers.
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

/// The gateway is gone, or speaks nonsense: whatever this says, nobody will read it.
fn gone() -> End {
    End::Deadlock
}

/// The world outside a script, as far as an engine may reach it: the socket, timers and clocks of the worker.
pub struct HostHandle(Rc<State>);

impl HostHandle {
    /// Puts a question; the number its answer will come under, or nothing if there is no such operation.
    pub fn request(&self, op: u8, payload: String) -> Option<u32> {
        Some(self.0.ask(Op::of(op).ok()?, payload))
    }

    /// A line of the console.
    pub fn log(&self, level: u8, text: String) {
        self.0.log(level, text);
    }

    /// How far the script says it is.
    pub fn progress(&self, value: f64, total: Option<f64>, message: Option<String>) {
        self.0.progress(value, total, message);
    }

    /// Sets a timer; its number.
    pub fn timer(&self, milliseconds: f64) -> u32 {
        self.0.timers.borrow_mut().start(milliseconds)
    }

    /// Stops a timer.
    pub fn clear(&self, number: u32) {
        self.0.timers.borrow_mut().stop(number);
    }

    /// Whether the script has used up its processor time. Never before it began.
    pub fn is_out_of_time(&self) -> bool {
        self.0.is_out_of_time()
    }
}

/// What is known of an end that came before the engine could say anything.
fn out_of_memory() -> ScriptError {
    ScriptError {
        name: "InternalError".into(),
        message: "out of memory".into(),
        ..ScriptError::default()
    }
}

/// What the realm's native functions and the loop share.
#[derive(Default)]
struct State {
    link: RefCell<Link>,
    timers: RefCell<Timers>,
    /// The number of the next question.
    next: Cell<u32>,
    /// Questions without an answer.
    open: Cell<u32>,
    cpu_clock: Cell<Option<CpuClock>>,
    /// Bytes of console output that may still be sent.
    logs: Cell<u64>,
    dropped: Cell<u64>,
    progress: Cell<u32>,
}

impl State {
    fn begin(&self, limits: WorkerLimits) {
        self.logs.set(limits.logs);
        self.cpu_clock.set(Some(CpuClock::start(limits.cpu)));
    }

    /// Whether the processor time is used up. Never before the script began.
    fn is_out_of_time(&self) -> bool {
        self.cpu_clock.get().is_some_and(CpuClock::is_over)
    }

    /// Says how it ended. Nothing is said after it.
    fn end(&self, end: End) {
        let Ok(mut link) = self.link.try_borrow_mut() else { return };
        if self.dropped.get() > 0 {
            link.send(&FromWorker::LogsDropped { bytes: self.dropped.get() });
        }
        let cpu = self.cpu_clock.get().map_or(0, CpuClock::used);
        link.send(&FromWorker::Done { end, cpu });
        // If nobody reads it, nobody is there to be told.
        link.flush().ok();
    }
}
