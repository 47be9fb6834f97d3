//! From a missing tool to a server that may be installed: candidates, facts about their packages, the plan a person approves.
//! Owns: candidates, plans and approvals; the known runtimes; every reason to refuse.      Never: contacts a registry, runs a package client, reads a file.
//! In: pages of registries, output of package clients, the time.  Out: `Plan`s with an assessment; text for a model and for people.
//! Tests: `provision/tests.rs`, `provision/{variables,secret_ref}.rs`.

mod assessment;
mod candidate;
mod facts;
mod gallery;
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
pub use candidate::{Argument, Candidate, Input, Kind, Offer, Source, Status, named, ranked};
pub use facts::{Facts, Lock, npm_error, npm_lock, npm_view};
pub use gallery::{Checked, Listed, builtin, gallery, in_gallery, listed, read, waiting};
pub use metamcp_types::date::{day, unix_millis};
pub use names::{look_alike, server_name, valid};
pub use npm_search::{MOST_FOUND, NoSearch, npm_query, npm_search};
pub use plan::{Approval, Consent, Contained, Plan, Rejected, Word};
pub use python::{
    Ages, pip_ages, pip_files, pip_newest, pip_report, uv_error, uv_lock, uv_version,
};
pub use registry::{Page, page, sound};
pub use render::{candidates_text, described, question, told};
pub use request::{BadRequest, ProvisionRequest};

/// What stands for the folder that an installed server may write, in values that are filled in for it.
pub const OWN_FOLDER: &str = "${data}";
