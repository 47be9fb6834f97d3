//! The origin's keyword score, kept exactly: points for the whole query in the name or the description.

use std::sync::Arc;

use super::{Ranked, ServerIndex};
use crate::tool::Tool;

const EXACT_NAME: f32 = 10.0;
const IN_NAME: f32 = 5.0;
const IN_DESCRIPTION: f32 = 2.0;

pub(super) fn rank(servers: &[Arc<ServerIndex>], query: &str, only: Option<&str>) -> Vec<Ranked> {
    let query = query.to_lowercase();
    if query.is_empty() {
        return Vec::new();
    }
    let mut ranked = Vec::new();
    for (server, part) in servers.iter().enumerate() {
        if only.is_some_and(|only| only != &*part.server) {
            continue;
        }
        for (tool, definition) in part.tools.tools.iter().enumerate() {
            let score = score(&query, definition);
            if score > 0.0 {
                ranked.push(Ranked { server, tool, score });
            }
        }
    }
    ranked
}

/// `query` is in lower case. The points add up, so an exact name also earns those for containing it.
fn score(query: &str, tool: &Tool) -> f32 {
    let name = tool.name.to_lowercase();
    let mut points = 0.0;
    if name == query {
        points += EXACT_NAME;
    }
    if name.contains(query) {
        points += IN_NAME;
    }
    if tool.description.to_lowercase().contains(query) {
        points += IN_DESCRIPTION;
    }
    (points / EXACT_NAME).min(1.0)
}
