//! Rebuilds the engine of the profile `hardened`: `cargo xtask hardened [--twice] [--target TRIPLE]...`.
//! Owns: the comparison of two runs.      Never: compiles; that is `hardened/build.py`.
//! In: the sources of the tree and the package registries.  Out: `target/hardened`, with checksums.
//! Tests: `crates/metamcp-hardened/tests`, which run the result; `--twice` compares two builds.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// Where the script writes its checksums. Not cargo's build folder, which may be elsewhere: the build script of
/// `metamcp-hardened` expects them here.
const SUMS: &str = "target/hardened/SHA256SUMS";

/// Sources and intermediate files, which a second build must not reuse.
const WORK: [&str; 2] = ["target/hardened/work", "target/hardened/zig-cache"];

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let (mut twice, mut targets) = (false, Vec::new());
    let mut words = options.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--twice" => twice = true,
            "--target" => targets.push(words.next().context("--target needs a target triple")?),
            _ => bail!("hardened takes --twice, --target TRIPLE and nothing else"),
        }
    }
    let first = build(workspace, &targets)?;
    if twice {
        for folder in WORK {
            fs::remove_dir_all(workspace.root.join(folder)).with_context(|| folder.to_owned())?;
        }
        let second = build(workspace, &targets)?;
        if first != second {
            bail!("two builds differ:\n{first}\n{second}");
        }
    }
    Ok(())
}

fn build(workspace: &Workspace, targets: &[&String]) -> Result<String> {
    let script = workspace.root.join("hardened/build.py");
    run::loud(Command::new("python3").arg(script).args(targets).current_dir(&workspace.root))?;
    fs::read_to_string(workspace.root.join(SUMS)).context(SUMS)
}
