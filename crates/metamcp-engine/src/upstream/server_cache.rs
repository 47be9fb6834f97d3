//! A small file under `cache/` with one entry per server configuration, read once and written in the background.
//! Owns: the file and its copy in memory.      Never: contacts a server; knows what an entry means; fails: a lost entry is learnt again.
//! In: a server's configuration and what was learnt of it.  Out: what was learnt last time.
//! Tests: through `era_cache.rs` and `instructions_cache.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metamcp_config::config::ServerConfig;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::files::Directory;

pub(super) const FOLDER: &str = "cache";

/// What is remembered of a server.
pub(super) trait Entry: Clone + PartialEq + Send + 'static {
    /// The name of the file.
    const FILE: &'static str;
    /// Largest file read.
    const MAX_FILE: u64;

    fn from_json(value: &Value) -> Option<Self>;
    /// None if it is good for this process only.
    fn to_json(&self) -> Option<Value>;
    /// Whether there is room for one more beside these; otherwise the cache is cleared.
    fn fits(&self, others: &BTreeMap<String, Self>) -> bool;
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct ServerCache<E> {
    inner: Arc<Inner<E>>,
}

#[derive(Debug)]
struct Inner<E> {
    home: PathBuf,
    loaded: OnceCell<()>,
    entries: Mutex<BTreeMap<String, E>>,
}

impl<E: Entry> ServerCache<E> {
    /// The cache under `home`. Touches nothing yet.
    pub(super) fn under(home: &Path) -> ServerCache<E> {
        let (home, loaded) = (home.to_owned(), OnceCell::new());
        ServerCache { inner: Arc::new(Inner { home, loaded, entries: Mutex::default() }) }
    }

    pub(super) async fn get(&self, config: &ServerConfig) -> Option<E> {
        self.load().await;
        self.inner.entries.lock().get(&fingerprint(config)).cloned()
    }

    /// Records an entry, or that there is none, and saves what changed.
    pub(super) async fn set(&self, config: &ServerConfig, entry: Option<E>) {
        self.load().await;
        let print = fingerprint(config);
        let is_saved = entry.as_ref().is_none_or(|entry| entry.to_json().is_some());
        let changed = {
            let mut entries = self.inner.entries.lock();
            match entry {
                Some(entry) if entries.get(&print) == Some(&entry) => false,
                Some(entry) => {
                    if !entry.fits(&entries) {
                        entries.clear();
                    }
                    entries.insert(print, entry);
                    true
                }
                None => entries.remove(&print).is_some(),
            }
        };
        if changed && is_saved {
            let inner = Arc::clone(&self.inner);
            drop(tokio::task::spawn_blocking(move || inner.save()));
        }
    }

    async fn load(&self) {
        let inner = &self.inner;
        let load = || async {
            let reading = Arc::clone(inner);
            let read = tokio::task::spawn_blocking(move || reading.read()).await;
            if let Ok(Some(read)) = read {
                *inner.entries.lock() = read;
            }
        };
        inner.loaded.get_or_init(load).await;
    }

    #[cfg(test)]
    pub(super) fn save(&self) -> Option<()> {
        self.inner.save()
    }
}

impl<E: Entry> Inner<E> {
    fn read(&self) -> Option<BTreeMap<String, E>> {
        let home = Directory::home(&self.home).ok()??;
        let bytes = home.inside(FOLDER).ok()??.open(E::FILE).ok()??.read(E::MAX_FILE).ok()?;
        let file: Value = serde_json::from_slice(&bytes).ok()?;
        let servers = file.get("servers")?.as_object()?.iter();
        Some(
            servers
                .filter_map(|(print, value)| Some((print.clone(), E::from_json(value)?)))
                .collect(),
        )
    }

    fn save(&self) -> Option<()> {
        let entries = self.entries.lock().clone();
        let servers =
            entries.iter().filter_map(|(print, entry)| Some((print.clone(), entry.to_json()?)));
        let bytes = json!({ "servers": servers.collect::<Map<String, Value>>() }).to_string();
        let home = Directory::home_or_create(&self.home).ok()?;
        home.inside_or_create(FOLDER).ok()?.replace(E::FILE, bytes.as_bytes()).ok()
    }
}

/// Identifies a configuration, here and in other caches.
pub(crate) fn fingerprint(config: &ServerConfig) -> String {
    let mut hash = Sha256::new();
    for part in config.transport.fingerprint() {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
