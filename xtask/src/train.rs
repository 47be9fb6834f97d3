//! The weights of the hybrid ranking, fitted anew: `cargo xtask train FOLDER`; with `--floor`, only the table by which
//! the floor of provisioning was chosen.
//! Owns: where the weights stand in the tree.      Never: fits; that is `metamcp-trainer`.
//! In: a folder of sets, each with tools.jsonl and queries.jsonl.  Out: `weights.rs` of the hybrid ranking, formatted.
//! Tests: `crates/metamcp-trainer/src/fit.rs`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::place::Place;
use crate::run;

/// The file the trainer writes and the ranking reads.
const WEIGHTS: &str = "crates/metamcp-core/src/search/hybrid/weights.rs";

/// `cargo xtask train`.
pub(crate) fn run(place: &Place, options: &[String]) -> Result<()> {
    let (folder, measures_floor) = match options {
        [folder] => (folder, false),
        [folder, option] if option == "--floor" => (folder, true),
        _ => bail!("train takes one folder of sets, and --floor"),
    };
    let folder = std::path::absolute(folder)
        .with_context(|| format!("{folder:?} is not a path that can be used"))?;
    let trainer = build(place)?;
    if measures_floor {
        run::loud(Command::new(trainer).arg(folder).arg("--floor"))?;
        return Ok(());
    }
    run::loud(
        Command::new(trainer).current_dir(&place.root).arg(folder).args(["--write", WEIGHTS]),
    )?;
    run::quiet(place.cargo().args(["fmt", "--package", "metamcp-core"]))?;
    Ok(())
}

/// The trainer, built for speed: it looks at thousands of questions.
pub(crate) fn build(place: &Place) -> Result<PathBuf> {
    run::loud(place.cargo().args(["build", "--release", "-p", "metamcp-trainer"]))?;
    Ok(place.target.join("release").join("metamcp-trainer"))
}
