//! Which servers of the gallery answer a need, if any does.
//! Owns: the index of the gallery, the thresholds of its honest no.      Never: decides for a need that is not covered.
//! In: a need.  Out: servers with chances, best first; none where none fits.
//! Tests: `tests/gallery.rs`.

use std::sync::{Arc, LazyLock};

use metamcp_search::search::{CachedTokenizer, Hit, Index, ServerIndex, Strategy, covers};
use metamcp_tools::tool::Listing;
use serde_json::json;

use super::{Listed, gallery};
use crate::provision::server_name;

/// From this chance of the best on, the gallery has an answer. Of the needs looked at, a lower one answered "lottery
/// numbers" and "print this" too, and a higher one lost more that are covered than it kept out.
const ANSWERS: f32 = 0.35;

/// Hits that are looked at: the first few may share one word with a need, and the next say what it is about.
const LOOKED_AT: usize = 10;

static INDEX: LazyLock<Index> = LazyLock::new(index);

/// The servers that a need is answered with, best first, at most `limit`; none if it is covered by none.
pub fn in_gallery(need: &str, limit: usize) -> Vec<(&'static Listed, f32)> {
    let hits = INDEX.search(need, Strategy::Hybrid, LOOKED_AT, None);
    let found: Vec<(&Hit, &'static Listed)> = hits
        .iter()
        .filter(|hit| covers(hit, need))
        .filter_map(|hit| Some((hit, gallery().get(hit.server.parse::<usize>().ok()?)?)))
        .collect();
    let chance = |hit: &Hit| hit.confidence.unwrap_or_default();
    if !found.first().is_some_and(|(hit, _)| chance(hit) >= ANSWERS) {
        return Vec::new();
    }
    found.into_iter().take(limit).map(|(hit, listed)| (listed, chance(hit))).collect()
}

/// Each server is one tool: its name, what it is about, and its capability words.
fn index() -> Index {
    let mut tokenizer = CachedTokenizer::default();
    let parts = gallery().iter().enumerate().filter_map(|(at, listed)| {
        let offer = &listed.candidate.offer;
        let page = json!({ "tools": [{
            "name": server_name(&offer.identifier, |_| false),
            "description": format!("{}. {}", listed.candidate.description, listed.words),
            "inputSchema": { "type": "object" },
        }] });
        let mut listing = Listing::new();
        listing.page(page.to_string().as_bytes()).ok()?;
        let tools = Arc::new(listing.finish(None, None));
        // Numbered: the number is the place in the gallery.
        Some(Arc::new(ServerIndex::build_with(&mut tokenizer, &at.to_string(), None, &tools)))
    });
    Index::new(parts.collect())
}
