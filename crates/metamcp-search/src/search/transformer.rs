//! The strategy `transformer`: the re-ranking of `hybrid` with three more features, from the transformer's embeddings.
//! Owns: which text of a query and a tool is embedded, the table of tool vectors, the features, their weights.      Never: loads a model, waits for a vector.
//! In: tables of vectors, the vectors of a query's sentences.  Out: a `Ranker` for that query.
//! Tests: below; `cargo xtask eval` measures it, `cargo xtask train` makes the weights.

mod weights;

use std::fmt::Write as _;
use std::sync::Arc;
use std::thread;

use super::hybrid::{self, Features, Hybrid, RerankCandidates, Spread};
use super::{Index, Ranked, Ranker, Search};
use crate::transformer::{ASKED_PIECES, Model, QUERY_PIECES, TOOL_PIECES, clauses};
use metamcp_tools::tool::Tool;
use metamcp_types::text;

/// Tools that are re-ranked because their embeddings are near, beside those of `hybrid`.
const NEAREST: usize = 50;

/// A tool that nothing else speaks for is listed when it is at least this near, or when nothing speaks for any other.
const NEAR: f32 = 0.2;

/// Pieces of a query above which its sentences are read on two cores. Fewer are read before a thread is there.
const TWO_HANDS: usize = 32;

/// The features that the transformer adds: how far a tool stands out, and how far behind the one
/// that stands out most. The first alone cannot say that a tool is a little better than all the others.
/// Third, what the words of the query say for it, counted by how much they say for the nearest tool too: people who do
/// not know a tool's words hit those of others by chance ("complete", "today"), and then words shall count less.
pub const NEAR_NAMES: [&str; 3] = ["transformer", "behind the nearest", "agreed words"];

/// The share of the most that words say for any tool which they say for the nearest, from which on words count more.
const AGREED: f32 = 0.7;

/// Those numbers, in that order.
pub type Near = [f32; NEAR_NAMES.len()];

/// Deviations behind the nearest, beyond which it does not matter how many.
const BEHIND: f32 = 2.0;

/// What of a description is read; the transformer cuts it to its pieces anyway.
const MAX_CHARS: usize = 512;

/// What the transformer reads of a tool: its server and its name in words, and what it does.
pub fn document(server: &str, tool: &Tool) -> String {
    let mut words = String::with_capacity(server.len() + tool.name.len() + 160);
    for name in [server, &tool.name] {
        let mut before = ' ';
        for c in name.chars() {
            // A model that knows no capitals would read `getUser` as one word it has never met.
            if c.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit()) {
                words.push(' ');
            }
            words.push(if matches!(c, '_' | '-' | '.' | '/') { ' ' } else { c });
            before = c;
        }
        words.push(' ');
    }
    words.pop();
    let _cannot_fail = write!(words, ": {}", text::start(&tool.description, MAX_CHARS));
    words
}

/// Where sentences are divided between two cores: half of all pieces on either side, as near as may be. All on one if
/// there are few.
fn halves(lists: &[Vec<u32>]) -> usize {
    let total: usize = lists.iter().map(Vec::len).sum();
    if total < TWO_HANDS {
        return lists.len();
    }
    let mut before = 0;
    let is_first_half = |list: &&Vec<u32>| {
        let middle = before + list.len() / 2;
        before += list.len();
        middle * 2 < total
    };
    lists.iter().take_while(is_first_half).count().max(1)
}

impl Model {
    /// The vectors of a query: one for each of its sentences, or one for the whole if it is short.
    pub fn asked(&self, query: &str) -> Vec<Vec<f32>> {
        let query = text::start(query.trim(), super::MAX_QUERY_CHARS);
        let sentences = clauses(query);
        let texts = if sentences.is_empty() { vec![query] } else { sentences };
        let lists = self.lists(&texts, QUERY_PIECES, ASKED_PIECES);
        let (first, second) = lists.split_at(halves(&lists));
        let has_core = || thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        if second.is_empty() || !has_core() {
            return self.read_pieces(&lists);
        }
        thread::scope(|scope| {
            let other = thread::Builder::new().spawn_scoped(scope, || self.read_pieces(second));
            let mut vectors = self.read_pieces(first);
            let read = other.ok().and_then(|other| other.join().ok());
            // Where there is no thread to be had, it takes longer.
            vectors.extend(read.unwrap_or_else(|| self.read_pieces(second)));
            vectors
        })
    }

    /// The vector of a tool by its [`document`].
    pub fn tool(&self, document: &str) -> Vec<f32> {
        self.vector(document, TOOL_PIECES)
    }

    /// The vectors of all tools of an index, worked out on all cores; `step` is called after each. For measuring: it
    /// takes about fifteen milliseconds a tool.
    pub fn tables(&self, index: &Index, step: &(dyn Fn() + Sync)) -> Vec<Arc<Table>> {
        let places: Vec<(usize, usize)> = (0..)
            .zip(index.servers())
            .flat_map(|(server, part)| {
                (0..part.tools().tools.len()).map(move |tool| (server, tool))
            })
            .collect();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let read = |&(server, tool): &(usize, usize)| {
            let part = &index.servers()[server];
            let vector = self.tool(&document(part.server(), &part.tools().tools[tool]));
            step();
            vector
        };
        let read = &read;
        let vectors: Vec<Vec<f32>> = thread::scope(|scope| {
            let share = places.len().div_ceil(cores).max(1);
            let working: Vec<_> = places
                .chunks(share)
                .map(|own| scope.spawn(move || own.iter().map(read).collect::<Vec<_>>()))
                .collect();
            working.into_iter().flat_map(|one| one.join().unwrap_or_default()).collect()
        });
        let width = self.shape().width;
        let new = |part: &Arc<super::ServerIndex>| Table::new(part.tools().tools.len(), width);
        let mut tables: Vec<Table> = index.servers().iter().map(new).collect();
        for ((server, tool), vector) in places.into_iter().zip(vectors) {
            tables[server].set(tool, &vector);
        }
        tables.into_iter().map(Arc::new).collect()
    }
}

/// The vectors of one server's tools, in their order. Not every tool has one yet.
#[derive(Debug, Clone, Default)]
pub struct Table {
    width: usize,
    numbers: Vec<f32>,
    is_there: Vec<bool>,
}

impl Table {
    /// For so many tools, none of which has a vector yet.
    pub fn new(tools: usize, width: usize) -> Table {
        Table { width, numbers: vec![0.0; tools * width], is_there: vec![false; tools] }
    }

    /// Adds the vector of a tool; one of another length is skipped.
    pub fn set(&mut self, tool: usize, vector: &[f32]) {
        if vector.len() == self.width && tool < self.is_there.len() {
            self.numbers[tool * self.width..][..self.width].copy_from_slice(vector);
            self.is_there[tool] = true;
        }
    }

    /// That of one tool, if it has one yet.
    pub fn vector(&self, tool: usize) -> Option<&[f32]> {
        let own = self.is_there.get(tool).is_some_and(|there| *there);
        own.then(|| &self.numbers[tool * self.width..][..self.width])
    }

    /// Tools in it.
    pub fn tools(&self) -> usize {
        self.is_there.len()
    }

    /// How near each tool is to a vector of length one.
    fn cosines(&self, vector: &[f32]) -> impl Iterator<Item = Option<f32>> {
        let fits = vector.len() == self.width;
        self.is_there.iter().enumerate().map(move |(tool, &there)| {
            let own = &self.numbers[tool * self.width..][..self.width];
            (there && fits).then(|| dot(own, vector))
        })
    }

    /// Those without a vector.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        self.is_there.iter().enumerate().filter(|(_, there)| !**there).map(|(tool, _)| tool)
    }
}

/// How near every tool is to one query; ranks for it.
#[derive(Debug)]
pub struct Nearness {
    /// Of each tool, counted through all servers: the most deviations above the mean that it has for a sentence of the
    /// query. A sentence that is near to everything says little, so each is measured by its own spread.
    deviations: Vec<Option<f32>>,
    /// The largest cosine of each.
    cosines: Vec<f32>,
    /// Tools without a vector.
    pub missing: usize,
}

impl Nearness {
    /// `tables` belong to the servers of the index, in their order. Nothing where fewer than half of the tools have a
    /// vector: who is far from the mean of a few need not be far from that of all.
    pub fn new(tables: &[Arc<Table>], asked: &[Vec<f32>]) -> Option<Nearness> {
        let tools: usize = tables.iter().map(|table| table.tools()).sum();
        let missing = tables.iter().map(|table| table.missing().count()).sum();
        if asked.is_empty() || missing * 2 > tools {
            return None;
        }
        let mut nearness =
            Nearness { deviations: vec![None; tools], cosines: vec![f32::MIN; tools], missing };
        for vector in asked {
            let all: Vec<Option<f32>> =
                tables.iter().flat_map(|table| table.cosines(vector)).collect();
            let known: Vec<f32> = all.iter().copied().flatten().collect();
            let spread = Spread::of(&known);
            let own = nearness.deviations.iter_mut().zip(&mut nearness.cosines);
            for ((most, nearest), cosine) in own.zip(all) {
                let Some(cosine) = cosine else { continue };
                *nearest = nearest.max(cosine);
                let deviations = spread.standard(cosine);
                *most = Some(most.map_or(deviations, |most| most.max(deviations)));
            }
        }
        Some(nearness)
    }

    pub(super) fn rerank_candidates(&self, search: &Search<'_>) -> RerankCandidates {
        let mut to_rerank = hybrid::rerank_candidates_with(search, &self.nearest(search, NEAR));
        if to_rerank.candidates.is_empty() {
            // Where nothing speaks for any tool, the nearest are still the best guess there is.
            to_rerank = hybrid::rerank_candidates_with(search, &self.nearest(search, 0.0));
        }
        for one in &mut to_rerank.candidates {
            if self.deviations.get(one.tool).is_some_and(Option::is_some) {
                one.cosine = self.cosines[one.tool];
            }
        }
        to_rerank
    }

    /// The tools that stand out most among those at least so near, sorted.
    fn nearest(&self, search: &Search<'_>, least: f32) -> Vec<u32> {
        let among = search.among.clone();
        let near = |&at: &usize| {
            self.cosines.get(at).is_some_and(|&cosine| cosine > 0.0 && cosine >= least)
        };
        let mut nearest: Vec<(f32, u32)> = among
            .filter(near)
            .filter_map(|at| Some((self.deviations[at]?, u32::try_from(at).ok()?)))
            .collect();
        nearest.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut nearest: Vec<u32> = nearest.into_iter().take(NEAREST).map(|(_, at)| at).collect();
        nearest.sort_unstable();
        nearest
    }

    /// The numbers of each candidate. What the table of words thinks stands in for a tool that has no vector: it was made
    /// to imitate the transformer.
    pub(super) fn numbers(&self, to_rerank: &RerankCandidates) -> Vec<Near> {
        let deviations: Vec<f32> = to_rerank
            .candidates
            .iter()
            .map(|one| {
                let [_, meaning, ..] = one.features;
                self.deviations.get(one.tool).copied().flatten().unwrap_or(meaning)
            })
            .collect();
        let words = |at: usize| to_rerank.candidates[at].features[0];
        let nearest = (0..deviations.len()).max_by(|&a, &b| {
            deviations[a].total_cmp(&deviations[b]).then(words(a).total_cmp(&words(b)))
        });
        let Some(nearest) = nearest else { return Vec::new() };
        let most = deviations[nearest];
        let most_words = (0..deviations.len()).map(words).fold(1.0, f32::max);
        let agreed = words(nearest) / most_words - AGREED;
        let near = |(at, own): (usize, f32)| [own, (own - most).max(-BEHIND), words(at) * agreed];
        deviations.into_iter().enumerate().map(near).collect()
    }
}

impl Ranker for Nearness {
    /// As `hybrid` does, with other weights.
    fn rank(&self, search: &Search<'_>) -> Vec<Ranked> {
        let to_rerank = self.rerank_candidates(search);
        let near = self.numbers(&to_rerank);
        let added = to_rerank.candidates.iter().zip(&near).map(|(one, near)| {
            let known: f32 = parts_with_nearness(&one.features).iter().sum();
            known + parts_of_nearness(near).iter().sum::<f32>()
        });
        let added = added.collect();
        hybrid::ranked(to_rerank, added, search.index.overall.tools(), &weights::CONFIDENCE)
    }

    fn lifted(&self, score: f32, boost: f32) -> f32 {
        Hybrid.lifted(score, boost)
    }
}

/// What each number that `hybrid` has too adds to a score here.
pub fn parts_with_nearness(features: &Features) -> Features {
    hybrid::weighed(features, &weights::WEIGHTS)
}

/// What the transformer's own numbers add.
pub fn parts_of_nearness(near: &Near) -> Near {
    hybrid::weighed(near, &weights::NEARNESS)
}

/// Sum of products, eight at a time.
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let (mut sums, (a, a_rest), (b, b_rest)) =
        ([0.0f32; 8], left.as_chunks::<8>(), right.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests;
