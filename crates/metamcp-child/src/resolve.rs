//! From `npx` or `uvx` to the program they would run, where that is installed already.
//! Owns: the look into npm's and uv's directories.      Never: runs anything, downloads, asks a registry.
//! In: a `Spec`.  Out: another `Spec` that skips the installer, or `None`: run what was written.
//! Tests: `resolve/tests.rs`.

use crate::spec::Spec;

/// The same server without the installer in front of it, if it can be found on disk.
///
/// Callers keep the original: if the resolved one cannot be executed, run that.
pub fn resolve(_spec: &Spec) -> Option<Spec> {
    None
}
