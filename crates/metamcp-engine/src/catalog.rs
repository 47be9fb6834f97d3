//! What is known of every server's tools, live or cached, as one snapshot that is replaced atomically.
//! Owns: the snapshot, the index, the digest, the schema cache.      Never: starts a server, waits for one.
//! In: lists of tools.  Out: `Snapshot`s.
//! Tests: `catalog/tests.rs`, `catalog/schema_cache/tests.rs`, `metamcp/tests/`.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use metamcp_config::config::ServerConfig;
use metamcp_search::search::{About, CachedTokenizer, Index, IndexCacheKey, ServerIndex, Tuning};
use metamcp_surface::discover::{self, DigestLine};
use metamcp_tools::overrides::{self, Misfit};
use metamcp_tools::tool::{Fingerprint, ServerTools, Tool};
use metamcp_types::moment::Moment;
use metamcp_wire::handshake::Peer;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::change_counter::ChangeCounter;
use crate::clock::unix_millis;
use crate::compute;
use crate::provision::Pinned;
use crate::task;
use crate::upstream::server_cache::fingerprint;

mod narrowed;
pub mod schema_cache;
mod shared;

pub use narrowed::Narrowed;
use schema_cache::{SchemaCache, Server, Written};
pub use shared::Received;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;

/// Most threads that read and index the cache: it happens once, while other programs start too.
const MAX_THREADS: usize = 4;

/// How long shutdown waits for cache writes.
const FINAL_WRITES_TIMEOUT: Duration = Duration::from_millis(500);

/// Servers for each thread: fewer are not worth one.
const SERVERS_PER_THREAD: usize = 16;

/// A configured server, as a key of what is known of its tools. Several processes may serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefinitionId(pub u64);

/// The known tools of one server.
#[derive(Debug, Clone)]
pub struct Known {
    pub tools: Arc<ServerTools>,
    by_name: Arc<HashMap<Box<str>, usize>>,
    /// When the live server last listed them; `None` while they come from the cache.
    pub listed_at: Option<Moment>,
    /// When they were cached, in milliseconds since 1970, if they come from there.
    saved_at: Option<u64>,
}

impl Known {
    fn new(tools: Arc<ServerTools>, listed_at: Option<Moment>) -> Known {
        let all = tools.tools.iter().chain(&tools.for_apps);
        let by_name = all.enumerate().map(|(at, tool)| (tool.name.clone(), at)).collect();
        Known { tools, by_name: Arc::new(by_name), listed_at, saved_at: None }
    }

    /// Whether invalid arguments can be refused by this list, without listing the tools again: it comes from the live server
    /// or from a fresh cache.
    pub fn is_recent(&self, now_ms: u64) -> bool {
        let is_young = |at: u64| {
            let age = Duration::from_millis(now_ms.saturating_sub(at));
            at <= now_ms && age < schema_cache::TIME_TO_LIVE
        };
        self.listed_at.is_some() || self.saved_at.is_some_and(is_young)
    }

    /// The tool of that name, if models may use it.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.tools.get(*self.by_name.get(name)?)
    }

    /// The tool of that name, also if only its server's own UI may use it.
    pub fn any_tool(&self, name: &str) -> Option<&Tool> {
        let at = *self.by_name.get(name)?;
        let for_apps = || self.tools.for_apps.get(at - self.tools.tools.len());
        self.tools.tools.get(at).or_else(for_apps)
    }
}

/// The whole catalog at one moment.
#[derive(Debug)]
pub struct Snapshot {
    known: HashMap<DefinitionId, Known>,
    /// Why the last listing of a server's tools failed.
    failed: HashMap<DefinitionId, Arc<ListFailure>>,
    index: Arc<LazyIndex>,
    /// Changes when the content of the catalog changes, and only then.
    pub generation: u64,
}

/// An index that is built by the first search.
type LazyIndex = LazyLock<Arc<Index>, Box<dyn FnOnce() -> Arc<Index> + Send>>;

fn ready(index: Arc<Index>) -> Arc<LazyIndex> {
    Arc::new(LazyLock::new(Box::new(move || index)))
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        let (known, failed) = (HashMap::new(), HashMap::new());
        Snapshot { known, failed, index: ready(Arc::default()), generation: 0 }
    }
}

impl Snapshot {
    /// The search index. For a narrowed catalog this may build it, so not on the thread that relays calls.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    pub fn known(&self, server: DefinitionId) -> Option<&Known> {
        self.known.get(&server)
    }

    /// A hash of the content.
    pub fn digest(&self) -> u64 {
        self.known.iter().fold(0, |all, known| {
            let mut hasher = DefaultHasher::new();
            (known.0, known.1.tools.fingerprint).hash(&mut hasher);
            all ^ hasher.finish()
        })
    }

    /// Why the last listing of its tools failed.
    pub fn failure(&self, server: DefinitionId) -> Option<&Arc<ListFailure>> {
        self.failed.get(&server)
    }
}

/// Why a running server did not list its tools, as text that follows its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFailure {
    words: String,
    /// The code and message of its error response, if there was one.
    pub error: Option<(i64, String)>,
}

impl ListFailure {
    pub fn refused(code: i64, message: String) -> ListFailure {
        let words = format!("answered tools/list with error {code}: {message}");
        ListFailure { words, error: Some((code, message)) }
    }
}

impl From<String> for ListFailure {
    fn from(words: String) -> ListFailure {
        ListFailure { words, error: None }
    }
}

impl std::fmt::Display for ListFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

#[derive(Debug)]
pub struct Catalog {
    snapshot: RwLock<Arc<Snapshot>>,
    /// The parts of the index. Locked while an index is built, so never locked by the thread that relays calls.
    parts: Mutex<HashMap<DefinitionId, Arc<ServerIndex>>>,
    configs: Mutex<HashMap<DefinitionId, Arc<ServerConfig>>>,
    /// Tools that changed since they were approved, and are hidden until somebody accepts them. Has its own lock: every call
    /// reads it, and must not wait for an index.
    blocked: RwLock<HashMap<DefinitionId, BTreeSet<String>>>,
    /// What of overrides fits nothing, in words.
    misfits: RwLock<HashMap<DefinitionId, Vec<String>>>,
    /// Tools of servers with overrides as they were first seen.
    overridden: Mutex<HashMap<DefinitionId, HashMap<Box<str>, Fingerprint>>>,
    cache: Option<SchemaCache>,
    /// Cache writes under way.
    writes: Mutex<Vec<JoinHandle<()>>>,
    loaded: ChangeCounter,
    /// Servers that have listed something new, of which other gateways of a fleet have not heard.
    unshared: Mutex<BTreeSet<DefinitionId>>,
    listed_news: Notify,
    digest: OnceLock<Digest>,
    ttl: Duration,
    tuning: Tuning,
    /// The pinned tools of installed servers.
    pinned: Option<Arc<Pinned>>,
}

/// The summary of servers for `initialize`, as a whole and line by line.
#[derive(Debug)]
struct Digest {
    all: String,
    /// Name, the operator's description, what the server or its tools say.
    lines: Vec<(String, Option<String>, Option<String>)>,
}

/// How much of the cache has been read.
#[derive(Debug, Clone, Copy)]
enum Loaded {
    Titles = 1,
    Everything,
}

impl Catalog {
    /// An empty catalog; `cache` stores lists across runs.
    pub fn new(cache: Option<SchemaCache>, ttl: Duration) -> Catalog {
        Catalog {
            snapshot: RwLock::default(),
            parts: Mutex::default(),
            configs: Mutex::default(),
            blocked: RwLock::default(),
            misfits: RwLock::default(),
            overridden: Mutex::default(),
            cache,
            writes: Mutex::default(),
            loaded: ChangeCounter::default(),
            unshared: Mutex::default(),
            listed_news: Notify::new(),
            digest: OnceLock::new(),
            ttl,
            tuning: Tuning::default(),
            pinned: None,
        }
    }

    /// The same catalog with other search parameters.
    #[must_use]
    pub fn tuned(self, tuning: Tuning) -> Catalog {
        Catalog { tuning, ..self }
    }

    /// The same catalog with the pinned tools of installed servers.
    #[must_use]
    pub fn pinned(mut self, pinned: Arc<Pinned>) -> Catalog {
        self.pinned = Some(pinned);
        self
    }

    /// Whether a tool changed since it was approved, and waits for somebody to accept it.
    pub fn is_blocked(&self, server: DefinitionId, tool: &str) -> bool {
        let blocked = self.blocked.read();
        blocked.get(&server).is_some_and(|tools| tools.contains(tool))
    }

    /// Adds a server whose tools may become known.
    pub fn add(&self, server: DefinitionId, config: Arc<ServerConfig>) {
        self.configs().insert(server, config);
    }

    /// Applies added, changed and removed servers: forgets their old tools and reads the cache of the current ones. The digest
    /// stays the same, because a model must not see its list of tools change.
    pub async fn reconfigure(
        self: &Arc<Self>,
        changed: Vec<(DefinitionId, Arc<ServerConfig>)>,
        removed: &[DefinitionId],
    ) {
        let gone: Vec<DefinitionId> =
            changed.iter().map(|(server, _)| *server).chain(removed.iter().copied()).collect();
        {
            let mut configs = self.configs();
            configs.retain(|server, _| !gone.contains(server));
            configs.extend(changed.iter().map(|(id, config)| (*id, Arc::clone(config))));
        }
        let then = self.snapshot();
        let catalog = Arc::clone(self);
        blocking(move || {
            catalog.forget(&gone, &then);
            let enabled: Vec<_> =
                changed.into_iter().filter(|(_, config)| config.is_enabled()).collect();
            let built = catalog.cached(&enabled);
            let made = made(&built);
            catalog.publish(built, None);
            for server in made {
                catalog.keep(server);
            }
        })
        .await;
    }

    /// Forgets these servers, unless they listed their tools after `then`.
    fn forget(&self, gone: &[DefinitionId], then: &Snapshot) {
        let mut parts = self.parts();
        let before = self.snapshot();
        let (mut known, mut failed) = (before.known.clone(), before.failed.clone());
        for server in gone {
            let tools = |of: &Snapshot| of.known(*server).map(|known| Arc::as_ptr(&known.tools));
            if tools(&before) == tools(then) {
                known.remove(server);
                parts.remove(server);
            }
            let failure = |of: &Snapshot| of.failure(*server).map(Arc::as_ptr);
            if failure(&before) == failure(then) {
                failed.remove(server);
            }
        }
        let index = ready(self.indexed(&parts));
        self.swap(Snapshot { known, failed, index, generation: before.generation + 1 });
    }

    fn indexed(&self, parts: &HashMap<DefinitionId, Arc<ServerIndex>>) -> Arc<Index> {
        Arc::new(Index::tuned(parts.values().cloned().collect(), self.tuning))
    }

    /// Reads the cache again: if another gateway has listed these servers meanwhile, they need not be started here.
    pub async fn look_again(self: &Arc<Self>, servers: &[DefinitionId]) {
        let configs: Vec<_> = {
            let all = self.configs();
            let config = |id: &DefinitionId| Some((*id, Arc::clone(all.get(id)?)));
            servers.iter().filter_map(config).collect()
        };
        if self.cache.is_none() || configs.is_empty() {
            return;
        }
        let catalog = Arc::clone(self);
        blocking(move || {
            let built = catalog.cached(&configs);
            if !built.is_empty() {
                catalog.publish(built, None);
            }
        })
        .await;
    }

    /// The cached tools of these servers.
    fn cached(&self, configs: &[(DefinitionId, Arc<ServerConfig>)]) -> Vec<Built> {
        let Some(cache) = self.cache.as_ref().map(SchemaCache::opened) else { return Vec::new() };
        on_all_cores(configs, |tokenizer, (id, config)| {
            let made_by = fingerprint(config);
            let found = cache.read(cache_key(config, &made_by), unix_millis()).ok()?.found()?;
            let saved_at = Some(found.header.saved_at);
            let blocked = self.blocked(*id, config, &found.tools, false);
            let (tools, misfits) = permitted(Arc::new(found.tools), config, &blocked);
            self.keep_misfits(*id, config, &misfits);
            let cache_key = IndexCacheKey::new(&config.name, about(config), &tools, &self.tuning);
            let kept = cache.read_part(&config.name, &cache_key);
            let part = kept
                .and_then(|kept| ServerIndex::from_bytes(cache_key, &config.name, &tools, &kept));
            let part = part.map(Arc::new);
            Some(match part {
                Some(part) => Built { server: *id, tools, part, is_cached: true, saved_at },
                None => {
                    let built = Built::new(*id, config, tools, tokenizer, &self.tuning);
                    Built { saved_at, ..built }
                }
            })
        })
    }

    /// Caches a server's part of the index for the next start.
    fn keep(&self, server: DefinitionId) {
        let part = self.parts().get(&server).cloned();
        let (Some(cache), Some(part)) = (&self.cache, part) else { return };
        // Without it the next start only takes a little longer.
        drop(cache.write_part(part.server(), &part.cache_key(), &part.to_bytes(), unix_millis()));
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    /// Whether a list has to be read again before it is used.
    pub fn is_old(&self, known: &Known, now: Moment) -> bool {
        known.listed_at.is_none_or(|at| now.since(at) >= self.ttl)
    }

    /// Waits until the cache has been read.
    pub async fn loaded(&self) {
        self.reached(Loaded::Everything).await;
    }

    async fn reached(&self, stage: Loaded) {
        self.loaded.reached(stage as u64).await;
    }

    /// One line per server, constant while this process runs: a model must not see its list of tools change.
    pub async fn digest(&self) -> &str {
        self.reached(Loaded::Titles).await;
        self.digest.get().map_or("", |digest| &digest.all)
    }

    /// The same for some of the servers.
    pub async fn digest_of(&self, is_in: impl Fn(&str) -> bool) -> String {
        self.reached(Loaded::Titles).await;
        let Some(digest) = self.digest.get() else { return String::new() };
        let lines: Vec<DigestLine<'_>> = digest
            .lines
            .iter()
            .filter(|(name, _, _)| is_in(name))
            .map(|(name, description, about)| DigestLine {
                name,
                description: description.as_deref(),
                about: about.as_deref(),
            })
            .collect();
        discover::digest(&lines, discover::digest_room(lines.len()))
    }

    /// Reads the cache in the background; only `loaded` waits for it.
    pub fn load(self: &Arc<Self>) {
        let catalog = Arc::clone(self);
        task::spawn("cache", async move {
            let reading = Arc::clone(&catalog);
            // After a panic the cache counts as missing.
            drop(tokio::task::spawn_blocking(move || reading.load_now()).await);
            catalog.loaded.reach(Loaded::Everything as u64);
        });
    }

    /// Titles first: the `initialize` result waits only for them.
    fn load_now(&self) {
        let mut configs: Vec<_> =
            self.configs().iter().map(|(&id, config)| (id, Arc::clone(config))).collect();
        configs.sort_by_key(|(id, _)| *id);
        configs.retain(|(_, config)| config.is_enabled());
        // An unreadable cache is a miss; reading it has quarantined what is damaged.
        let cache = self.cache.as_ref().map(SchemaCache::opened);
        let about = |config: &ServerConfig| {
            let made_by = fingerprint(config);
            let header = cache.as_ref()?.read_header(cache_key(config, &made_by), unix_millis());
            header.ok()?.found()?.summary
        };
        let places: Vec<usize> = (0..configs.len()).collect();
        let found = on_all_cores(&places, |_, &at| {
            let (_, config) = &configs[at];
            if config.description.is_some() { None } else { Some((at, about(config)?)) }
        });
        let mut abouts: Vec<Option<String>> = vec![None; configs.len()];
        for (at, about) in found {
            abouts[at] = Some(about);
        }
        let lines: Vec<DigestLine<'_>> = configs
            .iter()
            .zip(&abouts)
            .map(|((_, config), about)| DigestLine {
                name: &config.name,
                description: config.description.as_deref(),
                about: about.as_deref(),
            })
            .collect();
        // Set once for this process.
        let all = discover::digest(&lines, discover::digest_room(lines.len()));
        let lines = configs.iter().zip(&abouts);
        let lines = lines.map(|((_, config), about)| {
            (config.name.clone(), config.description.clone(), about.clone())
        });
        drop(self.digest.set(Digest { all, lines: lines.collect() }));
        self.loaded.reach(Loaded::Titles as u64);
        let Some(cache) = &self.cache else { return };
        let built = self.cached(&configs);
        let made = made(&built);
        self.publish(built, None);
        // Nobody waits for the rest, which only helps the next start.
        self.loaded.reach(Loaded::Everything as u64);
        for server in made {
            self.keep(server);
        }
        let known: Vec<&str> = configs.iter().map(|(_, config)| config.name.as_str()).collect();
        drop(cache.sweep(&known, unix_millis()));
    }

    /// Publishes the tools a server has listed, and writes them to the cache if they changed. All on other threads, because
    /// the thread that relays calls must not wait while a large index is built.
    pub async fn listed(
        self: &Arc<Self>,
        server: DefinitionId,
        read: Result<Arc<ServerTools>, ListFailure>,
        peer: Option<&Peer>,
        now: Moment,
    ) {
        let tools = match read {
            Ok(tools) => tools,
            Err(why) => {
                let catalog = Arc::clone(self);
                return computed(move || catalog.fail(server, why)).await;
            }
        };
        let (catalog, listed) = (Arc::clone(self), Arc::clone(&tools));
        computed(move || catalog.replace(server, listed, now)).await;
        let config = self.configs().get(&server).cloned();
        if let (Some(config), Some(_)) = (config, &self.cache) {
            let era = peer.map(|peer| peer.era.name());
            let catalog = Arc::clone(self);
            // A failed write only makes the next start slower.
            let write = tokio::task::spawn_blocking(move || {
                let Some(cache) = &catalog.cache else { return };
                let made_by = fingerprint(&config);
                let whose = cache_key(&config, &made_by);
                if let Ok(Written::Replaced) =
                    cache.write_if_changed(whose, &tools, era, unix_millis())
                {
                    catalog.keep(server);
                    catalog.has_listed(server);
                }
            });
            let mut writes = self.writes();
            writes.retain(|write| !write.is_finished());
            writes.push(write);
        }
    }

    /// Waits for cache writes, but not for long if the disk hangs.
    pub async fn written(&self) {
        let writes = std::mem::take(&mut *self.writes());
        let all = async {
            for write in writes {
                // A panic was reported by its thread.
                drop(write.await);
            }
        };
        drop(tokio::time::timeout(FINAL_WRITES_TIMEOUT, all).await);
    }

    fn writes(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.writes.lock()
    }

    fn fail(&self, server: DefinitionId, why: ListFailure) {
        let _parts = self.parts();
        let before = self.snapshot();
        let mut failed = before.failed.clone();
        failed.insert(server, Arc::new(why));
        self.swap(Snapshot {
            known: before.known.clone(),
            failed,
            index: Arc::clone(&before.index),
            generation: before.generation,
        });
    }

    /// Puts a live list into the snapshot; indexed before anything is locked, and only if it is new.
    fn replace(&self, server: DefinitionId, tools: Arc<ServerTools>, now: Moment) {
        let Some(config) = self.configs().get(&server).cloned() else { return };
        let part = self.parts().get(&server).cloned();
        let blocked = self.blocked(server, &config, &tools, true);
        let (tools, mut misfits) = permitted(tools, &config, &blocked);
        misfits.extend(self.changed_under_overrides(server, &config, &tools));
        self.keep_misfits(server, &config, &misfits);
        self.warn_of_changes(server, &config, &tools);
        let same = part.filter(|part| part.tools().fingerprint == tools.fingerprint);
        let built = match same {
            Some(part) => Built { server, tools, part, is_cached: true, saved_at: None },
            None => {
                Built::new(server, &config, tools, &mut CachedTokenizer::default(), &self.tuning)
            }
        };
        self.publish(vec![built], Some(now));
    }

    /// Determines the tools of an installed server that differ from what was approved, and blocks calls of them.
    fn blocked(
        &self,
        server: DefinitionId,
        config: &ServerConfig,
        tools: &ServerTools,
        is_live: bool,
    ) -> BTreeSet<String> {
        let Some(pinned) = &self.pinned else { return BTreeSet::new() };
        let changed = pinned.changed(&config.name, tools, is_live);
        if changed.is_empty() {
            self.blocked_now().remove(&server);
        } else {
            let names: Vec<&str> = changed.iter().map(String::as_str).collect();
            let line = format!(
                "tools of the installed server {:?} changed and are blocked: {}; look at them, then run `metamcp provisioned accept {}`",
                config.name,
                names.join(", "),
                config.name
            );
            tracing::warn!("{line}");
            self.blocked_now().insert(server, changed.clone());
        }
        changed
    }

    /// What of a server's overrides its tools do not fit, in words.
    pub fn misfits(&self, server: DefinitionId) -> Vec<String> {
        self.misfits.read().get(&server).cloned().unwrap_or_default()
    }

    /// Remembers what does not fit, and warns of what is new.
    fn keep_misfits(&self, server: DefinitionId, config: &ServerConfig, misfits: &[Misfit]) {
        if config.overrides.is_empty() {
            self.misfits.write().remove(&server);
            return;
        }
        let words: Vec<String> = misfits.iter().map(ToString::to_string).collect();
        let before = self.misfits.write().insert(server, words.clone()).unwrap_or_default();
        for what in words.iter().filter(|what| !before.contains(what)) {
            let line = format!("the server {:?} does not fit {what}", config.name);
            tracing::warn!("{line}");
        }
    }

    /// Tools with an override that are not what they were when they were listed before: what the user says of them may be
    /// wrong now.
    fn changed_under_overrides(
        &self,
        server: DefinitionId,
        config: &ServerConfig,
        tools: &Arc<ServerTools>,
    ) -> Vec<Misfit> {
        let overrides = &config.overrides;
        let mut seen = self.overridden.lock();
        let seen = seen.entry(server).or_default();
        if let Some(old) = self.snapshot().known(server) {
            for tool in old.tools.as_listed().all() {
                seen.entry(tool.name.clone()).or_insert(tool.fingerprint);
            }
        }
        let listed = tools.as_listed().all();
        let is_overridden = |tool: &&Tool| overrides.for_tool(&tool.name).is_some();
        let changed = listed
            .filter(is_overridden)
            .filter(|tool| seen.get(&tool.name).is_some_and(|before| *before != tool.fingerprint));
        let what = "the server changed this tool since it was first listed here; look whether the override is still right";
        changed.map(|tool| Misfit { tool: tool.name.to_string(), what: what.to_owned() }).collect()
    }

    /// Warns when a configured server changes its tools: it may, but not unnoticed.
    fn warn_of_changes(&self, server: DefinitionId, config: &ServerConfig, tools: &ServerTools) {
        let snapshot = self.snapshot();
        let Some(old) = snapshot.known(server).filter(|_| tracing::enabled!(tracing::Level::WARN))
        else {
            return;
        };
        if old.tools.fingerprint == tools.fingerprint {
            return;
        }
        let changed = |tool: &&Tool| {
            old.any_tool(&tool.name).is_some_and(|before| before.fingerprint != tool.fingerprint)
        };
        let names: Vec<&str> = tools.all().filter(changed).map(|tool| &*tool.name).collect();
        if !names.is_empty() {
            let line = format!(
                "the server {:?} changed the description or schema of {}",
                config.name,
                names.join(", ")
            );
            tracing::warn!("{line}");
        }
    }

    /// Puts lists into the snapshot. Without a moment they come from the cache and never replace a live list, but one that
    /// was cached before: another gateway may have written a newer one meanwhile.
    fn publish(&self, lists: Vec<Built>, listed_at: Option<Moment>) {
        let mut parts = self.parts();
        let before = self.snapshot();
        let (mut known, mut failed) = (before.known.clone(), before.failed.clone());
        let mut generation = before.generation;
        for Built { server, tools, part, saved_at, .. } in lists {
            let old = known.get(&server);
            let is_older = |old: &Known| match (listed_at, old.listed_at) {
                (None, None) => saved_at == old.saved_at,
                (given, had) => given < had,
            };
            if old.is_some_and(is_older) {
                continue;
            }
            failed.remove(&server);
            if let Some(old) = old.filter(|old| old.tools.fingerprint == tools.fingerprint) {
                // The same tools, but the skipped ones may be known only now.
                let same = if old.tools.skipped == tools.skipped {
                    Known { listed_at, ..old.clone() }
                } else {
                    Known::new(tools, listed_at)
                };
                known.insert(server, same);
                continue;
            }
            generation += 1;
            parts.insert(server, part);
            known.insert(server, Known { saved_at, ..Known::new(tools, listed_at) });
        }
        let index = if generation == before.generation {
            Arc::clone(&before.index)
        } else {
            ready(self.indexed(&parts))
        };
        self.swap(Snapshot { known, failed, index, generation });
    }

    fn swap(&self, next: Snapshot) {
        *self.snapshot.write() = Arc::new(next);
    }

    fn blocked_now(&self) -> RwLockWriteGuard<'_, HashMap<DefinitionId, BTreeSet<String>>> {
        self.blocked.write()
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<DefinitionId, Arc<ServerIndex>>> {
        self.parts.lock()
    }

    fn configs(&self) -> MutexGuard<'_, HashMap<DefinitionId, Arc<ServerConfig>>> {
        self.configs.lock()
    }
}

/// One server's list, ready to be published.
struct Built {
    server: DefinitionId,
    tools: Arc<ServerTools>,
    part: Arc<ServerIndex>,
    /// Whether the part was cached.
    is_cached: bool,
    /// When the list was cached, if it comes from there.
    saved_at: Option<u64>,
}

impl Built {
    fn new(
        server: DefinitionId,
        config: &ServerConfig,
        tools: Arc<ServerTools>,
        tokenizer: &mut CachedTokenizer,
        tuning: &Tuning,
    ) -> Built {
        let about = about(config);
        let part = ServerIndex::build_tuned(tokenizer, &config.name, about, &tools, tuning);
        Built { server, tools, part: Arc::new(part), is_cached: false, saved_at: None }
    }
}

/// The servers whose part was not cached.
fn made(lists: &[Built]) -> Vec<DefinitionId> {
    lists.iter().filter(|built| !built.is_cached).map(|built| built.server).collect()
}

/// Runs a computation on the compute pool.
async fn computed(work: impl FnOnce() + Send + 'static) {
    // A panic was reported by its thread, and leaves the snapshot as it was.
    drop(compute::run(work).await);
}

/// The same for file access, which may block.
async fn blocking(work: impl FnOnce() + Send + 'static) {
    // A panic was reported by its thread, and leaves the snapshot as it was.
    drop(tokio::task::spawn_blocking(work).await);
}

/// Maps the items on several threads; results come in any order.
fn on_all_cores<T: Sync, R: Send>(
    all: &[T],
    make: impl Fn(&mut CachedTokenizer, &T) -> Option<R> + Sync,
) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(MAX_THREADS).min(all.len() / SERVERS_PER_THREAD).max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut tokenizer = CachedTokenizer::default();
        let mut made = Vec::new();
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            made.extend(make(&mut tokenizer, one));
        }
        made
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut made = work();
        // The results of a thread that panicked are missing, as if their files were.
        made.extend(others.into_iter().filter_map(|other| other.join().ok()).flatten());
        made
    })
}

/// The cache key of a server with this configuration.
fn cache_key<'a>(config: &'a ServerConfig, made_by: &'a str) -> Server<'a> {
    Server { name: &config.name, made_by: Some(made_by) }
}

fn about(config: &ServerConfig) -> About<'_> {
    About { description: config.description.as_deref(), tags: &config.tags }
}

/// The tools that the configuration allows, without the blocked ones, as the user wants them shown.
fn permitted(
    tools: Arc<ServerTools>,
    config: &ServerConfig,
    blocked: &BTreeSet<String>,
) -> (Arc<ServerTools>, Vec<Misfit>) {
    let may = |tool: &Tool| config.tools.permits(&tool.name) && !blocked.contains(&*tool.name);
    let listed = if tools.all().all(may) { tools } else { Arc::new(tools.filtered(may)) };
    overrides::applied(&listed, &config.overrides)
}
