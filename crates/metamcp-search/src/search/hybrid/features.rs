//! Re-ranking features of a candidate: few, each cheap. More were tried (cosines of single fields, shares of names,
//! positions): they fit the training sets, and lost on the held-out ones.

use super::super::meaning::{Piece, TABLE, Vector, Wide, cosine};
use super::super::{Index, Ranked};
use super::{Candidate, Clause, MAX_QUERY_PIECES, PreparedQuery, Scores, Spread};

/// How many numbers there are.
pub const FEATURES: usize = FEATURE_NAMES.len();

/// Their names, as `--why` shows them.
pub const FEATURE_NAMES: [&str; 8] = [
    "words",          // BM25, in deviations from the mean of all tools
    "meaning",        // cosine, in deviations
    "clause words",   // the most of the same for one of several things that are asked for
    "clause meaning", // likewise
    "query pieces", // how near each piece of the query has one in the tool, in deviations from the other candidates
    "name pieces",  // how near each piece of the name has one in the query, likewise
    "nearness",     // of the pieces of the query, as it is
    "covered",      // share of the query's words that the tool has, rare ones counting more
];

/// The features of a candidate.
pub type Features = [f32; FEATURES];

/// Where a number stands that is compared among the candidates.
const QUERY_PIECES: usize = 4;
const NAME_PIECES: usize = 5;

/// A word that almost no tool has stands out by more deviations in a larger catalog; beyond this it says nothing new.
const MOST_DEVIATIONS: f32 = 20.0;

/// Tools by which it is judged how far a clause is from tools at large. Mean and deviation of so many are near those of
/// all, and a clause costs hardly more in a large catalog: only its words are looked up in all of it.
const SAMPLE: usize = 1024;

pub(super) fn of(
    index: &Index,
    prepared: &PreparedQuery,
    scores: &Scores,
    best: &[Ranked],
) -> Vec<Candidate> {
    let total: f32 = prepared.words.iter().map(|word| word.rarity).sum::<f32>().max(1e-6);
    let mut near = Near::new(&prepared.pieces);
    let look = |one: &Ranked| {
        let at = one.tool as usize;
        let (part, tool) = index.place(at);
        let has = |word: &&super::Word| index.overall.has(at, word);
        let covered: f32 = prepared.words.iter().filter(has).map(|word| word.rarity).sum();
        let (pieces, named) = part.meanings.pieces(tool);
        let [query_pieces, name_pieces] = near.compare(pieces, named);
        let words = scores.lexical_spread.standard(scores.lexical[at]).min(MOST_DEVIATIONS);
        let meaning = scores.cosine_spread.standard(scores.cosine[at]);
        let covered = covered / total;
        let features =
            [words, meaning, words, meaning, query_pieces, name_pieces, query_pieces, covered];
        Candidate { tool: at, features, cosine: scores.cosine[at] }
    };
    let mut candidates: Vec<Candidate> = best.iter().map(look).collect();
    add_clause_features(index, prepared, &mut candidates);
    for place in [QUERY_PIECES, NAME_PIECES] {
        let values: Vec<f32> = candidates.iter().map(|one| one.features[place]).collect();
        let spread = Spread::of(&values);
        candidates.iter_mut().zip(values).for_each(|(one, value)| {
            one.features[place] = spread.standard(value);
        });
    }
    candidates
}

/// A tool that one clause asks for need not be near to the whole.
fn add_clause_features(index: &Index, prepared: &PreparedQuery, candidates: &mut [Candidate]) {
    let [first, others @ ..] = &prepared.clauses[..] else { return };
    let step = index.overall.tools().div_ceil(SAMPLE).max(1);
    let directions = || index.directions.iter().flat_map(|own| own.iter());
    let sample: Vec<&Vector> = directions().step_by(step).collect();
    let mut look = |clause: &Clause, most: bool| {
        let lexical = index.overall.scores(clause.words.iter().map(|&word| &prepared.words[word]));
        let words = Spread::of(&lexical);
        let near = clause.vector.nearness();
        let cosines: Vec<f32> = sample.iter().map(|vector| near(vector)).collect();
        let meanings = Spread::of(&cosines);
        for one in &mut *candidates {
            let (part, tool) = index.place(one.tool);
            let meaning = meanings.standard(near(&part.meanings.directions[tool]));
            let words = words.standard(lexical[one.tool]).min(MOST_DEVIATIONS);
            let [_, _, most_words, most_meaning, ..] = &mut one.features;
            *most_words = if most { most_words.max(words) } else { words };
            *most_meaning = if most { most_meaning.max(meaning) } else { meaning };
        }
    };
    look(first, false);
    for clause in others {
        look(clause, true);
    }
}

/// How near the pieces of a query are to those of tools; candidates share many pieces, so each is compared once.
struct Near {
    prepared: Vec<(Wide, f32)>,
    /// What each piece of the query says, squared: the rare one that names the thing shall decide.
    weights: Vec<f32>,
    total: f32,
    /// For each row of the table, where its nearness stands, plus one; zero where it was not compared yet.
    places: Vec<u32>,
    /// Nearness to every piece of the query, row after row.
    nearness: Vec<f32>,
}

impl Near {
    fn new(prepared: &[Piece]) -> Near {
        let weights: Vec<f32> = prepared.iter().map(|&piece| TABLE.length(piece).powi(2)).collect();
        let total = weights.iter().sum::<f32>().max(1e-6);
        let prepared = prepared.iter().map(|&piece| TABLE.direction(piece)).collect();
        Near { prepared, weights, total, places: vec![0; TABLE.rows()], nearness: Vec::new() }
    }

    /// How near each piece of the query has one among these, and how near each piece of the name has one in the query:
    /// means, weighted by what a piece says.
    fn compare(&mut self, pieces: &[Piece], named: usize) -> [f32; 2] {
        let mut best = [0.0f32; MAX_QUERY_PIECES];
        let (mut sum, mut total) = (0.0f32, 0.0f32);
        for (at, &piece) in pieces.iter().enumerate() {
            let mut nearest = 0.0f32;
            for (most, &nearness) in best.iter_mut().zip(self.row(piece)) {
                *most = most.max(nearness);
                nearest = nearest.max(nearness);
            }
            if at < named {
                let weight = TABLE.length(piece);
                sum += weight * nearest;
                total += weight;
            }
        }
        let forward: f32 = best.iter().zip(&self.weights).map(|(most, weight)| most * weight).sum();
        [forward / self.total, sum / total.max(1e-6)]
    }

    fn row(&mut self, piece: Piece) -> &[f32] {
        let width = self.prepared.len();
        let place = &mut self.places[usize::from(piece)];
        if *place == 0 {
            let direction = TABLE.direction(piece);
            self.nearness.extend(self.prepared.iter().map(|own| cosine(own, &direction)));
            // Fifty candidates of sixty-four pieces each are far from filling it.
            *place = u32::try_from(self.nearness.len() / width.max(1)).unwrap_or(u32::MAX);
        }
        let start = (*place as usize).saturating_sub(1) * width;
        &self.nearness[start..start + width]
    }
}
