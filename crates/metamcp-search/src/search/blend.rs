//! Combines similarities from an embedding API with a score of our own.

use std::collections::HashSet;

use super::hybrid::Hybrid;
use super::keyword;
use super::{Hit, Index, Ranked, Ranker, Search, Strategy};

/// Hits of `hybrid` that are compared by vectors from elsewhere, and tools that are hits because they are nearest by
/// them: what is further down is seldom right.
pub const BLENDED: usize = 50;

/// How much of the joined score is similarity; the rest is our own.
const SIMILARITY: f32 = 0.6;

/// The order of `hybrid`, with its first hits and the tools nearest by vector put in the order of a joined score.
#[derive(Debug)]
pub struct BlendedRanker {
    beside: Strategy,
    /// Tools counted through, in their order, each with how similar it is.
    similar: Vec<(usize, f32)>,
}

impl BlendedRanker {
    /// `hits` are of this index, found by `hybrid` or by their vectors alone; `similarity` belongs to the first of them,
    /// in their order, and counts between 0 and 1, like the score of what stands `beside` it.
    pub fn new(index: &Index, hits: &[Hit], similarity: &[f32], beside: Strategy) -> BlendedRanker {
        let place = |hit: &Hit| {
            let part = index.part(&hit.server)?;
            Some(index.overall.tools_of(part).start + hit.index)
        };
        let pairs = hits.iter().zip(similarity);
        let mut similar: Vec<(usize, f32)> =
            pairs.filter_map(|(hit, &similarity)| Some((place(hit)?, similarity))).collect();
        similar.sort_by_key(|(tool, _)| *tool);
        similar.dedup_by_key(|(tool, _)| *tool);
        BlendedRanker { beside, similar }
    }

    fn similarity(&self, one: &Ranked) -> Option<f32> {
        let at = self.similar.binary_search_by_key(&(one.tool as usize), |(tool, _)| *tool).ok()?;
        Some(within(self.similar[at].1))
    }
}

impl Ranker for BlendedRanker {
    fn rank(&self, search: &Search<'_>) -> Vec<Ranked> {
        let mut ranked = Hybrid.rank(search);
        // Words and our own table of meanings need not know what the vectors know.
        let known: HashSet<u32> = ranked.iter().map(|one| one.tool).collect();
        let only_similar = self
            .similar
            .iter()
            .filter(|(tool, similarity)| search.among.contains(tool) && within(*similarity) > 0.0);
        let only_similar = only_similar.map(|(tool, _)| Ranked::new(*tool, 0.0));
        ranked.extend(only_similar.filter(|one| !known.contains(&one.tool)));
        let (mut lowest, mut least) = (1.0f32, 1.0f32);
        let mut others = Vec::new();
        for (at, one) in ranked.iter_mut().enumerate() {
            let Some(similarity) = self.similarity(one) else {
                others.push(at);
                continue;
            };
            if one.score > 0.0 {
                lowest = lowest.min(one.score);
            }
            let own = match self.beside {
                Strategy::Keyword => {
                    let (part, tool) = search.index.place(one.tool as usize);
                    keyword::score(search.query, &part.tools.tools[tool])
                }
                _ => one.score,
            };
            let joined = SIMILARITY * similarity + (1.0 - SIMILARITY) * within(own);
            // What was known of the chance belonged to the other order.
            *one = Ranked { score: joined.max(f32::MIN_POSITIVE), confidence: None, ..*one };
            least = least.min(one.score);
        }
        // Those that were not compared stay behind those that were, in what they show as well.
        for at in others {
            let one = &mut ranked[at];
            one.score = (least * (one.score / lowest).min(1.0)).max(f32::MIN_POSITIVE);
            one.confidence = None;
        }
        ranked
    }
}

fn within(score: f32) -> f32 {
    if score.is_finite() { score.clamp(0.0, 1.0) } else { 0.0 }
}
