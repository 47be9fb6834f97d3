//! What a script sees besides the language: JavaScript of ours, read into the realm before any of a guest.
//! Owns: the sources and the bounds they are given.      Never: reaches beyond what `worker/natives.rs` hands it.
//! In: nothing.  Out: source texts.
//! Tests: `tests/language.rs`, in real workers.

/// Calls, servers, console, timers, and how a run ends.
pub(crate) const CORE: &str = include_str!("prelude/core.js");

/// The file name of our own frames in a stack, by which they are left out of what the script's author sees.
pub(crate) const FILE: &str = "metamcp:prelude";

/// Characters of JSON in one question. As UTF-8 they fit a frame whatever they are.
pub const PAYLOAD: usize = 4 * 1024 * 1024;

/// Characters of one console line; what is shown of all of them together is no more.
pub const LINE: usize = 8 * 1024;

/// Timers set at once. A script that sets more than this is counting them wrong.
pub const TIMERS: usize = 1_000;

/// The parts that are read when a script first uses one, so that a worker is ready sooner.
pub(crate) fn part(name: &str) -> Option<&'static str> {
    Some(match name {
        "words" => include_str!("prelude/words.js"),
        "lanes" => include_str!("prelude/lanes.js"),
        "url" => include_str!("prelude/url.js"),
        "text" => include_str!("prelude/text.js"),
        "clone" => include_str!("prelude/clone.js"),
        "crypto" => include_str!("prelude/crypto.js"),
        "intl" => include_str!("prelude/intl.js"),
        _ => return None,
    })
}
