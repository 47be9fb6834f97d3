//! The process tree: parents, CPU usage, sessions.
//! Owns: asking the system: `/proc` on Linux, `/bin/ps` elsewhere.      Never: signals anything, caches anything.
//! In: a pid.  Out: its descendants and their usage, as of a moment ago.
//! Tests: `processes/`; everything in `tests/it/` uses it.

#[cfg(target_os = "linux")]
mod proc_fs;
#[cfg(not(target_os = "linux"))]
mod ps;
#[cfg(any(test, not(target_os = "linux")))]
pub(crate) mod table;

#[cfg(target_os = "linux")]
pub(crate) use proc_fs::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use ps::*;
