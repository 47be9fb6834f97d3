//! From a need to a server that may be run: candidates, what is known of their packages, and the plan a person says yes to.
//! Owns: what a candidate, a plan and a yes are; which runtimes there are; every reason to refuse.      Never: asks a registry, runs a client, reads a file.
//! In: pages of registries, answers of package clients, the time.  Out: `Plan`s with a verdict; texts for a model and for people.
//! Tests: `provision/tests.rs`.

mod builtin;
mod candidate;
mod date;
mod facts;
mod judge;
mod names;
mod plan;
mod registry;
mod render;
mod request;

#[cfg(test)]
mod tests;

pub use builtin::builtin;
pub use candidate::{Argument, Candidate, Input, Kind, Offer, Source, Status, named, ranked};
pub use date::{day, unix_millis};
pub use facts::{Facts, Lock, npm_error, npm_lock, npm_view, pip_files, pip_newest, pip_report};
pub use judge::{Circumstances, Refusal, Trust, Verdict, judge};
pub use names::{look_alike, server_name, valid};
pub use plan::{Consent, Contained, Plan, Rejected, Word, Yes};
pub use registry::{Page, page};
pub use render::{candidates_text, question, told};
pub use request::{BadRequest, Request};

/// From this chance on a tool that is here already is taken for an answer to a need. The chance itself is fitted on
/// questions with known answers and on questions put to the wrong catalog; `examples/floor.rs` shows what share of each
/// a floor lets through.
pub const LOCAL_FLOOR: f32 = 0.40;
