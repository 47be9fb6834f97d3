//! From which chance on a tool that is here is an answer to a need, so that nothing is looked for elsewhere.
//! Owns: small catalogs with and without the answer, the table of floors.      Never: fits weights.
//! In: folders with tools.jsonl and queries.jsonl.  Out: a table on stdout; the best floor of each set and of all.
//! Tests: below.
//!
//! A user has a few servers, not the thousands of a set. So each question is put to two catalogs of a few servers drawn
//! from its own set: one with a server that has the answer, one with none that has. A floor is good if it takes what
//! is there and does not take what is not: the share of the first minus the share of the second.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use metamcp_search::eval::Corpus;
use metamcp_search::search::FITS;
use metamcp_search::search::{Hit, Strategy};
use serde_json::Value;

use crate::set::chosen;

/// Sets of real and of made tools; the same questions once only.
const SETS: [&str; 5] = ["mcpzero", "metatool", "toollens", "ultratool", "sealtools"];
/// Questions of one set.
const QUESTIONS: usize = 240;
/// Servers in a catalog, in turn: from somebody who begins to somebody who collects.
const SERVERS: [usize; 4] = [2, 5, 12, 30];
/// Hits that are shown, of which one has to be right.
const SHOWN: usize = 5;
/// A set with fewer servers than this is drawn from tool by tool.
const FEW: usize = 60;
/// The floors that are tried.
const FLOORS: [f32; 15] =
    [0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40, 0.45, 0.50, 0.55, 0.60, 0.65, 0.70, 0.80, 0.90];

/// How sure the first hit was, and whether a right one was shown.
#[derive(Clone, Copy)]
struct Case {
    chance: f32,
    right: bool,
}

/// What came of the questions of one set.
struct SetResult {
    with: Vec<Case>,
    without: Vec<Case>,
}

/// Prints the table.
pub(crate) fn run(folder: &Path, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "share taken where an answer is there, and where none is, by floor")?;
    let shown: Vec<String> = FLOORS.iter().map(|floor| format!("{floor:11.2}")).collect();
    writeln!(out, "{:<10}{}  best", "", shown.concat())?;
    let mut all = [0.0; FLOORS.len()];
    for name in SETS {
        let outcome = measured(&folder.join(name))?;
        let scores = FLOORS.map(|floor| outcome.shares(floor));
        let cells: Vec<String> = scores
            .iter()
            .map(|(with, without)| format!("{:6.0}/{:<4.0}", with * 100.0, without * 100.0))
            .collect();
        let gains = scores.map(|(with, without)| with - without);
        writeln!(out, "{name:<10}{}  {:.2}", cells.concat(), FLOORS[best(&gains)])?;
        for (sum, gain) in all.iter_mut().zip(gains) {
            *sum += gain / SETS.len() as f64;
        }
    }
    let cells: Vec<String> = all.iter().map(|gain| format!("{:11.1}", gain * 100.0)).collect();
    writeln!(out, "{:<10}{}  {:.2}", "mean gain", cells.concat(), FLOORS[best(&all)])?;
    Ok(())
}

fn best(gains: &[f64]) -> usize {
    let by_gain = |a: &usize, b: &usize| gains[*a].total_cmp(&gains[*b]);
    (0..gains.len()).max_by(by_gain).unwrap_or_default()
}

impl SetResult {
    /// Shares taken at a floor: of the catalogs with an answer those where a right one is shown, and of those without
    /// all that are taken.
    fn shares(&self, floor: f32) -> (f64, f64) {
        let share = |cases: &[Case], wants_right: bool| {
            let taken = cases
                .iter()
                .filter(|case| case.chance >= floor && (case.right || !wants_right))
                .count();
            taken as f64 / cases.len().max(1) as f64
        };
        (share(&self.with, true), share(&self.without, false))
    }
}

fn measured(folder: &Path) -> Result<SetResult> {
    let text = |file: &str| {
        let path = folder.join(file);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (tools, questions) = (text("tools.jsonl")?, text("queries.jsonl")?);
    let mut servers: BTreeMap<String, Vec<(String, &str)>> = BTreeMap::new();
    for line in tools.lines() {
        let tool: Value = serde_json::from_str(line)?;
        let word = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        servers.entry(word("server")).or_default().push((word("id"), line));
    }
    let groups: Vec<Vec<(String, &str)>> = if servers.len() < FEW {
        servers.into_values().flatten().map(|tool| vec![tool]).collect()
    } else {
        servers.into_values().collect()
    };
    let lines: Vec<&str> = questions.lines().collect();
    let mut outcome = SetResult { with: Vec::new(), without: Vec::new() };
    for (number, line) in chosen(&lines, QUESTIONS).into_iter().enumerate() {
        let question: Value = serde_json::from_str(line)?;
        let query = question["query"].as_str().unwrap_or_default();
        let right = right(&question);
        let answers = |group: &&Vec<(String, &str)>| group.iter().any(|(id, _)| right.contains(id));
        let (have, have_not): (Vec<_>, Vec<_>) = groups.iter().partition(answers);
        let Some(one) = have.get(number % have.len().max(1)) else { continue };
        let size = SERVERS[number % SERVERS.len()];
        let others = drawn(&have_not, size, number);
        let with: Vec<_> = others.iter().skip(1).copied().chain([*one]).collect();
        outcome.with.push(asked(&with, query, &right)?);
        outcome.without.push(asked(&others, query, &right)?);
    }
    Ok(outcome)
}

/// The ids that answer a question.
fn right(question: &Value) -> BTreeSet<String> {
    let words = |list: &Value| -> Vec<String> {
        list.as_array()
            .into_iter()
            .flatten()
            .filter_map(|id| Some(id.as_str()?.to_owned()))
            .collect()
    };
    let alternatives = question["alt"].as_object().into_iter().flat_map(|all| all.values());
    words(&question["gold"]).into_iter().chain(alternatives.flat_map(words)).collect()
}

/// Some of them, others for each number, the same in every run.
fn drawn<'a, T>(all: &[&'a T], count: usize, number: usize) -> Vec<&'a T> {
    let key = |at: usize| ((at + 1) * (number + 1)) as u64 * 0x9e37_79b9 % 1_000_003;
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|&at| key(at));
    places.truncate(count);
    places.into_iter().map(|at| all[at]).collect()
}

fn asked(catalog: &[&Vec<(String, &str)>], query: &str, right: &BTreeSet<String>) -> Result<Case> {
    let tools: Vec<&(String, &str)> = catalog.iter().flat_map(|group| group.iter()).collect();
    let lines: Vec<&str> = tools.iter().map(|(_, line)| *line).collect();
    let corpus = Corpus::read(&lines.join("\n"))?;
    let mut ids: BTreeMap<(String, String), &str> = BTreeMap::new();
    for (id, line) in tools {
        let tool: Value = serde_json::from_str(line)?;
        let word = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        ids.insert((word("server"), word("name")), id);
    }
    let hits = corpus.index.search(query, Strategy::Hybrid, SHOWN, None);
    let sure = |hit: &Hit| hit.confidence.unwrap_or_default();
    let is_right = |hit: &Hit| {
        let id = ids.get(&(hit.server.to_string(), hit.tool().name.to_string()));
        sure(hit) >= FITS && id.is_some_and(|id| right.contains(*id))
    };
    Ok(Case {
        chance: hits.first().map(sure).unwrap_or_default(),
        right: hits.iter().any(is_right),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_takes_what_is_above_it() {
        let case = |chance, right| Case { chance, right };
        let outcome = SetResult {
            with: vec![case(0.9, true), case(0.9, false), case(0.3, true), case(0.1, true)],
            without: vec![case(0.5, false), case(0.1, false)],
        };
        assert_eq!(outcome.shares(0.2), (0.5, 0.5));
        assert_eq!(outcome.shares(0.6), (0.25, 0.0));
        assert_eq!(best(&[0.1, 0.4, 0.2]), 1);
    }

    #[test]
    fn catalogs_differ_by_question_and_not_by_run() {
        let all: Vec<usize> = (0..100).collect();
        let all: Vec<&usize> = all.iter().collect();
        assert_eq!(drawn(&all, 5, 3), drawn(&all, 5, 3));
        assert_ne!(drawn(&all, 5, 3), drawn(&all, 5, 4));
        assert_eq!(drawn(&all, 500, 3).len(), 100);
    }
}
