//! The gateway's side of code mode: workers kept ready, and one run from script to outcome.
//! Owns: starting, checking, watching and ending workers.      Never: runs guest code, decides what a call may do.
//! In: a [`ScriptJob`], and a [`Host`] that answers its requests.  Out: a [`ScriptOutcome`], whatever the script did.
//! Tests: `tests/`, with real workers; `host/admission.rs` for the counting.
//!
//! The worker is not trusted. It ends itself at its limits because that keeps the position in the
//! script; independently of that, the gateway counts calls, reads the CPU clock of the process and the
//! wall clock, and kills.

mod admission;
mod completion;
mod json_depth;
mod link;
mod partials;
mod pending_answers;
mod process;
mod run;
#[cfg(any(target_os = "macos", test))]
mod seatbelt;
mod spawn;
mod workers;
#[cfg(target_os = "linux")]
mod zygote;

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

pub use self::run::run;
pub use self::workers::{Worker, Workers};
pub use crate::layer::Profile;
pub use crate::limits::Limits;
pub use crate::protocol::{Level, Op, ScriptError, Server};

/// How to start a worker: a program that calls [`crate::worker::worker_main`] first thing in `main` when
/// it sees these arguments.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program; `/proc/self/exe` is this binary, also after it was replaced on disk. Empty where this build has no
    /// worker for the profile.
    pub program: PathBuf,
    /// The arguments that make it a worker.
    pub args: Vec<OsString>,
    /// Its environment. A worker needs an empty one; a program in between (such as `docker`) may need some of ours.
    pub env: Vec<(OsString, OsString)>,
    /// Whether the program can be a zygote: with one more argument it forks workers, which start in a fraction of the
    /// time.
    pub forks: bool,
}

/// Why there is no worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// A layer the profile requires is missing.
    #[error("the sandbox lacks {layer}: {reason}")]
    Layer {
        /// Its name.
        layer: String,
        /// As found by the worker or the gateway.
        reason: String,
    },
    /// The worker could not be started, or ended before it was ready.
    #[error("the sandbox worker did not start: {reason}")]
    Start {
        /// What happened.
        reason: String,
    },
    /// Out of file descriptors.
    #[error("the sandbox worker did not start: {reason}")]
    Files {
        /// What the system said.
        reason: String,
    },
    /// The lockdown exists on Linux only.
    #[error("its lockdown needs Linux, this is {system}")]
    Platform {
        /// The name of this system.
        system: &'static str,
    },
    /// Without the lockdown scripts run in the engine as WASM, which this build does not have.
    #[error("this build has no WebAssembly engine, without which there is no sandbox here")]
    Engine,
}

/// One script to run.
#[derive(Debug, Clone)]
pub struct ScriptJob {
    /// Plain JavaScript, run as the body of an async function: `await` and `return` are fine at the top.
    pub code: String,
    /// The servers the script knows by name.
    pub servers: Vec<Server>,
    /// Its limits.
    pub limits: Limits,
}

/// A failed request of a script, which sees it as a `ToolError`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// An object with `message`, and if known `code`, `retryable`, `server`, `tool`. For a result with `isError`, `result`
    /// is all of it, and `server` and `tool` are their real names.
    pub json: String,
}

/// A pending response. Dropping it cancels the call.
pub type Answer = Pin<Box<dyn Future<Output = Result<String, CallError>> + Send>>;

/// Answers the requests of a script. Called from a task of the gateway: must not block.
pub trait Host: Send + Sync + 'static {
    /// Starts a request. `payload` is one JSON object with no other members than those described at [`Op`], each at most
    /// once; their values are the script's: hostile.
    fn answer(&self, op: Op, payload: String) -> Answer;

    /// The canonical name of a server. Calls are counted under it, so that an alias does not evade the limit per server.
    fn server_meant(&self, written: &str) -> Option<String> {
        Some(written.to_owned())
    }

    /// A console line, as it comes. It is in the outcome as well.
    fn log(&self, _level: Level, _text: &str) {}

    /// Progress reported by the script.
    fn progress(&self, _value: f64, _total: Option<f64>, _message: Option<&str>) {}
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With a value.
    Ok,
    /// With an error: the script's, or the worker's.
    Error,
    /// The wall-clock limit.
    Timeout,
    /// The CPU limit.
    CpuLimit,
    /// The heap limit.
    MemoryLimit,
    /// The limit of calls.
    CallLimit,
    /// It waits for a promise that nothing can settle.
    Deadlock,
    /// By the caller.
    Cancelled,
}

impl Status {
    /// As it is written in results.
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Error => "error",
            Status::Timeout => "timeout",
            Status::CpuLimit => "cpu_limit",
            Status::MemoryLimit => "memory_limit",
            Status::CallLimit => "call_limit",
            Status::Deadlock => "deadlock",
            Status::Cancelled => "cancelled",
        }
    }
}

/// The limit that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitHit {
    /// Its name, as the field of [`Limits`] is called.
    pub name: &'static str,
    /// Its value, for a reader: `5 s`, `64 MiB`, `2000`.
    pub value: String,
}

/// One line of the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How it was logged.
    pub level: Level,
    /// The text, bounded.
    pub text: String,
}

/// One call the script made, in the order in which they ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptCall {
    /// The server.
    pub server: String,
    /// The tool, as the script wrote it, cut where it is longer than any name.
    pub tool: String,
    /// From the script's request to its end, queueing included.
    pub took: Duration,
    /// How it ended.
    pub ended: CallStatus,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// With a result that is no error.
    Ok,
    /// With an error, or a result that is one.
    Failed,
    /// In flight or queued when the run ended, and dropped.
    Dropped,
}

/// What finished of a `parallel` that did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialResults {
    /// An array as long as the list of items, of `{"status":"fulfilled","value"}`, `{"status":"rejected","reason"}` and
    /// `{"status":"pending"}`.
    pub json: String,
    /// How many have a value.
    pub finished: usize,
    /// How many there are.
    pub total: usize,
}

/// The result of a run. Console lines and calls are complete however it ended: they were streamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutcome {
    /// How it ended.
    pub status: Status,
    /// The value as JSON, if the status is [`Status::Ok`].
    pub value: Option<String>,
    /// Console lines: the first ones up to the limit, and some of the last.
    pub logs: Vec<LogLine>,
    /// Bytes of console output that were not kept.
    pub logs_dropped: usize,
    /// How many of the lines came before those.
    pub logs_before_drop: usize,
    /// What items of a `parallel` under way had come to, if the run failed.
    pub partial: Vec<PartialResults>,
    /// Calls, those still in flight last.
    pub calls: Vec<ScriptCall>,
    /// The error, for every status but `ok`.
    pub error: Option<ScriptError>,
    /// The limit that was hit, if any.
    pub limit: Option<LimitHit>,
    /// CPU time of the script, as far as it is known.
    pub cpu: Duration,
    /// Time from job to end.
    pub wall: Duration,
}
