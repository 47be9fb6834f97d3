//! Environment variables that a configuration names, and where home is.
//! Owns: the engine's only look-up of a variable.      Never: knows settings (the binary reads those).
//! In: a name.  Out: its value.
//! Tests: through what asks.

use std::path::PathBuf;

/// The value of a variable; one that is not UTF-8 counts as not set.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether a variable is set, whatever its value is.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

/// The user's home, which need not be UTF-8.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}
