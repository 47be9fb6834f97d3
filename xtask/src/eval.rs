//! Search quality and cost, on public data sets and on synthetic catalogs of any size.
//! Owns: what is measured, and docs/search.md.      Never: fails because a number is bad, stores text of a data set.
//! In: a folder of sets, each with tools.jsonl and queries.jsonl; `metamcp eval`, the trainer.  Out: docs/search.md.
//! Tests: below and beside each part.

mod made_up;
mod page;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::Workspace;
use crate::{run, train};

/// Names the folder of data sets if the command line does not.
const VARIABLE: &str = "METAMCP_DATA";

/// Sizes of the synthetic catalogs: a busy user's, and more than anybody is known to have.
const SIZES: [usize; 2] = [3_000, 50_000];

/// The strategies measured on synthetic catalogs: the default, and the one it is built on.
const ON_MADE_UP: [&str; 2] = ["hybrid", "bm25"];

/// The strategy that is measured only if its model is installed.
const TRANSFORMER: &str = "transformer";

/// Timed starts from a cache; the median is reported.
const STARTS: usize = 15;

/// The strategies measured with `--quick`.
const QUICK: [&str; 2] = ["bm25", "hybrid"];

/// One run of `metamcp eval`: tools, indexing time and a row for each strategy.
struct EvalRun {
    name: String,
    value: Value,
}

impl EvalRun {
    fn number(&self, name: &str) -> f64 {
        self.value[name].as_f64().unwrap_or(f64::NAN)
    }

    fn rows(&self) -> impl Iterator<Item = &Value> {
        self.value["strategies"].as_array().into_iter().flatten()
    }
}

#[derive(Debug, Default, PartialEq)]
struct EvalOptions {
    folder: Option<PathBuf>,
    quick: bool,
    cut: bool,
    scale: Option<usize>,
}

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let eval_options = EvalOptions::read(options, std::env::var_os(VARIABLE).map(PathBuf::from))?;
    run::loud(workspace.cargo().args(["build", "--release", "-p", "metamcp"]))?;
    let metamcp = workspace.target.join("release").join("metamcp");
    if let Some(count) = eval_options.scale {
        let table = page::scale(&at_scale(workspace, &metamcp, count)?);
        return Ok(io::stdout().write_all(table.as_bytes())?);
    }
    let folder = eval_options.folder.with_context(|| {
        format!("eval needs a folder of sets: name it, or set {VARIABLE} to its path")
    })?;
    let model = model(&metamcp)?;
    if eval_options.cut {
        let table = page::cut_table(&cut(workspace, &folder, model.as_deref())?);
        let table = table.context("the trainer's table cannot be read")?;
        return Ok(io::stdout().write_all(table.as_bytes())?);
    }
    if model.is_none() {
        say("the transformer is not here and not measured; `metamcp model add` brings it");
    }
    let mut sets = Vec::new();
    for set in sets_in(&folder)? {
        let name = set.file_name().unwrap_or_default().to_string_lossy().into_owned();
        say(&format!("measuring {name}"));
        let strategies: &[&str] = if eval_options.quick { &QUICK } else { &[] };
        let mut value = measured(&metamcp, &set, strategies)?;
        if model.is_some() {
            say("reading its tools");
            add_rows(&mut value, &measured(&metamcp, &set, &[TRANSFORMER])?);
        }
        sets.push(EvalRun { name, value });
    }
    if eval_options.quick {
        return Ok(io::stdout().write_all(page::results(&sets).as_bytes())?);
    }
    let mut scale = Vec::new();
    for count in SIZES {
        scale.extend(at_scale(workspace, &metamcp, count)?);
    }
    if model.is_some() {
        say("measuring the transformer on made-up tools");
        let made_up = workspace.target.join("eval").join(SIZES[0].to_string());
        let value = measured(&metamcp, &made_up, &[TRANSFORMER])?;
        scale.push(EvalRun { name: TRANSFORMER.to_owned(), value });
    }
    let cold = cold_load(workspace, SIZES[0])?;
    say("leaving out each set in turn");
    let trainer = train::build(workspace)?;
    let mut left_out = vec![(None, run::quiet(Command::new(&trainer).arg(&folder))?)];
    if let Some(model) = &model {
        let mut command = Command::new(&trainer);
        command.arg(&folder).arg("--model").arg(model).args(vectors(workspace)?);
        left_out.push((Some(TRANSFORMER), run::quiet(&mut command)?));
    }
    say("measuring what the shortlist loses and saves");
    let cut = cut(workspace, &folder, model.as_deref())?;
    let page = page::whole(&sets, &scale, &cold, &left_out, &cut)?;
    fs::write(workspace.root.join("docs/search.md"), page)?;
    say("wrote docs/search.md");
    Ok(())
}

impl EvalOptions {
    fn read(options: &[String], folder: Option<PathBuf>) -> Result<EvalOptions> {
        let mut eval_options = EvalOptions { folder, ..EvalOptions::default() };
        let mut named = false;
        let mut given = options.iter();
        while let Some(option) = given.next() {
            match option.as_str() {
                "--quick" => eval_options.quick = true,
                "--cut" => eval_options.cut = true,
                "--scale" => {
                    let count = given.next().context("--scale needs a number of tools")?;
                    eval_options.scale = Some(count.parse().with_context(|| {
                        format!("--scale needs a number of tools, not {count:?}")
                    })?);
                }
                path if !path.starts_with('-') && !named => {
                    eval_options.folder = Some(PathBuf::from(path));
                    named = true;
                }
                other => bail!("eval does not know {other:?}"),
            }
        }
        Ok(eval_options)
    }
}

/// The folders that contain a data set, by name.
fn sets_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut sets = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.join("tools.jsonl").is_file() && path.join("queries.jsonl").is_file() {
            sets.push(path);
        }
    }
    if sets.is_empty() {
        bail!("no folder in {} holds tools.jsonl and queries.jsonl", folder.display());
    }
    sets.sort();
    Ok(sets)
}

/// A synthetic catalog of that size, with one run for each strategy, so that each has its own memory.
fn at_scale(workspace: &Workspace, metamcp: &Path, count: usize) -> Result<Vec<EvalRun>> {
    let folder = workspace.target.join("eval").join(count.to_string());
    say(&format!("making up {count} tools"));
    made_up::write(&folder, count)?;
    let mut runs = Vec::new();
    for strategy in ON_MADE_UP {
        say(&format!("measuring {strategy} on them"));
        let value = measured(metamcp, &folder, &[strategy])?;
        runs.push(EvalRun { name: strategy.to_owned(), value });
    }
    Ok(runs)
}

/// Milliseconds from process start to the first result, for a synthetic catalog cached on disk.
struct ColdStart {
    tools: usize,
    /// With the index cached too.
    kept: f64,
    /// With the index rebuilt, as after an update.
    made: f64,
}

fn cold_load(workspace: &Workspace, count: usize) -> Result<ColdStart> {
    let package = ["build", "--release", "-p", "metamcp-engine", "--example", "cold_load"];
    run::loud(workspace.cargo().args(package))?;
    let program = workspace.target.join("release").join("examples").join("cold_load");
    let home = workspace.target.join("eval").join(format!("{count}-home"));
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    say(&format!("starting from a cache of {count} tools"));
    let tools = workspace.target.join("eval").join(count.to_string()).join("tools.jsonl");
    run::quiet(Command::new(&program).arg("write").args([&tools, &home]))?;
    let (mut kept, mut made) = ([0.0; STARTS], [0.0; STARTS]);
    let start = || {
        let said = run::quiet(Command::new(&program).arg("read").arg(&home))?;
        let micros = said.split_whitespace().nth(1).and_then(|micros| micros.parse::<f64>().ok());
        Ok::<f64, anyhow::Error>(micros.with_context(|| format!("cold_load said {said:?}"))? / 1e3)
    };
    for at in 0..STARTS {
        kept[at] = start()?;
        for server in fs::read_dir(home.join("cache"))? {
            fs::remove_file(server?.path().join("index.bin"))?;
        }
        // This ends once the index is cached again.
        made[at] = start()?;
    }
    let [kept, made] = [kept, made].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[STARTS / 2]
    });
    Ok(ColdStart { tools: count, kept, made })
}

/// What the shortlist loses and saves, by strategy, as the trainer says it.
fn cut(
    workspace: &Workspace,
    folder: &Path,
    model: Option<&Path>,
) -> Result<Vec<(&'static str, String)>> {
    let trainer = train::build(workspace)?;
    let mut said = vec![("hybrid", run::quiet(Command::new(&trainer).arg(folder).arg("--cut"))?)];
    if let Some(model) = model {
        let mut command = Command::new(&trainer);
        command.arg(folder).args(["--cut", "--model"]).arg(model).args(vectors(workspace)?);
        said.push((TRANSFORMER, run::quiet(&mut command)?));
    }
    Ok(said)
}

/// Where the trainer keeps what the transformer made of tools: reading them takes most of its time.
fn vectors(workspace: &Workspace) -> Result<[std::ffi::OsString; 2]> {
    let folder = workspace.target.join("eval");
    fs::create_dir_all(&folder)?;
    Ok(["--vectors".into(), folder.join("vectors.bin").into()])
}

/// Runs `metamcp eval` for these strategies, or once for all; several runs are merged into one with all their rows.
fn measured(metamcp: &Path, set: &Path, strategies: &[&str]) -> Result<Value> {
    let once = |strategy: Option<&str>| -> Result<Value> {
        let mut command = Command::new(metamcp);
        command.args(["eval", "--json", "--tools"]).arg(set.join("tools.jsonl"));
        command.arg("--queries").arg(set.join("queries.jsonl"));
        if let Some(name) = strategy {
            command.args(["--strategy", name]);
        }
        serde_json::from_str(&run::quiet(&mut command)?).context("metamcp eval printed no JSON")
    };
    let Some((first, others)) = strategies.split_first() else { return once(None) };
    let mut all = once(Some(first))?;
    for strategy in others {
        add_rows(&mut all, &once(Some(strategy))?);
    }
    Ok(all)
}

/// Appends the rows of another run.
fn add_rows(all: &mut Value, other: &Value) {
    if let (Some(rows), Some(more)) =
        (all["strategies"].as_array_mut(), other["strategies"].as_array())
    {
        rows.extend(more.iter().cloned());
    }
}

/// The file of the transformer, if it is installed and intact.
fn model(metamcp: &Path) -> Result<Option<PathBuf>> {
    let shown = run::quiet(Command::new(metamcp).args(["model", "show", "--json"]))?;
    let shown: Value = serde_json::from_str(&shown).context("metamcp model printed no JSON")?;
    let path = shown["path"].as_str().filter(|_| shown["usable"] == true);
    Ok(path.map(PathBuf::from))
}

/// Progress is for people; a closed stderr is no reason to stop measuring.
fn say(words: &str) {
    drop(writeln!(io::stderr(), "eval: {words}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval_options(options: &[&str], variable: Option<&str>) -> Result<EvalOptions> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        EvalOptions::read(&options, variable.map(PathBuf::from))
    }

    #[test]
    fn a_named_folder_goes_before_the_variable() {
        let of =
            |folder: &str| EvalOptions { folder: Some(folder.into()), ..EvalOptions::default() };
        assert_eq!(eval_options(&["a"], Some("b")).unwrap(), of("a"));
        assert_eq!(eval_options(&[], Some("b")).unwrap(), of("b"));
        assert_eq!(eval_options(&[], None).unwrap(), EvalOptions::default());
        assert!(eval_options(&["a", "b"], None).unwrap_err().to_string().contains("\"b\""));
        assert!(eval_options(&["--scale", "many"], None).is_err());
        assert_eq!(eval_options(&["--scale", "7"], None).unwrap().scale, Some(7));
    }

    #[test]
    fn only_folders_with_both_files_are_sets() {
        let workspace = tempfile::tempdir().unwrap();
        assert!(sets_in(workspace.path()).unwrap_err().to_string().contains("tools.jsonl"));
        for (set, file) in
            [("b", "tools.jsonl"), ("b", "queries.jsonl"), ("a", "tools.jsonl"), ("c", "x")]
        {
            fs::create_dir_all(workspace.path().join(set)).unwrap();
            fs::write(workspace.path().join(set).join(file), "").unwrap();
        }
        assert_eq!(sets_in(workspace.path()).unwrap(), [workspace.path().join("b")]);
    }
}
