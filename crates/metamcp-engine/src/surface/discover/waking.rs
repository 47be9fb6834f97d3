//! Servers that a search needs and that never listed their tools: started, and waited for as far as they may have what is
//! looked for.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use metamcp_config::config::Transport;
use metamcp_search::search::{Strategy, nothing_fits, tokens};
use metamcp_surface::discover::DiscoverRequest;
use metamcp_types::moment::Moment;

use crate::catalog::Snapshot;
use crate::compute;
use crate::router::Entry;
use crate::surface::View;

/// How long a search waits for servers in general. Only those that may have what is looked for get all of its budget.
pub(in crate::surface) const GENERAL_WAIT: Duration = Duration::from_millis(2_500);
/// Most searches that are remembered as unfinished; a client has one at a time.
const MAX_UNFINISHED: usize = 64;
/// Words that say nothing about what a server is for.
const COMMON: [&str; 8] = ["mcp", "server", "tool", "the", "and", "for", "with", "npx"];

/// Searches whose answer said to ask the same again, by principal and what was asked.
#[derive(Debug, Default)]
pub(in crate::surface) struct UnfinishedSearches(VecDeque<u64>);

impl UnfinishedSearches {
    fn add(&mut self, search: u64) {
        if !self.0.contains(&search) {
            self.0.push_back(search);
        }
        if self.0.len() > MAX_UNFINISHED {
            self.0.pop_front();
        }
    }

    /// Whether this one is among them; it is not any more.
    fn take(&mut self, search: u64) -> bool {
        let at = self.0.iter().position(|known| *known == search);
        at.is_some_and(|at| self.0.remove(at).is_some())
    }
}

impl View {
    /// Starts the searched servers whose tools are unknown. A server that was asked for by name is waited for as a call
    /// would; others for a moment, and those that may have what is looked for within the budget. A server that failed
    /// before, or was not ready in time, is started but not waited for again, or it would slow down every search while
    /// it is broken.
    pub(super) async fn wake_searched(&self, searched: &[Entry], request: &DiscoverRequest) {
        if let ([entry], Some(_)) = (searched, &request.server) {
            let is_unknown = |snapshot: &Snapshot| snapshot.known(entry.definition).is_none();
            if is_unknown(&*self.latest_snapshot().await) && entry.config.is_enabled() {
                // Another gateway may have started it meanwhile, and left its list on disk.
                self.surface.catalog.look_again(&[entry.definition]).await;
                if is_unknown(&self.snapshot()) {
                    // Why it cannot be started is part of the answer.
                    drop(self.listed(entry).await);
                }
            }
            return;
        }
        let snapshot = self.latest_snapshot().await;
        let is_hopeless = |entry: &&Entry| {
            snapshot.known(entry.definition).is_none()
                && (self.surface.router.is_missed(entry.id) || self.has_failed(entry))
        };
        let (hopeless, hopeful): (Vec<&Entry>, Vec<&Entry>) =
            searched.iter().partition(|entry| is_hopeless(entry));
        for entry in hopeless.into_iter().filter(|entry| entry.config.is_enabled()) {
            // Why it cannot be started is part of the answer.
            drop(self.surface.router.wake(entry.id));
        }
        let hopeful: Vec<Entry> = hopeful.into_iter().cloned().collect();
        let budget = self.surface.options.discover_budget;
        let limit = self.surface.router.clock.now() + budget;
        self.wake_unknown(&hopeful, budget.min(GENERAL_WAIT)).await;
        let search = self.fingerprint(request);
        // Whoever asks again, as the last answer said, waits for the servers that were missing in it.
        let is_repeated = self.surface.unfinished_searches.lock().take(search);
        self.await_fitting(searched, request, is_repeated, limit).await;
        let snapshot = self.snapshot();
        let is_missing = |entry: &&Entry| {
            entry.config.is_enabled() && snapshot.known(entry.definition).is_none()
        };
        for entry in hopeful.iter().filter(is_missing) {
            self.surface.router.missed(entry.id);
        }
        if searched.iter().any(|entry| is_missing(&entry) && self.is_starting(entry)) {
            self.surface.unfinished_searches.lock().add(search);
        }
    }

    /// What was asked, and by whom.
    fn fingerprint(&self, request: &DiscoverRequest) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.principal, request.binding()).hash(&mut hasher);
        hasher.finish()
    }

    /// Waits for servers that are still starting and may have what is looked for: their name fits, nothing that is known
    /// does, or the search is repeated for them.
    async fn await_fitting(
        &self,
        searched: &[Entry],
        request: &DiscoverRequest,
        is_repeated: bool,
        limit: Moment,
    ) {
        let mut seen = self.surface.router.state_changes.now();
        let mut waiting: Vec<&Entry> = searched.iter().collect();
        let mut generation = None;
        let mut is_found = false;
        loop {
            let snapshot = self.latest_snapshot().await;
            waiting.retain(|entry| {
                let unknown = snapshot.known(entry.definition).is_none();
                unknown && !self.has_failed(entry) && self.is_starting(entry)
            });
            if waiting.is_empty() {
                return;
            }
            let wanted = request.query.as_deref().or(request.tool.as_deref());
            let fits = |entry: &&Entry| wanted.is_some_and(|wanted| may_have(entry, wanted));
            if !is_repeated && !waiting.iter().any(fits) {
                if generation != Some(snapshot.generation) {
                    generation = Some(snapshot.generation);
                    is_found = self.is_found(request, &snapshot).await;
                }
                if is_found {
                    return;
                }
            }
            tokio::select! {
                () = self.surface.router.state_changes.moved_on(&mut seen) => {}
                () = self.surface.router.clock.sleep_until(limit) => return,
            }
        }
    }

    /// Whether what is looked for is among the tools that are known.
    async fn is_found(&self, request: &DiscoverRequest, snapshot: &Arc<Snapshot>) -> bool {
        if let Some(tool) = &request.tool {
            return self.tool_named(None, tool).is_ok();
        }
        let Some(query) = request.query.clone() else { return true };
        let snapshot = Arc::clone(snapshot);
        let searching = compute::run(move || {
            let hits = snapshot.index().search(&query, Strategy::Hybrid, 2, None);
            !hits.is_empty() && !nothing_fits(&query, &hits)
        });
        searching.await.unwrap_or(true)
    }

    fn has_failed(&self, entry: &Entry) -> bool {
        self.surface.router.view(entry.id).is_some_and(|view| view.last_failure.is_some())
    }

    fn is_starting(&self, entry: &Entry) -> bool {
        let view = self.surface.router.view(entry.id);
        view.is_some_and(|view| view.state.is_some() || view.waiting_since.is_some())
    }

    /// Starts every server whose tools were never listed, and waits for them within the budget. Old lists are refreshed
    /// too, but not waited for: the stored list answers.
    pub(in crate::surface) async fn wake_unknown(&self, searched: &[Entry], budget: Duration) {
        let mut seen = self.surface.router.state_changes.now();
        let start = self.surface.router.clock.now();
        let snapshot = self.snapshot();
        let unknown = |entry: &&Entry| {
            entry.config.is_enabled()
                && snapshot.known(entry.definition).is_none()
                && snapshot.failure(entry.definition).is_none()
        };
        let unknown: Vec<_> =
            searched.iter().filter(unknown).map(|entry| entry.definition).collect();
        self.surface.catalog.look_again(&unknown).await;
        let snapshot = self.snapshot();
        let mut waiting: Vec<&Entry> = Vec::new();
        for entry in searched.iter().filter(|entry| entry.config.is_enabled()) {
            match snapshot.known(entry.definition) {
                Some(known) if !self.surface.catalog.is_old(known, start) => {}
                Some(known) => {
                    // A list cached on disk is good enough until something needs the server itself.
                    if known.listed_at.is_some() {
                        self.surface.router.relist(entry.id);
                    }
                }
                None => {
                    if self.surface.router.wake(entry.id).is_ok() {
                        waiting.push(entry);
                    }
                }
            }
        }
        let limit = start + budget;
        loop {
            let snapshot = self.snapshot();
            waiting.retain(|entry| {
                let known = snapshot.known(entry.definition).is_some()
                    || snapshot.failure(entry.definition).is_some();
                let view = self.surface.router.view(entry.id);
                !known
                    && view.is_some_and(|view| view.state.is_some() || view.waiting_since.is_some())
            });
            if waiting.is_empty() {
                return;
            }
            tokio::select! {
                () = self.surface.router.state_changes.moved_on(&mut seen) => {}
                () = self.surface.router.clock.sleep_until(limit) => return,
            }
        }
    }
}

/// Whether the configuration of a server has a word of the query in it: its name, its description, its tags, or the
/// package or address that it comes from.
fn may_have(entry: &Entry, query: &str) -> bool {
    let config = &entry.config;
    let source = match &config.transport {
        Transport::Stdio(local) => {
            let package = local.args.iter().find(|argument| !argument.starts_with('-'));
            package.map_or("", |package| package.rsplit(['/', '\\']).next().unwrap_or_default())
        }
        Transport::Http(remote) => remote.url.split('/').nth(2).unwrap_or_default(),
        Transport::OpenApi(api) => api.description.rsplit('/').next().unwrap_or_default(),
    };
    let described = [&*entry.name, config.description.as_deref().unwrap_or_default(), source];
    let tags = config.tags.iter().map(String::as_str);
    let words: HashSet<String> = described.into_iter().chain(tags).flat_map(tokens).collect();
    let is_telling = |word: &&String| word.len() > 2 && !COMMON.contains(&word.as_str());
    tokens(query).iter().filter(is_telling).any(|word| words.contains(word))
}
