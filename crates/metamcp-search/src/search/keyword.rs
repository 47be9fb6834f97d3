//! The keyword score of metatools, exactly: points for the whole query in the name or the description.

use super::{Ranked, Ranker, Search};
use metamcp_tools::tool::Tool;

pub(super) const EXACT_NAME: f32 = 10.0;
const IN_NAME: f32 = 5.0;
const IN_DESCRIPTION: f32 = 2.0;

/// See [`Strategy::Keyword`](super::Strategy::Keyword).
pub(super) struct Keyword;

impl Ranker for Keyword {
    fn rank(&self, search: &Search<'_>) -> Vec<Ranked> {
        let query = search.query.to_lowercase();
        if query.is_empty() {
            return Vec::new();
        }
        each(search, |name, description| (points(&query, name, description) / EXACT_NAME).min(1.0))
    }
}

/// The score of one tool alone.
pub(super) fn score(query: &str, tool: &Tool) -> f32 {
    let wanted = query.trim().to_lowercase();
    let (name, description) = (tool.name.to_lowercase(), tool.description.to_lowercase());
    (points(&wanted, &name, &description) / EXACT_NAME).min(1.0)
}

/// Every tool with a score above zero; names and descriptions are handed out in lower case.
pub(super) fn each(search: &Search<'_>, score: impl Fn(&str, &str) -> f32) -> Vec<Ranked> {
    let mut ranked = Vec::new();
    let parts = search.index.servers.iter().flat_map(|part| &part.tools.tools);
    for (tool, definition) in parts.enumerate().filter(|(tool, _)| search.among.contains(tool)) {
        let name = definition.name.to_lowercase();
        let score = score(&name, &definition.description.to_lowercase());
        if score > 0.0 {
            ranked.push(Ranked::new(tool, score));
        }
    }
    ranked
}

/// All in lower case. The points add up, so an exact name also earns those for containing it.
pub(super) fn points(wanted: &str, name: &str, description: &str) -> f32 {
    let mut points = 0.0;
    if name == wanted {
        points += EXACT_NAME;
    }
    if name.contains(wanted) {
        points += IN_NAME;
    }
    if description.contains(wanted) {
        points += IN_DESCRIPTION;
    }
    points
}
