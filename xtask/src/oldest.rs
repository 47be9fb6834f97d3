//! Checks that the oldest supported compiler, `rust-version` in Cargo.toml, still compiles the workspace.
//! Owns: finding that toolchain.      Never: installs it.
//! In: Cargo.toml and rustup's list.  Out: checked, covered by the other steps, or not installed.
//! Tests: below.

use std::process::Command;

use anyhow::{Context, Result};

use crate::run;
use crate::workspace::{FEATURES, Workspace};

/// The outcome of the check.
pub(crate) enum Checked {
    /// The toolchain that runs all steps is the oldest one.
    IsThisOne(String),
    /// Everything compiles with this toolchain.
    Compiles(String),
    /// It is not installed.
    NotHere(String),
}

pub(crate) fn check(workspace: &Workspace) -> Result<Checked> {
    let oldest = declared(workspace)?;
    let running = run::quiet(Command::new("rustc").arg("--version").current_dir(&workspace.root))?;
    if running.split_whitespace().nth(1).is_some_and(|version| is_release_of(version, &oldest)) {
        return Ok(Checked::IsThisOne(oldest));
    }
    // Without rustup there is only one compiler, which was just checked.
    let installed =
        run::quiet(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    let Some(toolchain) = named(&installed, &oldest) else {
        return Ok(Checked::NotHere(oldest));
    };
    // In a target folder of its own: two compilers sharing one would rebuild everything in turns.
    run::loud(
        Command::new("rustup")
            .args(["run", toolchain, "cargo", "check", "--workspace", "--all-targets", "--locked"])
            .args(FEATURES)
            .arg("--target-dir")
            .arg(workspace.target.join("oldest"))
            .current_dir(&workspace.root),
    )?;
    Ok(Checked::Compiles(toolchain.to_owned()))
}

/// The `rust-version` that all packages share.
fn declared(workspace: &Workspace) -> Result<String> {
    workspace.metadata["packages"][0]["rust_version"]
        .as_str()
        .map(str::to_owned)
        .context("Cargo.toml has no rust-version")
}

/// `1.92.0` and `1.92.1` are releases of `1.92`, but not of `1.9`.
fn is_release_of(version: &str, wanted: &str) -> bool {
    version == wanted || version.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'))
}

/// The first toolchain of rustup's list that is a release of the wanted version.
fn named<'a>(list: &'a str, wanted: &str) -> Option<&'a str> {
    list.lines()
        .filter_map(|line| line.split_whitespace().next())
        .find(|name| name.split('-').next().is_some_and(|version| is_release_of(version, wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toolchain_is_found_by_its_version() {
        let list = "stable-x86_64-unknown-linux-gnu (default)\n1.9.0-x86_64-unknown-linux-gnu\n\
                    1.92.1-x86_64-unknown-linux-gnu (active)\n1.95-x86_64-unknown-linux-gnu\n";
        assert_eq!(named(list, "1.92"), Some("1.92.1-x86_64-unknown-linux-gnu"));
        assert_eq!(named(list, "1.95"), Some("1.95-x86_64-unknown-linux-gnu"));
        assert_eq!(named(list, "1.93"), None);
        assert_eq!(named(list, "1"), Some("1.9.0-x86_64-unknown-linux-gnu"));
        assert_eq!(named("", "1.92"), None);
    }
}
