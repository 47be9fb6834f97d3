//! Semantic ranking: the best lexical hits and the nearest by vector, re-ranked with vectors of an API or with the
//! transformer on this machine. Where neither is available, the lexical ranking stands.

use std::cmp::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use metamcp_config::settings::EmbeddingSettings;
use metamcp_search::search::{BLENDED, BlendedRanker, Found, Hit, Index, Nearness, Strategy};
use metamcp_search::usage_history::Prior;
use metamcp_types::secret::Secret;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::View;
use crate::catalog::Snapshot;
use crate::clock;
use crate::compute;
use crate::env::Variables;
use crate::task;
use crate::vectors::{Document, Endpoint, Local, VOYAGE_KEY, Vectors};

/// How long a search waits for vectors; later ones serve the next search.
const VECTOR_WAIT: Duration = Duration::from_secs(2);

/// The same with `auto`, where nobody chose vectors: the ranking without them is good enough to begin with.
const AUTO_WAIT: Duration = Duration::from_millis(300);

/// The most tools that the transformer on this machine embeds within that time; a search does not wait for more.
const WORTH_WAITING: usize = 64;

/// The most missing vectors of an API that a search with lexical hits waits for.
const WORTH_FETCHING: usize = 256;

/// Most tools that get a vector from an API: each costs money and memory. Of a larger catalog only lexical hits of some
/// search get one.
const MOST_TOOLS: usize = 20_000;

/// Most catalogs whose documents are cached: the whole, and those of toolsets.
const CACHED_CATALOGS: usize = 8;

/// How queries are answered: the strategy, and what it needs at run time.
#[derive(Debug, Clone)]
pub struct Ranking {
    strategy: Strategy,
    /// The source of its vectors; `None` if it needs none, or if none is available.
    embedder: Option<Embedder>,
    /// Why it cannot rank as configured.
    unavailable: Option<String>,
}

#[derive(Debug, Clone)]
enum Embedder {
    /// The transformer on this machine.
    Local(Arc<Local>),
    /// An API, and the documents that it embeds.
    Api(Arc<Vectors>, Arc<Catalogs>),
}

impl Ranking {
    /// What is configured.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The transformer on this machine, if it may be used.
    pub fn local(&self) -> Option<&Arc<Local>> {
        match &self.embedder {
            Some(Embedder::Local(local)) => Some(local),
            _ => None,
        }
    }
}

/// Ranks the tools for one query; everything it needs has been fetched.
pub(super) struct QueryRanker {
    by: By,
    /// What was configured.
    strategy: Strategy,
    /// What could not be done as configured.
    note: Option<String>,
}

enum By {
    Own(Strategy),
    Vectors(BlendedRanker),
    Transformer(Nearness),
}

impl QueryRanker {
    /// What ranks.
    pub(super) fn strategy(&self) -> Strategy {
        match self.by {
            By::Own(strategy) => strategy,
            By::Vectors(_) => self.strategy,
            By::Transformer(_) => Strategy::Transformer,
        }
    }

    /// A note for the response: only where something was configured that could not be done.
    pub(super) fn note(&self) -> Option<&str> {
        self.note.as_deref().filter(|_| self.strategy != Strategy::Auto)
    }

    /// What the order depends on beside the catalog.
    pub(super) fn stamp(&self) -> Option<String> {
        let is_plain = self.note.is_none() && self.strategy() == self.strategy;
        // Why another ranking was taken does not change its order, and another gateway of a fleet may have another reason.
        let note = self.note.as_deref().filter(|_| !matches!(self.by, By::Own(_)));
        (!is_plain).then(|| format!("{} {}", self.strategy(), note.unwrap_or("")))
    }

    /// One page of hits. Slow where there are thousands of tools.
    pub(super) fn page(
        &self,
        index: &Index,
        query: &str,
        page: (usize, usize),
        server: Option<&str>,
        prior: Option<&Prior>,
    ) -> Found {
        match &self.by {
            By::Own(strategy) => index.page_with(query, *strategy, page.0, page.1, server, prior),
            By::Vectors(compared) => index.page_by(compared, query, page, server, None),
            By::Transformer(nearness) => index.page_by(nearness, query, page, server, prior),
        }
    }
}

impl View {
    pub(super) async fn ranker(
        &self,
        query: &str,
        server: Option<&str>,
        snapshot: &Arc<Snapshot>,
    ) -> QueryRanker {
        let ranking = &self.surface.options.ranking;
        let strategy = ranking.strategy;
        let fallback = strategy.without_vectors();
        let ranked = match &ranking.embedder {
            None => Ok((By::Own(fallback), ranking.unavailable.clone())),
            Some(Embedder::Local(local)) => {
                nearness(snapshot, query, local, strategy).await.map(|nearness| {
                    let note = (nearness.missing > 0).then(|| still_missing(nearness.missing));
                    (By::Transformer(nearness), note)
                })
            }
            Some(Embedder::Api(vectors, catalogs)) => {
                let compared = compared(snapshot, query, server, vectors, fallback, catalogs).await;
                compared.map(|(compared, missing)| {
                    let note = (missing > 0).then(|| not_fetched(missing, vectors));
                    (By::Vectors(compared), note)
                })
            }
        };
        let (by, note) = ranked.unwrap_or_else(|why| {
            (By::Own(fallback), Some(format!("ranked by {fallback} instead: {why}")))
        });
        QueryRanker { by, strategy, note }
    }
}

/// The transformer's similarity of every tool to the query; or why not.
pub(super) async fn nearness(
    snapshot: &Arc<Snapshot>,
    query: &str,
    local: &Arc<Local>,
    strategy: Strategy,
) -> Result<Nearness, String> {
    if let Some(refusal) = local.refusal() {
        return Err(refusal.to_string());
    }
    if query.trim().is_empty() {
        return Err("the query is empty".to_owned());
    }
    let mut seen = local.moves();
    let missing = {
        let (local, snapshot) = (Arc::clone(local), Arc::clone(snapshot));
        move |offers: bool| {
            let (local, snapshot) = (Arc::clone(&local), Arc::clone(&snapshot));
            compute::run(move || {
                if offers {
                    local.offer(snapshot.index());
                }
                local.missing(snapshot.index())
            })
        }
    };
    let complete = async {
        let mut left = missing(true).await;
        while left.is_ok_and(|left| (1..=WORTH_WAITING).contains(&left))
            && local.refusal().is_none()
        {
            local.moved_on(&mut seen).await;
            left = missing(false).await;
        }
    };
    // Vectors that come later serve the next search.
    let patience = if strategy == Strategy::Auto { AUTO_WAIT } else { VECTOR_WAIT };
    drop(tokio::time::timeout(patience, complete).await);
    let (local, snapshot, query) = (Arc::clone(local), Arc::clone(snapshot), query.to_owned());
    let working = compute::run(move || {
        let vectors = local.query(&query).map_err(|why| why.to_string())?;
        let tables = local.tables(snapshot.index());
        Nearness::new(&tables, &vectors)
            .ok_or_else(|| still_missing(local.missing(snapshot.index())))
    });
    working.await.map_err(|error| error.to_string())?
}

fn still_missing(tools: usize) -> String {
    let (noun, verb) = if tools == 1 { ("tool", "was") } else { ("tools", "were") };
    format!("{tools} {noun} {verb} not yet embedded by the transformer; it is working on them")
}

fn not_fetched(tools: usize, vectors: &Vectors) -> String {
    let host = vectors.endpoint().host();
    let (noun, verb) = if tools == 1 { ("tool", "has") } else { ("tools", "have") };
    format!("{tools} {noun} {verb} no vector of {host} yet; they are being fetched")
}

/// Tools and the document that the API embeds for each, in the same order.
#[derive(Debug)]
pub struct Catalog {
    hits: Vec<Hit>,
    documents: Arc<[Document]>,
}

/// Documents of the last few indexes, computed once for each.
#[derive(Debug, Default)]
pub struct Catalogs(Mutex<Vec<(Weak<Index>, Arc<Catalog>)>>);

impl Catalogs {
    fn of(&self, index: &Arc<Index>) -> Arc<Catalog> {
        let mut cached = self.0.lock();
        let own = Arc::downgrade(index);
        if let Some((_, known)) = cached.iter().find(|(other, _)| other.ptr_eq(&own)) {
            return Arc::clone(known);
        }
        let parts = index.servers().iter().filter(|_| index.tool_count() <= MOST_TOOLS);
        let hits: Vec<Hit> =
            parts.flat_map(|part| Hit::all_of(part.server(), part.tools())).collect();
        let documents = hits.iter().map(document).collect();
        let catalog = Arc::new(Catalog { hits, documents });
        cached.retain(|(other, _)| other.strong_count() > 0);
        cached.insert(0, (own, Arc::clone(&catalog)));
        cached.truncate(CACHED_CATALOGS);
        catalog
    }
}

/// The best lexical hits and the nearest by vector, ranked with the API's vectors, and how many tools have no vector
/// yet; or why not.
async fn compared(
    snapshot: &Arc<Snapshot>,
    query: &str,
    server: Option<&str>,
    vectors: &Arc<Vectors>,
    fallback: Strategy,
    catalogs: &Arc<Catalogs>,
) -> Result<(BlendedRanker, usize), String> {
    if let Some(refusal) = vectors.refusal() {
        return Err(refusal.to_string());
    }
    let by_words = {
        let (snapshot, catalogs) = (Arc::clone(snapshot), Arc::clone(catalogs));
        let (query, server) = (query.to_owned(), server.map(str::to_owned));
        let vectors = Arc::clone(vectors);
        compute::run(move || {
            let index = snapshot.index();
            let all = catalogs.of(index);
            let hits = index.search(&query, Strategy::Hybrid, BLENDED, server.as_deref());
            let documents: Vec<Document> = hits.iter().map(document).collect();
            let missing = vectors.missing(&all.documents);
            (all, hits, documents, missing)
        })
    };
    let (all, mut hits, documents, missing) = by_words.await.map_err(|error| error.to_string())?;
    let source = Arc::clone(vectors);
    // Tasks of their own: late vectors are fetched all the same, for the next search. Lexical hits come first.
    let fetching = task::spawn("embeddings", async move { source.documents(&documents).await });
    let gathering = (missing > 0).then(|| {
        let (source, wanted) = (Arc::clone(vectors), Arc::clone(&all.documents));
        task::spawn("embeddings of all", source.gather(wanted))
    });
    let is_worth_it = missing <= WORTH_FETCHING || hits.is_empty();
    let began = clock::instant();
    let both = async { tokio::join!(fetching, vectors.query(query)) };
    let (tools, wanted) = tokio::time::timeout(VECTOR_WAIT, both).await.map_err(|_| {
        format!("{} is slow; its vectors are being fetched", vectors.endpoint().host())
    })?;
    let tools = tools.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let wanted = wanted.map_err(|error| error.to_string())?;
    if let Some(gathering) = gathering.filter(|_| is_worth_it) {
        // Vectors that come later serve the next search.
        drop(tokio::time::timeout_at(began + VECTOR_WAIT, gathering).await);
    }
    if tools.iter().any(|tool| tool.len() != wanted.len()) {
        return Err(format!("{} changed its model", vectors.endpoint().host()));
    }
    let (snapshot, vectors) = (Arc::clone(snapshot), Arc::clone(vectors));
    let server = server.map(str::to_owned);
    let working = compute::run(move || {
        let mut similarity: Vec<f32> = tools.iter().map(|tool| product(tool, &wanted)).collect();
        let known = vectors.known(&all.documents);
        let missing = known.iter().filter(|vector| vector.is_none()).count();
        let is_searched = |hit: &Hit| server.as_deref().is_none_or(|server| *hit.server == *server);
        let mut near: Vec<(f32, usize)> = known
            .iter()
            .enumerate()
            .filter(|(at, _)| is_searched(&all.hits[*at]))
            .filter_map(|(at, vector)| {
                let vector = vector.as_ref().filter(|vector| vector.len() == wanted.len())?;
                Some((product(vector, &wanted), at))
            })
            .collect();
        let order = |a: &(f32, usize), b: &(f32, usize)| -> Ordering {
            b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
        };
        near.sort_unstable_by(order);
        near.truncate(BLENDED);
        for (near, at) in near {
            similarity.push(near);
            hits.push(all.hits[at].clone());
        }
        if hits.is_empty() && missing > 0 {
            return Err(not_fetched(missing, &vectors));
        }
        Ok((BlendedRanker::new(snapshot.index(), &hits, &similarity, fallback), missing))
    });
    working.await.map_err(|error| error.to_string())?
}

/// The cosine of two vectors of length one.
fn product(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

/// The document that the API embeds for a tool.
fn document(hit: &Hit) -> Document {
    let tool = hit.tool();
    let about = if tool.description.is_empty() { &tool.name } else { &tool.description };
    let text = format!("{}: {about}", tool.name);
    Document {
        server: hit.server.to_string(),
        tool: tool.name.to_string(),
        digest: Sha256::digest(text.as_bytes()).into(),
        text,
    }
}

/// The ranking as configured. Keys are read here, from the variable that was named for them and no other.
pub fn configured(
    strategy: Strategy,
    embedding: &EmbeddingSettings,
    home: &std::path::Path,
    clock: crate::clock::Clock,
    variables: &Variables,
    local: impl FnOnce() -> Arc<Local>,
) -> Ranking {
    let api = |endpoint| {
        Some(Embedder::Api(Arc::new(Vectors::new(endpoint, home, clock)), Arc::default()))
    };
    let embedder = match strategy {
        Strategy::Keyword | Strategy::Lexical | Strategy::Bm25 | Strategy::Hybrid => Ok(None),
        Strategy::Auto | Strategy::Transformer => Ok(Some(Embedder::Local(local()))),
        Strategy::HybridVoyage => voyage(variables).map(api),
        Strategy::Embedding => endpoint(embedding, variables).map(api),
    };
    let (embedder, unavailable) = match embedder {
        Ok(embedder) => (embedder, None),
        Err(why) => (None, Some(format!("ranked by {}: {why}", strategy.without_vectors()))),
    };
    Ranking { strategy, embedder, unavailable }
}

/// Voyage's API, or why it cannot be used.
fn voyage(variables: &Variables) -> Result<Endpoint, String> {
    Endpoint::voyage(key(VOYAGE_KEY, variables)?).map_err(|error| error.to_string())
}

/// The API of the settings, or why it cannot be used.
fn endpoint(embedding: &EmbeddingSettings, variables: &Variables) -> Result<Endpoint, String> {
    if embedding.url.is_empty() {
        return Err("search.embeddingUrl is not set".to_owned());
    }
    let key = match embedding.key_env.as_str() {
        "" => None,
        name => Some(key(name, variables)?),
    };
    Endpoint::at(&embedding.url, &embedding.model, key).map_err(|error| error.to_string())
}

fn key(name: &str, variables: &Variables) -> Result<Secret, String> {
    let value = variables.get(name).filter(|value| !value.is_empty());
    Ok(Secret::new(name, value.ok_or_else(|| format!("{name} is not set"))?))
}
