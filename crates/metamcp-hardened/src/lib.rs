//! Walls around a script beyond those of the locked-down worker.
//! Owns: the engine as WASM ([`realm`]), and workers in containers ([`docker`]).      Never: decides which of them a profile uses.
//! In: a script and somebody who answers it; a program to run in a container.  Out: how the script goes on; an argument list.
//! Tests: `tests/`, beside the code.
//!
//! `docs/design/0008-engine-as-wasm.md` has the reasons and the measurements.

pub mod docker;
#[cfg(feature = "wasm")]
pub mod realm;
#[cfg(feature = "wasm")]
mod tuning;
#[cfg(all(feature = "wasm", target_os = "linux"))]
pub mod worker;
