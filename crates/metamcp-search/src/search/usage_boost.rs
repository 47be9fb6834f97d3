//! The boost by usage history: tools that match well and were called before rank a little higher.

use super::{Ranked, Ranker, Search};
use crate::usage_history::Prior;

/// Tools that may be boosted: usage history chooses among good candidates, it does not make one.
const GOOD: usize = 20;

/// Lifts among `ranked`, which is sorted; it has to be sorted again. A tool whose name is the query keeps its place
/// before all whose name is not.
pub(super) fn boost(
    search: &Search<'_>,
    ranked: &mut [Ranked],
    ranker: &dyn Ranker,
    prior: &Prior,
) {
    let count = GOOD.min(ranked.len());
    let good = &mut ranked[..count];
    let asked = letters(&[search.query]);
    let named = |one: &Ranked| {
        let (part, tool) = search.index.place(one.tool as usize);
        let name = &part.tools.tools[tool].name;
        letters(&[name]) == asked || letters(&[&part.server, name]) == asked
    };
    let bounds: Vec<(f32, bool)> = good.iter().map(|one| (one.score, named(one))).collect();
    for (one, &(before, is_named)) in good.iter_mut().zip(&bounds) {
        let (part, tool) = search.index.place(one.tool as usize);
        let boost = prior.boost(&part.server, &part.tools.tools[tool].name);
        if boost <= 0.0 {
            continue;
        }
        let above = bounds.iter().filter(|(score, named)| *named && !is_named && *score >= before);
        let bound = above.map(|(score, _)| score.next_down()).fold(f32::INFINITY, f32::min);
        one.score = ranker.lifted(before, boost).min(bound).max(before);
    }
}

fn letters(parts: &[&str]) -> String {
    let all = parts.iter().flat_map(|part| part.chars());
    all.filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
