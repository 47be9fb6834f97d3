//! The subcommands, one file each.
//! Owns: what each command does with what it was given.      Never: parses arguments, picks a config file.
//! In: the loaded configuration, the arguments, a `Write`.  Out: an `Exit`, or an error for `main` to show.
//! Tests: `tests/config.rs` for `config` and `completions`.

pub(crate) mod auth;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod forget;
mod gallery;
mod gateway;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod list;
pub(crate) mod provisioned;
pub(crate) mod registry;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod servers;
