//! The engine as WASM: one realm, one script.
//! Owns: the module, its memory, its limits.      Never: blocks, reads a socket, knows what a request means.
//! In: a script, responses to its requests, expired timers.  Out: requests and logs through [`Natives`], and its end.
//! Tests: `tests/honest.rs`, `tests/attacks.rs`.
//!
//! It has the shape of the native worker's realm: `build` before the lockdown, because compiled code has to become
//! executable while that is still allowed; `begin`, then `run`, `ended`, and `settle` or `due` in turns. A script can
//! corrupt only the module's memory. Every address that comes out of it is checked here.

mod host;
mod load;
mod tick;

use std::time::Duration;

use wasmtime::{Instance, Store, Trap, TypedFunc, WasmParams, WasmResults};

use self::host::{ReportedEnd, StoreData};
pub use self::tick::Ticker;
use crate::tuning;

/// The host functions of a script. They are called while the script runs.
pub trait Natives {
    /// A request; returns the number its response will carry, or `None` if there is no such operation.
    fn request(&mut self, op: u8, payload: String) -> Option<u32>;
    /// A line of console output.
    fn log(&mut self, level: u8, text: String);
    /// The script's progress report.
    fn progress(&mut self, value: f64, total: Option<f64>, message: Option<String>);
    /// Sets a timer that expires in so many milliseconds; returns its number.
    fn timer(&mut self, milliseconds: f64) -> u32;
    /// Stops a timer.
    fn clear(&mut self, number: u32);
    /// Fills a buffer with random bytes.
    fn random(&mut self, out: &mut [u8]);
    /// The SHA-256 of some bytes.
    fn sha256(&mut self, bytes: &[u8]) -> [u8; 32];
    /// Microseconds since 1970.
    fn now(&mut self) -> f64;
    /// Whether the script has used up its CPU time. Called every few milliseconds while it runs.
    fn is_out_of_time(&mut self) -> bool;
}

/// The input of a script.
#[derive(Debug, Clone, Copy)]
pub struct ScriptInput<'a> {
    /// A JavaScript expression: the async function that is the script.
    pub source: &'a str,
    /// The file name of the script in stack traces.
    pub file: &'a str,
    /// One JSON object: `servers` (a list of `name` and `identifiers`), `sleep`, `result`, and `limits` for the
    /// prelude.
    pub setup: &'a str,
    /// Bytes of heap.
    pub heap: usize,
    /// Bytes of the engine's stack.
    pub stack: usize,
}

/// A thrown value, as the prelude describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thrown {
    /// `TypeError`, `ToolError`, ...
    pub name: String,
    /// The message, bounded.
    pub message: String,
    /// The engine's stack trace, frames of the prelude included.
    pub stack: String,
    /// The `ToolError` as a JSON object, if it was one.
    pub tool_error: Option<String>,
}

/// How a script ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptEnd {
    /// With a value, as JSON.
    Value(String),
    /// With an error.
    Threw(Thrown),
    /// The heap limit was hit.
    Memory(Thrown),
    /// The CPU time limit was hit.
    Cpu,
    /// The value is longer than allowed.
    ResultTooLong {
        /// Its length.
        bytes: u64,
    },
    /// The engine itself failed. The script triggered something it should not have, and was stopped.
    Broken {
        /// The runtime's error.
        reason: String,
    },
}

/// Why the engine is unavailable.
#[derive(Debug, thiserror::Error)]
#[error("the engine as WASM cannot be had: {reason}")]
pub struct Unavailable {
    reason: String,
}

/// Engine, prelude and script.
pub struct Realm<N: Natives + 'static> {
    store: Store<StoreData<N>>,
    exports: Exports,
    heap: usize,
}

/// Setup and source, each with its length, the file name, and the limits on heap and stack.
type Begin = (u32, u32, u32, u32, u32, u32, u32);

struct Exports {
    alloc: TypedFunc<u32, u32>,
    ran_out: TypedFunc<(), i32>,
    begin: TypedFunc<Begin, i32>,
    run: TypedFunc<(), ()>,
    ended: TypedFunc<(), i32>,
    settle: TypedFunc<(u32, u32, u32, u32), i32>,
    due: TypedFunc<u32, i32>,
}

/// Address space that a realm reserves and never uses; a limit on address space has to allow for it. What a realm can
/// use is limited by [`MEMORY`], and from outside by a limit on data (`RLIMIT_DATA`).
pub const RESERVED: u64 = tuning::RESERVED + 2 * tuning::GUARD;

/// The most memory a module can have: the largest heap granted (128 MiB), a fifth more for allocator overhead, an
/// incoming response of the greatest length, and the engine itself.
pub const MEMORY: usize = 184 * 1024 * 1024;

/// How often the CPU clock is checked while a script runs.
pub const TICK: Duration = Duration::from_millis(5);

/// Memory of the module beyond the heap: the engine's data and stack, an incoming response, allocator overhead.
const BEYOND_HEAP: usize = 30 * 1024 * 1024;

impl<N: Natives + 'static> Realm<N> {
    /// Loads the module, ready for a script that is interrupted by this ticker. There is one for a process, that of its
    /// first realm.
    ///
    /// # Errors
    /// If this machine cannot run the built-in module.
    pub fn build(natives: N, ticker: Ticker) -> Result<Realm<N>, Unavailable> {
        let (mut store, instance) = load::instance(natives, ticker)
            .map_err(|error| Unavailable { reason: format!("{error:#}") })?;
        let exports = Exports::of(&mut store, &instance)
            .map_err(|error| Unavailable { reason: format!("{error:#}") })?;
        let mut realm = Realm { store, exports, heap: usize::MAX };
        // The first call allocates the runtime's per-thread state, which is best done before the lockdown.
        match realm.ran_out() {
            false => Ok(realm),
            true => {
                Err(Unavailable { reason: "the module is out of memory from the start".into() })
            }
        }
    }

    /// The host functions, as given to [`Realm::build`].
    pub fn natives(&mut self) -> &mut N {
        &mut self.store.data_mut().natives
    }

    /// Starts the script.
    ///
    /// # Errors
    /// The end, if the script did not start: a syntax error, for one.
    pub fn begin(&mut self, job: ScriptInput<'_>) -> Result<(), ScriptEnd> {
        self.heap = job.heap;
        self.store
            .data_mut()
            .allow(job.heap.saturating_add(job.heap / 5).saturating_add(BEYOND_HEAP));
        let (setup, setup_length) = self.put(job.setup)?;
        let (source, source_length) = self.put(job.source)?;
        // The engine expects the file name to be NUL-terminated.
        let (file, _) = self.put(&format!("{}\0", job.file))?;
        let begin = self.exports.begin.clone();
        let given = (
            setup,
            setup_length,
            source,
            source_length,
            file,
            saturated(job.heap),
            // Pointers and values are half the size here, so the same depth takes half as much.
            saturated(job.stack / 2),
        );
        let state = self.enter(&begin, given)?;
        self.state(state).map_or(Ok(()), Err)
    }

    /// Runs pending jobs until there are none left or the script ended.
    ///
    /// # Errors
    /// The end, if a limit was hit.
    pub fn run(&mut self) -> Result<(), ScriptEnd> {
        let run = self.exports.run.clone();
        self.enter(&run, ())
    }

    /// How the script ended, if it did.
    pub fn ended(&mut self) -> Option<ScriptEnd> {
        let ended = self.exports.ended.clone();
        match self.enter(&ended, ()) {
            Ok(state) => self.state(state),
            Err(end) => Some(end),
        }
    }

    /// Delivers a response to the script: a value, or an object that describes the error; JSON both.
    ///
    /// # Errors
    /// The end, if a limit was hit.
    pub fn settle(&mut self, number: u32, answer: Result<&str, &str>) -> Result<(), ScriptEnd> {
        let (Ok(text) | Err(text)) = answer;
        let (text, length) = self.put(text)?;
        let settle = self.exports.settle.clone();
        let state = self.enter(&settle, (number, u32::from(answer.is_ok()), text, length))?;
        self.state(state).map_or(Ok(()), Err)
    }

    /// Fires a timer.
    ///
    /// # Errors
    /// The end, if a limit was hit.
    pub fn due(&mut self, number: u32) -> Result<(), ScriptEnd> {
        let due = self.exports.due.clone();
        let state = self.enter(&due, number)?;
        self.state(state).map_or(Ok(()), Err)
    }

    /// Whether memory ran out where no exception could be thrown: the script may then wait forever.
    pub fn ran_out(&mut self) -> bool {
        let ran_out = self.exports.ran_out.clone();
        self.enter(&ran_out, ()).is_ok_and(|state| state != 0)
    }

    /// Copies a text into the module's memory. The export it is passed to frees it.
    fn put(&mut self, text: &str) -> Result<(u32, u32), ScriptEnd> {
        let length = u32::try_from(text.len())
            .map_err(|_| ScriptEnd::Broken { reason: "a text of 4 GiB".into() })?;
        let alloc = self.exports.alloc.clone();
        let address = self.enter(&alloc, length)?;
        if address == 0 {
            return Err(ScriptEnd::Memory(out_of_memory()));
        }
        let room = self.store.data().room(&self.store, address, length);
        let Some(room) = room else {
            return Err(ScriptEnd::Broken { reason: "an address outside the memory".into() });
        };
        self.store.data().memory().data_mut(&mut self.store)[room].copy_from_slice(text.as_bytes());
        Ok((address, length))
    }

    /// Calls into the module. Anything that stops it there ends the script.
    fn enter<P: WasmParams, R: WasmResults>(
        &mut self,
        function: &TypedFunc<P, R>,
        given: P,
    ) -> Result<R, ScriptEnd> {
        let _inside = tick::Inside::new();
        self.store.set_epoch_deadline(1);
        function.call(&mut self.store, given).map_err(|error| self.stopped(&error))
    }

    fn stopped(&mut self, error: &wasmtime::Error) -> ScriptEnd {
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => ScriptEnd::Cpu,
            Some(Trap::StackOverflow) => ScriptEnd::Threw(Thrown {
                name: "RangeError".into(),
                message: "Maximum call stack size exceeded".into(),
                ..Thrown::default()
            }),
            Some(trap) if self.is_near_full() => {
                // The engine asserts in some places that an allocation succeeded.
                let message = format!("out of memory ({trap})");
                ScriptEnd::Memory(Thrown { message, ..out_of_memory() })
            }
            Some(trap) => ScriptEnd::Broken { reason: trap.to_string() },
            None => ScriptEnd::Broken { reason: error.to_string() },
        }
    }

    /// Whether the module's memory has grown to the size of the heap limit.
    fn is_near_full(&self) -> bool {
        self.store.data().memory().data_size(&self.store) >= self.heap
    }

    /// The end that an export returned and reported; `None` if the script continues.
    fn state(&mut self, state: i32) -> Option<ScriptEnd> {
        let ReportedEnd { value, name, message, stack, tool } =
            self.store.data_mut().take_reported_end();
        let thrown = Thrown { name, message, stack, tool_error: tool };
        Some(match state {
            0 => return None,
            1 => ScriptEnd::Value(value),
            2 => ScriptEnd::Threw(thrown),
            3 => ScriptEnd::Memory(out_of_memory()),
            4 => ScriptEnd::Memory(thrown),
            5 => ScriptEnd::ResultTooLong { bytes: value.parse().unwrap_or(u64::MAX) },
            other => ScriptEnd::Broken { reason: format!("the engine answered {other}") },
        })
    }
}

impl Exports {
    fn of<N: Natives>(
        store: &mut Store<StoreData<N>>,
        instance: &Instance,
    ) -> wasmtime::Result<Exports> {
        Ok(Exports {
            alloc: instance.get_typed_func(&mut *store, "alloc")?,
            ran_out: instance.get_typed_func(&mut *store, "ran_out")?,
            begin: instance.get_typed_func(&mut *store, "begin")?,
            run: instance.get_typed_func(&mut *store, "run")?,
            ended: instance.get_typed_func(&mut *store, "ended")?,
            settle: instance.get_typed_func(&mut *store, "settle")?,
            due: instance.get_typed_func(&mut *store, "due")?,
        })
    }
}

fn saturated(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// The error for an end that came before the engine could report one.
fn out_of_memory() -> Thrown {
    Thrown { name: "InternalError".into(), message: "out of memory".into(), ..Thrown::default() }
}
