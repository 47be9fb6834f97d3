//! The sandbox of code mode: runs scripts written by a model in a locked-down process.
//! Owns: the worker process, its lockdown, its language, and the gateway's side of the socket.      Never: knows what a tool call does, runs guest code in the gateway.
//! In: plain JavaScript and a [`host::Host`] that answers its calls.  Out: an [`host::ScriptOutcome`].
//! Tests: `tests/`, with real workers; decisions beside their code.
//!
//! The gateway starts its own binary again as a worker. The worker builds a realm, drops every privilege
//! the kernel lets it drop, reports which, and waits. It gets one script, runs it, and ends: two scripts
//! share nothing but the gateway's responses. `docs/design/0007-code-mode.md` has the reasons.

pub mod host;
pub mod layer;
pub mod limits;
#[cfg(target_os = "linux")]
pub mod lockdown;
pub mod prelude;
pub mod protocol;
mod run_clock;
pub mod worker;
