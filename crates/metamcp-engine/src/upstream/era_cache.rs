//! The protocol era of each server, cached across starts, so that the first message is the right one.
//! Owns: `cache/eras.json`.      Never: contacts a server; uses an entry as more than a first guess.
//! In: a server's configuration, the protocol it spoke.  Out: the protocol it spoke last time.
//! Tests: below.

use std::collections::BTreeMap;
use std::path::Path;

use metamcp_config::config::ServerConfig;
use metamcp_wire::era::Era;
use serde_json::Value;

use super::server_cache::{Entry, ServerCache};

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

/// See the module.
#[derive(Debug, Clone)]
pub struct EraCache(ServerCache<Known>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    protocol: ServerProtocol,
    /// Only what to try first in this process, not what was seen: it is not saved.
    is_guess: bool,
}

impl EraCache {
    /// The cache under `home`. Touches nothing yet.
    pub fn under(home: &Path) -> EraCache {
        EraCache(ServerCache::under(home))
    }

    /// The protocol that a server with this configuration spoke last time.
    pub async fn known(&self, config: &ServerConfig) -> Option<ServerProtocol> {
        self.0.get(config).await.map(|known| known.protocol)
    }

    /// Records the protocol. A guess is remembered for this process only.
    pub async fn learn(&self, config: &ServerConfig, protocol: ServerProtocol, is_guess: bool) {
        self.0.set(config, Some(Known { protocol, is_guess })).await;
    }
}

impl Entry for Known {
    const FILE: &'static str = "eras.json";
    /// A thousand servers fit many times over.
    const MAX_FILE: u64 = 256 * 1024;

    fn from_json(value: &Value) -> Option<Known> {
        Some(Known { protocol: ServerProtocol::named(value.as_str()?)?, is_guess: false })
    }

    fn to_json(&self) -> Option<Value> {
        (!self.is_guess).then(|| self.protocol.word().into())
    }

    fn fits(&self, others: &BTreeMap<String, Known>) -> bool {
        others.len() < MAX_SERVERS
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::upstream::server_cache::FOLDER;

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
        era_cache.0.save().unwrap();
        let again = EraCache::under(home.path());
        assert_eq!(again.known(&server("one")).await, Some(ServerProtocol::Stateless));
        assert_eq!(again.known(&server("two")).await, None, "a guess is nobody else's");
        assert_eq!(again.known(&server("three")).await, None);
        // A confirmed guess is saved.
        era_cache.learn(&server("two"), ServerProtocol::Initialize, false).await;
        era_cache.0.save().unwrap();
        let again = EraCache::under(home.path());
        assert_eq!(again.known(&server("two")).await, Some(ServerProtocol::Initialize));
    }

    #[tokio::test]
    async fn a_damaged_file_counts_as_empty() {
        let home = tempfile::tempdir().unwrap();
        let era_cache = EraCache::under(home.path());
        era_cache.learn(&server("one"), ServerProtocol::Stateless, true).await;
        era_cache.0.save().unwrap();
        std::fs::write(home.path().join(FOLDER).join(Known::FILE), b"{\"servers\":[7").unwrap();
        assert_eq!(EraCache::under(home.path()).known(&server("one")).await, None);
    }
}
