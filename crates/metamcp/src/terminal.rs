//! What is known of the terminal, and of whoever reads it.
//! Owns: the width, whether stdout is a terminal, `--quiet`.      Never: writes anything.
//! In: the process's streams, one switch set by `main`.  Out: numbers and yes or no.
//! Tests: `tests/config/screen.rs`, at a terminal of its own.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

/// Narrower is not a place for columns, and wider is not read with pleasure.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=140;

static QUIET: AtomicBool = AtomicBool::new(false);
static STILL: AtomicBool = AtomicBool::new(false);

/// Nothing is said from now on but what was asked for.
pub(crate) fn keep_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Nothing moves from now on.
pub(crate) fn keep_still() {
    STILL.store(true, Ordering::Relaxed);
}

/// Whether nothing is to be said but what was asked for.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// How many columns there are to fill; none where stdout goes to a file or a program, which want the same text whatever
/// the width.
pub(crate) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (_, columns) = console::Term::stdout().size();
    Some(usize::from(columns).clamp(*WIDTHS.start(), *WIDTHS.end()))
}

/// Whether somebody looks at stderr while a command runs, and wants to be told what it does.
pub(crate) fn is_watched() -> bool {
    !is_quiet() && !STILL.load(Ordering::Relaxed) && io::stderr().is_terminal()
}
