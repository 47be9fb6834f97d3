//! Properties of the terminal, and whether anybody watches it.
//! Owns: the width, whether stdout is a terminal, `--quiet`.      Never: writes anything.
//! In: the process's streams, one switch set by `main`.  Out: numbers and booleans.
//! Tests: `tests/config/screen.rs`, in a pseudo-terminal.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::console;

/// Narrower is too narrow for columns, and wider is hard to read.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=140;

static QUIET: AtomicBool = AtomicBool::new(false);
static STILL: AtomicBool = AtomicBool::new(false);

/// From now on, prints only the requested output.
pub(crate) fn keep_quiet() {
    if !console::keep_quiet() {
        QUIET.store(true, Ordering::Relaxed);
    }
}

/// From now on, shows no spinners.
pub(crate) fn keep_still() {
    // For another process nothing is shown in place anyway.
    if !console::is_remote() {
        STILL.store(true, Ordering::Relaxed);
    }
}

/// Whether to print only the requested output.
pub(crate) fn is_quiet() -> bool {
    console::is_quiet().unwrap_or_else(|| QUIET.load(Ordering::Relaxed))
}

/// The columns available; none where stdout is a file or a pipe, whose readers want the same text at any width.
pub(crate) fn width() -> Option<usize> {
    console::columns().map(|columns| columns.clamp(*WIDTHS.start(), *WIDTHS.end()))
}

/// Whether to show progress: stderr is a terminal, and neither `--quiet` nor logging is on.
pub(crate) fn is_watched() -> bool {
    !is_quiet() && !STILL.load(Ordering::Relaxed) && console::is_stderr_terminal()
}
