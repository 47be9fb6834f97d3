//! Isolation for scripts beyond that of the locked-down worker, and where there is no lockdown.
//! Owns: the engine as WASM ([`realm`]), its workers, workers in containers ([`docker`]).      Never: decides which a profile uses.
//! In: a script and its host functions; a program to run in a container.  Out: the script's progress; an argument list.
//! Tests: `tests/`, beside the code.
//!
//! `docs/design/0008-engine-as-wasm.md` has the reasons and the measurements.

#[cfg(feature = "wasm")]
mod confine;
pub mod docker;
#[cfg(feature = "wasm")]
pub mod realm;
#[cfg(feature = "wasm")]
mod tuning;
#[cfg(feature = "wasm")]
pub mod worker;
