//! The clock that stops a script which never yields.
//!
//! Compiled code checks a counter of the runtime (its epoch) at every loop and every call, so incrementing the counter
//! interrupts it, whatever function of the engine it is in. A thread could do that, but a worker must have none: the
//! lockdown binds the thread it is applied to. The kernel can, by a signal for every few milliseconds of CPU time; a
//! worker that waits gets none.

use std::sync::OnceLock;

use wasmtime::Engine;

/// The engine whose epoch is incremented. There is one per process.
static ENGINE: OnceLock<Engine> = OnceLock::new();

/// Starts the timer, which lives as long as the process.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "what a signal calls must be known to be safe in any place, which it is"
)]
pub(super) fn start(engine: &Engine) -> wasmtime::Result<()> {
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

    if ENGINE.set(engine.clone()).is_err() {
        return Ok(());
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

/// Starts a thread as the timer: without a lockdown, nothing speaks against one.
#[cfg(not(target_os = "linux"))]
pub(super) fn start(engine: &Engine) -> wasmtime::Result<()> {
    if ENGINE.set(engine.clone()).is_err() {
        return Ok(());
    }
    std::thread::Builder::new().name("tick".into()).spawn(|| {
        while let Some(engine) = ENGINE.get() {
            std::thread::sleep(super::TICK);
            engine.increment_epoch();
        }
    })?;
    Ok(())
}
