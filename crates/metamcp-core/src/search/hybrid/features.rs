//! The close look at a candidate: few numbers, each cheap. More of them were tried (cosines of single fields, clauses,
//! shares of names, places): they fit the sets they were trained on, and lost on those left out.

use super::super::meaning::{Piece, TABLE, Wide, cosine};
use super::super::{Index, Ranked};
use super::{Asked, Candidate, MAX_ASKED, Scores};

/// How many numbers there are.
pub const FEATURES: usize = FEATURE_NAMES.len();

/// Their names, as `--why` shows them.
pub const FEATURE_NAMES: [&str; 6] = [
    "words",        // BM25, in deviations from the mean of all tools
    "meaning",      // cosine, in deviations
    "query pieces", // how near each piece of the query has one in the tool
    "name pieces",  // how near each piece of the name has one in the query
    "text pieces",  // the same for the rest of what the tool says of itself
    "covered",      // share of the query's words that the tool has, rare ones counting more
];

/// What the close look saw.
pub type Features = [f32; FEATURES];

/// A word that almost no tool has stands out by more deviations in a larger catalog; beyond this it says nothing new.
const MOST_DEVIATIONS: f32 = 20.0;

pub(super) fn of(index: &Index, asked: &Asked, scores: &Scores, best: &[Ranked]) -> Vec<Candidate> {
    let total: f32 = asked.words.iter().map(|word| word.rarity).sum::<f32>().max(1e-6);
    let mut near = Near::new(&asked.pieces);
    let look = |one: &Ranked| {
        let at = one.tool as usize;
        let (part, tool) = index.place(at);
        let has = |word: &&super::Word| index.overall.has(at, word);
        let covered: f32 = asked.words.iter().filter(has).map(|word| word.rarity).sum();
        let (pieces, named) = part.meanings.pieces(tool);
        let [query_pieces, name_pieces, text_pieces] = near.compare(pieces, named);
        let features = [
            scores.lexical_spread.standard(scores.lexical[at]).min(MOST_DEVIATIONS),
            scores.cosine_spread.standard(scores.cosine[at]),
            query_pieces,
            name_pieces,
            text_pieces,
            covered / total,
        ];
        Candidate { tool: at, features }
    };
    best.iter().map(look).collect()
}

/// How near the pieces of a query are to those of tools; candidates share many pieces, so each is compared once.
struct Near {
    asked: Vec<(Wide, f32)>,
    /// What each piece of the query says, squared: the rare one that names the thing shall decide.
    weights: Vec<f32>,
    total: f32,
    /// For each row of the table, where its nearness stands, plus one; zero where it was not compared yet.
    places: Vec<u32>,
    /// Nearness to every piece of the query, row after row.
    nearness: Vec<f32>,
}

impl Near {
    fn new(asked: &[Piece]) -> Near {
        let weights: Vec<f32> = asked.iter().map(|&piece| TABLE.length(piece).powi(2)).collect();
        let total = weights.iter().sum::<f32>().max(1e-6);
        let asked = asked.iter().map(|&piece| TABLE.direction(piece)).collect();
        Near { asked, weights, total, places: vec![0; TABLE.rows()], nearness: Vec::new() }
    }

    /// How near each piece of the query has one among these, each piece of the name has one in the query, and each of
    /// the other pieces: means, weighted by what a piece says.
    fn compare(&mut self, pieces: &[Piece], named: usize) -> [f32; 3] {
        let mut best = [0.0f32; MAX_ASKED];
        let (mut sums, mut totals) = ([0.0f32; 2], [0.0f32; 2]);
        for (at, &piece) in pieces.iter().enumerate() {
            let mut nearest = 0.0f32;
            for (most, &nearness) in best.iter_mut().zip(self.row(piece)) {
                *most = most.max(nearness);
                nearest = nearest.max(nearness);
            }
            let (side, weight) = (usize::from(at >= named), TABLE.length(piece));
            sums[side] += weight * nearest;
            totals[side] += weight;
        }
        let forward: f32 = best.iter().zip(&self.weights).map(|(most, weight)| most * weight).sum();
        let mean = |side: usize| sums[side] / totals[side].max(1e-6);
        [forward / self.total, mean(0), mean(1)]
    }

    fn row(&mut self, piece: Piece) -> &[f32] {
        let width = self.asked.len();
        let place = &mut self.places[usize::from(piece)];
        if *place == 0 {
            let direction = TABLE.direction(piece);
            self.nearness.extend(self.asked.iter().map(|own| cosine(own, &direction)));
            // Fifty candidates of sixty-four pieces each are far from filling it.
            *place = u32::try_from(self.nearness.len() / width.max(1)).unwrap_or(u32::MAX);
        }
        let start = (*place as usize).saturating_sub(1) * width;
        &self.nearness[start..start + width]
    }
}
