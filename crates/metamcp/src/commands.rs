//! The subcommands, one file each.
//! Owns: what each command does with its arguments.      Never: parses arguments, picks a config file.
//! In: the loaded configuration, the arguments, a `Write`.  Out: an `Exit`, or an error for `main` to print.
//! Tests: `tests/config.rs` for `config` and `completions`.

mod add_listed;
mod add_need;
pub(crate) mod approve;
pub(crate) mod audit;
pub(crate) mod audited;
pub(crate) mod auth;
pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
mod daemon_client;
pub(crate) mod daemon_run;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod eval;
pub(crate) mod fleet;
pub(crate) mod forget;
mod gateway;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod list;
mod live;
pub(crate) mod logs;
pub(crate) mod model;
pub(crate) mod provisioned;
pub(crate) mod registry;
pub(crate) mod remote;
pub(crate) mod restart;
pub(crate) mod run;
pub(crate) mod serve;
mod server_rows;
pub(crate) mod servers;
pub(crate) mod service;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod trust;
pub(crate) mod ui;
pub(crate) mod upgrade;
pub(crate) mod version;

use metamcp_engine::config::Loaded;
use metamcp_engine::provision::Store;

/// How to get started, for users without any server. Installed servers need no config file.
pub(crate) fn advice(loaded: &Loaded) -> Option<String> {
    let is_alone = || Store::new(&loaded.config.settings.home).records().is_empty();
    loaded.source.advice().filter(|_| is_alone())
}
