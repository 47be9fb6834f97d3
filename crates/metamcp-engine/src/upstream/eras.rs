//! Which era each server belongs to, remembered from one start to the next, so that the first byte sent is the right one.
//! Owns: `cache/eras.json`.      Never: asks a server, trusts what it reads beyond a first guess.
//! In: a server's configuration, what it turned out to be.  Out: what it was last time.
//! Tests: below.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use metamcp_core::config::{ServerConfig, Transport};
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
pub enum Way {
    /// With a handshake.
    Initialize,
    /// Request by request.
    Stateless,
    /// With a handshake, over one stream of events and a place to post to.
    Sse,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Initialize => "initialize",
            Way::Stateless => "stateless",
            Way::Sse => "sse",
        }
    }

    fn named(word: &str) -> Option<Way> {
        [Way::Initialize, Way::Stateless, Way::Sse].into_iter().find(|way| way.word() == word)
    }
}

/// See the module.
#[derive(Debug, Default, Clone)]
pub struct Eras {
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
    way: Way,
    /// It is what to try first in this process, and not what was seen: it is not written down.
    is_guess: bool,
}

impl Eras {
    /// What is remembered under `home`. Touches nothing yet.
    pub fn under(home: &Path) -> Eras {
        Eras { inner: Arc::new(Inner { home: Some(home.to_owned()), ..Inner::default() }) }
    }

    /// What a server with this configuration was last time.
    pub async fn known(&self, config: &ServerConfig) -> Option<Way> {
        self.load().await;
        self.inner.lock().get(&fingerprint(config)).map(|known| known.way)
    }

    /// What it is, for the next time. A guess is kept for this process only: it says what to try first.
    pub async fn learn(&self, config: &ServerConfig, way: Way, is_guess: bool) {
        self.load().await;
        let print = fingerprint(config);
        let changed = {
            let mut known = self.inner.lock();
            if known.len() >= MAX_SERVERS && !known.contains_key(&print) {
                known.clear();
            }
            let learnt = Known { way, is_guess };
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
        let known = servers
            .iter()
            .take(MAX_SERVERS)
            .filter_map(|(print, way)| Some((print.clone(), Way::named(way.as_str()?)?)));
        Some(known.map(|(print, way)| (print, Known { way, is_guess: false })).collect())
    }

    fn save(&self) -> Option<()> {
        let known = self.lock().clone();
        let servers: BTreeMap<&str, &str> = known
            .iter()
            .filter(|(_, known)| !known.is_guess)
            .map(|(print, known)| (print.as_str(), known.way.word()))
            .collect();
        let bytes = json!({ "servers": servers }).to_string();
        let home = Directory::home_or_create(self.home.as_deref()?).ok()?;
        home.inside_or_create(FOLDER).ok()?.replace(FILE, bytes.as_bytes()).ok()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What makes a server the one it is: its command, not its name. Values of the environment are left out, since they
/// may be secrets and hardly ever choose a protocol; so are headers. Of a remote server its address counts.
pub(crate) fn fingerprint(config: &ServerConfig) -> String {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    };
    match &config.transport {
        Transport::Stdio { command, args, env, cwd } => {
            part(command);
            args.iter().for_each(|arg| part(arg));
            part("env");
            env.iter().for_each(|(name, _)| part(name));
            part("cwd");
            if let Some(cwd) = cwd {
                part(&cwd.to_string_lossy());
            }
        }
        Transport::Http { url, .. } => {
            part("url");
            part(url);
        }
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(command: &str) -> ServerConfig {
        let text = json!({"mcpServers": {"a": {"command": command, "args": ["-x"]}}}).to_string();
        let loaded = metamcp_core::config::parse(&text, &|_| None).unwrap();
        loaded.config.servers[0].clone()
    }

    #[tokio::test]
    async fn what_was_learnt_is_known_to_the_next_process() {
        let home = tempfile::tempdir().unwrap();
        let eras = Eras::under(home.path());
        assert_eq!(eras.known(&server("one")).await, None);
        eras.learn(&server("one"), Way::Stateless, false).await;
        eras.learn(&server("two"), Way::Initialize, true).await;
        assert_eq!(eras.known(&server("two")).await, Some(Way::Initialize));
        eras.inner.save().unwrap();
        let again = Eras::under(home.path());
        assert_eq!(again.known(&server("one")).await, Some(Way::Stateless));
        assert_eq!(again.known(&server("two")).await, None, "a guess is nobody else's");
        assert_eq!(again.known(&server("three")).await, None);
        // A guess that proved right is not one any more.
        eras.learn(&server("two"), Way::Initialize, false).await;
        eras.inner.save().unwrap();
        let again = Eras::under(home.path());
        assert_eq!(again.known(&server("two")).await, Some(Way::Initialize));
    }

    #[tokio::test]
    async fn a_damaged_file_is_as_good_as_none() {
        let home = tempfile::tempdir().unwrap();
        let eras = Eras::under(home.path());
        eras.learn(&server("one"), Way::Stateless, true).await;
        eras.inner.save().unwrap();
        std::fs::write(home.path().join(FOLDER).join(FILE), b"{\"servers\":[7").unwrap();
        assert_eq!(Eras::under(home.path()).known(&server("one")).await, None);
    }
}
