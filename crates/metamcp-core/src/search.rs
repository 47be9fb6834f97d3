//! Finding tools: an immutable index over all servers, cheap to rebuild when one of them changes.
//! Owns: tokens, both scorers, the order of hits, the quota per server.      Never: asks a server, keeps a clock, renders.
//! In: each server's tools; a query.  Out: `Hit`s, best first, the same for the same input.
//! Tests: `search/tests.rs`.

mod blend;
mod bm25;
mod hybrid;
mod keyword;
mod lexical;
mod lift;
mod meaning;
mod stem;
mod tokenize;
mod typos;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::habits::Prior;
use crate::tool::{ServerTools, Tool};

pub use blend::{BLENDED, blend};
pub use hybrid::{FEATURE_NAMES, FEATURES, Features, GROUNDS, Grounds, grounds, parts};
pub use tokenize::tokens;

#[cfg(test)]
mod tests;

/// Hits among which no server may take more than its share.
const QUOTA_WINDOW: usize = 20;

/// Hits one server may have among those, as long as others match: a quarter.
const QUOTA: usize = 5;

/// Hits that are put in order for the first pages.
const SORTED: usize = 256;

/// Longest query that is looked at; the rest of a longer one is ignored.
const MAX_QUERY_CHARS: usize = 2_000;

/// How tools are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// The whole query, case-insensitively: equal to the name 10, contained in the name 5, contained in
    /// the description 2, added up, divided by 10 and capped at 1. A query of several words matches only
    /// where these words stand exactly so.
    Keyword,
    /// The same points for each word of the query on its own.
    Lexical,
    /// BM25 over words: names count most, then title, description, server and parameters. A misspelt word of a
    /// name is forgiven.
    Bm25,
    /// BM25 and meaning together, then a close look at the best.
    #[default]
    Hybrid,
}

impl Strategy {
    /// All of them, the simplest first.
    pub const ALL: [Strategy; 4] =
        [Strategy::Keyword, Strategy::Lexical, Strategy::Bm25, Strategy::Hybrid];

    /// The name in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Keyword => "keyword",
            Strategy::Lexical => "lexical",
            Strategy::Bm25 => "bm25",
            Strategy::Hybrid => "hybrid",
        }
    }
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "keyword" => Ok(Strategy::Keyword),
            "lexical" => Ok(Strategy::Lexical),
            "bm25" => Ok(Strategy::Bm25),
            "hybrid" => Ok(Strategy::Hybrid),
            _ => Err(UnknownStrategy { name: name.to_owned() }),
        }
    }
}

/// Not the name of a strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown search strategy `{name}`; known are keyword, lexical, bm25 and hybrid")]
pub struct UnknownStrategy {
    /// What was asked for.
    pub name: String,
}

/// One tool that matches.
#[derive(Clone)]
pub struct Hit {
    /// The server it belongs to.
    pub server: Arc<str>,
    /// How well it matches; comparable within one answer only.
    pub score: f32,
    /// The chance that this is the tool that was meant, where the strategy can tell.
    pub confidence: Option<f32>,
    tools: Arc<ServerTools>,
    index: usize,
}

impl Hit {
    /// A hit that was not searched for, as when a tool is asked for by name.
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

    /// The tool.
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
    fields: bm25::Fields,
    meanings: hybrid::Meanings,
}

impl ServerIndex {
    /// Indexes one server. `description` is what the configuration says about it.
    pub fn build(server: &str, description: Option<&str>, tools: &Arc<ServerTools>) -> Self {
        Self {
            server: server.into(),
            tools: tools.clone(),
            fields: bm25::Fields::build(server, description, tools),
            meanings: hybrid::Meanings::build(server, tools),
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

/// All servers' tools at one moment.
#[derive(Debug, Default)]
pub struct Index {
    /// By name, so that the answer does not depend on the order of arrival.
    servers: Vec<Arc<ServerIndex>>,
    overall: bm25::Overall,
}

impl Index {
    /// Puts the parts together; costs little beside building one of them.
    pub fn new(mut servers: Vec<Arc<ServerIndex>>) -> Self {
        servers.sort_by(|a, b| a.server.cmp(&b.server));
        let overall = bm25::Overall::over(&servers);
        Self { servers, overall }
    }

    /// The parts, by server name.
    pub fn servers(&self) -> &[Arc<ServerIndex>] {
        &self.servers
    }

    /// The part of one server.
    pub fn server(&self, name: &str) -> Option<&Arc<ServerIndex>> {
        let at = self.servers.binary_search_by(|server| (*server.server).cmp(name)).ok()?;
        self.servers.get(at)
    }

    /// Tools in all servers together.
    pub fn tool_count(&self) -> usize {
        self.servers.iter().map(|server| server.tools.tools.len()).sum()
    }

    /// The `limit` best hits, of one server only if asked.
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

    /// The same, with what habit speaks for lifted among those that match well.
    pub fn page_with(
        &self,
        query: &str,
        strategy: Strategy,
        offset: usize,
        limit: usize,
        server: Option<&str>,
        prior: Option<&Prior>,
    ) -> Found {
        let query = crate::text::cut(query.trim(), MAX_QUERY_CHARS);
        let mut ranked = match strategy {
            Strategy::Keyword => keyword::rank(&self.servers, &query, server),
            Strategy::Lexical => lexical::rank(&self.servers, &query, server),
            Strategy::Hybrid => hybrid::rank(&self.servers, &self.overall, &query, server),
            Strategy::Bm25 => bm25::rank(&self.servers, &self.overall, &query, server),
        };
        let total = ranked.len();
        let sorted = self.sort_first(&mut ranked, SORTED.max(offset.saturating_add(limit)));
        if let Some(prior) = prior.filter(|prior| !prior.is_empty()) {
            lift::lift(&self.servers, &mut ranked[..sorted], &query, strategy, prior);
            ranked[..sorted].sort_unstable_by(|a, b| self.order(a, b));
        }
        if server.is_none() && !spread(&mut ranked[..sorted]) && sorted < total {
            // One server has nearly all of the best: who else matches stands further down.
            ranked.sort_unstable_by(|a, b| self.order(a, b));
            spread(&mut ranked);
        }
        let hits = ranked.iter().skip(offset).take(limit);
        let hits = hits.map(|one| self.hit(one));
        Found { hits: hits.collect(), total }
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

    /// What the close look of `hybrid` sees: its candidates, best by the first sorting first. For training and for
    /// explaining.
    pub fn candidates(&self, query: &str, server: Option<&str>) -> Vec<(Hit, Features)> {
        let query = crate::text::cut(query.trim(), MAX_QUERY_CHARS);
        let looked = hybrid::look(&self.servers, &self.overall, &query, server);
        let hit = |one: &hybrid::Candidate| {
            (self.hit(&Ranked::new(one.server, one.tool, 0.0)), one.features)
        };
        looked.candidates.iter().map(hit).collect()
    }

    /// Which words of a query a tool has, each with how rare it is.
    pub fn words_of(&self, query: &str, server: &str, tool: &str) -> Vec<(String, f32)> {
        let at = self.servers.binary_search_by(|part| (*part.server).cmp(server));
        let Ok(server) = at else { return Vec::new() };
        let tools = &self.servers[server].tools.tools;
        let Some(tool) = tools.iter().position(|one| &*one.name == tool) else { return Vec::new() };
        let words = bm25::words(&self.servers, &self.overall, query);
        let own = words.into_iter().filter(|word| word.occurs(&self.servers, server, tool));
        own.map(|word| (word.text, word.rarity)).collect()
    }

    /// The score that `keyword` gives one tool.
    pub fn keyword_score(query: &str, tool: &Tool) -> f32 {
        keyword::score(query, tool)
    }

    fn hit(&self, one: &Ranked) -> Hit {
        let part = &self.servers[one.server];
        Hit {
            server: part.server.clone(),
            score: one.score,
            confidence: one.confidence,
            tools: part.tools.clone(),
            index: one.tool,
        }
    }

    fn order(&self, a: &Ranked, b: &Ranked) -> std::cmp::Ordering {
        let name = |one: &Ranked| &self.servers[one.server].tools.tools[one.tool].name;
        b.score.total_cmp(&a.score).then(a.server.cmp(&b.server)).then_with(|| name(a).cmp(name(b)))
    }
}

/// A scored tool before the page is cut.
#[derive(Debug, Clone, Copy)]
struct Ranked {
    server: usize,
    tool: usize,
    score: f32,
    confidence: Option<f32>,
}

impl Ranked {
    fn new(server: usize, tool: usize, score: f32) -> Ranked {
        Ranked { server, tool, score, confidence: None }
    }
}

/// Moves what exceeds a server's share of the first hits behind them, as long as others match: a server
/// that stuffs its descriptions with words must not fill the page. False if there were too few others to fill it.
fn spread(ranked: &mut [Ranked]) -> bool {
    let mut first: Vec<Ranked> = Vec::with_capacity(QUOTA_WINDOW);
    let mut later = Vec::new();
    for &one in ranked.iter() {
        if first.len() == QUOTA_WINDOW {
            break;
        }
        let share = first.iter().filter(|other| other.server == one.server).count();
        if share < QUOTA { first.push(one) } else { later.push(one) }
    }
    let filled = first.len() == QUOTA_WINDOW;
    for (place, one) in ranked.iter_mut().zip(first.into_iter().chain(later)) {
        *place = one;
    }
    filled
}
