//! The `instructions` of each server, cached across starts: a client gets them in the `initialize` result, which cannot
//! wait for slow servers.
//! Owns: `cache/instructions.json`.      Never: contacts a server; returns anything but the latest text.
//! In: a server's configuration, its instructions.  Out: its instructions last time.
//! Tests: below, `metamcp/tests/hazards/fidelity.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metamcp_config::config::ServerConfig;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::era_cache::fingerprint;
use crate::files::Directory;

const FOLDER: &str = "cache";
const FILE: &str = "instructions.json";
/// Largest file read or written; beyond that the cache is cleared.
const MAX_FILE: usize = 2 * 1024 * 1024;

#[derive(Debug, Default, Clone)]
pub struct InstructionsCache {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    home: Option<PathBuf>,
    loaded: OnceCell<()>,
    known: Mutex<BTreeMap<String, String>>,
}

impl InstructionsCache {
    /// The cache under `home`. Touches nothing yet.
    pub fn under(home: &Path) -> InstructionsCache {
        InstructionsCache {
            inner: Arc::new(Inner { home: Some(home.to_owned()), ..Inner::default() }),
        }
    }

    /// The instructions that a server with this configuration gave last time.
    pub async fn known(&self, config: &ServerConfig) -> Option<String> {
        self.load().await;
        self.inner.lock().get(&fingerprint(config)).cloned()
    }

    /// Records the current instructions.
    pub async fn learn(&self, config: &ServerConfig, said: Option<&str>) {
        self.load().await;
        let print = fingerprint(config);
        let changed = {
            let mut known = self.inner.lock();
            match said {
                Some(said) if known.get(&print).is_some_and(|before| before == said) => false,
                Some(said) => {
                    let kept: usize = known.values().map(String::len).sum();
                    if kept + said.len() > MAX_FILE / 2 {
                        known.clear();
                    }
                    known.insert(print, said.to_owned());
                    true
                }
                None => known.remove(&print).is_some(),
            }
        };
        if changed {
            let inner = Arc::clone(&self.inner);
            // A lost entry is only missing from one `initialize` result.
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
    fn read(&self) -> Option<BTreeMap<String, String>> {
        let home = Directory::home(self.home.as_deref()?).ok()??;
        let bytes = home.inside(FOLDER).ok()??.open(FILE).ok()??.read(MAX_FILE as u64).ok()?;
        let file: Value = serde_json::from_slice(&bytes).ok()?;
        let said = file.get("servers")?.as_object()?.iter();
        Some(
            said.filter_map(|(print, said)| Some((print.clone(), said.as_str()?.to_owned())))
                .collect(),
        )
    }

    fn save(&self) -> Option<()> {
        let bytes = json!({ "servers": &*self.lock() }).to_string();
        let home = Directory::home_or_create(self.home.as_deref()?).ok()?;
        home.inside_or_create(FOLDER).ok()?.replace(FILE, bytes.as_bytes()).ok()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.known.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        instructions_cache.inner.save().unwrap();
        let again = InstructionsCache::under(home.path());
        assert_eq!(again.known(&server("one")).await.as_deref(), Some("Be brief."));
        assert_eq!(again.known(&server("two")).await, None, "it has none any more");
        // In another home: a task may still be saving the entries above.
        let other = tempfile::tempdir().unwrap();
        let file = other.path().join(FOLDER).join(FILE);
        std::fs::create_dir(other.path().join(FOLDER)).unwrap();
        std::fs::copy(home.path().join(FOLDER).join(FILE), &file).unwrap();
        let whole = InstructionsCache::under(other.path());
        assert_eq!(whole.known(&server("one")).await.as_deref(), Some("Be brief."));
        std::fs::write(&file, b"{\"servers\":[7").unwrap();
        let damaged = InstructionsCache::under(other.path());
        assert_eq!(damaged.known(&server("one")).await, None);
    }
}
