//! The clock that stops a script which never yields.
//!
//! Compiled code checks a counter of the runtime (its epoch) at every loop and every call, so incrementing the counter
//! interrupts it, whatever function of the engine it is in. A thread could do that, but a worker under the lockdown must
//! have none: the lockdown binds the thread it is applied to. There the kernel does, by a signal for every few
//! milliseconds of CPU time; a worker that waits gets none. Elsewhere it is a thread, which sleeps while no script runs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use wasmtime::Engine;

/// What increments the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticker {
    /// A timer of the kernel, on CPU time.
    #[cfg(target_os = "linux")]
    CpuTimer,
    /// A thread.
    Thread,
}

/// The engine whose epoch is incremented. There is one per process.
static ENGINE: OnceLock<Engine> = OnceLock::new();

/// The thread, if it is one.
static THREAD: OnceLock<Thread> = OnceLock::new();
/// Whether compiled code runs.
static IS_INSIDE: AtomicBool = AtomicBool::new(false);
/// Whether the thread waits until it does.
static IS_PARKED: AtomicBool = AtomicBool::new(false);

/// Ticks without a script after which the thread waits for one: most workers are idle, and should wake nobody.
const QUIET_TICKS: u32 = 4;

/// Starts the ticker, which lives as long as the process.
pub(super) fn start(engine: &Engine, ticker: Ticker) -> wasmtime::Result<()> {
    if ENGINE.set(engine.clone()).is_err() {
        return Ok(());
    }
    match ticker {
        #[cfg(target_os = "linux")]
        Ticker::CpuTimer => start_timer(),
        Ticker::Thread => {
            let ticking = thread::Builder::new().name("tick".into()).spawn(tick_in_turns)?;
            THREAD.set(ticking.thread().clone()).ok();
            Ok(())
        }
    }
}

/// Compiled code runs while this lives.
pub(super) struct Inside;

impl Inside {
    pub(super) fn new() -> Inside {
        if let Some(thread) = THREAD.get() {
            IS_INSIDE.store(true, Ordering::SeqCst);
            if IS_PARKED.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if THREAD.get().is_some() {
            IS_INSIDE.store(false, Ordering::SeqCst);
        }
    }
}

fn tick_in_turns() {
    let mut quiet = 0;
    loop {
        quiet = if IS_INSIDE.load(Ordering::SeqCst) { 0 } else { quiet + 1 };
        if quiet > QUIET_TICKS {
            IS_PARKED.store(true, Ordering::SeqCst);
            // Whoever enters after this look sees that we wait, and the wake-up of one who did before is not lost.
            if !IS_INSIDE.load(Ordering::SeqCst) {
                thread::park();
            }
            IS_PARKED.store(false, Ordering::SeqCst);
            quiet = 0;
        }
        thread::sleep(super::TICK);
        if let Some(engine) = ENGINE.get() {
            engine.increment_epoch();
        }
    }
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "what a signal calls must be known to be safe in any place, which it is"
)]
fn start_timer() -> wasmtime::Result<()> {
    use nix::sys::signal::{
        SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction,
    };
    use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
    use nix::time::ClockId;

    extern "C" fn tick(_: nix::libc::c_int) {
        if let Some(engine) = ENGINE.get() {
            engine.increment_epoch();
        }
    }

    let action = SigAction::new(SigHandler::Handler(tick), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: all that `tick` does is an atomic load and an atomic addition.
    unsafe { sigaction(Signal::SIGVTALRM, &action) }?;
    let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGVTALRM, si_value: 0 });
    let mut timer = Timer::new(ClockId::CLOCK_PROCESS_CPUTIME_ID, event)?;
    timer.set(Expiration::Interval(super::TICK.into()), TimerSetTimeFlags::empty())?;
    // Dropping it would stop it.
    std::mem::forget(timer);
    Ok(())
}
