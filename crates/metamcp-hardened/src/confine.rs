//! What a worker without the Linux lockdown gives up before it gets a script, by the means of its system.
//! Owns: those limits, their verification, the wall clock of a script.      Never: claims a layer that it did not see hold.
//! In: a process with its engine built.  Out: which layers hold, which do not, and why.
//! Tests: `tests/workers.rs`; on Windows the same.
//!
//! What holds a script here is the engine. These limits are for what a fault in it could do.

#[cfg(unix)]
#[path = "confine/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "confine/windows.rs"]
mod system;

use std::env;
use std::time::Duration;

use metamcp_sandbox::layer;
use metamcp_sandbox::worker::Report;

/// How much more CPU time than its limit a script may use before the system ends the worker: the engine's own clock is
/// looked at every few milliseconds and keeps the position in the script; some systems count whole seconds.
const CPU_GRACE: Duration = Duration::from_secs(2);

/// Applies every layer. Never fails: failed layers are in the report.
pub(crate) fn apply() -> Report {
    let mut report = Report::default();
    report.note(layer::WASM, Ok(()));
    // By the thread that reads the pipe.
    report.note(layer::LIFELINE, Ok(()));
    system::clear_environment();
    report.note(layer::ENVIRONMENT, environment());
    system::apply(&mut report);
    report
}

/// Has the system end the worker if a script uses more CPU time than this.
pub(crate) fn begun(cpu: Duration) {
    // The limit for all scripts stays where this one cannot be set, and the gateway has clocks of its own.
    system::limit_cpu(cpu + CPU_GRACE).ok();
}

/// Microseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a script may know the time of day")]
pub(crate) fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64() * 1e6)
}

/// Checks that the environment is empty.
fn environment() -> Result<(), String> {
    match env::vars_os().next() {
        Some((name, _)) => Err(format!("{} is set", name.display())),
        None => Ok(()),
    }
}
