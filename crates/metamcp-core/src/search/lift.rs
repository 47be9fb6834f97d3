//! What habit does to a ranking: a little more for tools that match well and that the user has called before.

use std::sync::Arc;

use super::{Ranked, ServerIndex, Strategy};
use crate::habits::Prior;

/// Tools that may be lifted: a habit chooses among good candidates, it does not make one.
const GOOD: usize = 20;

/// The most that habit adds to the logarithm of the odds of `hybrid`.
const MOST_ODDS: f32 = 4.0;

/// The most that habit adds to a score of `bm25`, as a share of it.
const MOST_SHARE: f32 = 1.5;

/// Lifts among `ranked`, which is sorted; it has to be sorted again. A tool whose name is the query keeps its place
/// before all whose name is not.
pub(super) fn lift(
    servers: &[Arc<ServerIndex>],
    ranked: &mut [Ranked],
    query: &str,
    strategy: Strategy,
    prior: &Prior,
) {
    let lifted = match strategy {
        Strategy::Hybrid => by_odds,
        Strategy::Bm25 => by_share,
        // Points as they were agreed on, and nothing else.
        Strategy::Keyword | Strategy::Lexical => return,
    };
    let count = GOOD.min(ranked.len());
    let good = &mut ranked[..count];
    let asked = letters(&[query]);
    let named = |one: &Ranked| {
        let part = &servers[one.server];
        let name = &part.tools.tools[one.tool].name;
        letters(&[name]) == asked || letters(&[&part.server, name]) == asked
    };
    let bounds: Vec<(f32, bool)> = good.iter().map(|one| (one.score, named(one))).collect();
    for (one, &(before, is_named)) in good.iter_mut().zip(&bounds) {
        let part = &servers[one.server];
        let boost = prior.boost(&part.server, &part.tools.tools[one.tool].name);
        if boost <= 0.0 {
            continue;
        }
        let above = bounds.iter().filter(|(score, named)| *named && !is_named && *score >= before);
        let bound = above.map(|(score, _)| score.next_down()).fold(f32::INFINITY, f32::min);
        one.score = lifted(before, boost).min(bound).max(before);
    }
}

/// A score between 0 and 1, as a chance.
fn by_odds(score: f32, boost: f32) -> f32 {
    if !(0.0..1.0).contains(&score) {
        return score;
    }
    let raised = score * (MOST_ODDS * boost).exp();
    raised / (raised + 1.0 - score)
}

/// A score without an upper end.
fn by_share(score: f32, boost: f32) -> f32 {
    score * (1.0 + MOST_SHARE * boost)
}

fn letters(parts: &[&str]) -> String {
    let all = parts.iter().flat_map(|part| part.chars());
    all.filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
