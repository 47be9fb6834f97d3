//! Embeddings of tools and queries, from an HTTP API or a local transformer, cached in memory and on disk.
//! Owns: the choice of API and key, its rate; `catalog.db`.      Never: ranks, waits for a dead API, prints a key.
//! In: texts with their digest.  Out: unit vectors, or at once why there are none.
//! Tests: beside each part, `vectors/tests.rs` and `vectors/store/tests.rs`.

mod answer;
mod async_store;
mod batch;
mod client;
mod endpoint;
mod local;
mod pause;
mod store;
mod unavailable;
mod vector_cache;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metamcp_types::text;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

use crate::clock::{Clock, unix_millis};
use crate::compute;
use answer::MAX_TEXTS;
use async_store::AsyncStore;
use batch::{Batch, batches};
use client::{Bounds, Client, Failed};
use endpoint::Purpose;
use pause::{Pause, Permit, Refusal};
use store::{Key, Remembered};
use vector_cache::VectorCache;

pub use endpoint::{Endpoint, EndpointError, VOYAGE_KEY};
pub use local::Local;
pub use unavailable::{Failure, Unavailable};

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;

/// More text of a query adds nothing.
const MAX_QUERY_CHARS: usize = 2_000;
/// Concurrent requests. Documents use one of them, so that the other is free for a search.
const MAX_REQUESTS: usize = 2;
/// Larger responses are parsed on another thread: a megabyte of numbers takes milliseconds.
const MAX_INLINE_PARSE: usize = 64 * 1024;
/// Documents looked up under one lock, before other threads get their turn.
const LOOKUP_CHUNK: usize = 256;

/// The text of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub server: String,
    pub tool: String,
    pub digest: [u8; 32],
    pub text: String,
}

/// The embeddings of one API, shared by all searches.
#[derive(Debug)]
pub struct Vectors {
    endpoint: Endpoint,
    client: Client,
    clock: Clock,
    pause: Mutex<Pause>,
    vector_cache: Mutex<VectorCache>,
    async_store: AsyncStore,
    requests: Semaphore,
    documents: Semaphore,
    gathering: tokio::sync::Mutex<()>,
    /// Texts in one request; reduced if the API is too slow.
    batch: AtomicUsize,
    bounds: fn(Purpose) -> Bounds,
}

impl Vectors {
    /// Embeddings from `endpoint`, cached under `home`. Touches neither yet.
    pub fn new(endpoint: Endpoint, home: &Path, clock: Clock) -> Vectors {
        Vectors {
            endpoint,
            client: Client::new(),
            clock,
            pause: Mutex::new(Pause::default()),
            vector_cache: Mutex::new(VectorCache::new()),
            async_store: AsyncStore::new(home),
            requests: Semaphore::new(MAX_REQUESTS),
            documents: Semaphore::new(1),
            gathering: tokio::sync::Mutex::default(),
            batch: AtomicUsize::new(MAX_TEXTS),
            bounds: client::bounds,
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What is or was last wrong with the file on disk, for display.
    pub fn store_note(&self) -> Option<String> {
        self.async_store.note()
    }

    /// Why a request would be refused now, without making one.
    pub fn refusal(&self) -> Option<Unavailable> {
        let refusal = lock(&self.pause).refusal(self.clock.now())?;
        Some(self.refused(refusal))
    }

    /// How many of these are not in memory, so that [`Vectors::documents`] would have to fetch them.
    pub fn missing(&self, wanted: &[Document]) -> usize {
        let missing = |some: &[Document]| {
            let vector_cache = lock(&self.vector_cache);
            some.iter().filter(|document| !vector_cache.holds(&document.digest)).count()
        };
        wanted.chunks(LOOKUP_CHUNK).map(missing).sum()
    }

    /// Those in memory, in the order of `wanted`, without any request.
    pub fn known(&self, wanted: &[Document]) -> Vec<Option<Arc<[f32]>>> {
        let mut known = Vec::with_capacity(wanted.len());
        for some in wanted.chunks(LOOKUP_CHUNK) {
            let mut vector_cache = lock(&self.vector_cache);
            known.extend(some.iter().map(|document| vector_cache.tool(&document.digest)));
        }
        known
    }

    /// Fetches the missing ones in the background. One such job at a time, since the next one finds in memory what the first
    /// fetched. Returns when there is nothing more to wait for.
    pub async fn gather(self: Arc<Self>, wanted: Arc<[Document]>) {
        if let Ok(_turn) = self.gathering.try_lock() {
            // A failure is reported by the search that runs into it.
            drop(self.documents(&wanted).await);
        } else {
            drop(self.gathering.lock().await);
        }
    }

    /// One unit vector for each document, all of the same length. From memory, from disk, and from the API in batches, each
    /// with its own deadline, so too slow for a search to wait on. What was found before a failure is cached, so that the
    /// next call requests only the rest.
    ///
    /// When a model changed under the same name, its vectors may have another length than earlier ones;
    /// [`Vectors::missing`] then counts those again.
    pub async fn documents(&self, wanted: &[Document]) -> Result<Vec<Arc<[f32]>>, Unavailable> {
        let mut found = HashMap::with_capacity(wanted.len());
        if let Some(all) = self.recall(wanted, &mut found) {
            return Ok(all);
        }
        // One at a time: the second finds in memory what the first fetched.
        let _permit = self.documents.acquire().await;
        // Twice: if the API shows that the cached ones are of an older model, all are fetched.
        for _ in 0..2 {
            self.recall(wanted, &mut found);
            self.look_up(&absent(wanted, &found), &mut found).await;
            self.fetch(&absent(wanted, &found), &mut found).await?;
            let vector_cache = lock(&self.vector_cache);
            found.retain(|_, vector| vector_cache.fits(vector.len()));
            drop(vector_cache);
            if let Some(all) = all(wanted, &found) {
                return Ok(all);
            }
        }
        Err(self.unavailable(Failure::Malformed, Duration::ZERO))
    }

    /// The vector of a query. Returns within two seconds, and at once while the API is backing off.
    pub async fn query(&self, text: &str) -> Result<Arc<[f32]>, Unavailable> {
        let text = text::cut(text.trim(), MAX_QUERY_CHARS);
        if text.is_empty() {
            return Err(self.unavailable(Failure::EmptyQuery, Duration::ZERO));
        }
        if let Some(known) = lock(&self.vector_cache).query(&text) {
            return Ok(known);
        }
        let vectors = self.request(Purpose::Query, &[&text], false).await?;
        let vector = vectors.into_iter().next().expect("as many vectors as texts were checked");
        lock(&self.vector_cache).keep_query(&text, &vector);
        Ok(vector)
    }

    fn recall(&self, wanted: &[Document], found: &mut Found) -> Option<Vec<Arc<[f32]>>> {
        let mut vector_cache = lock(&self.vector_cache);
        for document in wanted {
            if let Some(vector) = vector_cache.tool(&document.digest) {
                found.insert(document.digest, vector);
            }
        }
        drop(vector_cache);
        all(wanted, found)
    }

    async fn look_up(&self, absent: &[&Document], found: &mut Found) {
        if absent.is_empty() {
            return;
        }
        let keys: Vec<Key> = absent.iter().map(|document| key(document)).collect();
        let model = self.endpoint.identity();
        let read = move |store: &store::Store| {
            let vectors = store.read(&model, &keys, unix_millis());
            keys.into_iter().zip(vectors).collect::<Vec<_>>()
        };
        let rows = self.async_store.with(read).await.unwrap_or_default();
        let mut vector_cache = lock(&self.vector_cache);
        for (key, vector) in rows {
            if let Some(vector) = vector.filter(|vector| vector_cache.remember(key.digest, vector))
            {
                found.insert(key.digest, vector);
            }
        }
    }

    async fn fetch(&self, absent: &[&Document], found: &mut Found) -> Result<(), Unavailable> {
        let mut waiting: VecDeque<Batch<'_>> =
            batches(absent, self.batch.load(Ordering::Relaxed)).into();
        while let Some(batch) = waiting.pop_front() {
            let texts: Vec<Cow<'_, str>> =
                batch.documents.iter().map(|document| batch.text(document)).collect();
            let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
            let smaller = batch.smaller();
            match self.request(Purpose::Document, &texts, !smaller.is_empty()).await {
                Ok(vectors) => self.keep(&batch.documents, vectors, found).await,
                // One text that the API refuses must not cost the others their vectors.
                Err(Unavailable { failure: Failure::Refused { .. }, .. })
                    if !smaller.is_empty() =>
                {
                    for batch in smaller.into_iter().rev() {
                        waiting.push_front(batch);
                    }
                }
                Err(unavailable) => {
                    if let Failure::TimedOut { .. } = unavailable.failure {
                        // Perhaps it was only too much at once.
                        self.batch.store((texts.len() / 2).max(1), Ordering::Relaxed);
                    }
                    return Err(unavailable);
                }
            }
        }
        Ok(())
    }

    async fn keep(&self, documents: &[&Document], vectors: Vec<Arc<[f32]>>, found: &mut Found) {
        let mut rows = Vec::with_capacity(documents.len());
        {
            let mut vector_cache = lock(&self.vector_cache);
            for (document, vector) in documents.iter().zip(vectors) {
                vector_cache.keep(document.digest, &vector);
                found.insert(document.digest, vector.clone());
                rows.push(Remembered { key: key(document), text: document.text.clone(), vector });
            }
        }
        let model = self.endpoint.identity();
        self.async_store.with(move |store| store.write(&model, &rows, unix_millis())).await;
    }

    /// Sends a request. With `split` the caller will retry with less when it is refused, so that a refusal is not yet a
    /// failure.
    async fn request(
        &self,
        purpose: Purpose,
        texts: &[&str],
        split: bool,
    ) -> Result<Vec<Arc<[f32]>>, Unavailable> {
        if let Some(refused) = self.refusal() {
            return Err(refused);
        }
        let bounds = (self.bounds)(purpose);
        let started = self.clock.now();
        let slot = tokio::time::timeout(bounds.time, self.requests.acquire()).await;
        let Ok(Ok(_slot)) = slot else {
            return Err(self.unavailable(Failure::Busy, Duration::ZERO));
        };
        let admitted = lock(&self.pause).admit(self.clock.now());
        let permit = admitted.map_err(|refusal| self.refused(refusal))?;
        let asking = InFlight { pause: &self.pause, permit: Some(permit) };
        let left = bounds.time.saturating_sub(self.clock.now().since(started));
        match self.exchange(purpose, texts, Bounds { time: left, ..bounds }).await {
            Ok(vectors) => {
                asking.answered();
                Ok(vectors)
            }
            Err(Failed { failure: failure @ Failure::Refused { .. }, .. }) if split => {
                Err(self.unavailable(failure, Duration::ZERO))
            }
            Err(Failed { mut failure, retry_after }) => {
                if let Failure::TimedOut { limit } = &mut failure {
                    *limit = bounds.time;
                }
                let pause = asking.failed(failure.clone(), retry_after, self.clock);
                Err(self.unavailable(failure, pause))
            }
        }
    }

    async fn exchange(
        &self,
        purpose: Purpose,
        texts: &[&str],
        bounds: Bounds,
    ) -> Result<Vec<Arc<[f32]>>, Failed> {
        let body = self.endpoint.body(texts, purpose);
        let answer = self.client.post(&self.endpoint, body, bounds).await?;
        let (form, asked) = (self.endpoint.form(), texts.len());
        let vectors = if answer.len() <= MAX_INLINE_PARSE {
            answer::read(form, &answer, asked)?
        } else {
            let read = compute::run(move || answer::read(form, &answer, asked));
            read.await.unwrap_or(Err(Failure::Malformed))?
        };
        let length = vectors.first().map_or(0, |vector| vector.len());
        lock(&self.vector_cache).answered(length)?;
        Ok(vectors)
    }

    fn refused(&self, refusal: Refusal) -> Unavailable {
        self.unavailable(refusal.failure, refusal.retry_in)
    }

    fn unavailable(&self, failure: Failure, retry_in: Duration) -> Unavailable {
        Unavailable { host: self.endpoint.host().to_owned(), failure, retry_in }
    }
}

/// Vectors by the digest of their text.
type Found = HashMap<[u8; 32], Arc<[f32]>>;

/// A request in flight. If it is dropped without a result, because nobody waits any more, its slot is freed.
struct InFlight<'a> {
    pause: &'a Mutex<Pause>,
    permit: Option<Permit>,
}

impl InFlight<'_> {
    fn answered(mut self) {
        if let Some(permit) = self.permit.take() {
            lock(self.pause).answered(&permit);
        }
    }

    fn failed(mut self, failure: Failure, retry_after: Option<Duration>, clock: Clock) -> Duration {
        match self.permit.take() {
            Some(permit) => lock(self.pause).failed(&permit, failure, retry_after, clock.now()),
            None => Duration::ZERO,
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            lock(self.pause).abandoned(&permit);
        }
    }
}

/// The documents without a vector yet, each text once.
fn absent<'a>(wanted: &'a [Document], found: &Found) -> Vec<&'a Document> {
    let mut seen = HashSet::new();
    wanted
        .iter()
        .filter(|document| !found.contains_key(&document.digest) && seen.insert(document.digest))
        .collect()
}

fn all(wanted: &[Document], found: &Found) -> Option<Vec<Arc<[f32]>>> {
    wanted.iter().map(|document| found.get(&document.digest).cloned()).collect()
}

fn key(document: &Document) -> Key {
    Key { server: document.server.clone(), tool: document.tool.clone(), digest: document.digest }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The state behind these locks is valid between any two statements, also after a panic.
    mutex.lock()
}
