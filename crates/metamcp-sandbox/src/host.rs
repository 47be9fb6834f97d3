//! The gateway's side of code mode: workers kept ready, and one run from script to outcome.
//! Owns: starting, checking, watching and ending workers.      Never: runs guest code, decides what a call may do.
//! In: a [`ScriptJob`], and a [`Host`] that answers it.  Out: an [`ScriptOutcome`], whatever the script did.
//! Tests: `tests/`, with real workers; `host/admission.rs` for the counting.
//!
//! No right of a script rests on its worker's word. The worker ends itself at its limits because that
//! keeps the script's position; whatever it does instead, the gateway counts calls, looks at the
//! processor clock of the process and at the wall clock, and kills.

mod admission;
#[cfg(target_os = "linux")]
mod completion;
#[cfg(target_os = "linux")]
mod json_depth;
#[cfg(target_os = "linux")]
mod pending_answers;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod spawn;
#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(target_os = "linux")]
mod workers;
#[cfg(target_os = "linux")]
mod zygote;

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

#[cfg(target_os = "linux")]
pub use self::run::run;
#[cfg(not(target_os = "linux"))]
pub use self::unsupported::{Worker, Workers, run};
#[cfg(target_os = "linux")]
pub use self::workers::{Worker, Workers};
pub use crate::layer::Profile;
pub use crate::limits::Limits;
pub use crate::protocol::{Level, Op, ScriptError, Server};

/// How to start a worker: a program that calls [`crate::worker::worker_main`] first thing in `main` when
/// it sees these arguments.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program; `/proc/self/exe` is this binary, also after it was replaced on disk.
    pub program: PathBuf,
    /// The arguments that make it a worker.
    pub args: Vec<OsString>,
    /// Its environment. A worker demands an empty one; what goes between us and a worker may need some of ours.
    pub env: Vec<(OsString, OsString)>,
    /// Whether the program, given one word more, forks workers instead of being one. They are there in a fraction of
    /// the time.
    pub forks: bool,
}

/// Why no worker is to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// A layer the profile demands is missing.
    #[error("the sandbox lacks {layer}: {reason}")]
    Layer {
        /// Which one.
        layer: String,
        /// What the worker, or this side, found.
        reason: String,
    },
    /// The worker could not be started, or ended before it was ready.
    #[error("the sandbox worker did not start: {reason}")]
    Start {
        /// What happened.
        reason: String,
    },
    /// This process has as many files open as the system lets it have.
    #[error("the sandbox worker did not start: {reason}")]
    Files {
        /// What the system said.
        reason: String,
    },
    /// The lockdown exists on Linux only.
    #[error("the sandbox needs Linux, this is {system}")]
    Platform {
        /// What this is.
        system: &'static str,
    },
}

/// One script to run.
#[derive(Debug, Clone)]
pub struct ScriptJob {
    /// Plain JavaScript, run as the body of an async function: `await` and `return` are fine at the top.
    pub code: String,
    /// The servers the script knows by name.
    pub servers: Vec<Server>,
    /// What it may use.
    pub limits: Limits,
}

/// Why a question of a script has no answer. The script sees it as a `ToolError`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// An object with `message`, and if known `code`, `retryable`, `server`, `tool`. For a call whose result says itself
    /// that it is an error, `result` is all of it, and `server` and `tool` are their real names.
    pub json: String,
}

/// The future of an answer. Dropping it cancels the call.
pub type Answer = Pin<Box<dyn Future<Output = Result<String, CallError>> + Send>>;

/// Who answers a script. Its methods are called from a task of the gateway and must not block.
pub trait Host: Send + Sync + 'static {
    /// Starts to answer. `payload` is one JSON object with no other members than those described at [`Op`], each at most
    /// once; what is in them was written by the script: hostile.
    fn answer(&self, op: Op, payload: String) -> Answer;

    /// The name of the server that a script means by a name. Its calls are counted under it, so that a second name
    /// for a server is no way around what is allowed at once.
    fn server_meant(&self, written: &str) -> Option<String> {
        Some(written.to_owned())
    }

    /// A line of the script's console, as it comes. It is in the outcome as well.
    fn log(&self, _level: Level, _text: &str) {}

    /// What the script says about how far it is.
    fn progress(&self, _value: f64, _total: Option<f64>, _message: Option<&str>) {}
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With a value.
    Ok,
    /// With an error: the script's, or the worker's.
    Error,
    /// The wall clock struck.
    Timeout,
    /// The processor time was used up.
    CpuLimit,
    /// The heap was used up.
    MemoryLimit,
    /// It made too many calls.
    CallLimit,
    /// It waits for a promise nobody can settle.
    Deadlock,
    /// The caller gave up.
    Cancelled,
}

impl Status {
    /// As it is written in answers.
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

/// A limit that struck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitHit {
    /// Its name, as the field of [`Limits`] is called.
    pub name: &'static str,
    /// Its value, for a reader: `5 s`, `64 MiB`, `250`.
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
    /// How long it took from the script's request to its end, waiting in line included.
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
    /// It was under way or in line when the run ended, and was dropped.
    Dropped,
}

/// How a run ended and what it left. Lines and calls are there however it ended: they were streamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOutcome {
    /// How.
    pub status: Status,
    /// The value as JSON, if the status is [`Status::Ok`].
    pub value: Option<String>,
    /// Console lines, up to the limit.
    pub logs: Vec<LogLine>,
    /// Bytes of console output that were not kept.
    pub logs_dropped: usize,
    /// Calls.
    pub calls: Vec<ScriptCall>,
    /// What went wrong, for every status but `ok`.
    pub error: Option<ScriptError>,
    /// Which limit struck, if one did.
    pub limit: Option<LimitHit>,
    /// Processor time of the guest, as far as it is known.
    pub cpu: Duration,
    /// Time from job to end.
    pub wall: Duration,
}
