//! Answers of `mcp_discover` to questions in people's words, with every recorded server listed.

use std::path::Path;

use anyhow::Result;
use metamcp_testkit::listings;
use serde_json::{Value, json};

use super::gateway::{Gateway, Shown, shown};
use super::place::Place;
use super::{Bench, replayed};

/// Goals for the tokens of an answer.
pub(super) const GOAL_MEDIAN: usize = 350;
pub(super) const GOAL_P95: usize = 700;

/// Tokens of all answers, and how often the right tool is in sight.
pub(super) fn measure(binary: &Path, bench: &Bench) -> Result<Value> {
    let questions = listings::questions()?;
    let place = Place::new(&bench.folder)?;
    let gateway = Gateway::start(binary, &place, &replayed()?, &[])?;
    super::say(&format!("mcp_discover, {} questions", questions.len()));
    gateway.warm_up("anything")?;
    let (mut text, mut structured) = (Vec::new(), Vec::new());
    let (mut in_full, mut by_name) = (0, 0);
    let mut missed = Vec::new();
    for question in &questions {
        let reply = gateway.call("mcp_discover", &json!({ "query": question.words }))?;
        let [as_text, as_structured] = reply.tokens(&bench.counter);
        text.push(as_text);
        structured.push(as_structured);
        let best = question.tools.iter().map(|tool| shown(&reply.text, tool));
        match best.min_by_key(|shown| *shown as u8) {
            Some(Shown::InFull) => in_full += 1,
            Some(Shown::ByName) => by_name += 1,
            _ => missed.push(json!({ "words": question.words, "tools": question.tools })),
        }
    }
    Ok(json!({
        "questions": questions.len(),
        "median": at(&mut text, 50),
        "p95": at(&mut text, 95),
        "mean": text.iter().sum::<usize>() / text.len().max(1),
        "structured_median": at(&mut structured, 50),
        "structured_p95": at(&mut structured, 95),
        "goal_median": GOAL_MEDIAN,
        "goal_p95": GOAL_P95,
        "in_full": in_full,
        "by_name": by_name,
        "missed": missed,
    }))
}

/// The number that so many of a hundred do not exceed.
fn at(numbers: &mut [usize], percent: usize) -> usize {
    numbers.sort_unstable();
    let rank = (numbers.len() * percent).div_ceil(100).max(1);
    numbers.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_numbers_that_occurred() {
        let mut numbers: Vec<usize> = (1..=100).rev().collect();
        assert_eq!(at(&mut numbers, 50), 50);
        assert_eq!(at(&mut numbers, 95), 95);
        assert_eq!(at(&mut [7], 95), 7);
    }
}
