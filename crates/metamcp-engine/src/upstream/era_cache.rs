//! The protocol era of each server, cached across starts, so that the first message is the right one.
//! Owns: `cache/eras.json`.      Never: contacts a server; uses an entry as more than a first guess.
//! In: a server's configuration, the protocol it spoke.  Out: the protocol it spoke last time.
//! Tests: below.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metamcp_config::config::ServerConfig;
use metamcp_wire::era::Era;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::files::Directory;

const FOLDER: &str = "cache";
const FILE: &str = "eras.json";
/// Largest file read: a thousand servers fit many times over.
const MAX_FILE: u64 = 256 * 1024;
/// Most servers remembered; beyond that the cache is cleared.
const MAX_SERVERS: usize = 2000;

/// How to start talking to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerProtocol {
    Initialize,
    Stateless,
    /// With a handshake, over the HTTP+SSE transport of 2024.
    Sse,
}

impl ServerProtocol {
    /// The protocol for this era, over any transport but that of 2024.
    pub fn of(era: Era) -> ServerProtocol {
        if era.is_stateless() { ServerProtocol::Stateless } else { ServerProtocol::Initialize }
    }

    fn word(self) -> &'static str {
        match self {
            ServerProtocol::Initialize => "initialize",
            ServerProtocol::Stateless => "stateless",
            ServerProtocol::Sse => "sse",
        }
    }

    fn named(word: &str) -> Option<ServerProtocol> {
        [ServerProtocol::Initialize, ServerProtocol::Stateless, ServerProtocol::Sse]
            .into_iter()
            .find(|protocol| protocol.word() == word)
    }
}

#[derive(Debug, Default, Clone)]
pub struct EraCache {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    home: Option<PathBuf>,
    loaded: OnceCell<()>,
    known: Mutex<BTreeMap<String, Known>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    protocol: ServerProtocol,
    /// Only what to try first in this process, not what was seen: it is not saved.
    is_guess: bool,
}

impl EraCache {
    /// The cache under `home`. Touches nothing yet.
    pub fn under(home: &Path) -> EraCache {
        EraCache { inner: Arc::new(Inner { home: Some(home.to_owned()), ..Inner::default() }) }
    }

    /// The protocol that a server with this configuration spoke last time.
    pub async fn known(&self, config: &ServerConfig) -> Option<ServerProtocol> {
        self.load().await;
        self.inner.lock().get(&fingerprint(config)).map(|known| known.protocol)
    }

    /// Records the protocol. A guess is remembered for this process only.
    pub async fn learn(&self, config: &ServerConfig, protocol: ServerProtocol, is_guess: bool) {
        self.load().await;
        let print = fingerprint(config);
        let changed = {
            let mut known = self.inner.lock();
            if known.len() >= MAX_SERVERS && !known.contains_key(&print) {
                known.clear();
            }
            let learnt = Known { protocol, is_guess };
            known.insert(print, learnt) != Some(learnt)
        };
        if changed && !is_guess {
            let inner = Arc::clone(&self.inner);
            // A lost entry is only probed for again.
            drop(tokio::task::spawn_blocking(move || inner.save()));
        }
    }

    async fn load(&self) {
        let inner = &self.inner;
        inner
            .loaded
            .get_or_init(|| async {
                let reading = Arc::clone(inner);
                let read = tokio::task::spawn_blocking(move || reading.read()).await;
                if let Ok(Some(read)) = read {
                    *inner.lock() = read;
                }
            })
            .await;
    }
}

impl Inner {
    fn read(&self) -> Option<BTreeMap<String, Known>> {
        let home = Directory::home(self.home.as_deref()?).ok()??;
        let bytes = home.inside(FOLDER).ok()??.open(FILE).ok()??.read(MAX_FILE).ok()?;
        let file: Value = serde_json::from_slice(&bytes).ok()?;
        let servers = file.get("servers")?.as_object()?;
        let known = servers.iter().take(MAX_SERVERS).filter_map(|(print, protocol)| {
            Some((print.clone(), ServerProtocol::named(protocol.as_str()?)?))
        });
        Some(known.map(|(print, protocol)| (print, Known { protocol, is_guess: false })).collect())
    }

    fn save(&self) -> Option<()> {
        let known = self.lock().clone();
        let servers: BTreeMap<&str, &str> = known
            .iter()
            .filter(|(_, known)| !known.is_guess)
            .map(|(print, known)| (print.as_str(), known.protocol.word()))
            .collect();
        let bytes = json!({ "servers": servers }).to_string();
        let home = Directory::home_or_create(self.home.as_deref()?).ok()?;
        home.inside_or_create(FOLDER).ok()?.replace(FILE, bytes.as_bytes()).ok()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn server(command: &str) -> ServerConfig {
        let text = json!({"mcpServers": {"a": {"command": command, "args": ["-x"]}}}).to_string();
        let loaded = metamcp_config::config::parse(&text, &|_| None).unwrap();
        loaded.config.servers[0].clone()
    }

    #[tokio::test]
    async fn eras_survive_a_restart() {
        let home = tempfile::tempdir().unwrap();
        let era_cache = EraCache::under(home.path());
        assert_eq!(era_cache.known(&server("one")).await, None);
        era_cache.learn(&server("one"), ServerProtocol::Stateless, false).await;
        era_cache.learn(&server("two"), ServerProtocol::Initialize, true).await;
        assert_eq!(era_cache.known(&server("two")).await, Some(ServerProtocol::Initialize));
        era_cache.inner.save().unwrap();
        let again = EraCache::under(home.path());
        assert_eq!(again.known(&server("one")).await, Some(ServerProtocol::Stateless));
        assert_eq!(again.known(&server("two")).await, None, "a guess is nobody else's");
        assert_eq!(again.known(&server("three")).await, None);
        // A confirmed guess is saved.
        era_cache.learn(&server("two"), ServerProtocol::Initialize, false).await;
        era_cache.inner.save().unwrap();
        let again = EraCache::under(home.path());
        assert_eq!(again.known(&server("two")).await, Some(ServerProtocol::Initialize));
    }

    #[tokio::test]
    async fn a_damaged_file_counts_as_empty() {
        let home = tempfile::tempdir().unwrap();
        let era_cache = EraCache::under(home.path());
        era_cache.learn(&server("one"), ServerProtocol::Stateless, true).await;
        era_cache.inner.save().unwrap();
        std::fs::write(home.path().join(FOLDER).join(FILE), b"{\"servers\":[7").unwrap();
        assert_eq!(EraCache::under(home.path()).known(&server("one")).await, None);
    }
}
