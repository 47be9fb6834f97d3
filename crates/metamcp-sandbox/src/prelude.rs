//! The prelude: JavaScript of ours that is loaded into the realm before a script and provides its globals.
//! Owns: the compiled sources and their limits.      Never: uses anything but the functions of `worker/natives.rs`.
//! In: the name of a part.  Out: the function that makes it.
//! Tests: `tests/language.rs`, in real workers.
//!
//! `build.rs` compiles `prelude/` for the native engine, which runs on Linux only; the engine as WASM has its own copy. Parsing the sources took a worker a millisecond.

#[cfg(target_os = "linux")]
use rquickjs::loader::Loader as _;
#[cfg(target_os = "linux")]
use rquickjs::loader::bundle::{Bundle, ScaBundleData};
#[cfg(target_os = "linux")]
use rquickjs::{Ctx, Error, Function, Result};

/// Calls, servers, console, timers, and how a run ends.
#[cfg(target_os = "linux")]
pub(crate) const CORE: &str = "core";

/// Prefix of file names of prelude frames in a stack, as `build.rs` and `hardened/build.py` write them.
pub const FILE: &str = "metamcp:prelude";

/// Characters of JSON in one request. They fit a frame as UTF-8.
pub const PAYLOAD: usize = 4 * 1024 * 1024;

/// Characters of one console line.
pub const LINE: usize = 8 * 1024;

/// Timers set at once.
pub const TIMERS: usize = 1_000;

/// Characters of what items of `parallel` gave that are kept while it runs, and of one item. It is written once more as
/// JSON for that, some milliseconds per MiB.
pub const PARTIAL: usize = 8 * 1024 * 1024;
/// See [`PARTIAL`].
pub const PARTIAL_ITEM: usize = 1024 * 1024;

/// The parts as bytecode, written by `build.rs`. Never from anywhere else: the engine does not verify bytecode.
#[cfg(target_os = "linux")]
const COMPILED: ScaBundleData<&[u8]> = include!(concat!(env!("OUT_DIR"), "/prelude.rs"));

/// Loads a part: the function that creates it. All but the core are loaded on first use, so that a worker is ready
/// sooner. A script cannot import one: the module loader of `worker/realm.rs` finds nothing.
#[cfg(target_os = "linux")]
pub(crate) fn part<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Function<'js>> {
    let module = Bundle(COMPILED).load(ctx, name, None)?;
    let (module, evaluated) = module.eval()?;
    // Settled already, since no part awaits anything. Jobs of the script must not run here.
    evaluated.result::<()>().ok_or(Error::WouldBlock)??;
    module.get("default")
}
