//! Which era each server belongs to, remembered from one start to the next, so that the first byte sent is the right one.
//! Owns: `cache/eras.json`.      Never: asks a server, trusts what it reads beyond a first guess.
//! In: a server's configuration, what it turned out to be.  Out: what it was last time.
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
/// Largest file that is read: a thousand servers fit many times over.
const MAX_FILE: u64 = 256 * 1024;
/// Most servers remembered; when there are more, all are forgotten rather than sorted.
const MAX_SERVERS: usize = 2000;

/// How a server wants to be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerProtocol {
    /// With a handshake.
    Initialize,
    /// Request by request.
    Stateless,
    /// With a handshake, over one stream of events and a place to post to.
    Sse,
}

impl ServerProtocol {
    /// What one of this era is spoken to with, over any transport but that of 2024.
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

/// See the module.
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

/// What is known of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    protocol: ServerProtocol,
    /// It is what to try first in this process, and not what was seen: it is not written down.
    is_guess: bool,
}

impl EraCache {
    /// What is remembered under `home`. Touches nothing yet.
    pub fn under(home: &Path) -> EraCache {
        EraCache { inner: Arc::new(Inner { home: Some(home.to_owned()), ..Inner::default() }) }
    }

    /// What a server with this configuration was last time.
    pub async fn known(&self, config: &ServerConfig) -> Option<ServerProtocol> {
        self.load().await;
        self.inner.lock().get(&fingerprint(config)).map(|known| known.protocol)
    }

    /// What it is, for the next time. A guess is kept for this process only: it says what to try first.
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
            // Its end is of no interest: what is not remembered is found out again.
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

/// What tells servers apart here and in other caches.
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
    async fn what_was_learnt_is_known_to_the_next_process() {
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
        // A guess that proved right is not one any more.
        era_cache.learn(&server("two"), ServerProtocol::Initialize, false).await;
        era_cache.inner.save().unwrap();
        let again = EraCache::under(home.path());
        assert_eq!(again.known(&server("two")).await, Some(ServerProtocol::Initialize));
    }

    #[tokio::test]
    async fn a_damaged_file_is_as_good_as_none() {
        let home = tempfile::tempdir().unwrap();
        let era_cache = EraCache::under(home.path());
        era_cache.learn(&server("one"), ServerProtocol::Stateless, true).await;
        era_cache.inner.save().unwrap();
        std::fs::write(home.path().join(FOLDER).join(FILE), b"{\"servers\":[7").unwrap();
        assert_eq!(EraCache::under(home.path()).known(&server("one")).await, None);
    }
}
