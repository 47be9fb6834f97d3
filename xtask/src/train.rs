//! Refits the weights of the hybrid ranking: `cargo xtask train FOLDER`; with `--model FILE`, those of the ranking with
//! the transformer in that file; with `--floor`, only prints the table by which the floor of provisioning was chosen.
//! Owns: where the weights are in the tree.      Never: fits; that is `metamcp-trainer`.
//! In: a folder of sets, each with tools.jsonl and queries.jsonl.  Out: `weights.rs` of that ranking, formatted.
//! Tests: `crates/metamcp-trainer/src/fit.rs`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// The file the trainer writes and the ranking reads.
const WEIGHTS: &str = "crates/metamcp-search/src/search/hybrid/weights.rs";

/// The same for the ranking with a transformer.
const TRANSFORMER: &str = "crates/metamcp-search/src/search/transformer/weights.rs";

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let (folder, measures_floor, model) = match options {
        [folder] => (folder, false, None),
        [folder, option] if option == "--floor" => (folder, true, None),
        [folder, option, model] if option == "--model" => (folder, false, Some(model)),
        _ => bail!("train takes one folder of sets, and --floor or --model FILE"),
    };
    let model = model.map(std::path::absolute).transpose()?;
    let folder = std::path::absolute(folder)
        .with_context(|| format!("{folder:?} is not a path that can be used"))?;
    let trainer = build(workspace)?;
    if measures_floor {
        run::loud(Command::new(trainer).arg(folder).arg("--floor"))?;
        return Ok(());
    }
    let weights = if model.is_some() { TRANSFORMER } else { WEIGHTS };
    let mut command = Command::new(trainer);
    command.current_dir(&workspace.root).arg(folder).args(["--write", weights]);
    if let Some(model) = &model {
        command.arg("--model").arg(model);
    }
    run::loud(&mut command)?;
    run::quiet(workspace.cargo().args(["fmt", "--package", "metamcp-search"]))?;
    Ok(())
}

/// The trainer, built with optimizations: it evaluates thousands of queries.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    run::loud(workspace.cargo().args(["build", "--release", "-p", "metamcp-trainer"]))?;
    Ok(workspace.target.join("release").join("metamcp-trainer"))
}
