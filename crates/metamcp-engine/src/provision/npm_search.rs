//! Searches npm for servers with the user's own client, beside the registries; cached for a day.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use metamcp_provisioning::provision::{
    Candidate, MOST_FOUND, NoSearch, Source, npm_query, npm_search, sound,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::clients::{self, ClientError, NPM, Printed};
use super::registry::{packed, unpacked};
use crate::clock::unix_millis;
use crate::files::{Directory, FileError};

/// Cache lifetime, as for a registry.
const CACHE_TTL_MS: u64 = 24 * 60 * 60 * 1000;
/// Backoff after a failure.
const BACKOFF_MS: u64 = 10 * 60 * 1000;
/// Time limit; the caller waits for it.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest response parsed: twenty packages are some kilobytes.
const MAX_ANSWER: usize = 1024 * 1024;
/// Cached searches.
const MAX_SEARCHES: usize = 64;
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Its file, beside those of the registries.
const FILE: &str = "npm-search.json.gz";
const FORMAT: u32 = 1;

pub(super) struct NpmSearch {
    home: PathBuf,
    /// The working directory of npm.
    work: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_loaded: bool,
    cache: SearchCache,
    /// When it last failed, and the warning.
    failed: Option<(u64, Option<String>)>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct SearchCache {
    format: u32,
    searches: VecDeque<Search>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Search {
    /// The search terms passed to npm.
    words: Vec<String>,
    at: u64,
    candidates: Vec<Candidate>,
}

impl NpmSearch {
    pub(super) fn new(home: &Path, work: PathBuf) -> NpmSearch {
        NpmSearch { home: home.to_owned(), work, state: Mutex::default() }
    }

    /// The packages npm finds for a need, and a warning if it failed.
    pub(super) async fn candidates(&self, need: &str) -> (Vec<Candidate>, Option<String>) {
        let Some(words) = npm_query(need) else { return (Vec::new(), None) };
        // Locked during the search: concurrent callers share one.
        let mut state = self.state.lock().await;
        if !state.is_loaded {
            let home = self.home.clone();
            state.cache = spawn_blocking(move || load(&home)).await.unwrap_or_default();
            state.is_loaded = true;
        }
        let now = unix_millis();
        let is_fresh = |at: u64| at <= now && now - at < CACHE_TTL_MS;
        let known = state.cache.searches.iter().find(|one| one.words == words);
        if let Some(known) = known.filter(|known| is_fresh(known.at)) {
            return (known.candidates.clone(), None);
        }
        let stale = known.map(|known| known.candidates.clone()).unwrap_or_default();
        if let Some((at, note)) = &state.failed
            && now.saturating_sub(*at) < BACKOFF_MS
        {
            return (stale, note.clone());
        }
        match self.ask(&words).await {
            Ok(candidates) => {
                state.failed = None;
                let cache = &mut state.cache;
                cache.format = FORMAT;
                cache.searches.retain(|one| one.words != words);
                cache.searches.push_front(Search {
                    words,
                    at: now,
                    candidates: candidates.clone(),
                });
                cache.searches.truncate(MAX_SEARCHES);
                let (home, bytes) = (self.home.clone(), packed(cache));
                // If this fails, the search is repeated next time.
                drop(spawn_blocking(move || save(&home, &bytes)).await);
                (candidates, None)
            }
            Err(note) => {
                state.failed = Some((now, note.clone()));
                (stale, note)
            }
        }
    }

    /// The error is the warning for the user; nothing if there is nothing to fix.
    async fn ask(&self, words: &[String]) -> Result<Vec<Candidate>, Option<String>> {
        let note = |why: &dyn std::fmt::Display| Some(format!("npm search failed: {why}"));
        clients::prepare(&self.work).map_err(|error| note(&error))?;
        let limit = format!("--searchlimit={MOST_FOUND}");
        let mut args = vec!["search", "--json", &limit, "--"];
        args.extend(words.iter().map(String::as_str));
        let printed: Printed = match clients::run(NPM, &args, &self.work, SEARCH_TIMEOUT).await {
            Ok(printed) => printed,
            // Without npm its packages could not be installed anyway.
            Err(ClientError::Missing { .. }) => return Err(None),
            Err(error) => return Err(note(&error)),
        };
        if printed.stdout.len() > MAX_ANSWER {
            return Err(note(&"its response is too large"));
        }
        let document: Value = serde_json::from_slice(&printed.stdout).unwrap_or_default();
        match npm_search(&document) {
            Ok(candidates) => Ok(candidates.into_iter().filter_map(sound).collect()),
            Err(NoSearch::NotThere) => Err(None),
            Err(NoSearch::Failed(_)) if !printed.succeeded && document.is_null() => {
                Err(note(&printed.error_output()))
            }
            Err(NoSearch::Failed(why)) => Err(note(&why)),
        }
    }
}

fn folder(home: &Path) -> Result<Directory, FileError> {
    Directory::home_or_create(home)?.inside_or_create("provision")?.inside_or_create("registry")
}

fn load(home: &Path) -> SearchCache {
    let read = || -> Option<SearchCache> {
        unpacked(&folder(home).ok()?.open(FILE).ok()??.read(MAX_FILE).ok()?)
    };
    let mut cache = read().filter(|cache| cache.format == FORMAT).unwrap_or_default();
    cache.searches.truncate(MAX_SEARCHES);
    for search in &mut cache.searches {
        let all = std::mem::take(&mut search.candidates).into_iter().take(MOST_FOUND);
        // Whatever the file says, these come from npm.
        let of_npm = all.map(|candidate| Candidate { source: Source::Npm, ..candidate });
        search.candidates = of_npm.filter_map(sound).collect();
    }
    cache
}

fn save(home: &Path, bytes: &[u8]) -> Result<(), FileError> {
    folder(home)?.replace(FILE, bytes)
}
