//! The limits of a script, and the reason for each.
//! Owns: the numbers.      Never: enforces them.
//! In: nothing.  Out: [`Limits`].
//! Tests: none; the corpus under `tests/` runs into every one.

use std::time::Duration;

/// Source text. A script longer than this is data with some code around it, and data belongs in a tool's result.
pub const SOURCE: usize = 64 * 1024;
/// Wall-clock time, waiting for tools included. Clients time out after one to five minutes.
pub const WALL: Duration = Duration::from_mins(2);
/// CPU time of the script. Joining and filtering results takes milliseconds.
pub const CPU: Duration = Duration::from_secs(5);
/// How far a script may overrun `cpu` before the worker is killed: engine builtins never check the clock,
/// and a worker that ends itself keeps the position in the script.
pub const CPU_GRACE: Duration = Duration::from_millis(250);
/// The engine's heap. A result of the greatest size fits several times over.
pub const HEAP: usize = 64 * 1024 * 1024;
/// The engine's stack; deeper recursion than this is a mistake in the script.
pub const STACK: usize = 512 * 1024;
/// Tool calls of one run. Time and memory end a script earlier where calls are slow or large; a call costs the gateway
/// some 250 bytes until the run ends. A script that needs more is a loop without an end, or a batch to be split.
pub const CALLS: u32 = 2_000;
/// Groups of partial results that one run may have open: `parallel` inside `parallel`.
pub const PARTIAL_GROUPS: usize = 64;
/// Items of one group that are listed.
pub const PARTIAL_ITEMS: usize = 20_000;
/// Console output kept of the end of a run, in bytes, where `logs` is used up before: the end says what happened last.
pub const LOGS_TAIL: usize = 16 * 1024;
/// Requests of one run that the gateway answers itself (search, describe, list, types, results).
pub const QUESTIONS: u32 = 2_000;
/// Such requests in flight; more are queued, and leave slots for calls.
pub const QUESTIONS_AT_ONCE: usize = 8;
/// Characters kept of a server's or a tool's name: a script can invent names of any length, and each is in the list of
/// its calls.
pub const NAME: usize = 200;
/// Nesting depth of a value or of the arguments of a call. Most JSON parsers stop at 128 levels, some of which the
/// response around a value takes.
pub const DEPTH: usize = 100;
/// Calls in flight; more are queued.
pub const IN_FLIGHT: usize = 16;
/// Calls in flight at one server, which is shared with other clients.
pub const PER_SERVER: usize = 8;
/// The longest single `sleep`. Longer waits belong to a tool that can say when it is done.
pub const SLEEP: Duration = Duration::from_secs(30);
/// Console output kept of one run, in bytes.
pub const LOGS: usize = 256 * 1024;
/// The value of a run as JSON, in bytes.
pub const RESULT: usize = 10 * 1024 * 1024;

/// The most heap that can be granted: the address space of a worker is fixed before its job is known.
pub const MAX_HEAP: usize = 128 * 1024 * 1024;
/// The most CPU time that can be granted: `RLIMIT_CPU` ends a worker a little later.
pub const MAX_CPU: Duration = Duration::from_mins(1);
/// The most stack that can be granted: the process has 8 MiB, and the engine's own frames need room.
pub const MAX_STACK: usize = 4 * 1024 * 1024;

/// The limits of one run. [`Default`] has the numbers above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of source.
    pub source: usize,
    /// Wall-clock time.
    pub wall: Duration,
    /// CPU time.
    pub cpu: Duration,
    /// Bytes of heap.
    pub heap: usize,
    /// Bytes of stack.
    pub stack: usize,
    /// Tool calls.
    pub calls: u32,
    /// Calls in flight.
    pub in_flight: usize,
    /// Calls in flight at one server.
    pub per_server: usize,
    /// The longest single sleep.
    pub sleep: Duration,
    /// Bytes of console output kept.
    pub logs: usize,
    /// Bytes of the value as JSON.
    pub result: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            source: SOURCE,
            wall: WALL,
            cpu: CPU,
            heap: HEAP,
            stack: STACK,
            calls: CALLS,
            in_flight: IN_FLIGHT,
            per_server: PER_SERVER,
            sleep: SLEEP,
            logs: LOGS,
            result: RESULT,
        }
    }
}

impl Limits {
    /// The same limits, clamped to what a worker can be held to.
    #[must_use]
    pub fn bounded(mut self) -> Limits {
        self.heap = self.heap.min(MAX_HEAP);
        self.cpu = self.cpu.min(MAX_CPU);
        self.stack = self.stack.min(MAX_STACK);
        self.in_flight = self.in_flight.max(1);
        self.per_server = self.per_server.max(1);
        self
    }
}
