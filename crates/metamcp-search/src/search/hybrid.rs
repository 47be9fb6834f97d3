//! Hybrid ranking: BM25 and word vectors are fused over all tools, then the best fifty are re-ranked by a few features.
//! Owns: the fusion, the re-ranking, its weights.      Never: reads anything but the index.
//! In: the index, a query.  Out: tools with scores, and why.
//! Tests: `search/tests.rs`; `cargo xtask eval` measures it, `cargo xtask train` makes the weights.

mod clauses;
mod confidence;
mod features;
mod weights;

use std::sync::Arc;

use super::bm25::{Overall, Word, query_words};
use super::index_cache;
use super::meaning::{self, Piece, Vector};
use super::{Index, Ranked, Ranker, Search};

pub use confidence::{CONFIDENCE_FEATURES, ConfidenceFeatures, confidence_features};
pub use features::{FEATURE_NAMES, FEATURES, Features};

/// Tools that are re-ranked.
const CANDIDATES: usize = 50;

/// Different pieces of one tool that are compared one by one with those of a query.
const MAX_COMPARED: usize = 64;

/// Different pieces of a query that are compared so.
const MAX_QUERY_PIECES: usize = 24;

/// A tool that shares no word with the query is listed when it is at least this near in meaning.
const NEAR: f32 = 0.25;

/// Weight of the vectors in the fused score; the rest is BM25.
const MEANING_SHARE: f32 = 0.5;

/// What one server's tools mean.
#[derive(Debug, Default)]
pub(super) struct Meanings {
    /// Where each tool points. Shared with the index, which goes over those of all servers.
    pub(super) directions: Arc<[Vector]>,
    /// The different pieces of each tool, those of its name first.
    pieces: Box<[Piece]>,
    /// Where each tool's pieces start and how many are its name's; one more entry marks the end.
    starts: Box<[(u32, u16)]>,
}

/// The same while tools are read.
#[derive(Debug, Default)]
pub(super) struct MeaningsBuilder {
    directions: Vec<Vector>,
    pieces: Vec<Piece>,
    starts: Vec<(u32, u16)>,
    /// A bit for each row of the table: whether the tool that is read has it.
    seen: Vec<u64>,
}

impl MeaningsBuilder {
    /// Adds a tool by all its pieces, the first of which are its name's.
    pub(super) fn add(&mut self, all: &[Piece], named: usize) {
        self.directions.push(Vector::of(all));
        let start = self.pieces.len();
        self.seen.resize(meaning::TABLE.rows().div_ceil(64), 0);
        let place = |piece: Piece| (usize::from(piece / 64), 1u64 << (piece % 64));
        let mut own = 0u16;
        for (at, &piece) in all.iter().enumerate() {
            let (word, bit) = place(piece);
            if self.seen[word] & bit == 0 {
                self.seen[word] |= bit;
                self.pieces.push(piece);
                own += u16::from(at < named);
                if self.pieces.len() - start == MAX_COMPARED {
                    break;
                }
            }
        }
        for &piece in &self.pieces[start..] {
            self.seen[place(piece).0] = 0;
        }
        self.starts.push((u32::try_from(start).unwrap_or(u32::MAX), own));
    }

    pub(super) fn finish(mut self) -> Meanings {
        let end = u32::try_from(self.pieces.len()).unwrap_or(u32::MAX);
        self.starts.push((end, 0));
        Meanings {
            directions: self.directions.into(),
            pieces: self.pieces.into(),
            starts: self.starts.into(),
        }
    }
}

impl Meanings {
    /// Serializes it. Of a direction only the components: the rest follows from them.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        self.directions.iter().for_each(|vector| bytes.extend_from_slice(&vector.components));
        for tool in 0..self.directions.len() {
            let (pieces, named) = self.pieces(tool);
            // At most `MAX_COMPARED`, so either fits a byte.
            bytes.extend([pieces.len() as u8, named as u8]);
        }
        self.pieces.iter().for_each(|piece| bytes.extend_from_slice(&piece.to_le_bytes()));
    }

    /// Of so many tools, from what `write` wrote.
    pub(super) fn read(bytes: &mut &[u8], tools: usize) -> Option<Meanings> {
        let directions = index_cache::take_all::<{ meaning::DIMS }>(bytes, tools)?;
        let directions = directions.iter().map(|own| Vector::from_components(*own)).collect();
        let counts = index_cache::take_all::<2>(bytes, tools)?;
        let mut starts = Vec::with_capacity(tools + 1);
        let mut count = 0u32;
        for &[own, named] in counts {
            if named > own || usize::from(own) > MAX_COMPARED {
                return None;
            }
            starts.push((count, u16::from(named)));
            count = count.checked_add(u32::from(own))?;
        }
        starts.push((count, 0));
        let pieces = index_cache::take_all::<2>(bytes, count as usize)?;
        let pieces: Box<[Piece]> =
            pieces.iter().map(|&piece| Piece::from_le_bytes(piece)).collect();
        let is_row = |&piece: &Piece| usize::from(piece) < meaning::TABLE.rows();
        pieces.iter().all(is_row).then(|| Meanings { directions, pieces, starts: starts.into() })
    }

    /// The different pieces of a tool, and how many of them are its name's.
    fn pieces(&self, tool: usize) -> (&[Piece], usize) {
        let (start, named) = self.starts[tool];
        let (end, _) = self.starts[tool + 1];
        (&self.pieces[start as usize..end as usize], usize::from(named))
    }
}

/// A query, prepared.
struct PreparedQuery {
    words: Vec<Word>,
    vector: Vector,
    /// Its different pieces.
    pieces: Vec<Piece>,
    /// The things it asks for, where they are several.
    clauses: Vec<Clause>,
}

/// One of several things that a query asks for.
struct Clause {
    /// Its words, by their place among those of the query.
    words: Vec<usize>,
    vector: Vector,
}

impl PreparedQuery {
    fn new(overall: &Overall, query: &str) -> PreparedQuery {
        let mut all = Vec::new();
        meaning::pieces(query, &mut all);
        let mut pieces = all.clone();
        pieces.sort_unstable();
        pieces.dedup();
        // Those that say most; the others of a long query would cost time and change nothing.
        let says = |piece: &Piece| meaning::TABLE.length(*piece);
        pieces.sort_by(|a, b| says(b).total_cmp(&says(a)).then(a.cmp(b)));
        pieces.truncate(MAX_QUERY_PIECES);
        let clauses = clauses::clauses(query);
        let written = if clauses.is_empty() { Vec::new() } else { query_words(query) };
        let clauses = clauses.into_iter().map(|clause| Clause::new(clause, &written)).collect();
        PreparedQuery { words: overall.words(query), vector: Vector::of(&all), pieces, clauses }
    }
}

impl Clause {
    /// `written` are the words of the whole query, in the order in which they were looked up.
    fn new(clause: &str, written: &[String]) -> Clause {
        let mut pieces = Vec::new();
        meaning::pieces(clause, &mut pieces);
        let place = |word: String| written.iter().position(|other| *other == word);
        let words = query_words(clause).into_iter().filter_map(place).collect();
        Clause { words, vector: Vector::of(&pieces) }
    }
}

/// Both scores of every tool, and how they are spread.
struct Scores {
    lexical: Vec<f32>,
    cosine: Vec<f32>,
    lexical_spread: Spread,
    cosine_spread: Spread,
}

/// Mean and deviation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    mean: f32,
    deviation: f32,
}

impl Spread {
    pub(super) fn of(values: &[f32]) -> Spread {
        let count = values.len().max(1) as f64;
        let (mut sum, mut squares) = (0.0f64, 0.0f64);
        for &value in values {
            sum += f64::from(value);
            squares += f64::from(value) * f64::from(value);
        }
        let mean = sum / count;
        let deviation = (squares / count - mean * mean).max(0.0).sqrt();
        Spread { mean: mean as f32, deviation: deviation as f32 }
    }

    pub(super) fn standard(self, value: f32) -> f32 {
        if self.deviation <= 1e-6 { 0.0 } else { (value - self.mean) / self.deviation }
    }
}

impl Scores {
    fn of(index: &Index, prepared: &PreparedQuery) -> Scores {
        let overall = &index.overall;
        let lexical = overall.scores(prepared.words.iter());
        let mut cosine = Vec::with_capacity(overall.tools());
        let near = prepared.vector.nearness();
        cosine.extend(index.directions.iter().flat_map(|own| own.iter()).map(near));
        let (lexical_spread, cosine_spread) = (Spread::of(&lexical), Spread::of(&cosine));
        Scores { lexical, cosine, lexical_spread, cosine_spread }
    }

    fn fused(&self, at: usize) -> f32 {
        let words = self.lexical_spread.standard(self.lexical[at]);
        let meaning = self.cosine_spread.standard(self.cosine[at]);
        (1.0 - MEANING_SHARE) * words + MEANING_SHARE * meaning
    }
}

/// A re-ranked tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Counted through all servers.
    pub(super) tool: usize,
    pub(super) features: Features,
    /// The cosine with the query, as it is: of the word vectors, or of the transformer's where those are known.
    pub(super) cosine: f32,
}

/// What was found before it is put in order.
pub(super) struct RerankCandidates {
    /// The best by the fused score, with their features.
    pub(super) candidates: Vec<Candidate>,
    /// The others that match, with their place in the first sorting.
    pub(super) rest: Vec<Ranked>,
}

/// Everything but the weights: what training and `--why` need too.
pub(super) fn rerank_candidates(search: &Search<'_>) -> RerankCandidates {
    rerank_candidates_with(search, &[])
}

/// The same with these tools re-ranked too, which are sorted.
pub(super) fn rerank_candidates_with(search: &Search<'_>, also: &[u32]) -> RerankCandidates {
    let prepared = PreparedQuery::new(&search.index.overall, search.query);
    let scores = Scores::of(search.index, &prepared);
    let among = search.among.clone();
    let matching = among.filter(|&at| scores.lexical[at] > 0.0 || scores.cosine[at] >= NEAR);
    let mut rest: Vec<Ranked> = matching.map(|at| Ranked::new(at, scores.fused(at))).collect();
    let order = |a: &Ranked, b: &Ranked| b.score.total_cmp(&a.score).then(a.tool.cmp(&b.tool));
    if rest.len() > CANDIDATES {
        rest.select_nth_unstable_by(CANDIDATES - 1, order);
    }
    let mut best: Vec<Ranked> = rest.drain(..CANDIDATES.min(rest.len())).collect();
    best.sort_unstable_by(order);
    if !also.is_empty() {
        rest.retain(|one| also.binary_search(&one.tool).is_err());
        let is_new = |&&tool: &&u32| best.iter().all(|one| one.tool != tool);
        let new = also.iter().filter(is_new).map(|&tool| tool as usize);
        let new: Vec<Ranked> = new.map(|at| Ranked::new(at, scores.fused(at))).collect();
        best.extend(new);
    }
    let candidates = features::of(search.index, &prepared, &scores, &best);
    RerankCandidates { candidates, rest }
}

/// The most that usage history adds to the log-odds.
const MOST_ODDS: f32 = 4.0;

/// See [`Strategy::Hybrid`](super::Strategy::Hybrid).
pub(super) struct Hybrid;

impl Ranker for Hybrid {
    /// Those looked at closely score in (0, 1), the others below all of them.
    fn rank(&self, search: &Search<'_>) -> Vec<Ranked> {
        let to_rerank = rerank_candidates(search);
        let added: Vec<f32> =
            to_rerank.candidates.iter().map(|one| parts(&one.features).iter().sum()).collect();
        ranked(to_rerank, added, search.index.overall.tools(), &weights::CONFIDENCE)
    }

    /// A score is a probability here, and usage history changes its odds.
    fn lifted(&self, score: f32, boost: f32) -> f32 {
        if !(0.0..1.0).contains(&score) {
            return score;
        }
        let raised = score * (MOST_ODDS * boost).exp();
        raised / (raised + 1.0 - score)
    }
}

/// What was looked at, with what its numbers add up to, before the rest; and how sure that is.
pub(super) fn ranked(
    to_rerank: RerankCandidates,
    added: Vec<f32>,
    tools: usize,
    sureness: &[f32; CONFIDENCE_FEATURES],
) -> Vec<Ranked> {
    let RerankCandidates { candidates, mut rest } = to_rerank;
    let sure = confidence::of(&candidates, &added, tools, sureness);
    let mut ranked: Vec<Ranked> = candidates
        .iter()
        .zip(added)
        .zip(sure)
        .map(|((one, added), sure)| Ranked {
            confidence: Some(sure),
            ..Ranked::new(one.tool, squash(added))
        })
        .collect();
    let last = ranked.iter().fold(1.0f32, |least, one| least.min(one.score));
    let (low, high) = rest
        .iter()
        .fold((f32::MAX, f32::MIN), |(low, high), one| (low.min(one.score), high.max(one.score)));
    for one in &mut rest {
        // Kept above zero and below the worst of those looked at, in the order of the fused score.
        let place = if high > low { (one.score - low) / (high - low) } else { 1.0 };
        one.score = last * (0.01 + 0.98 * place);
    }
    ranked.append(&mut rest);
    ranked
}

/// What each feature adds to a score.
pub fn parts(features: &Features) -> Features {
    weighed(features, &weights::WEIGHTS)
}

/// The same with given weights: mean, deviation and weight of each.
pub(super) fn weighed<const N: usize>(features: &[f32; N], weights: &[[f32; 3]; N]) -> [f32; N] {
    let mut parts = [0.0; N];
    for ((part, feature), [mean, deviation, weight]) in parts.iter_mut().zip(features).zip(weights)
    {
        *part = (feature - mean) / deviation * weight;
    }
    parts
}

/// Any number to between 0 and 1.
fn squash(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}
