//! Ranking with vectors: the best of our own ranking and the nearest by vector, put in order by what an API thinks, or
//! looked at with what the transformer on this machine thinks; without either, at once, by what we think.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use metamcp_config::settings::EmbeddingSettings;
use metamcp_search::search::{BLENDED, BlendedRanker, Found, Hit, Index, Nearness, Strategy};
use metamcp_search::usage_history::Prior;
use metamcp_types::secret::Secret;
use sha2::{Digest, Sha256};

use super::View;
use crate::catalog::Snapshot;
use crate::task;
use crate::vectors::{Document, Endpoint, Local, VOYAGE_KEY, Vectors};

/// How long a search waits for vectors; what comes later serves the next search.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tools whose vectors the transformer on this machine makes within that time; for more nobody waits.
const WORTH_WAITING: usize = 64;

/// Vectors of an API that are worth waiting for when words found something already; for more nobody waits.
const WORTH_FETCHING: usize = 256;

/// Most tools that get a vector from an API: each costs money and memory. Of a larger catalog those that some search
/// found by its words get one.
const MOST_TOOLS: usize = 20_000;

/// Catalogs whose documents are kept: the whole, and what toolsets show of it.
const KEPT_CATALOGS: usize = 8;

/// How queries are answered: the strategy, and what it needs at run time.
#[derive(Debug, Clone)]
pub struct Ranking {
    strategy: Strategy,
    /// Where its vectors come from; nowhere if the index is enough for it, or if there are none to be had.
    embedder: Option<Embedder>,
    /// Why it cannot be done as configured.
    unavailable: Option<String>,
}

#[derive(Debug, Clone)]
enum Embedder {
    /// The transformer on this machine.
    Local(Arc<Local>),
    /// An API, and what is said to it about the tools there are.
    Api(Arc<Vectors>, Arc<Catalogs>),
}

impl Ranking {
    /// The transformer on this machine, if that is asked.
    pub fn local(&self) -> Option<&Arc<Local>> {
        match &self.embedder {
            Some(Embedder::Local(local)) => Some(local),
            _ => None,
        }
    }
}

impl View {
    /// One page of hits for a query, and what should be said of it.
    pub(super) async fn ranked(
        &self,
        query: &str,
        (offset, limit): (usize, usize),
        server: Option<&str>,
        snapshot: &Snapshot,
        prior: Option<&Prior>,
    ) -> (Found, Option<String>) {
        let ranking = &self.surface.options.ranking;
        let (index, page) = (&snapshot.index, (offset, limit));
        let beside = ranking.strategy.without_vectors();
        let by_vectors = match &ranking.embedder {
            None => Err(ranking.unavailable.clone()),
            Some(Embedder::Local(local)) => match nearness(index, query, local).await {
                Ok(nearness) => {
                    let note = (nearness.missing > 0).then(|| still_missing(nearness.missing));
                    Ok((index.page_by(&nearness, query, page, server, prior), note))
                }
                Err(why) => Err(Some(format!("ranked by {beside} instead: {why}"))),
            },
            Some(Embedder::Api(vectors, catalogs)) => {
                let all = catalogs.of(index);
                match compared(index, query, server, vectors, beside, &all).await {
                    Ok((compared, missing)) => {
                        let note = (missing > 0).then(|| not_fetched(missing, vectors));
                        Ok((index.page_by(&compared, query, page, server, None), note))
                    }
                    Err(why) => Err(Some(format!("ranked by {beside} instead: {why}"))),
                }
            }
        };
        by_vectors.unwrap_or_else(|why| {
            (index.page_with(query, beside, offset, limit, server, prior), why)
        })
    }
}

/// What the transformer thinks of every tool; or why not. Works elsewhere: it takes longer than calls should wait.
pub(super) async fn nearness(
    index: &Arc<Index>,
    query: &str,
    local: &Arc<Local>,
) -> Result<Nearness, String> {
    if let Some(refusal) = local.refusal() {
        return Err(refusal.to_string());
    }
    if query.trim().is_empty() {
        return Err("the query is empty".to_owned());
    }
    let mut seen = local.moves();
    local.offer(index);
    let all_there = async {
        while (1..=WORTH_WAITING).contains(&local.missing(index)) && local.refusal().is_none() {
            local.moved_on(&mut seen).await;
        }
    };
    // What is not there in time serves the next search.
    drop(tokio::time::timeout(PATIENCE, all_there).await);
    let (local, index, query) = (Arc::clone(local), Arc::clone(index), query.to_owned());
    let working = tokio::task::spawn_blocking(move || {
        let asked = local.query(&query).map_err(|why| why.to_string())?;
        let tables = local.tables(&index);
        Nearness::new(&tables, &asked).ok_or_else(|| still_missing(local.missing(&index)))
    });
    working.await.map_err(|error| error.to_string())?
}

fn still_missing(tools: usize) -> String {
    let (noun, verb) = if tools == 1 { ("tool", "was") } else { ("tools", "were") };
    format!("{tools} {noun} {verb} not yet read by the transformer, which is at work on them")
}

fn not_fetched(tools: usize, vectors: &Vectors) -> String {
    let host = vectors.endpoint().host();
    let (noun, verb) = if tools == 1 { ("tool", "has") } else { ("tools", "have") };
    format!("{tools} {noun} {verb} no vector of {host} yet; they are being fetched")
}

/// Tools and what is said to the API about each, in the same order.
#[derive(Debug)]
pub struct Catalog {
    hits: Vec<Hit>,
    documents: Arc<[Document]>,
}

/// What is said about the tools of an index is worked out once for it.
#[derive(Debug, Default)]
pub struct Catalogs(Mutex<Vec<(Weak<Index>, Arc<Catalog>)>>);

impl Catalogs {
    fn of(&self, index: &Arc<Index>) -> Arc<Catalog> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::downgrade(index);
        if let Some((_, known)) = kept.iter().find(|(other, _)| other.ptr_eq(&own)) {
            return Arc::clone(known);
        }
        let parts = index.servers().iter().filter(|_| index.tool_count() <= MOST_TOOLS);
        let hits: Vec<Hit> =
            parts.flat_map(|part| Hit::all_of(part.server(), part.tools())).collect();
        let documents = hits.iter().map(document).collect();
        let catalog = Arc::new(Catalog { hits, documents });
        kept.retain(|(other, _)| other.strong_count() > 0);
        kept.insert(0, (own, Arc::clone(&catalog)));
        kept.truncate(KEPT_CATALOGS);
        catalog
    }
}

/// The best of our own ranking and the nearest by vector, with what the API thinks of them, and how many tools it has
/// said nothing about; or why not.
async fn compared(
    index: &Index,
    query: &str,
    server: Option<&str>,
    vectors: &Arc<Vectors>,
    beside: Strategy,
    all: &Arc<Catalog>,
) -> Result<(BlendedRanker, usize), String> {
    if let Some(refusal) = vectors.refusal() {
        return Err(refusal.to_string());
    }
    let mut hits = index.search(query, Strategy::Hybrid, BLENDED, server);
    let documents: Vec<Document> = hits.iter().map(document).collect();
    let source = Arc::clone(vectors);
    // Tasks of their own: what is not there in time is fetched all the same, for the next search. Those that words
    // found come first.
    let fetching = task::spawn("embeddings", async move { source.documents(&documents).await });
    let missing = vectors.missing(&all.documents);
    let gathering = (missing > 0).then(|| {
        let (source, wanted) = (Arc::clone(vectors), Arc::clone(&all.documents));
        task::spawn("embeddings of all", source.gather(wanted))
    });
    let is_worth_it = missing <= WORTH_FETCHING || hits.is_empty();
    let began = tokio::time::Instant::now();
    let both = async { tokio::join!(fetching, vectors.query(query)) };
    let (tools, asked) = tokio::time::timeout(PATIENCE, both).await.map_err(|_| {
        format!("{} is slow; its vectors are being fetched", vectors.endpoint().host())
    })?;
    let tools = tools.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let asked = asked.map_err(|error| error.to_string())?;
    if let Some(gathering) = gathering.filter(|_| is_worth_it) {
        // What is not there in time serves the next search.
        drop(tokio::time::timeout_at(began + PATIENCE, gathering).await);
    }
    if tools.iter().any(|tool| tool.len() != asked.len()) {
        return Err(format!("{} changed its model", vectors.endpoint().host()));
    }
    let mut similarity: Vec<f32> = tools.iter().map(|tool| product(tool, &asked)).collect();
    let known = vectors.known(&all.documents);
    let missing = known.iter().filter(|vector| vector.is_none()).count();
    let all = Arc::clone(all);
    let server = server.map(str::to_owned);
    // Over thousands of tools it takes longer than calls should wait.
    let working = tokio::task::spawn_blocking(move || {
        let is_asked = |hit: &Hit| server.as_deref().is_none_or(|server| *hit.server == *server);
        let mut near: Vec<(f32, usize)> = known
            .iter()
            .enumerate()
            .filter(|(at, _)| is_asked(&all.hits[*at]))
            .filter_map(|(at, vector)| {
                let vector = vector.as_ref().filter(|vector| vector.len() == asked.len())?;
                Some((product(vector, &asked), at))
            })
            .collect();
        let order = |a: &(f32, usize), b: &(f32, usize)| -> Ordering {
            b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
        };
        near.sort_unstable_by(order);
        near.truncate(BLENDED);
        near.into_iter().map(|(near, at)| (near, all.hits[at].clone())).collect::<Vec<_>>()
    });
    for (near, hit) in working.await.map_err(|error| error.to_string())? {
        similarity.push(near);
        hits.push(hit);
    }
    if hits.is_empty() && missing > 0 {
        return Err(not_fetched(missing, vectors));
    }
    Ok((BlendedRanker::new(index, &hits, &similarity, beside), missing))
}

/// How near two vectors of length one are.
fn product(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

/// What is said to the API about a tool.
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
) -> Ranking {
    let api = |endpoint| {
        Some(Embedder::Api(Arc::new(Vectors::new(endpoint, home, clock)), Arc::default()))
    };
    let embedder = match strategy {
        Strategy::Keyword | Strategy::Lexical | Strategy::Bm25 | Strategy::Hybrid => Ok(None),
        Strategy::Transformer => Ok(Some(Embedder::Local(Arc::new(Local::new(home))))),
        Strategy::HybridVoyage => voyage().map(api),
        Strategy::Embedding => endpoint(embedding).map(api),
    };
    let (embedder, unavailable) = match embedder {
        Ok(embedder) => (embedder, None),
        Err(why) => (None, Some(format!("ranked by {}: {why}", strategy.without_vectors()))),
    };
    Ranking { strategy, embedder, unavailable }
}

/// Voyage's API, or why it cannot be asked.
fn voyage() -> Result<Endpoint, String> {
    Endpoint::voyage(key(VOYAGE_KEY)?).map_err(|error| error.to_string())
}

/// The API of the settings, or why it cannot be asked.
fn endpoint(embedding: &EmbeddingSettings) -> Result<Endpoint, String> {
    if embedding.url.is_empty() {
        return Err("search.embeddingUrl is not set".to_owned());
    }
    let key = match embedding.key_env.as_str() {
        "" => None,
        name => Some(key(name)?),
    };
    Endpoint::at(&embedding.url, &embedding.model, key).map_err(|error| error.to_string())
}

fn key(name: &str) -> Result<Secret, String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    Ok(Secret::new(name, value.ok_or_else(|| format!("{name} is not set"))?))
}
