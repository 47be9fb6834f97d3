//! How many of the hits are worth a reader's tokens: a few in full, the next ones by name.
//! Owns: what chance a signature and a name are worth, and below which chance nothing fits.      Never: changes an order, renders.
//! In: ranked hits with their chances.  Out: how many are shown in which way.
//! Tests: below; `cargo xtask eval --cut` measures what it loses and saves.

use metamcp_types::text;

use super::meaning::{self, TABLE, cosine};
use super::{FITS, Hit, MAX_QUERY_CHARS, MAX_RANKED_CHARS};

/// From this chance of the first hit on, what is here is taken for an answer to a need.
///
/// Found by `cargo xtask train FOLDER --floor`, which puts questions of six sets to two small catalogs of 2 to 30 servers:
/// one where a server has the answer, one where none has. The share taken of the first minus the share taken of the
/// second is greatest here, 64 points in the mean; with what [`covers`] asks for it stays so, and of catalogs without an
/// answer 6 to 25 in a hundred are taken for one instead of 9 to 32.
const MEETS: f32 = 0.45;

/// The share of a need that the first hit has to say something like, and how near two words are that are alike.
const COVERED: f32 = 0.4;

/// Less than this, and the first hit is about something else, however few others there are: of "current weather forecast" a
/// clock has one word.
const TOUCHED: f32 = 0.25;

/// Pieces of a short request, which says little but what is needed.
const SHORT: f32 = 6.0;
const ALIKE: f32 = 0.5;

/// The chance from which on a hit is shown in full: a tenth of a description read in vain costs less than asking again.
const WORTH_A_SIGNATURE: f32 = 0.04;

/// Most that are shown in full.
const MOST_IN_FULL: usize = 5;

/// The chance from which on one of the first [`NEAR_TOP`] is named. A request may need several tools, and one that is
/// surely right says little against the others, so this is low: a name costs eight tokens.
const WORTH_A_NAME: f32 = 0.0005;

/// Hits that are named so easily.
const NEAR_TOP: usize = 10;

/// The chance from which on a later one is named: as many tokens as another search are spent for a right one.
const WORTH_A_LATER_NAME: f32 = 0.02;

/// The same where there are no chances, as shares of the first hit's score.
const SCORE_IN_FULL: f32 = 0.75;
const SCORE_NAMED: f32 = 0.3;

/// How much of a ranked list is shown; hits beyond both are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortlist {
    /// Hits from the top that are shown with signature and description.
    pub full: usize,
    /// Hits after those that are shown by name.
    pub named: usize,
}

/// The cut for ranked hits, best first.
pub fn shortlist(hits: &[Hit]) -> Shortlist {
    let Some(first) = hits.first() else { return Shortlist { full: 0, named: 0 } };
    let is_worth = |(place, hit): (usize, &Hit)| match (hit.confidence, first.confidence) {
        (Some(chance), _) => {
            let named = if place < NEAR_TOP { WORTH_A_NAME } else { WORTH_A_LATER_NAME };
            (chance >= WORTH_A_SIGNATURE, chance >= named)
        }
        // Not looked at closely, unlike the first.
        (None, Some(_)) => (false, false),
        (None, None) => {
            let share = hit.score / first.score.max(f32::MIN_POSITIVE);
            (share >= SCORE_IN_FULL, place < NEAR_TOP && share >= SCORE_NAMED)
        }
    };
    let worth: Vec<(bool, bool)> = hits.iter().enumerate().map(is_worth).collect();
    let full = worth.iter().take(MOST_IN_FULL).skip(1).take_while(|(full, _)| *full).count() + 1;
    let named = worth.iter().skip(full).take_while(|(_, named)| *named).count();
    Shortlist { full, named }
}

/// Whether nothing here seems to do what was asked for: the hits are only the nearest. Without chances there is no telling.
pub fn nothing_fits(query: &str, hits: &[Hit]) -> bool {
    let Some(first) = hits.first() else { return true };
    first.confidence.is_some_and(|chance| chance < FITS || coverage(first, query) < TOUCHED)
}

/// Whether the first hit probably does what is needed, so that nothing has to be looked for elsewhere. The chance alone
/// would take a clock for a weather service where "current" is the only word that anything here has.
pub fn meets(query: &str, hits: &[Hit]) -> bool {
    let Some(first) = hits.first() else { return false };
    first.confidence.is_some_and(|chance| chance >= MEETS) && covers(first, query)
}

/// Whether a tool says something like enough of a query, rare words counting more.
pub fn covers(hit: &Hit, query: &str) -> bool {
    coverage(hit, query) >= COVERED
}

/// How much of a query a tool says something like, rare words counting more; of a long one less has to be said.
fn coverage(hit: &Hit, query: &str) -> f32 {
    let tool = hit.tool();
    let (mut asked, mut said) = (Vec::new(), Vec::new());
    meaning::pieces(text::start(query.trim(), MAX_QUERY_CHARS), &mut asked);
    let about = text::start(&tool.description, MAX_RANKED_CHARS);
    for own in [&*hit.server, &*tool.name, tool.title.as_deref().unwrap_or_default(), about] {
        meaning::pieces(own, &mut said);
    }
    for (name, description) in tool.parameters() {
        meaning::pieces(name, &mut said);
        meaning::pieces(description, &mut said);
    }
    for pieces in [&mut asked, &mut said] {
        pieces.sort_unstable();
        pieces.dedup();
    }
    let said: Vec<_> = said.iter().map(|&piece| TABLE.direction(piece)).collect();
    // In a long request much is told around what is needed.
    let share = (SHORT / asked.len().max(1) as f32).min(1.0);
    let (mut like, mut all) = (0.0f32, 0.0f32);
    for piece in asked {
        let (own, weight) = (TABLE.direction(piece), TABLE.length(piece).powi(2));
        all += weight;
        if said.iter().any(|other| cosine(&own, other) >= ALIKE) {
            like += weight;
        }
    }
    // What the table cannot read it cannot miss.
    if all > 0.0 { like / (share * all) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn hits(chances: &[Option<f32>], scores: &[f32]) -> Vec<Hit> {
        let tools: Vec<_> =
            (0..chances.len()).map(|number| json!({"name": format!("tool{number}")})).collect();
        let tools = super::super::tests::tools(&tools);
        let mut hits = Hit::all_of(&Arc::from("s"), &tools);
        for ((hit, chance), score) in hits.iter_mut().zip(chances).zip(scores) {
            (hit.confidence, hit.score) = (*chance, *score);
        }
        hits
    }

    fn cut(chances: &[f32]) -> (usize, usize) {
        let some: Vec<Option<f32>> = chances.iter().copied().map(Some).collect();
        let Shortlist { full, named } = shortlist(&hits(&some, chances));
        (full, named)
    }

    #[test]
    fn a_sure_hit_stands_alone_and_doubt_shows_more() {
        assert_eq!(cut(&[]), (0, 0));
        assert_eq!(cut(&[0.97, 0.000_4, 0.000_3]), (1, 0));
        assert_eq!(cut(&[0.97, 0.02, 0.01, 0.000_1]), (1, 2));
        assert_eq!(cut(&[0.3, 0.2, 0.1, 0.01, 0.01, 0.01]), (3, 3));
        assert_eq!(cut(&[0.02, 0.02]), (1, 1), "the nearest is shown in full, however far");
    }

    #[test]
    fn flat_chances_are_named_to_the_end_of_the_page_and_small_ones_to_the_tenth() {
        assert_eq!(cut(&[0.05; 20]), (5, 15));
        assert_eq!(cut(&[0.03; 20]), (1, 19));
        assert_eq!(cut(&[0.01; 20]), (1, 9));
    }

    #[test]
    fn without_chances_the_scores_decide() {
        let scores = [10.0, 9.0, 5.0, 4.0, 2.0, 1.0];
        let cut = shortlist(&hits(&[None; 6], &scores));
        assert_eq!(cut, Shortlist { full: 2, named: 2 });
        assert!(
            !nothing_fits("tool0", &hits(&[None], &[0.1]))
                && !meets("tool0", &hits(&[None], &[9.0]))
        );
    }

    #[test]
    fn what_fits_and_what_is_sure_enough_are_told_by_the_first() {
        let first = |chance: f32| hits(&[Some(chance), Some(0.001)], &[chance, 0.0]);
        assert!(nothing_fits("tool", &first(0.05)) && nothing_fits("tool", &[]));
        assert!(!nothing_fits("tool", &first(0.3)) && !meets("tool", &first(0.3)));
        assert!(meets("tool", &first(0.8)) && !meets("tool", &[]));
        assert!(!meets("weather forecast for a tool", &first(0.8)), "most of it is not covered");
    }
}
