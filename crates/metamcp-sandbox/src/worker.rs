//! The worker: our own binary started again, with one script to run and no rights to run it with.
//! Owns: the order of things in that process, and its loop.      Never: starts a thread, opens anything, runs a second script.
//! In: one job on the socket it finds as descriptor 0.  Out: what the script asks and says, and how it ended.
//! Tests: `tests/`.
//!
//! Realm and prelude are built first, then every right is given up, then the gateway is told so, and only
//! then does code of a guest arrive. The loop has one rule: when no job of the engine is left, no timer
//! is set and no question is open, then nobody can settle the script's promise any more.

mod clock;
mod link;
mod natives;
mod position;
mod realm;

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use self::clock::{Processor, Timers};
use self::link::{Closed, Link};
use self::realm::Realm;
use crate::lockdown;
use crate::protocol::{End, FromWorker, ScriptError, ToWorker, WorkerLimits};

/// The exit code of a worker that did its work, or was told that none will come.
const DONE: i32 = 0;
/// The exit code of a worker that could not build its realm.
const BROKEN: i32 = 70;
/// The exit code of a worker that heard what it cannot understand.
const REFUSED: i32 = 77;

/// Runs the worker and returns the exit code of the process.
///
/// The caller does this first thing in `main`, before any runtime or thread exists. `args` is what
/// follows the hidden word on the command line; there is nothing yet.
pub fn worker_main(_args: impl Iterator<Item = OsString>) -> i32 {
    // Nobody would see the words, and the system call to write them would kill us before the code is told.
    std::panic::set_hook(Box::new(|_| {}));
    let state = Rc::new(State::default());
    // Never taken down: the process ends, which frees it all at once. Doing it piece by piece takes time, and
    // the engine aborts when something of a script is still held.
    let Some(realm) = Realm::build(&state).map(ManuallyDrop::new) else { return BROKEN };
    // Whether that is enough is the gateway's to decide; without its word no code arrives.
    let lockdown::Report { layers, missing } = lockdown::apply();
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
    let end = realm.begin(&code, &servers, &limits).unwrap_or_else(|()| run(&realm, &state));
    state.end(end);
    DONE
}

/// Turns the loop until the script ended.
fn run(realm: &Realm, state: &State) -> End {
    loop {
        realm.run_jobs();
        if let Some(end) = realm.ended() {
            return end;
        }
        let (open, next) = (state.open.get(), state.timers.borrow().next());
        if open == 0 && next.is_none() {
            return if realm.ran_out() { End::MemoryLimit(out_of_memory()) } else { End::Deadlock };
        }
        // On a line of its own: the timers are the prelude's to set while one of them runs.
        let due = state.timers.borrow_mut().take_due();
        if let Some(number) = due {
            if let Err(end) = realm.due(number) {
                return end;
            }
            continue;
        }
        let heard = state.link.borrow_mut().receive(next);
        match heard {
            Ok(Some(ToWorker::Reply { id, answer })) => {
                if let Err(end) = deliver(realm, state, id, answer) {
                    return end;
                }
                // All that is here already, before the engine runs: one turn for many answers.
                loop {
                    let more = state.link.borrow_mut().at_hand();
                    match more {
                        Ok(Some(ToWorker::Reply { id, answer })) => {
                            if let Err(end) = deliver(realm, state, id, answer) {
                                return end;
                            }
                        }
                        Ok(None) => break,
                        Ok(Some(ToWorker::Job { .. })) | Err(_) => return gone(),
                    }
                }
            }
            Ok(None) => {}
            Ok(Some(ToWorker::Job { .. })) | Err(_) => return gone(),
        }
    }
}

fn deliver(
    realm: &Realm,
    state: &State,
    id: u32,
    answer: Result<String, String>,
) -> Result<(), End> {
    state.open.set(state.open.get().saturating_sub(1));
    realm.settle(id, answer)
}

/// The gateway is gone, or speaks nonsense: whatever this says, nobody will read it.
fn gone() -> End {
    End::Deadlock
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
    processor: Cell<Option<Processor>>,
    /// Bytes of console output that may still be sent.
    logs: Cell<u64>,
    dropped: Cell<u64>,
    progress: Cell<u32>,
}

impl State {
    fn begin(&self, limits: WorkerLimits) {
        self.logs.set(limits.logs);
        self.processor.set(Some(Processor::start(limits.cpu)));
    }

    /// Whether the processor time is used up. Never before the script began.
    fn is_out_of_time(&self) -> bool {
        self.processor.get().is_some_and(Processor::is_over)
    }

    /// Says how it ended. Nothing is said after it.
    fn end(&self, end: End) {
        let Ok(mut link) = self.link.try_borrow_mut() else { return };
        if self.dropped.get() > 0 {
            link.send(&FromWorker::LogsDropped { bytes: self.dropped.get() });
        }
        let cpu = self.processor.get().map_or(0, Processor::used);
        link.send(&FromWorker::Done { end, cpu });
        // If nobody reads it, nobody is there to be told.
        link.flush().ok();
    }
}
