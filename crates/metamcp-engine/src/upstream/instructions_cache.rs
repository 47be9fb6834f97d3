//! The `instructions` of each server, cached across starts: a client gets them in the `initialize` result, which cannot
//! wait for slow servers.
//! Owns: `cache/instructions.json`.      Never: contacts a server; returns anything but the latest text.
//! In: a server's configuration, its instructions.  Out: its instructions last time.
//! Tests: below, `metamcp/tests/hazards/fidelity.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use metamcp_config::config::ServerConfig;
use serde_json::Value;

use super::server_cache::{Entry, ServerCache};

/// See the module.
#[derive(Debug, Clone)]
pub struct InstructionsCache(ServerCache<Instructions>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Instructions(String);

impl InstructionsCache {
    /// The cache under `home`. Touches nothing yet.
    pub fn under(home: &Path) -> InstructionsCache {
        InstructionsCache(ServerCache::under(home))
    }

    /// The instructions that a server with this configuration gave last time.
    pub async fn known(&self, config: &ServerConfig) -> Option<String> {
        self.0.get(config).await.map(|instructions| instructions.0)
    }

    /// Records the current instructions.
    pub async fn learn(&self, config: &ServerConfig, instructions: Option<&str>) {
        self.0.set(config, instructions.map(|text| Instructions(text.to_owned()))).await;
    }
}

impl Entry for Instructions {
    const FILE: &'static str = "instructions.json";
    const MAX_FILE: u64 = 2 * 1024 * 1024;

    fn from_json(value: &Value) -> Option<Instructions> {
        Some(Instructions(value.as_str()?.to_owned()))
    }

    fn to_json(&self) -> Option<Value> {
        Some(self.0.as_str().into())
    }

    fn fits(&self, others: &BTreeMap<String, Instructions>) -> bool {
        let stored: usize = others.values().map(|other| other.0.len()).sum();
        // In JSON a text may be longer than it is.
        ((stored + self.0.len()) as u64) <= Self::MAX_FILE / 2
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::upstream::server_cache::FOLDER;

    fn server(command: &str) -> ServerConfig {
        let text = json!({"mcpServers": {"a": {"command": command}}}).to_string();
        metamcp_config::config::parse(&text, &|_| None).unwrap().config.servers[0].clone()
    }

    #[tokio::test]
    async fn instructions_survive_a_restart() {
        let home = tempfile::tempdir().unwrap();
        let instructions_cache = InstructionsCache::under(home.path());
        instructions_cache.learn(&server("one"), Some("Be brief.")).await;
        instructions_cache.learn(&server("two"), Some("Be long.")).await;
        instructions_cache.learn(&server("two"), None).await;
        instructions_cache.0.save().unwrap();
        let again = InstructionsCache::under(home.path());
        assert_eq!(again.known(&server("one")).await.as_deref(), Some("Be brief."));
        assert_eq!(again.known(&server("two")).await, None, "it has none any more");
        // In another home: a task may still be saving the entries above.
        let other = tempfile::tempdir().unwrap();
        let file = other.path().join(FOLDER).join(Instructions::FILE);
        std::fs::create_dir(other.path().join(FOLDER)).unwrap();
        std::fs::copy(home.path().join(FOLDER).join(Instructions::FILE), &file).unwrap();
        let whole = InstructionsCache::under(other.path());
        assert_eq!(whole.known(&server("one")).await.as_deref(), Some("Be brief."));
        std::fs::write(&file, b"{\"servers\":[7").unwrap();
        let damaged = InstructionsCache::under(other.path());
        assert_eq!(damaged.known(&server("one")).await, None);
    }
}
