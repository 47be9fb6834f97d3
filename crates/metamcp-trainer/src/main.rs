//! Makes the weights of the hybrid ranking: `train-ranker FOLDER [--write FILE]`, run by `cargo xtask train`; with
//! `--model FILE` those of the transformer's, whose file that is, and `--vectors FILE` keeps what it made of tools. Instead
//! it measures with `--habits` what remembering use does to the sets, with `--floor` from which chance on a tool that is
//! here is an answer, with `--cut` what showing fewer hits loses and saves.
//! Owns: which sets are used, leaving each out in turn, the file of weights.      Never: ships, keeps text of a set.
//! In: folders with tools.jsonl and queries.jsonl.  Out: a table on stdout, and the weights as Rust.
//! Tests: `fit.rs`.

mod confidence;
mod cut;
mod fit;
mod floor;
mod reader;
mod replay;
mod set;
mod small;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use metamcp_search::eval::Measures;
use metamcp_search::search::{FEATURE_NAMES, FEATURES, NEAR_NAMES};

use crate::confidence::ConfidenceWeights;
use crate::fit::Weights;
use crate::reader::Embedder;
use crate::set::Set;

/// The sets by name; those of one family share queries and are held out together.
const SETS: &[(&str, &str)] = &[
    ("mcpzero", "mcp"),
    ("metatool", "metatool"),
    ("toollens", "toollens"),
    ("ultratool", "ultratool"),
    ("sealtools", "sealtools"),
    ("mcp20k", "mcp"),
    ("people", "people"),
];

/// Sets in the mean: neither the one that repeats questions of another, nor the one that came later.
const IN_THE_MEAN: usize = 5;

/// Questions of one set that are used: more of the largest sets would only take longer.
const QUESTIONS: usize = 700;

fn main() -> Result<()> {
    let mut folder = None;
    let (mut write, mut model, mut vectors) = (None, None, None);
    let mut without = Vec::new();
    let (mut habits, mut floor, mut cut) = (false, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--write" => write = Some(PathBuf::from(arguments.next().context("--write FILE")?)),
            "--model" => model = Some(PathBuf::from(arguments.next().context("--model FILE")?)),
            "--vectors" => {
                vectors = Some(PathBuf::from(arguments.next().context("--vectors FILE")?));
            }
            "--without" => without.push(arguments.next().context("--without SET")?),
            "--habits" => habits = true,
            "--floor" => floor = true,
            "--cut" => cut = true,
            _ if folder.is_none() => folder = Some(PathBuf::from(argument)),
            other => bail!("unknown argument {other:?}"),
        }
    }
    let folder = folder.context(
        "usage: train-ranker FOLDER [--model FILE [--vectors FILE]] [--without SET] [--write FILE | --habits | --floor | --cut]",
    )?;
    let embedder = model.map(|path| Embedder::open(&path, vectors)).transpose()?;
    let embedder = embedder.as_ref();
    if floor {
        return floor::run(&folder, embedder, &mut io::stdout().lock());
    }
    if cut {
        return cut::run(&folder, embedder, &without, &mut io::stdout().lock());
    }
    if habits {
        return replay::run(&folder, &mut io::stdout().lock());
    }
    let sorting = if embedder.is_some() { fit::WITH_NEARNESS } else { fit::FIRST_SORTING };
    let mut sets = Vec::new();
    for (name, family) in SETS.iter().filter(|(name, _)| without.iter().all(|set| set != name)) {
        writeln!(io::stderr(), "train: looking at {name}")?;
        sets.push(Set::read(&folder.join(name), name, family, QUESTIONS, embedder)?);
    }
    let lent: Vec<(&str, Vec<String>)> = sets.iter().map(|set| (set.family, set.lent())).collect();
    for set in &mut sets {
        let own = set.family;
        for (_, queries) in lent.iter().filter(|(family, _)| *family != own) {
            set.ask_foreign(queries, embedder)?;
        }
    }
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{:<12}{:>30}{:>36}{:>22}",
        "held out", "before re-ranking", "trained on the others", "error of confidence"
    )?;
    let mut means = [[0.0; 5]; 2];
    for left in &sets {
        let others: Vec<&Set> = sets.iter().filter(|set| set.family != left.family).collect();
        let weights = fit::fit(&others, sorting);
        let (before, after) = (left.as_sorted(), left.measured(&weights));
        let error = confidence::error(left, &weights, &confidence::fit(&others, &weights)) * 100.0;
        let (before_shown, after_shown) = (shown(&before), shown(&after));
        writeln!(out, "{:<12}{before_shown}      {after_shown}{error:22.1}", left.name)?;
        if sets.iter().position(|set| set.name == left.name) < Some(IN_THE_MEAN) {
            for (mean, measures) in means.iter_mut().zip([before, after]) {
                mean.iter_mut()
                    .zip(measures.numbers())
                    .for_each(|(sum, one)| *sum += one / IN_THE_MEAN as f64);
            }
        }
    }
    let mean = |numbers: [f64; 5]| numbers.map(|n| format!("{:6.1}", n * 100.0)).concat();
    writeln!(out, "{:<12}{}      {}", "mean", mean(means[0]), mean(means[1]))?;
    let all: Vec<&Set> = sets.iter().collect();
    let weights = fit::fit(&all, sorting);
    let sure = confidence::fit(&all, &weights);
    for (name, [_, _, weight]) in FEATURE_NAMES.iter().zip(weights.0) {
        writeln!(out, "  {name:<20}{weight:8.3}")?;
    }
    if embedder.is_some() {
        for (name, [_, _, weight]) in NEAR_NAMES.iter().zip(&weights.0[FEATURES..]) {
            writeln!(out, "  {name:<20}{weight:8.3}")?;
        }
    }
    if let Some(path) = write {
        std::fs::write(&path, source(&weights, &sure, embedder.is_some()))?;
    }
    Ok(())
}

/// A file of a set.
fn text(folder: &Path, file: &str) -> Result<String> {
    let path = folder.join(file);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn shown(measures: &Measures) -> String {
    measures.numbers().map(|number| format!("{:6.1}", number * 100.0)).concat()
}

/// The table of weights as it stands in the ranking's own file.
fn source(weights: &Weights, sure: &ConfidenceWeights, transformer: bool) -> String {
    let row =
        |[mean, deviation, weight]: [f64; 3]| format!("[{mean:.4}, {deviation:.4}, {weight:.4}]");
    let mut rows = String::new();
    for (own, name) in weights.0.iter().zip(FEATURE_NAMES) {
        rows.push_str(&format!("    {}, // {name}\n", row(*own)));
    }
    let beside = if transformer { " with the transformer" } else { "" };
    let uses = if transformer {
        "use super::super::hybrid::{FEATURES, CONFIDENCE_FEATURES};\nuse super::NEAR_NAMES;"
    } else {
        "use super::confidence::CONFIDENCE_FEATURES;\nuse super::features::FEATURES;"
    };
    let nearness = transformer.then(|| {
        let own = weights.0[FEATURES..].iter().zip(NEAR_NAMES);
        let own: String =
            own.map(|(own, name)| format!("    {}, // {name}\n", row(*own))).collect();
        format!(
            "/// The same of what the transformer thinks, in the order of `NEAR_NAMES`.\n\
             pub(super) const NEARNESS: [[f32; 3]; NEAR_NAMES.len()] = [\n{own}];\n\n"
        )
    });
    format!(
        "//! The weights of the re-ranking features{beside}. Generated by `cargo xtask train`; do not edit.\n\n\
         {uses}\n\n\
         /// Mean, deviation and weight of each, in the order of `FEATURE_NAMES`.\n\
         pub(super) const WEIGHTS: [[f32; 3]; FEATURES] = [\n{rows}];\n\n{}\
         /// What each ground for confidence is worth.\n\
         pub(super) const CONFIDENCE: [f32; CONFIDENCE_FEATURES] = [{}];\n",
        nearness.unwrap_or_default(),
        sure.map(|weight| format!("{weight:.3}")).join(", ")
    )
}

const _: () = assert!(FEATURES == FEATURE_NAMES.len());
