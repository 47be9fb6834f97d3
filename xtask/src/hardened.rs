//! Rebuilds the engine of the profile `hardened`: `cargo xtask hardened [--twice] [--target TRIPLE]...`.
//! Owns: the comparison of two runs.      Never: compiles; that is `hardened/build.py`.
//! In: the sources of the tree and the package registries.  Out: `target/hardened`, with checksums.
//! Tests: `crates/metamcp-hardened/tests`, which run the result; `--twice` compares two builds.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::run;
use crate::workspace::Workspace;

/// Where the script writes its checksums. Not cargo's build folder, which may be elsewhere: the build script of
/// `metamcp-hardened` expects them here.
const SUMS: &str = "target/hardened/SHA256SUMS";

/// Sources and intermediate files, which a second build must not reuse.
const WORK: [&str; 2] = ["target/hardened/work", "target/hardened/zig-cache"];

/// What the engine is made from; `build.py` checks by itself that the engine's source in Cargo.lock is the one it names.
const SOURCES: [&str; 6] = [
    "hardened",
    "hardened/compiler",
    "hardened/compiler/src",
    "crates/metamcp-hardened/src/tuning.rs",
    "crates/metamcp-sandbox/src/prelude.rs",
    "crates/metamcp-sandbox/src/prelude",
];

/// Says which sources the engine there was made from.
const NOTE: &str = "target/hardened/made-from";

/// Makes the engine for all machines unless it is there already.
pub(crate) fn ready(workspace: &Workspace) -> Result<()> {
    if is_ready(workspace) { Ok(()) } else { run(workspace, &[]) }
}

/// Whether the engine of all machines is there, made from these sources.
pub(crate) fn is_ready(workspace: &Workspace) -> bool {
    let made = fs::read_to_string(workspace.root.join(NOTE));
    made.is_ok_and(|made| sources(workspace).is_ok_and(|wanted| made == wanted))
}

/// A checksum of all sources.
fn sources(workspace: &Workspace) -> Result<String> {
    let mut files = Vec::new();
    for source in SOURCES {
        let path = workspace.root.join(source);
        if path.is_file() {
            files.push(path);
            continue;
        }
        for entry in fs::read_dir(&path).with_context(|| path.display().to_string())? {
            let entry = entry?;
            let is_page = entry.path().extension().is_some_and(|end| end == "md");
            if entry.file_type()?.is_file() && !is_page {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let mut sum = Sha256::new();
    for file in files {
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(&workspace.root).unwrap_or(&file);
        sum.update(format!("{} {}\n", name.display(), bytes.len()));
        sum.update(bytes);
    }
    Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

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
    // Of fewer machines than all, or half made: not what `ready` looks for.
    if let Err(error) = fs::remove_file(workspace.root.join(NOTE))
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error).context(NOTE);
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
    if targets.is_empty() {
        fs::write(workspace.root.join(NOTE), sources(workspace)?).context(NOTE)?;
    }
    Ok(())
}

fn build(workspace: &Workspace, targets: &[&String]) -> Result<String> {
    let script = workspace.root.join("hardened/build.py");
    run::loud(Command::new("python3").arg(script).args(targets).current_dir(&workspace.root))?;
    fs::read_to_string(workspace.root.join(SUMS)).context(SUMS)
}
