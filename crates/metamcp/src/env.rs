//! Environment variables of the command that runs: those of this process or, inside the daemon, of the shell's.
//! Owns: all access to the environment.      Never: knows which variables exist (the table of settings does).
//! In: a name.  Out: its value; the names of all variables that are set.
//! Tests: `tests/config.rs`, which sets variables for a real process; `console.rs` for those of another.

use std::ffi::OsString;

use metamcp_child::environment;
use metamcp_config::config::PassEnv;

use crate::console;

/// The value of a variable. One that is not UTF-8 counts as unset: no setting and no file could name it.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn lookup(name: &str) -> Option<String> {
    console::variable(name, || std::env::var(name).ok())
}

/// The same, without the UTF-8 requirement.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn lookup_os(name: &str) -> Option<OsString> {
    console::variable(name, || std::env::var_os(name))
}

/// All variables with their values.
pub(crate) fn all() -> Vec<(OsString, OsString)> {
    console::variables().unwrap_or_else(|| std::env::vars_os().collect())
}

/// The names of set variables that look like secrets and are withheld from the servers of the user's file.
pub(crate) fn withheld(pass: &PassEnv) -> Vec<String> {
    let all = all().into_iter();
    let all = all.filter(|(name, value)| environment::is_withheld_secret(name, value, pass));
    let mut names: Vec<String> = all.filter_map(|(name, _)| name.into_string().ok()).collect();
    names.sort();
    names
}

/// The names of all variables that are set; a name that is not UTF-8 is never one of ours.
pub(crate) fn names() -> Vec<String> {
    all().into_iter().filter_map(|(name, _)| name.into_string().ok()).collect()
}
