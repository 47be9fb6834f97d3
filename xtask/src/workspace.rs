//! The root of the tree and the build folder.
//! Owns: the two paths.      Never: changes their contents.
//! In: cargo's environment and metadata.  Out: `Workspace`.
//! Tests: every task uses it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// The tree a task works on.
pub(crate) struct Workspace {
    /// The folder with the workspace's Cargo.toml.
    pub(crate) root: PathBuf,
    /// Cargo's build folder, wherever it is configured.
    pub(crate) target: PathBuf,
    /// `cargo metadata` of the workspace's own packages.
    pub(crate) metadata: Value,
}

impl Workspace {
    /// Asks cargo for the metadata; fails outside a checkout.
    pub(crate) fn find() -> Result<Workspace> {
        let here = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = here.parent().context("xtask lies in a folder of the workspace")?.to_path_buf();
        let output = cargo(&root)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .context("cannot run cargo metadata")?;
        if !output.status.success() {
            anyhow::bail!(
                "cargo metadata failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).context("cargo metadata did not print JSON")?;
        let target = metadata["target_directory"]
            .as_str()
            .context("cargo metadata names no target_directory")?;
        Ok(Workspace { root, target: PathBuf::from(target), metadata })
    }

    /// A `cargo` command that runs at the root of the tree.
    pub(crate) fn cargo(&self) -> Command {
        cargo(&self.root)
    }
}

/// Everything that is optional in the program, and the tests of the engine of scripts as WASM, which has to be made first.
pub(crate) const PACKAGED: [&str; 2] = ["--features", "metamcp/packaged,metamcp-hardened/wasm"];

/// The features that are tested without that engine: what packages turn on, as far as it needs nothing but a compiler.
pub(crate) const FEATURES: [&str; 2] = ["--features", "metamcp/otlp,metamcp/fleet"];

/// The cargo that started us, so that a toolchain chosen with `cargo +x` stays in effect.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    // `cargo run` sets variables about xtask's package; a build script that sees them considers itself stale and runs
    // again, which costs minutes each time a task and a manual build alternate.
    for (name, _) in std::env::vars_os() {
        let described = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if described {
            command.env_remove(&name);
        }
    }
    command
}
