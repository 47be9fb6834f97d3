//! What a script sees besides the language: JavaScript of ours, loaded into the realm before any of a guest.
//! Owns: the compiled sources and the bounds they are given.      Never: reaches beyond what `worker/natives.rs` hands it.
//! In: the name of a part.  Out: the function that makes it.
//! Tests: `tests/language.rs`, in real workers.
//!
//! `build.rs` compiles what is in `prelude/`. A worker that read the sources needed a millisecond more to be ready.

use rquickjs::loader::Loader as _;
use rquickjs::loader::bundle::{Bundle, ScaBundleData};
use rquickjs::{Ctx, Error, Function, Result};

/// Calls, servers, console, timers, and how a run ends.
pub(crate) const CORE: &str = "core";

/// What the file names of our own frames in a stack begin with, as `build.rs` and `hardened/build.py` write them.
pub const FILE: &str = "metamcp:prelude";

/// Characters of JSON in one question. As UTF-8 they fit a frame whatever they are.
pub const PAYLOAD: usize = 4 * 1024 * 1024;

/// Characters of one console line; what is shown of all of them together is no more.
pub const LINE: usize = 8 * 1024;

/// Timers set at once. A script that sets more than this is counting them wrong.
pub const TIMERS: usize = 1_000;

/// All parts, as the engine wrote them in `build.rs`. Never from anywhere else: the engine believes what it reads here.
const COMPILED: ScaBundleData<&[u8]> = include!(concat!(env!("OUT_DIR"), "/prelude.rs"));

/// A part: a function that makes what it is called after. All but the core are loaded when a script first uses one,
/// so that a worker is ready sooner.
/// A script cannot import one: `worker/realm.rs` has the engine find nothing by name.
pub(crate) fn part<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Function<'js>> {
    let module = Bundle(COMPILED).load(ctx, name, None)?;
    let (module, evaluated) = module.eval()?;
    // There already: nothing in a part waits. Jobs of the script must not run here.
    evaluated.result::<()>().ok_or(Error::WouldBlock)??;
    module.get("default")
}
