//! The engine of the profile `hardened`, made anew: `cargo xtask hardened [--twice]`.
//! Owns: the comparison of two runs.      Never: compiles; that is `hardened/build.py`.
//! In: the sources of the tree and the package registries.  Out: `target/hardened`, with checksums.
//! Tests: `crates/metamcp-hardened/tests`, which run what it makes; `--twice` compares two builds.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// Where the script writes what it made. Not cargo's build folder, which may be elsewhere: the build of
/// `metamcp-hardened` looks for it here.
const SUMS: &str = "target/hardened/SHA256SUMS";

/// What a build is made from, and what a second one must not find.
const WORK: [&str; 2] = ["target/hardened/work", "target/hardened/zig-cache"];

/// `cargo xtask hardened`.
pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let twice = match options {
        [] => false,
        [one] if one == "--twice" => true,
        _ => bail!("hardened takes --twice and nothing else"),
    };
    let first = build(workspace)?;
    if twice {
        for folder in WORK {
            fs::remove_dir_all(workspace.root.join(folder)).with_context(|| folder.to_owned())?;
        }
        let second = build(workspace)?;
        if first != second {
            bail!("two builds differ:\n{first}\n{second}");
        }
    }
    Ok(())
}

fn build(workspace: &Workspace) -> Result<String> {
    let script = workspace.root.join("hardened/build.py");
    run::loud(Command::new("python3").arg(script).current_dir(&workspace.root))?;
    fs::read_to_string(workspace.root.join(SUMS)).context(SUMS)
}
