//! The worker: our own binary started again, to run one script without any privileges.
//! Owns: the lifecycle of that process, and its event loop.      Never: opens anything, runs a second script.
//! In: one job on the socket at descriptor 0, or on a pipe.  Out: requests, console lines and progress of the script, and how it ended.
//! Tests: `tests/`; of [`serve_unlocked`] in `metamcp-hardened/tests`.
//!
//! Realm and prelude are built first, then the lockdown is applied and reported to the gateway, and only
//! then does guest code arrive. Under the lockdown there is one thread; without it, where an engine brings its own walls
//! ([`serve_unlocked`]), another one reads. The event loop detects deadlocks: when no job of the engine is left, no
//! timer is set and no request is open, nothing can settle the script's promise any more.

mod clock;
mod link;
#[cfg(target_os = "linux")]
mod locked_down;
#[cfg(target_os = "linux")]
mod natives;
mod output;
pub mod position;
#[cfg(target_os = "linux")]
mod realm;
#[cfg(target_os = "linux")]
mod zygote;

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;

use self::clock::{CpuClock, Timers};
use self::link::{Closed, Link};
#[cfg(target_os = "linux")]
pub use self::locked_down::{IN_CONTAINER, WorkerSetup, ZYGOTE, serve, worker_main};
#[cfg(target_os = "linux")]
pub(crate) use self::zygote::{NUMBER, UNKNOWN};
use crate::protocol::{
    End, FromWorker, MissingLayer, Op, ScriptError, Server, ToWorker, WorkerLimits,
};
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

/// The layers around a worker.
#[derive(Debug, Default)]
pub struct Report {
    /// Layers in force.
    pub layers: Vec<String>,
    /// Layers that failed.
    pub missing: Vec<MissingLayer>,
}

impl Report {
    /// Notes whether a layer is in force.
    pub fn note(&mut self, layer: &str, applied: Result<(), String>) {
        match applied {
            Ok(()) => self.layers.push(layer.to_owned()),
            Err(reason) => self.missing.push(MissingLayer { layer: layer.to_owned(), reason }),
        }
    }
}

/// Runs a worker without the Linux lockdown, connected by standard input and output, and returns the exit code of the
/// process. The engine is built before `confine` gives up what the system lets a process give up; it has to hold a
/// script by itself. `begun` is called with the script's limit on CPU time.
///
/// To be called first in `main`, before any runtime or thread exists.
pub fn serve_unlocked<E: Engine>(
    build: impl FnOnce(HostHandle) -> Option<E>,
    confine: impl FnOnce() -> Report,
    begun: impl FnOnce(std::time::Duration),
) -> i32 {
    // A message would be for nobody, and a panic ends the worker as it is.
    std::panic::set_hook(Box::new(|_| {}));
    // Before the limits, under which no thread can be started.
    let Ok(link) = Link::pipes() else { return BROKEN };
    let state = Rc::new(State::new(link));
    let Some(mut engine) = build(HostHandle(Rc::clone(&state))).map(ManuallyDrop::new) else {
        return BROKEN;
    };
    let report = confine();
    run_job(&mut *engine, &state, report, begun)
}

/// Reports the layers, waits for the job, and does it.
fn run_job(
    engine: &mut impl Engine,
    state: &State,
    report: Report,
    begun: impl FnOnce(std::time::Duration),
) -> i32 {
    let mut link = state.link.borrow_mut();
    link.send(&FromWorker::Ready { layers: report.layers, missing: report.missing });
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
    begun(std::time::Duration::from_micros(limits.cpu));
    state.begin(limits);
    let end = match engine.begin(&code, &servers, &limits) {
        Ok(()) => run(engine, state).unwrap_or_else(|end| end),
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
    logs_tail: RefCell<output::LogsTail>,
    progress: Cell<u32>,
}

impl State {
    fn new(link: Link) -> State {
        State {
            link: RefCell::new(link),
            timers: RefCell::default(),
            next: Cell::default(),
            open: Cell::default(),
            cpu_clock: Cell::default(),
            logs: Cell::default(),
            dropped: Cell::default(),
            logs_tail: RefCell::default(),
            progress: Cell::default(),
        }
    }

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
