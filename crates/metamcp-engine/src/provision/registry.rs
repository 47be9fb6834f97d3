//! One registry: its servers are cached on disk for a day, then only changes are fetched. While it does not respond, the
//! cache is used.

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use hyper::{Request, StatusCode};
use metamcp_provisioning::provision::{Candidate, Page, Source, Status, day, page, sound};
use metamcp_types::secret::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::delisted;
use crate::clock::unix_millis;
use crate::env;
use crate::files::{Directory, FileError, component};
use crate::task;
use crate::web::{self, ClientOptions, Outgoing, Proxy, Web};

/// Cache lifetime.
const CACHE_TTL_MS: u64 = 24 * 60 * 60 * 1000;
/// How long only changes are fetched, if a server of it is installed: an entry deleted without a notice is only found
/// missing in a full sync.
const FULL_SYNC_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Clocks differ: changes from the minutes before the last sync are fetched again.
const OVERLAP_MS: u64 = 5 * 60 * 1000;
/// Backoff after a failure.
const BACKOFF_MS: u64 = 10 * 60 * 1000;
/// How long a caller waits for a registry; the sync goes on in the background.
const WAIT_TIMEOUT: Duration = Duration::from_secs(15);
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest page: a hundred servers of usually a few kilobytes.
const MAX_PAGE: usize = 8 * 1024 * 1024;
/// Most pages of one sync, in case the cursors form a loop.
const MAX_PAGES: usize = 600;
/// Most servers cached of one registry.
const MAX_SERVERS: usize = 60_000;
/// Most text of them: several times the official registry, and less than may be decompressed again.
const MAX_BYTES: usize = 48 * 1024 * 1024;
/// Largest cache file; the official registry, compressed, is a hundredth of it.
pub const MAX_FILE: u64 = 32 * 1024 * 1024;
/// Largest content after decompression, against zip bombs.
const MAX_UNPACKED: u64 = 128 * 1024 * 1024;
/// The setting for no registry.
const NONE: &str = "none";
/// Version of the files: compressed JSON.
const FORMAT: u32 = 2;

pub struct Registry {
    cache_file: CacheFile,
    bearer: Option<Secret>,
    state: Mutex<State>,
    /// The cached servers, also during a sync.
    known: parking_lot::Mutex<Arc<Vec<Candidate>>>,
}

#[derive(Debug, Clone)]
struct CacheFile {
    base: String,
    home: PathBuf,
}

#[derive(Default)]
struct State {
    /// Whether the file was read.
    is_loaded: bool,
    cache: RegistryCache,
    /// When the last sync failed, and why.
    failed: Option<(u64, String)>,
}

/// The cache, as on disk.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RegistryCache {
    format: u32,
    base: String,
    /// When the last complete sync began, in milliseconds since 1970; 0 before the first.
    synced: u64,
    /// When the last full sync was, after which a missing server is not in the registry; 0 if there was none.
    #[serde(default)]
    whole: u64,
    /// Names of its servers that cannot be installed here.
    #[serde(default)]
    unusable: Vec<String>,
    candidates: Vec<Candidate>,
}

impl RegistryCache {
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Why the registry withdrew the server of that name, if it did.
    pub(super) fn against(&self, name: &str) -> Option<String> {
        match self.candidates.iter().find(|one| one.name == name).map(|one| &one.status) {
            Some(Status::Deleted(message)) if message.is_empty() => {
                Some("its registry took it back".to_owned())
            }
            Some(Status::Deleted(message)) => Some(format!("its registry took it back: {message}")),
            Some(Status::Active | Status::Deprecated(_)) => None,
            None => {
                let is_missing = self.whole > 0 && !self.unusable.iter().any(|one| one == name);
                is_missing.then(|| "its registry names it no more".to_owned())
            }
        }
    }
}

/// Servers by name, later ones replacing earlier ones, up to the limits.
#[derive(Default)]
struct Gathered {
    all: Vec<Candidate>,
    places: HashMap<String, usize>,
    bytes: usize,
    /// Names of those that cannot be installed, in this sync.
    unusable: Vec<String>,
    /// Whether some were dropped because of the limits.
    is_cut: bool,
}

impl Gathered {
    fn of(all: Vec<Candidate>) -> Gathered {
        let (places, bytes) = (HashMap::with_capacity(all.len()), 0);
        let mut gathered =
            Gathered { all: Vec::with_capacity(all.len()), places, bytes, ..Gathered::default() };
        for candidate in all {
            gathered.take(candidate);
        }
        gathered
    }

    fn take(&mut self, candidate: Candidate) {
        let weight = candidate.weight();
        if let Some(&at) = self.places.get(&candidate.name) {
            let rest = self.bytes - self.all[at].weight();
            if rest + weight <= MAX_BYTES {
                self.bytes = rest + weight;
                self.all[at] = candidate;
            }
        } else if self.all.len() < MAX_SERVERS && self.bytes + weight <= MAX_BYTES {
            self.places.insert(candidate.name.clone(), self.all.len());
            self.bytes += weight;
            self.all.push(candidate);
        } else {
            self.is_cut = true;
        }
    }
}

/// The registries of the setting: addresses separated by spaces, each with an optional token variable after a bar.
pub(super) fn configured(list: &str, home: &Path) -> Vec<Registry> {
    let one = |word: &str| {
        let (base, variable) = match word.split_once('|') {
            Some((base, variable)) => (base, Some(variable)),
            None => (word, None),
        };
        let bearer = variable.and_then(|name| Some(Secret::new(name, env::var(name)?)));
        let base = base.trim_end_matches('/').trim_end_matches("/v0.1").to_owned();
        let cache_file = CacheFile { base, home: home.to_owned() };
        Registry {
            cache_file,
            bearer,
            state: Mutex::default(),
            known: parking_lot::Mutex::default(),
        }
    };
    let words = list.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty() && *word != NONE);
    words.map(one).collect()
}

impl Registry {
    /// All its known servers, and a warning if it has a problem.
    pub async fn candidates(self: &Arc<Self>) -> (Arc<Vec<Candidate>>, Option<String>) {
        self.candidates_within(WAIT_TIMEOUT).await
    }

    async fn candidates_within(
        self: &Arc<Self>,
        patience: Duration,
    ) -> (Arc<Vec<Candidate>>, Option<String>) {
        let registry = Arc::clone(self);
        // A separate task: what is not complete in time is fetched for the next time.
        let reading = task::spawn("registry", async move { registry.refresh(false).await });
        match tokio::time::timeout(patience, reading).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => (self.known(), Some(format!("{} could not be read", self.base()))),
            Err(_) => {
                let known = self.known();
                let note = if known.is_empty() {
                    "is still being loaded for the first time; try again in a minute"
                } else {
                    "is slow; its cached list is used"
                };
                (known, Some(format!("{} {note}", self.base())))
            }
        }
    }

    fn known(&self) -> Arc<Vec<Candidate>> {
        Arc::clone(&self.known.lock())
    }

    fn publish(&self, candidates: Vec<Candidate>) {
        *self.known.lock() = Arc::new(candidates);
    }

    pub fn base(&self) -> &str {
        &self.cache_file.base
    }

    /// Syncs now, however recent the last sync: the number of servers, and a warning if it has a problem.
    pub async fn refresh_now(&self) -> (usize, Option<String>) {
        let (known, note) = self.refresh(true).await;
        (known.len(), note)
    }

    async fn refresh(&self, at_once: bool) -> (Arc<Vec<Candidate>>, Option<String>) {
        // Locked during the sync: concurrent callers share one.
        let mut state = self.state.lock().await;
        if !state.is_loaded {
            let cache_file = self.cache_file.clone();
            let load = move || {
                let cache = cache_file.load();
                // The file may come from elsewhere, or from a time without this check.
                delisted::apply(&cache_file.home, &cache);
                cache
            };
            state.cache = spawn_blocking(load).await.unwrap_or_default();
            state.is_loaded = true;
            self.publish(state.cache.candidates.clone());
        }
        let now = unix_millis();
        let is_fresh = now.saturating_sub(state.cache.synced) < CACHE_TTL_MS
            && state.cache.synced <= now + OVERLAP_MS;
        let note = |why: &str, known: usize| {
            let instead = if known == 0 { "" } else { "; what is remembered of it is used" };
            Some(format!("{} does not respond ({why}){instead}", self.base()))
        };
        if is_fresh && !at_once {
            return (self.known(), None);
        }
        if let Some((at, why)) = &state.failed
            && now.saturating_sub(*at) < BACKOFF_MS
            && !at_once
        {
            let known = self.known();
            let note = note(why, known.len());
            return (known, note);
        }
        let mut cache = std::mem::take(&mut state.cache);
        let done = self.sync(&mut cache, now).await;
        self.publish(cache.candidates.clone());
        let known = self.known();
        match done {
            Ok(()) => {
                state.failed = None;
                let cache_file = self.cache_file.clone();
                let saved = spawn_blocking(move || {
                    // If this fails, it is fetched again next time.
                    drop(cache_file.save(&cache));
                    delisted::apply(&cache_file.home, &cache);
                    cache
                });
                state.cache = saved.await.unwrap_or_default();
                (known, None)
            }
            Err(why) => {
                state.cache = cache;
                let note = note(&why, known.len());
                state.failed = Some((now, why));
                (known, note)
            }
        }
    }

    /// A full sync, or the changes since the last one.
    async fn sync(&self, cache: &mut RegistryCache, now: u64) -> Result<(), String> {
        let is_first = cache.synced == 0;
        let is_whole = is_first || self.wants_all(cache.whole, now).await;
        let since = (!is_whole).then(|| day(cache.synced.saturating_sub(OVERLAP_MS)));
        // After an incomplete sync everything is read again from the start.
        let before = if is_whole { Vec::new() } else { std::mem::take(&mut cache.candidates) };
        let mut gathered = Gathered::of(before);
        let done = self.pages(since.as_deref(), &mut gathered).await;
        if done.is_err() && is_whole && !is_first {
            // A partial result is worse than the old one.
            return done;
        }
        cache.candidates = gathered.all;
        done?;
        if gathered.is_cut {
            cache.whole = 0;
        } else if is_whole {
            cache.whole = now;
            cache.unusable = gathered.unusable;
        }
        cache.synced = now;
        cache.format = FORMAT;
        cache.base.clone_from(&self.cache_file.base);
        Ok(())
    }

    /// Whether a full sync is due: only if a server of it is installed.
    async fn wants_all(&self, whole: u64, now: u64) -> bool {
        let cache_file = self.cache_file.clone();
        let concerns = move || delisted::concerns(&cache_file.home, &cache_file.base);
        now.saturating_sub(whole) >= FULL_SYNC_MS && spawn_blocking(concerns).await.unwrap_or(false)
    }

    async fn pages(&self, since: Option<&str>, gathered: &mut Gathered) -> Result<(), String> {
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut url = format!("{}/v0.1/servers?version=latest&limit=100", self.base());
            if let Some(since) = since {
                url.push_str(&format!("&updated_since={}", encoded(since)));
            }
            if let Some(cursor) = &cursor {
                url.push_str(&format!("&cursor={}", encoded(cursor)));
            }
            let Page { candidates, unusable, next, is_page } = self.page(&url).await?;
            if !is_page {
                return Err("its response is not a list of servers".to_owned());
            }
            // A withdrawn server stays listed as such: it may be installed.
            for candidate in candidates {
                gathered.take(candidate);
            }
            let room = MAX_SERVERS.saturating_sub(gathered.unusable.len());
            gathered.is_cut |= unusable.len() > room;
            gathered.unusable.extend(unusable.into_iter().take(room));
            if next.is_none() || next == cursor {
                return Ok(());
            }
            cursor = next;
        }
        Err(format!("it has more than {MAX_PAGES} pages"))
    }

    async fn page(&self, url: &str) -> Result<Page, String> {
        let body = tokio::time::timeout(PAGE_TIMEOUT, fetch(url, self.bearer.as_ref()))
            .await
            .map_err(|_| "it timed out".to_owned())??;
        let base = self.base().to_owned();
        let read = spawn_blocking(move || {
            let document: Value = serde_json::from_slice(&body).ok()?;
            Some(page(&base, &document))
        });
        read.await.ok().flatten().ok_or_else(|| "its response is not JSON".to_owned())
    }

    pub(super) fn load(&self) -> RegistryCache {
        self.cache_file.load()
    }

    /// Imports its part of a snapshot; returns the number of servers and the time. Nothing if the snapshot has no newer data.
    pub(super) fn take(
        &self,
        all: &mut Vec<RegistryCache>,
    ) -> Result<Option<(usize, u64)>, FileError> {
        let base = &self.cache_file.base;
        let Some(at) = all.iter().position(|cache| cache.base == *base) else { return Ok(None) };
        let mut cache = all.swap_remove(at);
        if cache.synced <= self.load().synced || cache.synced > unix_millis() + OVERLAP_MS {
            return Ok(None);
        }
        let mut gathered = Gathered::of(Vec::new());
        // A snapshot is trusted no more than a registry.
        for mut candidate in cache.candidates.into_iter().filter_map(sound) {
            // Nor can it claim to be another registry.
            candidate.source = Source::Registry(base.clone());
            gathered.take(candidate);
        }
        cache.candidates = gathered.all;
        cache.format = FORMAT;
        self.cache_file.save(&cache)?;
        delisted::apply(&self.cache_file.home, &cache);
        Ok(Some((cache.candidates.len(), cache.synced)))
    }
}

impl CacheFile {
    fn folder(&self) -> Result<Directory, FileError> {
        let home = Directory::home_or_create(&self.home)?;
        home.inside_or_create("provision")?.inside_or_create("registry")
    }

    fn load(&self) -> RegistryCache {
        let read = || -> Option<RegistryCache> {
            let mut file = self.folder().ok()?.open(&self.file()).ok()??;
            unpacked(&file.read(MAX_FILE).ok()?)
        };
        let cache = read().filter(|cache| cache.format == FORMAT && cache.base == self.base);
        let mut cache = cache.unwrap_or_default();
        cache.candidates = cache.candidates.into_iter().filter_map(sound).collect();
        cache
    }

    fn save(&self, cache: &RegistryCache) -> Result<(), FileError> {
        self.folder()?.replace(&self.file(), &packed(cache))
    }

    fn file(&self) -> String {
        format!("{}.json.gz", component(&self.base))
    }
}

pub(super) fn packed(document: &impl Serialize) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::default());
    // Serializing to memory does not fail.
    let json = serde_json::to_vec(document).unwrap_or_default();
    let written = writer.write_all(&json).and_then(|()| writer.finish());
    written.unwrap_or_default()
}

pub(super) fn unpacked<T: DeserializeOwned>(raw: &[u8]) -> Option<T> {
    let mut json = Vec::new();
    GzDecoder::new(raw).take(MAX_UNPACKED).read_to_end(&mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

/// One bounded GET, without redirects. Plain HTTP only to this machine.
async fn fetch(url: &str, bearer: Option<&Secret>) -> Result<Bytes, String> {
    let local = ["http://127.0.0.1:", "http://localhost:", "http://[::1]:"];
    if !url.starts_with("https://") && !local.iter().any(|start| url.starts_with(start)) {
        return Err("its address is not https".to_owned());
    }
    // Through the proxy of the environment, like the package clients.
    let plan = ClientOptions { proxy: Proxy::from_env(), ..ClientOptions::new(CONNECT_TIMEOUT, 1) };
    let web = Web::new(plan).map_err(|_| "TLS cannot be set up".to_owned())?;
    let mut request = Request::get(url)
        .header(ACCEPT, "application/json")
        .body(Outgoing::of(Bytes::new()))
        .map_err(|_| "its address cannot be used".to_owned())?;
    if let Some(bearer) = bearer {
        let value = HeaderValue::try_from(format!("Bearer {}", bearer.expose()));
        let mut value = value.map_err(|_| format!("{} is not a valid token", bearer.name()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let answer = web.send(request).await.map_err(|_| "no connection".to_owned())?;
    if answer.status() != StatusCode::OK {
        return Err(format!("status {}", answer.status().as_u16()));
    }
    let body = web::read_body(answer.into_body(), MAX_PAGE).await;
    body.map_err(|_| "its response is truncated or too long".to_owned())
}

/// Percent-encoding for a query.
fn encoded(value: &str) -> String {
    let mut out = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
