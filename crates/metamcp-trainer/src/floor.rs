//! From which chance on a first hit is an answer to a need, so that nothing is looked for elsewhere; and below which one
//! nothing here fits.
//! Owns: the tables of floors.      Never: fits weights.
//! In: folders with tools.jsonl and queries.jsonl; a model, or none.  Out: tables on stdout; the best floor of each set and of all.
//! Tests: below.
//!
//! Each question is put to two small catalogs ([`crate::small`]). A floor is good if it takes what is there and does not
//! take what is not: the share of the first minus the share of the second.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use metamcp_search::search::{Hit, meets};

use crate::reader::{Embedder, Reader};
use crate::{SETS, small, text};

/// Hits that are shown, of which one has to be right.
const SHOWN: usize = 5;
/// The floors that are tried.
const FLOORS: [f32; 16] = [
    0.03, 0.05, 0.08, 0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40, 0.45, 0.50, 0.55, 0.60, 0.70, 0.80,
];

/// How sure the first hit was, and whether a right one was shown.
#[derive(Clone, Copy)]
struct Case {
    chance: f32,
    right: bool,
    /// Whether a search would be content with it.
    meets: bool,
}

/// What came of the questions of one set.
#[derive(Default)]
struct SetResult {
    with: Vec<Case>,
    without: Vec<Case>,
}

/// Prints the table.
pub(crate) fn run(folder: &Path, embedder: Option<&Embedder>, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "share taken where an answer is there, and where none is, by floor")?;
    let shown: Vec<String> = FLOORS.iter().map(|floor| format!("{floor:9.2}")).collect();
    writeln!(out, "{:<10}{}  best  meets", "", shown.concat())?;
    // The same questions once only.
    let sets = SETS.iter().map(|(name, _)| *name).filter(|name| *name != "mcp20k");
    let sets: Vec<&str> = sets.collect();
    let mut all = [0.0; FLOORS.len()];
    for name in &sets {
        let outcome = measured(&folder.join(name), embedder)?;
        let scores = FLOORS.map(|floor| outcome.shares(|case| case.chance >= floor));
        let (met, wrongly_met) = outcome.shares(|case| case.meets);
        let cells: Vec<String> = scores
            .iter()
            .map(|(with, without)| format!("{:5.0}/{:<3.0}", with * 100.0, without * 100.0))
            .collect();
        let gains = scores.map(|(with, without)| with - without);
        writeln!(
            out,
            "{name:<10}{}  {:.2} {:5.0}/{:<3.0}",
            cells.concat(),
            FLOORS[best(&gains)],
            met * 100.0,
            wrongly_met * 100.0
        )?;
        for (sum, gain) in all.iter_mut().zip(gains) {
            *sum += gain / sets.len() as f64;
        }
    }
    let cells: Vec<String> = all.iter().map(|gain| format!("{:9.1}", gain * 100.0)).collect();
    writeln!(out, "{:<10}{}  {:.2}", "mean gain", cells.concat(), FLOORS[best(&all)])?;
    Ok(())
}

fn best(gains: &[f64]) -> usize {
    let by_gain = |a: &usize, b: &usize| gains[*a].total_cmp(&gains[*b]);
    (0..gains.len()).max_by(by_gain).unwrap_or_default()
}

impl SetResult {
    /// Shares taken: of those where a right one is shown, and of the catalogs without an answer.
    fn shares(&self, is_taken: impl Fn(&Case) -> bool) -> (f64, f64) {
        let share = |cases: &[Case], wants_right: bool| {
            let counted = cases.iter().filter(|case| case.right || !wants_right);
            let (taken, all) = counted.fold((0usize, 0usize), |(taken, all), case| {
                (taken + usize::from(is_taken(case)), all + 1)
            });
            taken as f64 / all.max(1) as f64
        };
        (share(&self.with, true), share(&self.without, false))
    }
}

fn measured(folder: &Path, embedder: Option<&Embedder>) -> Result<SetResult> {
    let (tools, questions) = (text(folder, "tools.jsonl")?, text(folder, "queries.jsonl")?);
    let mut outcome = SetResult::default();
    small::each(&tools, &questions, |catalog| {
        let hits = Reader::new(&catalog.corpus.index, embedder)?.hits(&catalog.query, SHOWN);
        let case = Case {
            chance: hits.first().and_then(|hit: &Hit| hit.confidence).unwrap_or_default(),
            right: hits.iter().any(|hit| catalog.is_right(hit)),
            meets: meets(&catalog.query, &hits),
        };
        let cases = if catalog.has_answer { &mut outcome.with } else { &mut outcome.without };
        cases.push(case);
        Ok(())
    })?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_takes_what_is_above_it() {
        let case = |chance, right| Case { chance, right, meets: false };
        let outcome = SetResult {
            with: vec![case(0.9, true), case(0.9, false), case(0.3, true), case(0.1, true)],
            without: vec![case(0.5, false), case(0.1, false)],
        };
        assert_eq!(outcome.shares(|case| case.chance >= 0.2), (2.0 / 3.0, 0.5));
        assert_eq!(outcome.shares(|case| case.chance >= 0.6), (1.0 / 3.0, 0.0));
        assert_eq!(best(&[0.1, 0.4, 0.2]), 1);
    }
}
