//! Words and meaning together: both are scored over all tools, the best fifty are looked at closely and put in order
//! by a few numbers each.
//! Owns: the fusion, the close look, its weights.      Never: reads anything but the index.
//! In: the index, a query.  Out: tools with scores, and why.
//! Tests: `search/tests.rs`; `cargo xtask eval` measures it, `cargo xtask train` makes the weights.

mod confidence;
mod features;
mod weights;

use std::sync::Arc;

use super::bm25::{self, Overall, Word};
use super::meaning::{self, Piece, Vector};
use super::{Ranked, ServerIndex};
use crate::text;
use crate::tool::ServerTools;

pub use confidence::{GROUNDS, Grounds, grounds};
pub use features::{FEATURE_NAMES, FEATURES, Features};

/// Tools that get the close look.
const CANDIDATES: usize = 50;

/// What of a description goes into its meaning: as much as is ranked by words.
const MAX_MEANT_CHARS: usize = 512;

/// Different pieces of one tool that are compared one by one with those of a query.
const MAX_COMPARED: usize = 64;

/// Different pieces of a query that are compared so.
const MAX_ASKED: usize = 24;

/// A tool that shares no word with the query is listed when it is at least this near in meaning.
const NEAR: f32 = 0.25;

/// How much of the first sorting is meaning; the rest is words.
const MEANING_SHARE: f32 = 0.5;

/// One server's tools as directions.
#[derive(Debug, Default)]
pub(super) struct Meanings {
    /// One vector after the other.
    components: Vec<i8>,
    steps: Vec<f32>,
    /// The different pieces of each tool, those of its name first.
    pieces: Vec<Piece>,
    /// Where each tool's pieces start and how many are its name's; one more entry marks the end.
    starts: Vec<(u32, u16)>,
}

impl Meanings {
    pub(super) fn build(server: &str, tools: &ServerTools) -> Meanings {
        let mut meanings = Meanings::default();
        let mut all = Vec::new();
        for tool in &tools.tools {
            all.clear();
            meaning::pieces(&tool.name, &mut all);
            let named = all.len();
            meaning::pieces(&text::cut(&tool.description, MAX_MEANT_CHARS), &mut all);
            meaning::pieces(server, &mut all);
            for parameter in &tool.parameters {
                meaning::pieces(&parameter.name, &mut all);
                meaning::pieces(&parameter.description, &mut all);
            }
            let vector = Vector::of(&all);
            meanings.components.extend_from_slice(&vector.components);
            meanings.steps.push(vector.step);
            let start = meanings.pieces.len();
            let mut own = 0u16;
            for (at, &piece) in all.iter().enumerate() {
                let seen = &meanings.pieces[start..];
                if seen.len() < MAX_COMPARED && !seen.contains(&piece) {
                    meanings.pieces.push(piece);
                    own += u16::from(at < named);
                }
            }
            meanings.starts.push((u32::try_from(start).unwrap_or(u32::MAX), own));
        }
        let end = u32::try_from(meanings.pieces.len()).unwrap_or(u32::MAX);
        meanings.starts.push((end, 0));
        meanings.components.shrink_to_fit();
        meanings.steps.shrink_to_fit();
        meanings.pieces.shrink_to_fit();
        meanings
    }

    fn cosine(&self, tool: usize, query: &Vector) -> f32 {
        let dims = query.components.len();
        let own = &self.components[tool * dims..(tool + 1) * dims];
        meaning::dot(own, &query.components) as f32 * self.steps[tool] * query.step
    }

    /// The different pieces of a tool, and how many of them are its name's.
    fn pieces(&self, tool: usize) -> (&[Piece], usize) {
        let (start, named) = self.starts[tool];
        let (end, _) = self.starts[tool + 1];
        (&self.pieces[start as usize..end as usize], usize::from(named))
    }
}

/// A query, prepared.
struct Asked {
    words: Vec<Word>,
    vector: Vector,
    /// Its different pieces.
    pieces: Vec<Piece>,
}

impl Asked {
    fn new(servers: &[Arc<ServerIndex>], overall: &Overall, query: &str) -> Asked {
        let mut all = Vec::new();
        meaning::pieces(query, &mut all);
        let mut pieces = all.clone();
        pieces.sort_unstable();
        pieces.dedup();
        // Those that say most; the others of a long query would cost time and change nothing.
        let says = |piece: &Piece| meaning::TABLE.length(*piece);
        pieces.sort_by(|a, b| says(b).total_cmp(&says(a)).then(a.cmp(b)));
        pieces.truncate(MAX_ASKED);
        Asked { words: bm25::words(servers, overall, query), vector: Vector::of(&all), pieces }
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
struct Spread {
    mean: f32,
    deviation: f32,
}

impl Spread {
    fn of(values: &[f32]) -> Spread {
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

    fn standard(&self, value: f32) -> f32 {
        if self.deviation <= 1e-6 { 0.0 } else { (value - self.mean) / self.deviation }
    }
}

impl Scores {
    fn of(servers: &[Arc<ServerIndex>], overall: &Overall, asked: &Asked) -> Scores {
        let lexical = bm25::scores(servers, overall, &asked.words);
        let mut cosine = Vec::with_capacity(overall.tools());
        for part in servers {
            let count = part.meanings.steps.len();
            if asked.vector.is_zero() {
                cosine.resize(cosine.len() + count, 0.0);
            } else {
                cosine.extend((0..count).map(|tool| part.meanings.cosine(tool, &asked.vector)));
            }
        }
        let (lexical_spread, cosine_spread) = (Spread::of(&lexical), Spread::of(&cosine));
        Scores { lexical, cosine, lexical_spread, cosine_spread }
    }

    fn fused(&self, at: usize) -> f32 {
        let words = self.lexical_spread.standard(self.lexical[at]);
        let meaning = self.cosine_spread.standard(self.cosine[at]);
        (1.0 - MEANING_SHARE) * words + MEANING_SHARE * meaning
    }
}

/// A tool that got the close look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) server: usize,
    pub(super) tool: usize,
    pub(super) features: Features,
}

/// What was found before it is put in order.
pub(super) struct Looked {
    /// The best by the first sorting, with what the close look saw.
    pub(super) candidates: Vec<Candidate>,
    /// The others that match, with their place in the first sorting.
    pub(super) rest: Vec<Ranked>,
}

/// Everything but the weights: what training and `--why` need too.
pub(super) fn look(
    servers: &[Arc<ServerIndex>],
    overall: &Overall,
    query: &str,
    only: Option<&str>,
) -> Looked {
    let asked = Asked::new(servers, overall, query);
    let scores = Scores::of(servers, overall, &asked);
    let mut rest = Vec::new();
    for (server, part) in servers.iter().enumerate() {
        if only.is_some_and(|only| only != &*part.server) {
            continue;
        }
        let start = overall.start(server);
        for tool in 0..part.tools.tools.len() {
            if scores.lexical[start + tool] > 0.0 || scores.cosine[start + tool] >= NEAR {
                rest.push(Ranked::new(server, tool, scores.fused(start + tool)));
            }
        }
    }
    let order = |a: &Ranked, b: &Ranked| {
        b.score.total_cmp(&a.score).then((a.server, a.tool).cmp(&(b.server, b.tool)))
    };
    if rest.len() > CANDIDATES {
        rest.select_nth_unstable_by(CANDIDATES - 1, order);
    }
    let mut best: Vec<Ranked> = rest.drain(..CANDIDATES.min(rest.len())).collect();
    best.sort_unstable_by(order);
    let candidates = features::of(servers, overall, &asked, &scores, &best);
    Looked { candidates, rest }
}

/// Tools with their scores: those looked at closely in (0, 1), the others below all of them.
pub(super) fn rank(
    servers: &[Arc<ServerIndex>],
    overall: &Overall,
    query: &str,
    only: Option<&str>,
) -> Vec<Ranked> {
    let Looked { candidates, mut rest } = look(servers, overall, query, only);
    let added: Vec<f32> = candidates.iter().map(|one| parts(&one.features).iter().sum()).collect();
    let sure = confidence::of(&candidates, &added, overall.tools());
    let mut ranked: Vec<Ranked> = candidates
        .iter()
        .zip(added)
        .zip(sure)
        .map(|((one, added), sure)| Ranked {
            confidence: Some(sure),
            ..Ranked::new(one.server, one.tool, squash(added))
        })
        .collect();
    let last = ranked.iter().fold(1.0f32, |least, one| least.min(one.score));
    let (low, high) = rest
        .iter()
        .fold((f32::MAX, f32::MIN), |(low, high), one| (low.min(one.score), high.max(one.score)));
    for one in &mut rest {
        // Kept above zero and below the worst of those looked at, in the order of the first sorting.
        let place = if high > low { (one.score - low) / (high - low) } else { 1.0 };
        one.score = last * (0.01 + 0.98 * place);
    }
    ranked.append(&mut rest);
    ranked
}

/// What each number of the close look adds to a score.
pub fn parts(features: &Features) -> Features {
    let mut parts = [0.0; FEATURES];
    for ((part, feature), [mean, deviation, weight]) in
        parts.iter_mut().zip(features).zip(weights::WEIGHTS)
    {
        *part = (feature - mean) / deviation * weight;
    }
    parts
}

/// Any number to between 0 and 1.
fn squash(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}
