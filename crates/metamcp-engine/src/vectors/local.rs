//! Vectors of the local transformer: those of tools are computed in the background, on a low-priority thread; those of
//! queries on demand.
//! Owns: the model in memory, the tables of vectors, that thread.      Never: ranks, downloads a model, delays a search for long.
//! In: the catalog; queries.  Out: tables, and the vectors of a query; or why there are none.
//! Tests: `vectors/local/tests.rs`, `metamcp/tests/real/model.rs`.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metamcp_search::search::{Index, IndexCacheKey, ServerIndex, Table, document};
use metamcp_search::transformer::{MINILM, Model};
use parking_lot::{Condvar, Mutex};
use sha2::{Digest, Sha256};

use super::lock;
use super::store::{Key, Remembered, Store};
use crate::change_counter::ChangeCounter;
use crate::clock::{self, unix_millis};
use crate::compute::step_aside;
use crate::model::{IDENTITY, ModelFile};

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;

/// Vectors written to disk and published to searches at once.
const FLUSH_ROWS: usize = 16;

/// Models tend to repeat queries within a conversation.
const MAX_QUERIES: usize = 128;

/// Tools with vectors in memory, 1.5 KB each; beyond it those that are not in the last catalog are dropped.
const MAX_TOOLS: usize = 100_000;

/// The longest a vector waits to be written: also a short-lived command shall leave something for the next.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);

/// The transformer of one home, shared by all searches. Its thread ends with it, after the current tool.
#[derive(Debug)]
pub struct Local {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: ModelFile,
    model: Mutex<State>,
    tables: Mutex<HashMap<[u8; 32], Arc<Table>>>,
    queries: Mutex<VecDeque<CachedQuery>>,
    store: Store,
    wanted: Mutex<Wanted>,
    called: Condvar,
    /// Changes whenever a table has more vectors, or the thread has given up.
    moved: ChangeCounter,
}

/// The text of a query and the vectors of its sentences.
type CachedQuery = (Box<str>, Arc<Vec<Vec<f32>>>);

#[derive(Debug)]
enum State {
    Untried,
    Ready(Arc<Model>),
    /// With the file's time, if there was a file: a newer one is tried.
    Unusable(Arc<str>, Option<u64>),
}

/// The work of the thread.
#[derive(Debug, Default)]
struct Wanted {
    parts: Option<Vec<Arc<ServerIndex>>>,
    /// The current work: a search that needs the same does not restart it.
    under_way: Vec<[u8; 32]>,
    is_running: bool,
    is_over: bool,
}

impl Local {
    /// The transformer under `home`. Reads nothing yet.
    pub fn new(home: &Path) -> Local {
        let shared = Shared {
            file: ModelFile::new(home),
            model: Mutex::new(State::Untried),
            tables: Mutex::default(),
            queries: Mutex::default(),
            store: Store::new(home),
            wanted: Mutex::default(),
            called: Condvar::new(),
            moved: ChangeCounter::default(),
        };
        Local { shared: Arc::new(shared) }
    }

    /// Why it cannot be used now, as far as is known without reading the model.
    pub fn refusal(&self) -> Option<Arc<str>> {
        self.shared.refusal()
    }

    /// Queues the missing vectors of these tools. Returns at once.
    pub fn offer(&self, index: &Index) {
        if self.missing(index) == 0 || self.refusal().is_some() {
            return;
        }
        let mut wanted = lock(&self.shared.wanted);
        let cache_keys = index.servers().iter().map(|part| part.cache_key().0);
        if wanted.parts.is_none() && cache_keys.eq(wanted.under_way.iter().copied()) {
            return;
        }
        wanted.parts = Some(index.servers().to_vec());
        if !wanted.is_running {
            wanted.is_running = true;
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("transformer".to_owned());
            if let Err(error) = thread.spawn(move || shared.work()) {
                wanted.is_running = false;
                tracing::warn!("the transformer's thread could not be started: {error}");
            }
        }
        drop(wanted);
        self.shared.called.notify_one();
    }

    pub fn missing(&self, index: &Index) -> usize {
        self.tables(index).iter().map(|table| table.missing().count()).sum()
    }

    pub fn tables(&self, index: &Index) -> Vec<Arc<Table>> {
        let tables = lock(&self.shared.tables);
        let own = index.servers().iter().map(|part| match tables.get(&part.cache_key().0) {
            Some(table) => Arc::clone(table),
            None => Arc::new(Table::new(part.tools().tools.len(), MINILM.width)),
        });
        own.collect()
    }

    /// Waits until the tables have more vectors, or will get no more.
    pub async fn moved_on(&self, seen: &mut u64) {
        self.shared.moved.moved_on(seen).await;
    }

    pub fn moves(&self) -> u64 {
        self.shared.moved.now()
    }

    /// The vectors of a query. Takes milliseconds, plus the loading of the model the first time: not on a runtime thread.
    pub fn query(&self, text: &str) -> Result<Arc<Vec<Vec<f32>>>, Arc<str>> {
        let known = |queries: &VecDeque<CachedQuery>| {
            queries.iter().find(|(words, _)| **words == *text).map(|(_, own)| Arc::clone(own))
        };
        if let Some(known) = known(&lock(&self.shared.queries)) {
            return Ok(known);
        }
        let vectors = Arc::new(self.shared.model()?.asked(text));
        let mut queries = lock(&self.shared.queries);
        queries.push_front((text.into(), Arc::clone(&vectors)));
        queries.truncate(MAX_QUERIES);
        Ok(vectors)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        lock(&self.shared.wanted).is_over = true;
        self.shared.called.notify_one();
    }
}

impl Shared {
    /// The model; loaded if it was not, or if the file changed since it could not be used.
    fn model(&self) -> Result<Arc<Model>, Arc<str>> {
        let mut state = lock(&self.model);
        match &*state {
            State::Ready(model) => return Ok(Arc::clone(model)),
            State::Unusable(why, since) if *since == self.file.since_ms() => {
                return Err(Arc::clone(why));
            }
            State::Untried | State::Unusable(..) => {}
        }
        let since = self.file.since_ms();
        match self.file.load() {
            Ok(model) => {
                let model = Arc::new(model);
                *state = State::Ready(Arc::clone(&model));
                Ok(model)
            }
            Err(error) => {
                let why: Arc<str> = error.to_string().into();
                *state = State::Unusable(Arc::clone(&why), since);
                Err(why)
            }
        }
    }

    fn refusal(&self) -> Option<Arc<str>> {
        let state = self.model.try_lock()?;
        match &*state {
            State::Unusable(why, since) if *since == self.file.since_ms() => Some(Arc::clone(why)),
            State::Untried if self.file.since_ms().is_none() => {
                drop(state);
                // Produces the same error text as every other time.
                self.model().err()
            }
            _ => None,
        }
    }

    /// The thread: computes what is queued, then waits for more.
    fn work(&self) {
        step_aside();
        loop {
            let parts = {
                let mut wanted = lock(&self.wanted);
                while wanted.parts.is_none() && !wanted.is_over {
                    self.called.wait(&mut wanted);
                }
                if wanted.is_over {
                    return;
                }
                let parts = wanted.parts.take().unwrap_or_default();
                wanted.under_way = parts.iter().map(|part| part.cache_key().0).collect();
                parts
            };
            self.forget_others(&parts);
            for part in &parts {
                if !self.fill(part) {
                    break;
                }
            }
            lock(&self.wanted).under_way.clear();
            self.moved.step();
        }
    }

    /// Brings one server's table up to date. False if there is newer work, or nothing can be done.
    fn fill(&self, part: &ServerIndex) -> bool {
        let IndexCacheKey(cache_key) = part.cache_key();
        let tools = &part.tools().tools;
        let mut table = match lock(&self.tables).get(&cache_key) {
            Some(table) => Table::clone(table),
            None => Table::new(tools.len(), MINILM.width),
        };
        let missing: Vec<usize> = table.missing().collect();
        if missing.is_empty() {
            return true;
        }
        let texts: Vec<String> =
            missing.iter().map(|&tool| document(part.server(), &tools[tool])).collect();
        let keys: Vec<Key> = missing
            .iter()
            .zip(&texts)
            .map(|(&tool, text)| Key {
                server: part.server().to_string(),
                tool: tools[tool].name.to_string(),
                digest: Sha256::digest(text.as_bytes()).into(),
            })
            .collect();
        for (&tool, vector) in missing.iter().zip(self.store.read(IDENTITY, &keys, unix_millis())) {
            if let Some(vector) = vector {
                table.set(tool, &vector);
            }
        }
        self.show(cache_key, &table);
        let (mut rows, mut flushed) = (Vec::new(), clock::std_instant());
        let absent: Vec<usize> = table.missing().collect();
        let all = missing.into_iter().zip(texts.into_iter().zip(keys));
        for (tool, (text, key)) in all.filter(|(tool, _)| absent.binary_search(tool).is_ok()) {
            // Checked after each one: neither shutdown nor a new catalog waits for the whole.
            let wanted = lock(&self.wanted);
            let (is_over, is_newer) = (wanted.is_over, wanted.parts.is_some());
            drop(wanted);
            if is_over || is_newer {
                self.keep(cache_key, &table, &mut rows);
                return false;
            }
            let Ok(model) = self.model() else { return false };
            let vector: Arc<[f32]> = model.tool(&text).into();
            table.set(tool, &vector);
            rows.push(Remembered { key, text, vector });
            if rows.len() == FLUSH_ROWS || flushed.elapsed() >= FLUSH_INTERVAL {
                self.keep(cache_key, &table, &mut rows);
                flushed = clock::std_instant();
            }
        }
        self.keep(cache_key, &table, &mut rows);
        true
    }

    fn keep(&self, cache_key: [u8; 32], table: &Table, rows: &mut Vec<Remembered>) {
        if !rows.is_empty() {
            self.store.write(IDENTITY, rows, unix_millis());
            rows.clear();
            self.show(cache_key, table);
        }
    }

    fn show(&self, cache_key: [u8; 32], table: &Table) {
        lock(&self.tables).insert(cache_key, Arc::new(table.clone()));
        self.moved.step();
    }

    fn forget_others(&self, parts: &[Arc<ServerIndex>]) {
        let mut tables = lock(&self.tables);
        if tables.values().map(|table| table.tools()).sum::<usize>() > MAX_TOOLS {
            tables.retain(|cache_key, _| parts.iter().any(|part| part.cache_key().0 == *cache_key));
        }
    }
}
