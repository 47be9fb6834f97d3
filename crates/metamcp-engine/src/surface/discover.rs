//! `mcp_discover`: searches the catalog, starts servers that never listed their tools, and names those that were not ready.
//! Owns: what is found and how much of it is shown, the state of each server in words.      Never: ranks, renders, calls a tool.
//! In: a `DiscoverRequest`.  Out: text for a model, JSON for programs.
//! Tests: `metamcp/tests/surface/{cold,paging}.rs`, `metamcp/tests/promises/discovery.rs`.

mod waking;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::breaker::Phase;
use metamcp_calls::dispatch::ServerView;
use metamcp_calls::lifecycle::State;
use metamcp_calls::pool::ServerId;
use metamcp_config::config::ServerConfig;
use metamcp_search::search::{
    Features, Hit, Index, Near, Nearness, Shortlist, Strategy, nothing_fits, shortlist,
};
use metamcp_search::usage_history::Prior;
use metamcp_surface::discover::{
    self, Detail, DiscoverRequest, DiscoverResponse, FailedServer, Operation, ServerLine,
    ServerState,
};
use metamcp_tools::about;
use metamcp_tools::cursor::CursorError;
use metamcp_tools::signature;
use metamcp_types::next::{Advice, Audience, Next};
use metamcp_types::text;
use metamcp_wire::handshake::Peer;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_DEPTH;
use serde_json::{Value, json};

use super::names::nearest_ids;
use super::reply::{self, Code, ErrorObject};
use super::semantic::{self, QueryRanker};
use super::{Finished, Step, View};
use crate::catalog::Snapshot;
use crate::compute;
use crate::config::Project;
use crate::router::{Caller, Entry};
use crate::shapes::LearnedResults;
pub(super) use waking::{GENERAL_WAIT, UnfinishedSearches};

/// Longest page of declarations, in bytes: about as many tokens as a long file.
const MAX_DECLARATIONS: usize = 32 * 1024;
/// Longest reason shown behind a server's name: what happened, and its stderr.
const MAX_REASON: usize = 400;
/// Hits of a longer list that show what they return.
const RETURNS_SHOWN: usize = 5;
/// The note for a program whose search found nothing that fits.
const NOTHING_FITS: &str =
    "nothing here seems to do this; mcp_provision can look for a server that does";
/// A pause shorter than this is over before anybody asks again; and a command at a shell starts afresh each time.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The note for a running server that does not declare the capability.
const NO_TOOLS: &str = "announces no tools";

/// The response to a discovery, in both forms.
#[derive(Debug)]
pub struct Discovered {
    /// For a model.
    pub text: String,
    /// For a program.
    pub json: Value,
    /// The tools shown, where they were searched for.
    pub ids: Vec<String>,
    /// How to list the servers' resources and prompts.
    pub offers: Option<String>,
}

/// Why a hit ranks where it does, by the strategy `hybrid`, or by `transformer` where that is configured.
#[derive(Debug)]
pub struct Why {
    /// `server:tool`.
    pub id: String,
    pub score: f32,
    /// The chance that it is the right one.
    pub confidence: Option<f32>,
    /// The words of the query that it has, and how rare each is.
    pub words: Vec<(String, f32)>,
    /// The features that re-ranking used, if it was re-ranked.
    pub features: Option<Features>,
    /// Its similarity by the transformer, in standard deviations; only where that is configured.
    pub nearness: Option<Near>,
}

/// What was found, before it is rendered.
pub(super) struct SearchResults {
    pub(super) hits: Vec<Hit>,
    /// How many of them are worth showing, where that is left to us.
    shortlist: Option<Shortlist>,
    nothing_fits: bool,
    /// What the tools of the first hits return.
    returns: Vec<Option<String>>,
    total: usize,
    pub(super) next_cursor: Option<String>,
    pub(super) snapshot: Arc<Snapshot>,
    /// The servers that were searched.
    pub(super) searched: Vec<Entry>,
    states: Vec<(ServerState, Option<String>)>,
    offers: Option<String>,
    pub(super) pending: Vec<String>,
    pub(super) failed: Vec<(String, String)>,
    pub(super) note: Option<String>,
    /// What ranked, if something was searched for.
    pub(super) strategy: Option<Strategy>,
}

impl View {
    pub(super) fn mcp_discover(&self, arguments: Option<&[u8]>, caller: &Caller) -> Step {
        let arguments = match arguments.map(|raw| object::strict_value(raw, MAX_DEPTH)).transpose()
        {
            Ok(arguments) => arguments,
            Err(defect) => {
                return Step::Now(Finished::invalid(format!(
                    "the arguments of mcp_discover cannot be used: {defect}"
                )));
            }
        };
        let request = match DiscoverRequest::decode(arguments.as_ref()) {
            Ok(request) => request,
            Err(discover::BadRequest::Unknown(wrong)) => {
                let hint = "Nothing was searched. Correct the name and ask again.";
                let wrong = ErrorObject::new(Code::ValidationInput, wrong).hint(hint);
                return Step::Now(Finished::error(&wrong));
            }
            Err(bad) => return Step::Now(Finished::invalid(bad.to_string())),
        };
        let (view, caller) = (self.clone(), caller.clone());
        Step::Later(Box::pin(async move {
            let query = request.query.clone();
            let written = view.search(request, |view, request, results| {
                let text = view.response(results, request, |response| {
                    view.response_text(request, results, response)
                });
                let result = json!({ "content": [{ "type": "text", "text": text }] });
                (result.to_string().into_bytes(), results.ids())
            });
            match written.await {
                Ok((result, ids)) => {
                    if let Some(query) = query.filter(|_| !ids.is_empty()) {
                        view.surface.searched(&caller, &query, &ids);
                    }
                    Finished::Result(result)
                }
                Err(finished) => finished,
            }
        }))
    }

    /// Finds tools and servers.
    pub async fn discover(&self, request: DiscoverRequest) -> Result<Discovered, Finished> {
        let rendered = self.search(request, |view, request, results| {
            view.response(results, request, |response| Discovered {
                text: view.response_text(request, results, response),
                json: view.response_json(request, response),
                ids: if request.query.is_some() { results.ids() } else { Vec::new() },
                offers: results.offers.clone(),
            })
        });
        rendered.await
    }

    /// The same for a program, which picks out what it wants.
    pub(super) async fn discover_json(
        &self,
        request: DiscoverRequest,
        pick: impl FnOnce(&Value) -> String + Send + 'static,
    ) -> Result<String, Finished> {
        let picked = self.search(request, |view, request, results| {
            view.response(results, request, |response| pick(&view.response_json(request, response)))
        });
        picked.await
    }

    /// Renders the results.
    fn response<T>(
        &self,
        results: &SearchResults,
        request: &DiscoverRequest,
        render: impl FnOnce(&DiscoverResponse<'_>) -> T,
    ) -> T {
        let overview = request.is_overview();
        let about = |entry: &Entry| {
            let known = results.snapshot.known(entry.definition)?;
            about::of(&entry.name, &known.tools)
        };
        let abouts: Vec<Option<String>> = results.searched.iter().map(about).collect();
        let lines: Vec<ServerLine<'_>> = results
            .searched
            .iter()
            .zip(&results.states)
            .zip(&abouts)
            .map(|((entry, state), about)| line(entry, state, &results.snapshot, about.as_deref()))
            .collect();
        let pending: Vec<&str> = results.pending.iter().map(String::as_str).collect();
        let failed: Vec<FailedServer<'_>> =
            results.failed.iter().map(|(name, reason)| FailedServer { name, reason }).collect();
        render(&DiscoverResponse {
            servers: &lines,
            hits: &results.hits,
            total: results.total,
            shortlist: results.shortlist,
            nothing_fits: results.nothing_fits,
            returns: &results.returns,
            provisions: self.provisions(),
            next_cursor: results.next_cursor.as_deref(),
            pending: if overview { &[] } else { &pending },
            failed: if overview { &[] } else { &failed },
            note: results.note.as_deref(),
            strategy: results.strategy,
            audience: self.audience,
        })
    }

    fn response_json(&self, request: &DiscoverRequest, response: &DiscoverResponse<'_>) -> Value {
        let mut json = discover::to_json(request, response);
        if request.is_overview()
            && let Some(project) = self.waiting()
        {
            json["project"] = json!({ "file": project.path, "waiting": project.preview.counts() });
        }
        json
    }

    fn response_text(
        &self,
        request: &DiscoverRequest,
        results: &SearchResults,
        response: &DiscoverResponse<'_>,
    ) -> String {
        let overview = request.is_overview();
        // A whole server with its schemas is for writing code against it.
        let whole = request.detail == Detail::Schema
            && request.query.is_none()
            && request.tool.is_none()
            && request.offset == 0;
        match results.searched.as_slice() {
            [entry]
                if whole && !overview && self.surface.code.is_on() && !results.hits.is_empty() =>
            {
                let mut text = self.declarations(entry, &results.snapshot, MAX_DECLARATIONS);
                text.push_str("// For mcp_execute; one tool's JSON Schema: mcp_discover {\"tool\": \"server:tool\", \"detail\": \"schema\"}.");
                text
            }
            _ => {
                let mut text = discover::to_text(request, response);
                if let Some(note) = &results.offers {
                    text.push('\n');
                    text.push_str(note);
                }
                if overview && let Some(note) = self.waiting_note() {
                    text.push('\n');
                    text.push_str(&note);
                }
                text
            }
        }
    }

    /// The project's file, if it waits for approval. Sessions restricted to a toolset do not see it.
    fn waiting(&self) -> Option<Arc<Project>> {
        let project = self.surface.project.borrow().clone();
        project.filter(|project| project.is_waiting() && self.scope.is_none())
    }

    /// The note about it for a model: only counts, no text of the file, which anybody may have written.
    fn waiting_note(&self) -> Option<String> {
        let counts = self.waiting()?.preview.counts();
        match self.audience {
            // It is on stderr already, with the path.
            Audience::Shell => None,
            Audience::Compact | Audience::Full => Some(format!(
                "The .mcp.json of the working directory is not used: {counts} waiting for the user's approval (`metamcp trust` in a terminal)."
            )),
        }
    }

    /// Finds tools and servers, and renders them with `write`; both off the thread that relays calls.
    pub(super) async fn search<T: Send + 'static>(
        &self,
        mut request: DiscoverRequest,
        write: impl FnOnce(&View, &DiscoverRequest, &SearchResults) -> T + Send + 'static,
    ) -> Result<T, Finished> {
        self.surface.catalog.loaded().await;
        self.resolve_names(&mut request).map_err(Finished::Refused)?;
        let searched: Vec<Entry> = self
            .servers()
            .iter()
            .filter(|entry| request.server.as_deref().is_none_or(|name| name == &*entry.name))
            .cloned()
            .collect();
        if !request.is_overview() {
            self.wake_searched(&searched, &request).await;
            self.resolve_names(&mut request).map_err(Finished::Refused)?;
        }
        if let (Some(usage_history), Some(_)) = (&self.surface.usage_history, &request.query) {
            usage_history.refresh(self.principal).await;
        }
        let snapshot = self.latest_snapshot().await;
        let ranker = match &request.query {
            Some(query) if request.tool.is_none() => {
                Some(self.ranker(query, request.server.as_deref(), &snapshot).await)
            }
            _ => None,
        };
        // Read here: a compute thread runs at low priority and must not hold the router's lock.
        let statuses = searched.iter().map(|entry| self.status(entry)).collect();
        let offers = if asks_for_offers(&request) { self.offers_note(&searched) } else { None };
        let learned = self.surface.shapes.all_of(self.principal).await;
        let view = self.clone();
        let searching = compute::run(move || {
            let servers = (searched, statuses);
            let mut results = view.find(&mut request, snapshot, ranker, servers, offers)?;
            results.returns = returns(&request, &results, &learned);
            Ok(write(&view, &request, &results))
        });
        searching.await.unwrap_or_else(|failed| {
            Err(Finished::error(&ErrorObject::new(Code::Internal, failed.to_string())))
        })
    }

    /// The part that is slow where there are thousands of tools.
    fn find(
        &self,
        request: &mut DiscoverRequest,
        snapshot: Arc<Snapshot>,
        ranker: Option<QueryRanker>,
        (searched, statuses): (Vec<Entry>, Vec<ServerStatus>),
        offers: Option<String>,
    ) -> Result<SearchResults, Finished> {
        let prior = match (&self.surface.usage_history, &request.query) {
            (Some(usage_history), Some(query)) => Some(usage_history.prior(self.principal, query)),
            _ => None,
        };
        let states: Vec<_> = searched
            .iter()
            .zip(statuses)
            .map(|(entry, status)| status.state(entry, &snapshot))
            .collect();
        let (mut pending, mut failed) = (Vec::new(), Vec::new());
        for (entry, (state, reason)) in searched.iter().zip(&states) {
            if snapshot.known(entry.definition).is_some() || *state == ServerState::Disabled {
                continue;
            }
            if *state == ServerState::Failed || snapshot.failure(entry.definition).is_some() {
                let reason = reason.as_deref().map_or("no tools listed", cut);
                failed.push((entry.name.to_string(), reason.to_owned()));
            } else {
                pending.push(entry.name.to_string());
            }
        }
        let unusable =
            |error: CursorError| Finished::invalid(format!("the cursor cannot be used: {error}"));
        let binding = format!("{} {}", self.binding(), request.binding());
        let mut then = None;
        if let Some(cursor) = &request.cursor {
            let (stamp, offset) =
                self.surface.cursor_key().open(cursor, &binding).map_err(unusable)?;
            then = Some(stamp);
            request.offset = offset as usize;
        }
        let (mut note, mut strategy, mut order) = (None, None, None);
        let (mut hits, total) = match (&request.query, ranker) {
            (Some(query), Some(ranker)) => {
                let page = (request.offset, request.page_size());
                let server = request.server.as_deref();
                let found = ranker.page(snapshot.index(), query, page, server, prior.as_ref());
                note = ranker.note().map(str::to_owned);
                (strategy, order) = (Some(ranker.strategy()), ranker.stamp());
                (found.hits, found.total)
            }
            _ if request.is_overview() => (Vec::new(), 0),
            _ => self.named(request, &searched, &snapshot, (&pending, &failed))?,
        };
        let is_scored = strategy.is_some_and(|strategy| strategy != Strategy::Keyword);
        let is_cut = is_scored
            && match request.operation {
                Operation::Discover => self.audience == Audience::Compact,
                Operation::Search | Operation::List => true,
            };
        let cut = (is_cut && request.is_open_ended()).then(|| shortlist(&hits));
        let asked = request.query.as_deref().unwrap_or_default();
        let nothing_fits = is_scored && nothing_fits(asked, &hits);
        if let Some(cut) = cut.filter(|_| request.operation == Operation::Search) {
            // Its answers have one form for all hits, and say where the next ones are.
            hits.truncate(cut.full + cut.named);
        }
        let stamp = stamp(self.list_stamp(&snapshot), prior.as_ref(), order.as_deref());
        if then.is_some_and(|then| then != stamp) {
            return Err(unusable(CursorError::Stale));
        }
        let next = request.offset + hits.len();
        let next_cursor = (next < total).then(|| {
            self.surface.cursor_key().encode(
                stamp,
                u32::try_from(next).unwrap_or(u32::MAX),
                &binding,
            )
        });
        if nothing_fits && request.operation == Operation::Search && self.provisions() {
            note.get_or_insert_with(|| NOTHING_FITS.to_owned());
        }
        // A query for one server, or one without hits, also names the tools that were skipped.
        if note.is_none() && (searched.len() == 1 || total == 0) {
            note = skipped(&searched, &snapshot);
        }
        Ok(SearchResults {
            shortlist: cut,
            nothing_fits,
            returns: Vec::new(),
            hits,
            total,
            next_cursor,
            snapshot,
            searched,
            states,
            offers,
            pending,
            failed,
            note,
            strategy,
        })
    }

    /// Tools without a query: one by its name, or all of a server.
    fn named(
        &self,
        request: &DiscoverRequest,
        searched: &[Entry],
        snapshot: &Snapshot,
        (pending, failed): (&[String], &[(String, String)]),
    ) -> Result<(Vec<Hit>, usize), Finished> {
        if let Some(tool) = &request.tool {
            let hits: Vec<Hit> = searched
                .iter()
                .filter_map(|entry| {
                    let known = snapshot.known(entry.definition)?;
                    Hit::named(Arc::clone(&entry.name), Arc::clone(&known.tools), tool)
                })
                .collect();
            if hits.is_empty() {
                let unlisted = not_listed(tool, searched, pending, failed);
                return Err(unlisted.unwrap_or_else(|| self.tool_missing(tool, searched, snapshot)));
            }
            let total = hits.len();
            return Ok((hits, total));
        }
        // A server without a query: all its tools, page by page.
        let all: Vec<Hit> = searched
            .iter()
            .filter_map(|entry| {
                Some(Hit::all_of(&entry.name, &snapshot.known(entry.definition)?.tools))
            })
            .flatten()
            .collect();
        let total = all.len();
        Ok((all.into_iter().skip(request.offset).take(request.page_size()).collect(), total))
    }

    /// Why the first hits of a query rank where they do. Starts no server.
    pub async fn why(&self, query: &str, server: Option<&str>, limit: usize) -> Vec<Why> {
        let snapshot = self.latest_snapshot().await;
        let nearness = match self.surface.options.ranking.local() {
            // A failure is reported with the response that this explains.
            Some(local) => {
                let strategy = self.surface.options.ranking.strategy();
                semantic::nearness(&snapshot, query, local, strategy).await.ok()
            }
            None => None,
        };
        let (query, server) = (query.to_owned(), server.map(str::to_owned));
        let explained =
            move || why(snapshot.index(), &query, server.as_deref(), nearness.as_ref(), limit);
        compute::run(explained).await.unwrap_or_default()
    }

    pub(super) fn tool_missing(
        &self,
        tool: &str,
        searched: &[Entry],
        snapshot: &Snapshot,
    ) -> Finished {
        let near = nearest_ids(tool, searched.iter(), snapshot);
        let skipped = skipped(searched, snapshot).map_or(String::new(), |note| format!(" {note}"));
        let hint = if near.is_empty() {
            Advice::from("Search with ").step(Next::Search, format!(".{skipped}"))
        } else {
            format!("Did you mean {}?{skipped}", near.join(" or ")).into()
        };
        let mut object = ErrorObject::new(Code::ToolNotFound, format!("no tool {tool:?} is known"))
            .hint(hint)
            .detail("nearest", near);
        if let [entry] = searched {
            object = object.at(&entry.name, None);
        }
        Finished::Refused(Box::new(object))
    }

    /// Why a server's tools are unknown.
    pub(super) fn absence(&self, entry: &Entry) -> String {
        match self.status(entry).state(entry, &self.snapshot()) {
            (ServerState::Connecting, Some(reason)) => {
                format!("starting again, ask again in a moment; {}", cut(&reason))
            }
            (ServerState::Connecting, None) => "still starting; ask again in a moment".to_owned(),
            (_, Some(reason)) => cut(&reason).to_owned(),
            (_, None) => "not running".to_owned(),
        }
    }

    fn status(&self, entry: &Entry) -> ServerStatus {
        let router = &self.surface.router;
        let id = self.instance_told_of(entry);
        let entry_now = router.entry(id);
        ServerStatus {
            view: router.view(id),
            config: entry_now.map_or_else(|| Arc::clone(&entry.config), |now| now.config),
            peer: router.peer(id),
            retry_after: router
                .next_try(id)
                .filter(|after| *after >= SHORTEST_PAUSE && self.audience != Audience::Shell),
        }
    }

    /// The instance whose state is told: the session's own. A person at a shell asks about the machine, so there it is one
    /// that runs, whoever uses it.
    fn instance_told_of(&self, entry: &Entry) -> ServerId {
        let router = &self.surface.router;
        let runs = |id: ServerId| {
            let state = router.view(id).and_then(|view| view.state);
            matches!(state, Some(State::Connecting | State::Active { .. } | State::Idle))
        };
        if self.audience != Audience::Shell || runs(entry.id) {
            return entry.id;
        }
        let mut others = router.instances().into_iter();
        let other = others.find(|(id, one)| one.definition.id == entry.definition && runs(*id));
        other.map_or(entry.id, |(id, _)| id)
    }
}

/// What the router knows of a server.
struct ServerStatus {
    view: Option<ServerView>,
    /// With the secrets that were resolved when it started, for redaction.
    config: Arc<ServerConfig>,
    peer: Option<Arc<Peer>>,
    /// How long it is not contacted again after a failure.
    retry_after: Option<Duration>,
}

impl ServerStatus {
    fn state(&self, entry: &Entry, snapshot: &Snapshot) -> (ServerState, Option<String>) {
        if let Some(reason) = entry.config.state.against() {
            return (ServerState::Disabled, Some(reason.to_owned()));
        }
        let listing = snapshot.failure(entry.definition).map(ToString::to_string);
        let Some(view) = &self.view else { return (ServerState::NotStarted, None) };
        let failure = || {
            let failure = view.last_failure.as_ref()?;
            let what = reply::describe(failure, Some(&self.config));
            // First, because what a process wrote may be long and is cut.
            Some(match self.retry_after {
                Some(after) => {
                    format!("not contacted for another {}: it {what}", text::duration(after))
                }
                None => what,
            })
        };
        let is_empty =
            snapshot.known(entry.definition).is_some_and(|known| known.tools.tools.is_empty());
        let is_silent = |peer: &Arc<Peer>| peer.capabilities.is_object() && !peer.can("tools");
        let silent = is_empty && self.peer.as_ref().is_some_and(is_silent);
        let listing = listing.or_else(|| silent.then(|| NO_TOOLS.to_owned()));
        match view.state {
            // On a retry the last failure is still the best that is known of it.
            Some(State::Connecting) => {
                let last = view.last_failure.as_ref();
                let why = last.map(|failure| reply::describe(failure, Some(&self.config)));
                (ServerState::Connecting, why.map(|why| format!("last time it {why}")))
            }
            Some(State::Active { .. }) => (ServerState::Active, listing),
            Some(State::Idle) => (ServerState::Idle, listing),
            Some(State::Failed | State::Closed) => (ServerState::Failed, failure()),
            None if view.waiting_since.is_some() => (ServerState::Connecting, None),
            None if matches!(view.breaker, Phase::Open { .. } | Phase::Probing { .. }) => {
                (ServerState::Failed, failure())
            }
            None if view.last_failure.is_some() => (ServerState::Failed, failure()),
            None => (ServerState::NotStarted, listing),
        }
    }
}

impl SearchResults {
    /// The tools shown.
    pub(super) fn ids(&self) -> Vec<String> {
        let shown = self.shortlist.map_or(self.hits.len(), |cut| cut.full + cut.named);
        self.hits.iter().take(shown).map(Hit::id).collect()
    }
}

/// Whether what servers have beside tools is asked for: with a list of servers, or by its name.
fn asks_for_offers(request: &DiscoverRequest) -> bool {
    let Some(query) = &request.query else { return request.tool.is_none() };
    let query = query.to_lowercase();
    ["resource", "prompt"].iter().any(|word| query.contains(word))
}

/// What the tools of the hits that are shown in full return.
fn returns(
    request: &DiscoverRequest,
    results: &SearchResults,
    learned: &LearnedResults,
) -> Vec<Option<String>> {
    let shown = match (&request.query, &results.shortlist) {
        _ if request.tool.is_some() => results.hits.len(),
        (Some(_), Some(shortlist)) => shortlist.full,
        (Some(_), None) => RETURNS_SHOWN,
        (None, _) => 0,
    };
    let of = |hit: &Hit| {
        let declared = hit.tool().output_schema().and_then(|raw| serde_json::from_str(raw).ok());
        let declared = declared.as_ref().and_then(signature::result_type);
        declared.or_else(|| signature::result_type(learned.of(&hit.id())?))
    };
    results.hits.iter().take(shown).map(of).collect()
}

fn line<'a>(
    entry: &'a Entry,
    state: &'a (ServerState, Option<String>),
    snapshot: &'a Snapshot,
    about: Option<&'a str>,
) -> ServerLine<'a> {
    let known = snapshot.known(entry.definition);
    ServerLine {
        name: &entry.name,
        origin: entry.config.origin.as_str(),
        state: state.0,
        reason: state.1.as_deref().map(cut),
        tools: known.map(|known| known.tools.tools.len()),
        description: entry.config.description.as_deref().or(about),
    }
}

fn why(
    index: &Index,
    query: &str,
    server: Option<&str>,
    nearness: Option<&Nearness>,
    limit: usize,
) -> Vec<Why> {
    let (reranked, hits) = match nearness {
        Some(nearness) => {
            let reranked = index.candidates_near(query, server, nearness);
            (reranked, index.page_by(nearness, query, (0, limit), server, None).hits)
        }
        None => {
            let reranked = index.candidates(query, server);
            (reranked, index.search(query, Strategy::Hybrid, limit, server))
        }
    };
    let why = |hit: Hit| {
        let words = index.words_of(query, &hit.server, &hit.tool().name);
        let seen = reranked.iter().find(|seen| seen.hit.id() == hit.id());
        let (features, nearness) =
            (seen.map(|seen| seen.features), seen.and_then(|seen| seen.near));
        let (score, confidence) = (hit.score, hit.confidence);
        Why { id: hit.id(), score, confidence, words, features, nearness }
    };
    hits.into_iter().map(why).collect()
}

/// A fingerprint of what the order of a list depends on: the catalog, the usage history and the ranking. The weights of
/// the usage history decay all the time, so they are rounded.
fn stamp(generation: u64, prior: Option<&Prior>, order: Option<&str>) -> u64 {
    let prior = prior.filter(|prior| !prior.is_empty());
    if prior.is_none() && order.is_none() {
        return generation;
    }
    let mut hasher = DefaultHasher::new();
    (generation, order).hash(&mut hasher);
    for (id, boost) in prior.into_iter().flat_map(Prior::iter) {
        (id, (boost * 64.0).round() as u32).hash(&mut hasher);
    }
    hasher.finish()
}

/// For a tool that may be there, since its server, or some server, did not list its tools.
fn not_listed(
    tool: &str,
    searched: &[Entry],
    pending: &[String],
    failed: &[(String, String)],
) -> Option<Finished> {
    let object = match (searched, pending, failed) {
        ([entry], [], [(_, reason)]) => {
            let message = format!("the server {:?} listed no tools: {reason}", entry.name);
            let hint = "It may have this tool. Try again later, or search for another one.";
            ErrorObject::new(Code::ServerUnavailable, message).hint(hint).at(&entry.name, None)
        }
        ([entry], [_], _) => {
            let message =
                format!("the server {:?} is still starting, so its tools are unknown", entry.name);
            let hint = "Ask the same again in a moment.";
            ErrorObject::new(Code::ServerUnavailable, message).hint(hint).at(&entry.name, None)
        }
        (_, [_, ..], _) => {
            let (answered, all) = (searched.len() - pending.len(), searched.len());
            let message = format!(
                "no tool {tool:?} is known yet: {answered} of {all} servers have answered, the others are still starting"
            );
            let hint = "Ask the same again in a moment.";
            ErrorObject::new(Code::ToolNotFound, message).hint(hint)
        }
        _ => return None,
    };
    let retries = !pending.is_empty();
    Some(Finished::error(&if retries { object.retryable(None) } else { object }))
}

/// A sentence about the tools that were skipped in a list of these servers; of several, with the server's name.
fn skipped(searched: &[Entry], snapshot: &Snapshot) -> Option<String> {
    let of = |entry: &Entry| snapshot.known(entry.definition)?.tools.left_out();
    if let [entry] = searched {
        return of(entry);
    }
    let first = searched.iter().find_map(|entry| Some((entry, of(entry)?)));
    first.map(|(entry, note)| format!("{}: {note}", entry.name))
}

fn cut(reason: &str) -> &str {
    match reason.char_indices().nth(MAX_REASON) {
        Some((at, _)) => &reason[..at],
        None => reason,
    }
}
