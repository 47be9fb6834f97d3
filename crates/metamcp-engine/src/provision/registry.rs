//! One registry: all its servers remembered on disk for a day, then only what changed is fetched. One that does not
//! answer is answered for by what is remembered.

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
use metamcp_core::provision::{Candidate, Page, Source, Status, day, page};
use metamcp_core::secret::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::clock::unix_millis;
use crate::files::{Directory, FileError, component};
use crate::task;
use crate::web::{self, Outgoing, Plan, Tunnel, Web};

/// How long what is remembered needs no second look.
const FRESH: u64 = 24 * 60 * 60 * 1000;
/// Clocks differ; what changed in the minutes before the last look is fetched again.
const OVERLAP: u64 = 5 * 60 * 1000;
/// After a failure the registry is left alone for this long.
const PAUSE: u64 = 10 * 60 * 1000;
/// How long a caller waits for a registry; the reading goes on without it.
const PATIENCE: Duration = Duration::from_secs(15);
/// For one page.
const ONE_PAGE: Duration = Duration::from_secs(10);
/// To connect.
const CONNECT: Duration = Duration::from_secs(5);
/// Largest page: a hundred servers, of which an honest one has a few kilobytes.
const MAX_PAGE: usize = 8 * 1024 * 1024;
/// Most pages of one look, so that one that goes in circles ends.
const MOST_PAGES: usize = 600;
/// Most servers remembered of one registry.
const MOST: usize = 60_000;
/// Largest file of remembered servers; compressed, the official registry is a hundredth of it.
const MAX_FILE: u64 = 32 * 1024 * 1024;
/// Largest of them unpacked: what a small file unpacks to is decided by who wrote it.
const MAX_UNPACKED: u64 = 128 * 1024 * 1024;
/// What is written where no registry is wanted.
const NONE: &str = "none";
/// Format of the files: JSON, compressed.
const FORMAT: u32 = 2;

/// See the module.
pub struct Registry {
    base: String,
    bearer: Option<Secret>,
    home: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Whether the file was looked for.
    is_loaded: bool,
    kept: Kept,
    shared: Arc<Vec<Candidate>>,
    /// When the last look failed, and why.
    failed: Option<(u64, String)>,
}

/// What is remembered, as it is on disk.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    format: u32,
    base: String,
    /// When the last complete look began, in milliseconds since 1970; 0 before the first.
    synced: u64,
    candidates: Vec<Candidate>,
}

/// Registries as the settings name them: addresses with spaces between them, each with a variable behind a bar.
pub(super) fn configured(list: &str, home: &Path) -> Vec<Registry> {
    let one = |word: &str| {
        let (base, variable) = match word.split_once('|') {
            Some((base, variable)) => (base, Some(variable)),
            None => (word, None),
        };
        let bearer = variable.and_then(|name| Some(Secret::new(name, std::env::var(name).ok()?)));
        let base = base.trim_end_matches('/').trim_end_matches("/v0.1").to_owned();
        let (home, state) = (home.to_owned(), Arc::default());
        Registry { base, bearer, home, state }
    };
    let words = list.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty() && *word != NONE);
    words.map(one).collect()
}

impl Registry {
    /// All its servers as far as they are known, and what is wrong with the registry, if anything.
    pub async fn candidates(self: &Arc<Self>) -> (Arc<Vec<Candidate>>, Option<String>) {
        let registry = Arc::clone(self);
        // A task of its own: what is not there in time is fetched all the same, for the next time.
        let reading = task::spawn("registry", async move { registry.refresh(false).await });
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => (Arc::default(), Some(format!("{} could not be read", self.base))),
            Err(_) => (
                Arc::default(),
                Some(format!(
                    "{} is still being read for the first time; ask again in a minute",
                    self.base
                )),
            ),
        }
    }

    /// Its address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Fetches what changed, however short ago that was last done: how many servers it has, and what is wrong with it.
    pub async fn refresh_now(&self) -> (usize, Option<String>) {
        let (known, note) = self.refresh(true).await;
        (known.len(), note)
    }

    async fn refresh(&self, at_once: bool) -> (Arc<Vec<Candidate>>, Option<String>) {
        // Held while it is read: of several that want it one reads, and the others wait for that.
        let mut state = self.state.lock().await;
        if !state.is_loaded {
            state.is_loaded = true;
            state.kept = self.load();
            state.shared = Arc::new(state.kept.candidates.clone());
        }
        let now = unix_millis();
        let is_fresh =
            now.saturating_sub(state.kept.synced) < FRESH && state.kept.synced <= now + OVERLAP;
        let note = |why: &str, known: usize| {
            let instead = if known == 0 { "" } else { "; what is remembered of it is used" };
            Some(format!("{} does not answer ({why}){instead}", self.base))
        };
        if is_fresh && !at_once {
            return (Arc::clone(&state.shared), None);
        }
        if let Some((at, why)) = &state.failed
            && now.saturating_sub(*at) < PAUSE
            && !at_once
        {
            return (Arc::clone(&state.shared), note(why, state.shared.len()));
        }
        let mut kept = std::mem::take(&mut state.kept);
        let done = self.sync(&mut kept, now).await;
        state.shared = Arc::new(kept.candidates.clone());
        state.kept = kept;
        match done {
            Ok(()) => {
                state.failed = None;
                // Not written, it is read again next time.
                drop(self.save(&state.kept));
                (Arc::clone(&state.shared), None)
            }
            Err(why) => {
                let answer = (Arc::clone(&state.shared), note(&why, state.shared.len()));
                state.failed = Some((now, why));
                answer
            }
        }
    }

    /// Everything, or what changed since the last time.
    async fn sync(&self, kept: &mut Kept, now: u64) -> Result<(), String> {
        let since = (kept.synced > 0).then(|| day(kept.synced.saturating_sub(OVERLAP)));
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let mut url = format!("{}/v0.1/servers?version=latest&limit=100", self.base);
            if let Some(since) = &since {
                url.push_str(&format!("&updated_since={}", encoded(since)));
            }
            if let Some(cursor) = &cursor {
                url.push_str(&format!("&cursor={}", encoded(cursor)));
            }
            let Page { candidates, next, is_page } = self.page(&url).await?;
            if !is_page {
                return Err("what it says is no list of servers".to_owned());
            }
            for candidate in candidates {
                kept.candidates.retain(|known| known.name != candidate.name || since.is_none());
                // One that was taken back is remembered as such: whoever has it installed wants to know.
                if kept.candidates.len() < MOST
                    && (since.is_some() || !matches!(candidate.status, Status::Deleted(_)))
                {
                    kept.candidates.push(candidate);
                }
            }
            if next.is_none() || next == cursor {
                kept.synced = now;
                kept.format = FORMAT;
                kept.base.clone_from(&self.base);
                return Ok(());
            }
            cursor = next;
        }
        Err(format!("it has more than {MOST_PAGES} pages"))
    }

    async fn page(&self, url: &str) -> Result<Page, String> {
        let body = tokio::time::timeout(ONE_PAGE, fetch(url, self.bearer.as_ref()))
            .await
            .map_err(|_| "it is slow".to_owned())??;
        let document: Value =
            serde_json::from_slice(&body).map_err(|_| "what it says is no JSON".to_owned())?;
        Ok(page(&self.base, &document))
    }

    fn folder(&self) -> Result<Directory, FileError> {
        let home = Directory::home_or_create(&self.home)?;
        home.inside_or_create("provision")?.inside_or_create("registry")
    }

    /// What is on disk of it.
    pub(super) fn load(&self) -> Kept {
        let read = || -> Option<Kept> {
            let mut file = self.folder().ok()?.open(&self.file()).ok()??;
            unpacked(&file.read(MAX_FILE).ok()?)
        };
        let kept = read().filter(|kept| kept.format == FORMAT && kept.base == self.base);
        kept.unwrap_or_default()
    }

    fn save(&self, kept: &Kept) -> Result<(), FileError> {
        self.folder()?.replace(&self.file(), &packed(kept))
    }

    /// Puts in its place what a snapshot has of it; how many servers that are, and as of when. Nothing if the snapshot
    /// has nothing of it, or nothing newer.
    pub(super) fn take(&self, all: &mut Vec<Kept>) -> Result<Option<(usize, u64)>, FileError> {
        let Some(at) = all.iter().position(|kept| kept.base == self.base) else { return Ok(None) };
        let mut kept = all.swap_remove(at);
        if kept.synced <= self.load().synced || kept.synced > unix_millis() + OVERLAP {
            return Ok(None);
        }
        kept.candidates.truncate(MOST);
        for candidate in &mut kept.candidates {
            // Whoever made the file cannot speak for anybody else.
            candidate.source = Source::Registry(self.base.clone());
        }
        kept.format = FORMAT;
        self.save(&kept)?;
        Ok(Some((kept.candidates.len(), kept.synced)))
    }

    fn file(&self) -> String {
        format!("{}.json.gz", component(&self.base))
    }
}

/// A document as it is kept: JSON, compressed.
pub(super) fn packed(document: &impl Serialize) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail, nor does writing out text and lists.
    let json = serde_json::to_vec(document).unwrap_or_default();
    let written = writer.write_all(&json).and_then(|()| writer.finish());
    written.unwrap_or_default()
}

/// The document in such a file.
pub(super) fn unpacked<T: DeserializeOwned>(raw: &[u8]) -> Option<T> {
    let mut json = Vec::new();
    GzDecoder::new(raw).take(MAX_UNPACKED).read_to_end(&mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

/// One GET, bounded, without redirects. Plain HTTP only to this machine itself.
async fn fetch(url: &str, bearer: Option<&Secret>) -> Result<Bytes, String> {
    let local = ["http://127.0.0.1:", "http://localhost:", "http://[::1]:"];
    if !url.starts_with("https://") && !local.iter().any(|start| url.starts_with(start)) {
        return Err("its address is not one of https".to_owned());
    }
    // Through the tunnel that the surroundings name, as package clients go.
    let plan = Plan { tunnel: Tunnel::from_surroundings(), ..Plan::plain(CONNECT, 1) };
    let web = Web::new(plan).map_err(|_| "TLS cannot be set up".to_owned())?;
    let mut request = Request::get(url)
        .header(ACCEPT, "application/json")
        .body(Outgoing::of(Bytes::new()))
        .map_err(|_| "its address cannot be used".to_owned())?;
    if let Some(bearer) = bearer {
        let value = HeaderValue::try_from(format!("Bearer {}", bearer.expose()));
        let mut value = value.map_err(|_| format!("{} holds no token", bearer.name()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let answer = web.send(request).await.map_err(|_| "no connection".to_owned())?;
    if answer.status() != StatusCode::OK {
        return Err(format!("status {}", answer.status().as_u16()));
    }
    let body = web::whole(answer.into_body(), MAX_PAGE).await;
    body.map_err(|_| "its answer is cut or too long".to_owned())
}

/// A value as it may stand in a query.
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
