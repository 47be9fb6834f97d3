//! Programs from crates.io that the tasks need, each in one pinned version, under the build folder.
//! Owns: `target/tools` and the versions.      Never: installs anything into the user's own cargo.
//! In: a `Tool`.  Out: the path of its program.
//! Tests: below; the step `deny` uses it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// A cargo subcommand, built from its released source.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
}

pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
pub(crate) const FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };
pub(crate) const LLVM_COV: Tool = Tool { name: "cargo-llvm-cov", version: "0.9.1" };

impl Tool {
    /// The path of the program, built first if this version is not installed.
    pub(crate) fn program(&self, workspace: &Workspace) -> Result<PathBuf> {
        let root = workspace.target.join("tools");
        let program =
            root.join("bin").join(format!("{}{}", self.name, std::env::consts::EXE_SUFFIX));
        if self.is_current(&program) {
            return Ok(program);
        }
        let build = root.join("build");
        let mut command = workspace.cargo();
        command
            // Unoptimized: cargo-deny then builds in less than two minutes on two cores, and still checks in three
            // seconds.
            .args([
                "install",
                self.name,
                "--version",
                self.version,
                "--locked",
                "--force",
                "--quiet",
                "--debug",
            ])
            .arg("--root")
            .arg(&root)
            .arg("--target-dir")
            .arg(&build)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0");
        run::loud(&mut command).with_context(|| {
            format!(
                "cannot install {} {}, which needs the registry of crates",
                self.name, self.version
            )
        })?;
        // Hundreds of megabytes that are not needed again.
        fs::remove_dir_all(&build).context("cannot remove target/tools/build")?;
        if !self.is_current(&program) {
            bail!("{} does not say that it is version {}", program.display(), self.version);
        }
        Ok(program)
    }

    fn is_current(&self, program: &Path) -> bool {
        // A cargo subcommand may expect its own name as the first argument.
        let subcommand = self.name.trim_start_matches("cargo-");
        [vec!["--version"], vec![subcommand, "--version"]].iter().any(|arguments| {
            run::quiet(Command::new(program).args(arguments))
                .is_ok_and(|said| says_version(&said, self.version))
        })
    }
}

/// `cargo-deny 0.20.2` is version 0.20.2 and not 0.20.
fn says_version(said: &str, version: &str) -> bool {
    said.lines().next().is_some_and(|line| line.split_whitespace().any(|word| word == version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_whole_word_of_the_first_line() {
        assert!(says_version("cargo-deny 0.20.2\n", "0.20.2"));
        assert!(says_version("cargo-nextest 0.9.143 (60fa45f63 2026-08-04)\n", "0.9.143"));
        assert!(!says_version("cargo-deny 0.20.21\n", "0.20.2"));
        assert!(!says_version("usage\n0.20.2\n", "0.20.2"));
        assert!(!says_version("", "0.20.2"));
    }
}
