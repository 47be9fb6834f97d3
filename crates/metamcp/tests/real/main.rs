//! metamcp between real servers and real clients, all at the versions `tests/real/manifest.json` names.
//!
//! `cargo xtask test` installs them into the build folder. Without them every test here fails with that hint: a test
//! that did not run proves nothing.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start, wait and measure for themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "all of this is tests, which clippy cannot see outside test functions"
)]

mod abrupt;
mod agents;
mod approvers;
mod arguments;
mod audited;
mod clients;
mod conformance;
mod fake_engine;
mod fake_sources;
mod fleet;
mod full_surface;
mod gallery;
mod http;
mod identical;
mod images;
mod inspector;
mod installed;
mod login;
mod model;
mod npm_search;
#[cfg(feature = "otlp")]
mod observability;
mod openapi;
mod page;
mod peer;
mod plan;
mod provision;
mod remote;
mod scripts;
mod sdks;
mod servers;
mod together;
mod world;
