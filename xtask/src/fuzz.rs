//! Runs the fuzz targets, each for a while: `cargo xtask fuzz [TARGET]... [--seconds N]`.
//! Owns: the list of targets, and their compiler.      Never: keeps a corpus in git.
//! In: `fuzz/fuzz_targets`.  Out: `fuzz/corpus`, and crashing inputs in `fuzz/artifacts`.
//! Tests: below; the bodies run on a small corpus with the tests of the crate they exercise.

use std::io::{self, Write};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::tools;
use crate::workspace::Workspace;

/// Seconds per target by default.
const SECONDS: u32 = 60;

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let all = targets(workspace)?;
    let (chosen, seconds) = chosen(options, &all)?;
    let program = tools::FUZZ.program(workspace)?;
    let nightly = run::quiet(Command::new("rustup").args(["run", "nightly", "rustc", "--version"]));
    let mut broken = Vec::new();
    for target in chosen {
        let mut command = Command::new(&program);
        command.current_dir(workspace.root.join("fuzz")).arg("run");
        // The cargo that started us is the pinned one; cargo-fuzz must resolve it again.
        command.env_remove("CARGO");
        if nightly.is_ok() {
            command.env("RUSTUP_TOOLCHAIN", "nightly");
        } else {
            writeln!(io::stderr(), "no nightly compiler: {target} runs without a sanitizer")?;
            command.env("RUSTC_BOOTSTRAP", "1").args(["--sanitizer", "none"]);
        }
        command.args([target, "--", "-dict=json.dict", "-timeout=10"]);
        command.arg(format!("-max_total_time={seconds}"));
        // The other targets still run.
        if let Err(error) = run::loud(&mut command) {
            writeln!(io::stderr(), "{target}: {error:#}")?;
            broken.push(target);
        }
    }
    if !broken.is_empty() {
        bail!("broken: {}; what broke them is in fuzz/artifacts", broken.join(", "));
    }
    Ok(())
}

/// The names of the targets, in order.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(workspace.root.join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "rs") {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

fn chosen<'a>(options: &'a [String], all: &'a [String]) -> Result<(Vec<&'a str>, u32)> {
    let mut seconds = SECONDS;
    let mut chosen: Vec<&str> = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        if option == "--seconds" {
            let number = options.next().context("--seconds needs a number")?;
            seconds = number.parse().with_context(|| format!("{number:?} is no number"))?;
        } else if all.contains(option) {
            chosen.push(option);
        } else {
            bail!("there is no target {option:?}; the targets are {}", all.join(", "));
        }
    }
    if chosen.is_empty() {
        chosen = all.iter().map(String::as_str).collect();
    }
    Ok((chosen, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose_targets_and_time() {
        let strings = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let all = strings(&["codec", "sse"]);
        let pick = |words: &[&str]| {
            chosen(&strings(words), &all).map(|(names, seconds)| (names.join(" "), seconds)).ok()
        };
        assert_eq!(pick(&[]), Some(("codec sse".to_owned(), SECONDS)));
        assert_eq!(pick(&["sse", "--seconds", "5"]), Some(("sse".to_owned(), 5)));
        assert_eq!(pick(&["--seconds"]), None);
        assert_eq!(pick(&["--seconds", "soon"]), None);
        assert_eq!(pick(&["codecs"]), None);
    }
}
