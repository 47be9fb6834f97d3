//! The engine as WASM: one realm, one script.
//! Owns: the module, its memory, its limits.      Never: waits, reads a socket, knows what a question means.
//! In: a script, answers to its questions, timers that are due.  Out: questions and words through [`Natives`], and how it ended.
//! Tests: `tests/honest.rs`, `tests/attacks.rs`.
//!
//! It has the shape of the native worker's realm: `build` before the lockdown, because compiled code has to
//! become executable while that is still allowed; `begin`, then `run`, `ended`, and `settle` or `due` in turns.
//! What a script can break is the memory of the module. Every address that comes out of it is checked here.

mod host;
mod load;
mod tick;

use std::time::Duration;

use wasmtime::{Instance, Store, Trap, TypedFunc, WasmParams, WasmResults};

use self::host::{ReportedEnd, StoreData};
use crate::tuning;

/// What the script asks of the worker around it. The functions are called while the script runs.
pub trait Natives {
    /// A question; the number its answer will come under, or nothing if there is no such operation.
    fn request(&mut self, op: u8, payload: String) -> Option<u32>;
    /// A line of the console.
    fn log(&mut self, level: u8, text: String);
    /// How far the script says it is.
    fn progress(&mut self, value: f64, total: Option<f64>, message: Option<String>);
    /// Sets a timer that is due in so many milliseconds; its number.
    fn timer(&mut self, milliseconds: f64) -> u32;
    /// Stops a timer.
    fn clear(&mut self, number: u32);
    /// Fills a buffer with random bytes.
    fn random(&mut self, out: &mut [u8]);
    /// The SHA-256 of some bytes.
    fn sha256(&mut self, bytes: &[u8]) -> [u8; 32];
    /// Microseconds since 1970.
    fn now(&mut self) -> f64;
    /// Whether the script has used up its processor time. Asked every few milliseconds while it runs.
    fn is_out_of_time(&mut self) -> bool;
}

/// What a script begins with.
#[derive(Debug, Clone, Copy)]
pub struct ScriptInput<'a> {
    /// A JavaScript expression: the async function that is the script.
    pub source: &'a str,
    /// The file name of the script in its stacks.
    pub file: &'a str,
    /// One JSON object: `servers` (a list of `name` and `identifiers`), `sleep`, `result`, and `limits`
    /// with what the prelude is to be bounded by.
    pub setup: &'a str,
    /// Bytes of heap.
    pub heap: usize,
    /// Bytes of the engine's stack.
    pub stack: usize,
}

/// What was thrown, in the prelude's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thrown {
    /// `TypeError`, `ToolError`, ...
    pub name: String,
    /// The message, bounded.
    pub message: String,
    /// The engine's stack, frames of the prelude included.
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
    /// The heap was used up.
    Memory(Thrown),
    /// The processor time was used up.
    Cpu,
    /// The value is longer than allowed.
    ResultTooLong {
        /// Its length.
        bytes: u64,
    },
    /// The engine itself failed. The script reached something it should not have, and got no further.
    Broken {
        /// What the runtime says.
        reason: String,
    },
}

/// Why there is no engine.
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

/// Address space that a realm reserves and never uses; a limit on address space has to leave room for it.
/// What a realm can use is bounded by [`MEMORY`], and from outside by a limit on data (`RLIMIT_DATA`).
pub const RESERVED: u64 = tuning::RESERVED + 2 * tuning::GUARD;

/// The most memory a module can have: the largest heap that is granted (128 MiB), a fifth more for what the
/// allocator loses, an answer of the greatest length on its way in, and the engine itself.
pub const MEMORY: usize = 184 * 1024 * 1024;

/// How often the clock of the processor is looked at while a script runs.
pub const TICK: Duration = Duration::from_millis(5);

/// Memory of the module beyond the heap: the engine's data and stack, an answer on its way in, what the
/// allocator loses.
const BEYOND_HEAP: usize = 30 * 1024 * 1024;

impl<N: Natives + 'static> Realm<N> {
    /// Loads the module, up to the point where a script can begin.
    ///
    /// # Errors
    /// If this machine cannot run the module that was built in.
    pub fn build(natives: N) -> Result<Realm<N>, Unavailable> {
        let (mut store, instance) = load::instance(natives)
            .map_err(|error| Unavailable { reason: format!("{error:#}") })?;
        let exports = Exports::of(&mut store, &instance)
            .map_err(|error| Unavailable { reason: format!("{error:#}") })?;
        let mut realm = Realm { store, exports, heap: usize::MAX };
        // The first call makes what the runtime keeps for a thread, which is best done while all is allowed.
        match realm.ran_out() {
            false => Ok(realm),
            true => {
                Err(Unavailable { reason: "the module is out of memory from the start".into() })
            }
        }
    }

    /// The worker's side, as it was given to [`Realm::build`].
    pub fn natives(&mut self) -> &mut N {
        &mut self.store.data_mut().natives
    }

    /// Starts the script.
    ///
    /// # Errors
    /// An end before the beginning: a mistake of syntax, for one.
    pub fn begin(&mut self, job: ScriptInput<'_>) -> Result<(), ScriptEnd> {
        self.heap = job.heap;
        self.store
            .data_mut()
            .allow(job.heap.saturating_add(job.heap / 5).saturating_add(BEYOND_HEAP));
        let (setup, setup_length) = self.put(job.setup)?;
        let (source, source_length) = self.put(job.source)?;
        // The engine reads the file name up to a zero.
        let (file, _) = self.put(&format!("{}\0", job.file))?;
        let begin = self.exports.begin.clone();
        let given = (
            setup,
            setup_length,
            source,
            source_length,
            file,
            saturated(job.heap),
            // With pointers and values of half the size, the same depth takes half as much.
            saturated(job.stack / 2),
        );
        let state = self.enter(&begin, given)?;
        self.state(state).map_or(Ok(()), Err)
    }

    /// Runs what can run, until nothing is left to do or the script ended.
    ///
    /// # Errors
    /// The end, if a limit struck.
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

    /// Hands an answer to the script: a value, or an object that says why there is none; JSON both.
    ///
    /// # Errors
    /// The end, if a limit struck.
    pub fn settle(&mut self, number: u32, answer: Result<&str, &str>) -> Result<(), ScriptEnd> {
        let (Ok(text) | Err(text)) = answer;
        let (text, length) = self.put(text)?;
        let settle = self.exports.settle.clone();
        let state = self.enter(&settle, (number, u32::from(answer.is_ok()), text, length))?;
        self.state(state).map_or(Ok(()), Err)
    }

    /// Tells the script that a timer is due.
    ///
    /// # Errors
    /// The end, if a limit struck.
    pub fn due(&mut self, number: u32) -> Result<(), ScriptEnd> {
        let due = self.exports.due.clone();
        let state = self.enter(&due, number)?;
        self.state(state).map_or(Ok(()), Err)
    }

    /// Whether memory ran out where the script could not be told: then it may wait for ever.
    pub fn ran_out(&mut self) -> bool {
        let ran_out = self.exports.ran_out.clone();
        self.enter(&ran_out, ()).is_ok_and(|state| state != 0)
    }

    /// Copies a text into the module's memory. Whoever it is handed to there frees it.
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

    /// Calls into the module. Whatever stops it there is an end of the script.
    fn enter<P: WasmParams, R: WasmResults>(
        &mut self,
        function: &TypedFunc<P, R>,
        given: P,
    ) -> Result<R, ScriptEnd> {
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
                // The engine asserts here and there that it got memory.
                let message = format!("out of memory ({trap})");
                ScriptEnd::Memory(Thrown { message, ..out_of_memory() })
            }
            Some(trap) => ScriptEnd::Broken { reason: trap.to_string() },
            None => ScriptEnd::Broken { reason: error.to_string() },
        }
    }

    /// Whether the module has grown as far as the heap would fill it.
    fn is_near_full(&self) -> bool {
        self.store.data().memory().data_size(&self.store) >= self.heap
    }

    /// What an export answered, with what it said; nothing if the script goes on.
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

/// What is known of an end that came before the engine could say anything.
fn out_of_memory() -> Thrown {
    Thrown { name: "InternalError".into(), message: "out of memory".into(), ..Thrown::default() }
}
