//! Scripts of a model, run where they can do no harm: code mode's engine.
//! Owns: the worker process, its lockdown, its language, and the gateway's side of the socket.      Never: knows what a tool call does, runs guest code in the gateway.
//! In: plain JavaScript and somebody who answers its calls ([`host::Host`]).  Out: an [`host::ScriptOutcome`].
//! Tests: `tests/`, with real workers; decisions beside their code.
//!
//! The gateway starts its own binary again as a worker. The worker builds a realm, gives up every right
//! the kernel lets it give up, says which, and waits. It gets one script, runs it, and ends: nothing is
//! shared between two scripts but the gateway's answers. `docs/design/0007-code-mode.md` has the reasons.

pub mod host;
pub mod layer;
pub mod limits;
#[cfg(target_os = "linux")]
pub mod lockdown;
#[cfg(target_os = "linux")]
pub mod prelude;
pub mod protocol;
#[cfg(target_os = "linux")]
mod run_clock;
#[cfg(target_os = "linux")]
pub mod worker;
