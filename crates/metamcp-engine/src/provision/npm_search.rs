//! The user's own npm asked for servers: beside the registries, through its mirror, remembered for a day.

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

/// How long what it said is believed, as of a registry.
const FRESH: u64 = 24 * 60 * 60 * 1000;
/// After a failure it is left alone for this long.
const PAUSE: u64 = 10 * 60 * 1000;
/// To search. Who asks waits for it.
const SEARCH: Duration = Duration::from_secs(10);
/// Largest answer that is looked at: twenty packages are some kilobytes.
const MAX_ANSWER: usize = 1024 * 1024;
/// Searches that are remembered.
const MOST_SEARCHES: usize = 64;
/// Largest file of them.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Its file, beside those of the registries.
const FILE: &str = "npm-search.json.gz";
/// Format of the file.
const FORMAT: u32 = 1;

/// See the module.
pub(super) struct NpmSearch {
    home: PathBuf,
    /// The folder npm is run in.
    work: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_loaded: bool,
    cache: SearchCache,
    /// When it last failed, and what is said about it.
    failed: Option<(u64, Option<String>)>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct SearchCache {
    format: u32,
    /// The newest first.
    searches: VecDeque<Search>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Search {
    /// The words, as npm was given them.
    words: Vec<String>,
    /// When, in milliseconds since 1970.
    at: u64,
    candidates: Vec<Candidate>,
}

impl NpmSearch {
    pub(super) fn new(home: &Path, work: PathBuf) -> NpmSearch {
        NpmSearch { home: home.to_owned(), work, state: Mutex::default() }
    }

    /// What npm finds for a need, and what the reader should know of a failure.
    pub(super) async fn candidates(&self, need: &str) -> (Vec<Candidate>, Option<String>) {
        let Some(words) = npm_query(need) else { return (Vec::new(), None) };
        // Held while it is asked: of several that want the same one asks.
        let mut state = self.state.lock().await;
        if !state.is_loaded {
            let home = self.home.clone();
            state.cache = spawn_blocking(move || load(&home)).await.unwrap_or_default();
            state.is_loaded = true;
        }
        let now = unix_millis();
        let is_fresh = |at: u64| at <= now && now - at < FRESH;
        let known = state.cache.searches.iter().find(|one| one.words == words);
        if let Some(known) = known.filter(|known| is_fresh(known.at)) {
            return (known.candidates.clone(), None);
        }
        let stale = known.map(|known| known.candidates.clone()).unwrap_or_default();
        if let Some((at, note)) = &state.failed
            && now.saturating_sub(*at) < PAUSE
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
                cache.searches.truncate(MOST_SEARCHES);
                let (home, bytes) = (self.home.clone(), packed(cache));
                // Not written, it is asked again next time.
                drop(spawn_blocking(move || save(&home, &bytes)).await);
                (candidates, None)
            }
            Err(note) => {
                state.failed = Some((now, note.clone()));
                (stale, note)
            }
        }
    }

    /// The error is what is said about it; nothing where there is nothing to mend.
    async fn ask(&self, words: &[String]) -> Result<Vec<Candidate>, Option<String>> {
        let note = |why: &dyn std::fmt::Display| Some(format!("npm search did not answer: {why}"));
        clients::prepare(&self.work).map_err(|error| note(&error))?;
        let limit = format!("--searchlimit={MOST_FOUND}");
        let mut args = vec!["search", "--json", &limit, "--"];
        args.extend(words.iter().map(String::as_str));
        let printed: Printed = match clients::run(NPM, &args, &self.work, SEARCH).await {
            Ok(printed) => printed,
            // Who has no npm has no use for what it finds.
            Err(ClientError::Missing { .. }) => return Err(None),
            Err(error) => return Err(note(&error)),
        };
        if printed.stdout.len() > MAX_ANSWER {
            return Err(note(&"its answer is too large"));
        }
        let document: Value = serde_json::from_slice(&printed.stdout).unwrap_or_default();
        match npm_search(&document) {
            Ok(candidates) => Ok(candidates.into_iter().filter_map(sound).collect()),
            Err(NoSearch::NotThere) => Err(None),
            Err(NoSearch::Failed(_)) if !printed.succeeded && document.is_null() => {
                Err(note(&printed.complaint()))
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
    cache.searches.truncate(MOST_SEARCHES);
    for search in &mut cache.searches {
        let all = std::mem::take(&mut search.candidates).into_iter().take(MOST_FOUND);
        // Whatever a file says, these are npm's and nobody else's.
        let of_npm = all.map(|candidate| Candidate { source: Source::Npm, ..candidate });
        search.candidates = of_npm.filter_map(sound).collect();
    }
    cache
}

fn save(home: &Path, bytes: &[u8]) -> Result<(), FileError> {
    folder(home)?.replace(FILE, bytes)
}
