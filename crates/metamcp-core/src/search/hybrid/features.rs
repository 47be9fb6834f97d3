//! The close look at a candidate: a few numbers, each cheap.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::bm25::{NAME, PARAMETERS, SERVER};
use super::super::meaning::{Piece, TABLE, Vector};
use super::super::{Ranked, ServerIndex};
use super::{Asked, Candidate, Overall, Scores, joined};

/// How many numbers there are.
pub const FEATURES: usize = FEATURE_NAMES.len();

/// Their names, as `--why` shows them.
pub const FEATURE_NAMES: [&str; 17] = [
    "words",            // BM25, in deviations from the mean of all tools
    "words relative",   // BM25 beside that of the best
    "meaning",          // cosine, in deviations
    "meaning absolute", // cosine
    "name meaning",     // cosine with the name alone
    "best clause",      // cosine of the clause that fits best
    "covered",          // share of the query's words that occur anywhere, rare ones counting more
    "in name",          // the same for the name
    "name covered",     // share of the name's words that the query has
    "in server",        // as "in name", for the server
    "in parameters",    // the same for parameter names
    "pieces",           // how near each piece of the query has one in the tool
    "name pieces",      // how near each piece of the name has one in the query
    "length",           // how much the tool says of itself
    "first by words",   // place by words, the first counting most
    "first by meaning", // place by meaning
    "whole name",       // the query contains the whole name
];

/// What the close look saw.
pub type Features = [f32; FEATURE_NAMES.len()];

/// Shortest name that counts when it is found inside a query without its boundaries.
const WHOLE_NAME: usize = 6;

pub(super) fn of(
    servers: &[Arc<ServerIndex>],
    overall: &Overall,
    asked: &Asked,
    scores: &Scores,
    best: &[Ranked],
) -> Vec<Candidate> {
    let total: f32 = asked.words.iter().map(|word| word.rarity).sum::<f32>().max(1e-6);
    let at = |one: &Ranked| overall.start(one.server) + one.tool;
    let by_words = places(best, |one| scores.lexical[at(one)]);
    let by_meaning = places(best, |one| scores.cosine[at(one)]);
    let mut near = Near::new(&asked.pieces);
    let look = |(number, one): (usize, &Ranked)| {
        let part = &servers[one.server];
        let tool = &part.tools.tools[one.tool];
        let (lexical, cosine) = (scores.lexical[at(one)], scores.cosine[at(one)]);
        let (mut covered, mut name, mut server, mut parameters, mut matched) =
            (0.0, 0.0, 0.0, 0.0, 0.0f32);
        for word in &asked.words {
            let Some(counts) = word.counts(servers, one.server, one.tool) else { continue };
            covered += word.rarity;
            let of_field = |field: usize| if counts[field] > 0 { word.rarity } else { 0.0 };
            name += of_field(NAME);
            server += of_field(SERVER);
            parameters += of_field(PARAMETERS);
            matched += f32::from(u8::from(counts[NAME] > 0));
        }
        let (pieces, named) = part.meanings.pieces(one.tool);
        let own = Vector::of(&pieces[..named]);
        let clause = asked
            .clauses
            .iter()
            .map(|clause| part.meanings.cosine(one.tool, clause))
            .fold(cosine, f32::max);
        let whole = joined(&tool.name);
        let inside = whole.len() >= WHOLE_NAME && asked.joined.contains(&whole);
        let features = [
            scores.lexical_spread.standard(lexical).min(20.0),
            lexical / scores.lexical_spread.largest.max(1e-6),
            scores.cosine_spread.standard(cosine),
            cosine,
            own.cosine(&asked.vector),
            clause,
            covered / total,
            name / total,
            matched / f32::from(part.fields.length(one.tool, NAME).max(1)),
            server / total,
            parameters / total,
            near.forward(pieces),
            near.backward(&pieces[..named]),
            (pieces.len() as f32).ln_1p(),
            by_words[number],
            by_meaning[number],
            f32::from(u8::from(inside)),
        ];
        Candidate { server: one.server, tool: one.tool, features }
    };
    best.iter().enumerate().map(look).collect()
}

/// One over the place of each candidate by some score, the best being first.
fn places(best: &[Ranked], score: impl Fn(&Ranked) -> f32) -> Vec<f32> {
    let mut order: Vec<usize> = (0..best.len()).collect();
    order.sort_by(|&a, &b| score(&best[b]).total_cmp(&score(&best[a])));
    let mut places = vec![0.0; best.len()];
    for (place, number) in order.into_iter().enumerate() {
        places[number] = 1.0 / (1.0 + place as f32);
    }
    places
}

/// How near the pieces of a query are to those of tools; candidates share many pieces, so each pair is compared once.
struct Near<'a> {
    asked: &'a [Piece],
    weights: Vec<f32>,
    known: HashMap<Piece, Box<[f32]>>,
}

impl<'a> Near<'a> {
    fn new(asked: &'a [Piece]) -> Near<'a> {
        let weights = asked.iter().map(|&piece| TABLE.length(piece)).collect();
        Near { asked, weights, known: HashMap::new() }
    }

    /// Each piece of the query has its nearest in the tool; the mean of these, weighted by what a piece says.
    fn forward(&mut self, pieces: &[Piece]) -> f32 {
        let mut best = vec![0.0f32; self.asked.len()];
        for &piece in pieces {
            for (most, &nearness) in best.iter_mut().zip(self.row(piece)) {
                *most = most.max(nearness);
            }
        }
        let total: f32 = self.weights.iter().sum();
        let sum: f32 = best.iter().zip(&self.weights).map(|(most, weight)| most * weight).sum();
        sum / total.max(1e-6)
    }

    /// The same the other way round.
    fn backward(&mut self, pieces: &[Piece]) -> f32 {
        let (mut sum, mut total) = (0.0, 0.0);
        for &piece in pieces {
            let weight = TABLE.length(piece);
            sum +=
                weight * self.row(piece).iter().fold(0.0f32, |most, &nearness| most.max(nearness));
            total += weight;
        }
        sum / total.max(1e-6)
    }

    fn row(&mut self, piece: Piece) -> &[f32] {
        let asked = self.asked;
        self.known
            .entry(piece)
            .or_insert_with(|| asked.iter().map(|&own| TABLE.cosine(own, piece)).collect())
    }
}
