//! Finding tools: an immutable index over all servers, cheap to rebuild when one of them changes.
//! Owns: tokens, the rankers, the order of hits, the quota per server.      Never: contacts a server, reads a clock, renders.
//! In: each server's tools; a query.  Out: `Hit`s, best first, the same for the same input.
//! Tests: `search/tests.rs`.

mod blend;
mod bm25;
mod cached_tokenizer;
mod hybrid;
mod index_cache;
mod keyword;
mod lexical;
mod meaning;
mod shortlist;
mod stem;
mod tokenize;
mod transformer;
mod typos;
mod usage_boost;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::usage_history::Prior;
use metamcp_tools::tool::{ServerTools, Tool};
use metamcp_types::text;

use bm25::Field;

pub use blend::{BLENDED, BlendedRanker};
pub use cached_tokenizer::CachedTokenizer;
pub use hybrid::{
    CONFIDENCE_FEATURES, ConfidenceFeatures, FEATURE_NAMES, FEATURES, Features,
    confidence_features, parts,
};
pub use index_cache::IndexCacheKey;
pub use metamcp_types::strategy::Strategy;
pub use shortlist::{Shortlist, covers, meets, nothing_fits, shortlist};
pub use tokenize::tokens;
pub use transformer::{
    NEAR_NAMES, Near, Nearness, Table, document, parts_of_nearness, parts_with_nearness,
};

#[cfg(test)]
mod tests;

/// Hits among which no server may take more than its share.
const QUOTA_WINDOW: usize = 20;

/// Hits one server may have among those, as long as others match: a quarter.
const QUOTA: usize = 5;

/// Hits that are put in order for the first pages.
const SORTED: usize = 256;

/// What of a description is ranked: enough for an honest one, too little to stuff.
const MAX_RANKED_CHARS: usize = 512;

/// What of a server's own description is ranked.
const MAX_SERVER_CHARS: usize = 160;

/// Longest query that is looked at; the rest of a longer one is ignored.
const MAX_QUERY_CHARS: usize = 2_000;

/// Below this chance of the first hit, an answer says that nothing fits well.
pub const FITS: f32 = 0.15;

/// How `bm25` weighs what it finds, for those who know it from elsewhere. The other strategies keep what they were
/// fitted with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// What a word in a name counts, as a multiple of the usual.
    pub name: f32,
    /// The same for the name of the server.
    pub server: f32,
    /// The same for titles and tags.
    pub tags: f32,
    /// Most tools that are looked at; zero for all.
    pub tools: usize,
    /// Characters of a description that are ranked; zero for the usual.
    pub chars: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning { name: 1.0, server: 1.0, tags: 1.0, tools: 0, chars: 0 }
    }
}

/// What the configuration says about a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct About<'a> {
    /// What it is for.
    pub description: Option<&'a str>,
    /// Words to find it by.
    pub tags: &'a [String],
}

/// One way to score tools. Those that need nothing but the index are found by their [`Strategy`]; [`BlendedRanker`] and
/// [`Nearness`] are made for one query, with vectors.
pub trait Ranker {
    /// Every tool that matches, each once, with a score above zero, in any order.
    fn rank(&self, search: &Search<'_>) -> Vec<Ranked>;

    /// A score with what usage history adds to it; the boost is between 0 and 1. Points that were agreed on stay as they are.
    fn lifted(&self, score: f32, _boost: f32) -> f32 {
        score
    }
}

/// What is searched for, and where.
#[derive(Debug)]
pub struct Search<'a> {
    index: &'a Index,
    query: &'a str,
    /// Tools that may be found, counted through all servers.
    among: Range<usize>,
}

/// A scored tool before the page is cut.
#[derive(Debug, Clone, Copy)]
pub struct Ranked {
    /// Counted through all servers.
    tool: u32,
    score: f32,
    confidence: Option<f32>,
}

impl Ranked {
    fn new(tool: usize, score: f32) -> Ranked {
        Ranked { tool: u32::try_from(tool).unwrap_or(u32::MAX), score, confidence: None }
    }
}

/// What ranks by the index alone under that name, or in place of it where that takes vectors.
fn ranker(strategy: Strategy) -> &'static dyn Ranker {
    match strategy {
        Strategy::Keyword => &keyword::Keyword,
        Strategy::Lexical => &lexical::Lexical,
        Strategy::Bm25 => &bm25::Bm25,
        Strategy::Hybrid => &hybrid::Hybrid,
        Strategy::Auto | Strategy::Transformer | Strategy::HybridVoyage | Strategy::Embedding => {
            ranker(strategy.without_vectors())
        }
    }
}

/// One tool that matches.
#[derive(Clone)]
pub struct Hit {
    /// The server it belongs to.
    pub server: Arc<str>,
    /// How well it matches; comparable within one answer only.
    pub score: f32,
    /// The probability that this is the right tool, where the strategy has one.
    pub confidence: Option<f32>,
    tools: Arc<ServerTools>,
    index: usize,
}

impl Hit {
    /// A hit that was not searched for, as when a tool is requested by name.
    pub fn named(server: Arc<str>, tools: Arc<ServerTools>, tool: &str) -> Option<Self> {
        let index = tools.tools.iter().position(|one| &*one.name == tool)?;
        Some(Self { server, score: 0.0, confidence: None, tools, index })
    }

    /// All tools of one server, in its order.
    pub fn all_of(server: &Arc<str>, tools: &Arc<ServerTools>) -> Vec<Self> {
        (0..tools.tools.len())
            .map(|index| Self {
                server: server.clone(),
                score: 0.0,
                confidence: None,
                tools: tools.clone(),
                index,
            })
            .collect()
    }

    pub fn tool(&self) -> &Tool {
        &self.tools.tools[self.index]
    }

    /// `server:tool`.
    pub fn id(&self) -> String {
        format!("{}:{}", self.server, self.tool().name)
    }
}

impl fmt::Debug for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.4}", self.id(), self.score)
    }
}

/// A candidate, and what its rank and its chance are judged by.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The tool; without a score.
    pub hit: Hit,
    pub features: Features,
    /// What the transformer thinks, if it was asked.
    pub near: Option<Near>,
    /// How near it is by the best vectors at hand, as it is.
    pub cosine: f32,
}

/// One page of an answer.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The hits of this page, best first.
    pub hits: Vec<Hit>,
    /// All that match, on this page or not.
    pub total: usize,
}

/// The part of the index that belongs to one server; rebuilt only when that server's tools change.
#[derive(Debug)]
pub struct ServerIndex {
    server: Arc<str>,
    tools: Arc<ServerTools>,
    cache_key: IndexCacheKey,
    fields: bm25::Fields,
    meanings: hybrid::Meanings,
}

impl ServerIndex {
    /// Indexes one server. `description` is what the configuration says about it.
    pub fn build(server: &str, description: Option<&str>, tools: &Arc<ServerTools>) -> Self {
        Self::build_with(&mut CachedTokenizer::default(), server, description, tools)
    }

    /// The same for one of several servers, with what was learnt of words at those before.
    pub fn build_with(
        tokenizer: &mut CachedTokenizer,
        server: &str,
        description: Option<&str>,
        tools: &Arc<ServerTools>,
    ) -> Self {
        let about = About { description, tags: &[] };
        Self::build_tuned(tokenizer, server, about, tools, &Tuning::default())
    }

    /// The same with all that the configuration says.
    pub fn build_tuned(
        tokenizer: &mut CachedTokenizer,
        server: &str,
        about: About<'_>,
        tools: &Arc<ServerTools>,
        tuning: &Tuning,
    ) -> Self {
        let cache_key = IndexCacheKey::new(server, about, tools, tuning);
        let tags = about.tags.join(" ");
        let ranked = ranked_chars(tuning);
        let about = about.description.or(tools.server_title.as_deref()).unwrap_or_default();
        let about = text::start(about, MAX_SERVER_CHARS);
        tokenizer.next_server();
        let mut counting = bm25::Counting::default();
        let mut meanings = hybrid::MeaningsBuilder::default();
        let mut pieces = Vec::new();
        for tool in &tools.tools {
            counting.next_tool();
            pieces.clear();
            let mut read = |field: Field, text: &str| {
                tokenizer.read(text, |words, meant| {
                    counting.count(field, words);
                    // A title repeats the name, and what the server is for is no part of what one tool means.
                    if !matches!(field, Field::Title | Field::About) {
                        pieces.extend_from_slice(meant);
                    }
                });
                pieces.len()
            };
            let named = read(Field::Name, &tool.name);
            read(Field::Description, text::start(&tool.description, ranked));
            read(Field::Server, server);
            for (name, description) in tool.parameters() {
                read(Field::Parameter, name);
                read(Field::ParameterDescription, description);
            }
            read(Field::Title, tool.title.as_deref().unwrap_or_default());
            read(Field::Title, &tags);
            read(Field::About, about);
            pieces.truncate(meaning::MAX_PIECES);
            meanings.add(&pieces, named);
        }
        Self {
            server: server.into(),
            tools: tools.clone(),
            cache_key,
            fields: counting.finish(tokenizer),
            meanings: meanings.finish(),
        }
    }

    /// The server's name.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// The tools that are indexed.
    pub fn tools(&self) -> &Arc<ServerTools> {
        &self.tools
    }
}

/// How much of a description is ranked; more than the usual would be room for stuffing.
fn ranked_chars(tuning: &Tuning) -> usize {
    let wanted = if tuning.chars == 0 { MAX_RANKED_CHARS } else { tuning.chars };
    wanted.min(MAX_RANKED_CHARS)
}

/// All servers' tools at one moment.
#[derive(Debug, Default)]
pub struct Index {
    /// By name, so that the answer does not depend on the order of arrival.
    servers: Vec<Arc<ServerIndex>>,
    overall: bm25::Overall,
    /// Where each server's tools point.
    directions: Vec<Arc<[meaning::Vector]>>,
    tuning: Tuning,
}

impl Index {
    /// Puts the parts together; costs little beside building one of them.
    pub fn new(servers: Vec<Arc<ServerIndex>>) -> Self {
        Self::tuned(servers, Tuning::default())
    }

    /// The same, weighed otherwise.
    pub fn tuned(mut servers: Vec<Arc<ServerIndex>>, tuning: Tuning) -> Self {
        servers.sort_by(|a, b| a.server.cmp(&b.server));
        let overall = bm25::Overall::over(&servers, &tuning);
        let directions = servers.iter().map(|part| Arc::clone(&part.meanings.directions)).collect();
        Self { servers, overall, directions, tuning }
    }

    /// How it is weighed.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// The parts, by server name.
    pub fn servers(&self) -> &[Arc<ServerIndex>] {
        &self.servers
    }

    /// The part of one server.
    pub fn server(&self, name: &str) -> Option<&Arc<ServerIndex>> {
        self.servers.get(self.part(name)?)
    }

    /// Tools in all servers together.
    pub fn tool_count(&self) -> usize {
        self.overall.tools()
    }

    /// The `limit` best hits, of one server only if given.
    pub fn search(
        &self,
        query: &str,
        strategy: Strategy,
        limit: usize,
        server: Option<&str>,
    ) -> Vec<Hit> {
        self.page(query, strategy, 0, limit, server).hits
    }

    /// One page of the hits and how many there are.
    pub fn page(
        &self,
        query: &str,
        strategy: Strategy,
        offset: usize,
        limit: usize,
        server: Option<&str>,
    ) -> Found {
        self.page_with(query, strategy, offset, limit, server, None)
    }

    /// The same, with a boost by usage history among those that match well.
    pub fn page_with(
        &self,
        query: &str,
        strategy: Strategy,
        offset: usize,
        limit: usize,
        server: Option<&str>,
        prior: Option<&Prior>,
    ) -> Found {
        self.page_by(ranker(strategy), query, (offset, limit), server, prior)
    }

    /// The same by any ranker.
    pub fn page_by(
        &self,
        ranker: &dyn Ranker,
        query: &str,
        (offset, limit): (usize, usize),
        server: Option<&str>,
        prior: Option<&Prior>,
    ) -> Found {
        let search = self.asked(query, server);
        let mut ranked = ranker.rank(&search);
        let total = ranked.len();
        let sorted = self.sort_first(&mut ranked, SORTED.max(offset.saturating_add(limit)));
        if let Some(prior) = prior.filter(|prior| !prior.is_empty()) {
            usage_boost::boost(&search, &mut ranked[..sorted], ranker, prior);
            ranked[..sorted].sort_unstable_by(|a, b| self.order(a, b));
        }
        if server.is_none() && !self.spread(&mut ranked[..sorted]) && sorted < total {
            // One server has nearly all of the best: who else matches stands further down.
            ranked.sort_unstable_by(|a, b| self.order(a, b));
            self.spread(&mut ranked);
        }
        let hits = ranked.iter().skip(offset).take(limit);
        let hits = hits.map(|one| self.hit(one));
        Found { hits: hits.collect(), total }
    }

    /// A query as it is looked at. Nothing is found in a server that is not there.
    fn asked<'a>(&'a self, query: &'a str, server: Option<&str>) -> Search<'a> {
        let among = match server.map(|server| self.part(server)) {
            None => 0..self.overall.tools(),
            Some(None) => 0..0,
            Some(Some(part)) => self.overall.tools_of(part),
        };
        Search { index: self, query: text::start(query.trim(), MAX_QUERY_CHARS), among }
    }

    /// Which of the parts a server is.
    fn part(&self, server: &str) -> Option<usize> {
        self.servers.binary_search_by(|part| (*part.server).cmp(server)).ok()
    }

    /// A tool that was counted through all servers: its server, and which of that server's tools it is.
    fn place(&self, tool: usize) -> (&ServerIndex, usize) {
        let (server, tool) = self.overall.place(tool);
        (&self.servers[server], tool)
    }

    /// Puts the best in order at the front, as many as asked for; says how many that are. To sort all that match
    /// would be most of the work of a search.
    fn sort_first(&self, ranked: &mut [Ranked], count: usize) -> usize {
        let count = count.min(ranked.len());
        if count < ranked.len() && count > 0 {
            ranked.select_nth_unstable_by(count - 1, |a, b| self.order(a, b));
        }
        ranked[..count].sort_unstable_by(|a, b| self.order(a, b));
        count
    }

    /// The candidates that `hybrid` re-ranks, best by the fused score first. For training and for
    /// explaining.
    pub fn candidates(&self, query: &str, server: Option<&str>) -> Vec<Seen> {
        let to_rerank = hybrid::rerank_candidates(&self.asked(query, server));
        let seen = |one: &hybrid::Candidate| self.seen(one, None);
        to_rerank.candidates.iter().map(seen).collect()
    }

    /// The same for the transformer: its candidates, each with its own numbers too.
    pub fn candidates_near(
        &self,
        query: &str,
        server: Option<&str>,
        nearness: &Nearness,
    ) -> Vec<Seen> {
        let to_rerank = nearness.rerank_candidates(&self.asked(query, server));
        let near = nearness.numbers(&to_rerank);
        let candidates = to_rerank.candidates.iter().zip(near);
        candidates.map(|(one, near)| self.seen(one, Some(near))).collect()
    }

    fn seen(&self, one: &hybrid::Candidate, near: Option<Near>) -> Seen {
        let hit = self.hit(&Ranked::new(one.tool, 0.0));
        Seen { hit, features: one.features, near, cosine: one.cosine }
    }

    /// Which words of a query a tool has, each with how rare it is.
    pub fn words_of(&self, query: &str, server: &str, tool: &str) -> Vec<(String, f32)> {
        let Some(part) = self.part(server) else { return Vec::new() };
        let tools = &self.servers[part].tools.tools;
        let Some(tool) = tools.iter().position(|one| &*one.name == tool) else { return Vec::new() };
        let tool = self.overall.tools_of(part).start + tool;
        let words = self.overall.words(query);
        let own = words.into_iter().filter(|word| self.overall.has(tool, word));
        own.map(|word| (word.text, word.rarity)).collect()
    }

    fn hit(&self, one: &Ranked) -> Hit {
        let (part, index) = self.place(one.tool as usize);
        Hit {
            server: part.server.clone(),
            score: one.score,
            confidence: one.confidence,
            tools: part.tools.clone(),
            index,
        }
    }

    /// Best first; equal ones by server and name.
    fn order(&self, a: &Ranked, b: &Ranked) -> Ordering {
        let by_name = || {
            let ((one, first), (other, second)) =
                (self.place(a.tool as usize), self.place(b.tool as usize));
            if std::ptr::eq(one, other) {
                one.tools.tools[first].name.cmp(&other.tools.tools[second].name)
            } else {
                a.tool.cmp(&b.tool)
            }
        };
        b.score.total_cmp(&a.score).then_with(by_name)
    }

    /// Moves what exceeds a server's share of the first hits behind them, as long as others match: a server
    /// that stuffs its descriptions with words must not fill the page. False if there were too few others to fill it.
    fn spread(&self, ranked: &mut [Ranked]) -> bool {
        let mut first: Vec<Ranked> = Vec::with_capacity(QUOTA_WINDOW);
        let mut servers: Vec<usize> = Vec::with_capacity(QUOTA_WINDOW);
        let mut later = Vec::new();
        for &one in ranked.iter() {
            if first.len() == QUOTA_WINDOW {
                break;
            }
            let (server, _) = self.overall.place(one.tool as usize);
            if servers.iter().filter(|&&other| other == server).count() < QUOTA {
                servers.push(server);
                first.push(one);
            } else {
                later.push(one);
            }
        }
        let filled = first.len() == QUOTA_WINDOW;
        for (place, one) in ranked.iter_mut().zip(first.into_iter().chain(later)) {
            *place = one;
        }
        filled
    }
}
