//! From a need to a server that may be run: candidates, what is known of their packages, and the plan a person says yes to.
//! Owns: what a candidate, a plan and a yes are; which runtimes there are; every reason to refuse.      Never: asks a registry, runs a client, reads a file.
//! In: pages of registries, answers of package clients, the time.  Out: `Plan`s with a verdict; texts for a model and for people.
//! Tests: `provision/tests.rs`, `provision/{variables,kept}.rs`.

mod assessment;
mod builtin;
mod candidate;
mod facts;
mod names;
mod npm_search;
mod plan;
mod python;
mod registry;
mod render;
mod request;
pub mod secret_ref;
mod variables;

#[cfg(test)]
mod tests;

pub use assessment::{Circumstances, Refusal, Trust, Verdict, assess};
pub use builtin::builtin;
pub use candidate::{Argument, Candidate, Input, Kind, Offer, Source, Status, named, ranked};
pub use facts::{Facts, Lock, npm_error, npm_lock, npm_view};
pub use metamcp_types::date::{day, unix_millis};
pub use names::{look_alike, server_name, valid};
pub use npm_search::{MOST_FOUND, NoSearch, npm_query, npm_search};
pub use plan::{Approval, Consent, Contained, Plan, Rejected, Word};
pub use python::{
    Ages, pip_ages, pip_files, pip_newest, pip_report, uv_error, uv_lock, uv_version,
};
pub use registry::{Page, page, sound};
pub use render::{candidates_text, question, told};
pub use request::{BadRequest, ProvisionRequest};

/// From this chance on a tool that is here already is taken for an answer to a need.
///
/// Found by `cargo xtask train FOLDER --floor`, which puts 240 questions of each of five sets to two small catalogs of
/// 2 to 30 servers: one where a server has the answer, one where none has. The share taken of the first minus the
/// share taken of the second is greatest here, 56 points in the mean of the sets; their own best floors lie between
/// 0.40 and 0.65. Of catalogs without an answer 7 to 18 in a hundred are taken for one (18 to 37 at 0.40), of those of
/// real servers with one 95 are.
pub const LOCAL_FLOOR: f32 = 0.50;

/// What stands for the folder that an installed server may write, in values that are filled in for it.
pub const OWN_FOLDER: &str = "${data}";
