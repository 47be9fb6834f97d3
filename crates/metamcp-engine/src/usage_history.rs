//! Usage history, on this machine only: which tool a client called after which search, stored in one file.
//! Owns: `<home>/habits.json`, when it is read and written, the recent searches of a session.      Never: reads arguments or results, decides a rank,
//! lets the history of one principal affect the searches of another.
//! In: searches and records of calls, from `observe`.  Out: a `Prior` for a query.
//! Tests: `usage_history/tests.rs`, `usage_history/recent_searches.rs`, `metamcp/tests/usage_history.rs`.

mod file;
mod recent_searches;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metamcp_search::usage_history::{Prior, QueryWords, UsageHistory};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::{self, unix_millis};
use crate::observe::{Event, Interest, Subscriber};
use crate::shapes::OWNER;
use crate::task;

use recent_searches::RecentSearches;

pub use file::{Forgotten, UsageFile, UsageFileError};

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;

/// The least interval between writes of the file, and between reads that pick up changes of other gateways or a removal.
const EVERY: Duration = Duration::from_secs(5);

/// How long the last write may take when the process ends; a home on a dead disk must not block it.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Most principals of a listener with a history; a new one evicts the least recently used.
const MOST_OTHERS: usize = 64;

/// Most calls in the inbox; then they are processed where they are recorded.
const MOST_WAITING: usize = 256;

/// The usage history, shared by all sessions of a gateway.
#[derive(Debug)]
pub struct UsageStore {
    file: UsageFile,
    /// Locked while a whole history is scanned, so never by the thread that relays calls.
    state: Mutex<State>,
    inbox: Mutex<Inbox>,
    /// One writer at a time; locked by threads that may block.
    writing: Mutex<()>,
    changed: Notify,
    searches: Mutex<RecentSearches>,
    /// Whether a call may belong to a search at all: for clients that never search this is the only check.
    has_searches: AtomicBool,
}

impl Subscriber for UsageStore {
    fn interest(&self) -> Interest {
        Interest::CALLS.and(Interest::SEARCHES)
    }

    fn on_event(&self, event: &Event<'_>) {
        match event {
            Event::Search { identity, query, ids, at } => {
                let mut searches = self.searches();
                searches.add(identity.session, query, ids, *at);
                self.has_searches.store(!searches.is_empty(), Ordering::Release);
            }
            Event::Call(record, _) if self.has_searches.load(Ordering::Acquire) => {
                if record.method != "tools/call" || !record.origin.is_direct_choice() {
                    return;
                }
                let mut searches = self.searches();
                let (identity, names) = (&record.identity, (&*record.server, &*record.tool));
                let claimed = searches.claim(identity.session, names, record.arrived);
                self.has_searches.store(!searches.is_empty(), Ordering::Release);
                drop(searches);
                if let (Some((words, id)), Some(ok)) = (claimed, record.verdict.tool_worked()) {
                    self.record(identity.principal, &words, &id, ok);
                }
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Everything: the file's content, and what was recorded since.
    known: UsageHistory,
    /// What is not in the file yet. Only this is ever added to it, so that gateways do not count each other's twice.
    fresh: UsageHistory,
    /// Histories of a listener's principals, in memory only: the file is the owner's, and only that listener knows them.
    others: HashMap<u64, Other>,
    /// Counts up with every use of one of them.
    turns: u64,
}

/// Calls recorded by the thread that relays them, processed later by other threads.
#[derive(Debug, Default)]
struct Inbox {
    calls: Vec<RecordedCall>,
    /// When the file was last read.
    last_read: Option<Instant>,
}

#[derive(Debug)]
struct RecordedCall {
    principal: u64,
    words: QueryWords,
    id: String,
    ok: bool,
    at_secs: u64,
}

#[derive(Debug, Default)]
struct Other {
    known: UsageHistory,
    last: u64,
}

impl State {
    fn other(&mut self, principal: u64) -> &mut UsageHistory {
        self.turns += 1;
        if !self.others.contains_key(&principal) && self.others.len() >= MOST_OTHERS {
            let oldest = self.others.iter().min_by_key(|(_, other)| other.last);
            if let Some(oldest) = oldest.map(|(whose, _)| *whose) {
                self.others.remove(&oldest);
            }
        }
        let other = self.others.entry(principal).or_default();
        other.last = self.turns;
        &mut other.known
    }
}

impl UsageStore {
    /// A history in a file, written in the background. Reads nothing yet. Must be called inside a runtime.
    pub fn start(file: UsageFile) -> Arc<UsageStore> {
        let usage_store = Arc::new(UsageStore {
            file,
            state: Mutex::default(),
            inbox: Mutex::default(),
            writing: Mutex::default(),
            changed: Notify::new(),
            searches: Mutex::default(),
            has_searches: AtomicBool::new(false),
        });
        let writing = Arc::clone(&usage_store);
        task::spawn("usage history", async move {
            loop {
                writing.changed.notified().await;
                tokio::time::sleep(EVERY).await;
                writing.save().await;
            }
        });
        usage_store
    }

    /// Reads the file again if that is due.
    pub async fn refresh(self: &Arc<Self>, principal: u64) {
        let is_due = {
            let mut inbox = self.inbox();
            let is_due =
                principal == OWNER && inbox.last_read.is_none_or(|at| at.elapsed() >= EVERY);
            if is_due {
                inbox.last_read = Some(clock::instant());
            }
            is_due
        };
        if is_due {
            self.blocking(UsageStore::reread).await;
        }
    }

    /// The prior of a principal's history for a query; not for the thread that relays calls.
    pub fn prior(&self, principal: u64, query: &str) -> Prior {
        let mut state = self.lock();
        match principal {
            OWNER => state.known.prior(query, now_secs()),
            other => state.other(other).prior(query, now_secs()),
        }
    }

    /// How often a principal called each tool, by its id.
    pub fn used(&self, principal: u64) -> HashMap<String, f32> {
        let mut state = self.lock();
        match principal {
            OWNER => state.known.used(now_secs()),
            other => state.other(other).used(now_secs()),
        }
    }

    /// Records the outcome of a call. Cheap; nothing is written here.
    pub fn record(&self, principal: u64, words: &QueryWords, id: &str, ok: bool) {
        let is_full = {
            let mut inbox = self.inbox();
            let (words, id, at_secs) = (words.clone(), id.to_owned(), now_secs());
            inbox.calls.push(RecordedCall { principal, words, id, ok, at_secs });
            inbox.calls.len() >= MOST_WAITING
        };
        if is_full {
            drop(self.lock());
        }
        if principal == OWNER {
            self.changed.notify_one();
        }
    }

    /// Saves what is not written yet, for the end of the process.
    pub async fn finish(self: &Arc<Self>) {
        // On a timeout only the history of the last seconds is lost.
        drop(tokio::time::timeout(LAST_WRITE, self.save()).await);
    }

    async fn save(self: &Arc<Self>) {
        self.blocking(UsageStore::save_now).await;
    }

    async fn blocking(self: &Arc<Self>, work: fn(&UsageStore)) {
        let usage_store = Arc::clone(self);
        // A panic in there leaves the history as it was.
        drop(tokio::task::spawn_blocking(move || work(&usage_store)).await);
    }

    /// Reads the file: other gateways may have added to it, a person may have removed it.
    fn reread(&self) {
        match self.file.read() {
            Ok(read) => self.settle(read),
            Err(error) => log_error(&error),
        }
    }

    fn save_now(&self) {
        let _one = self.writing.lock();
        let fresh = std::mem::take(&mut self.lock().fresh);
        if fresh.is_empty() {
            return;
        }
        match self.file.add(&fresh, unix_millis()) {
            Ok(all) => self.settle(all),
            Err(error) => {
                log_error(&error);
                self.lock().fresh.merge(&fresh);
            }
        }
    }

    fn settle(&self, mut known: UsageHistory) {
        let mut state = self.lock();
        known.merge(&state.fresh);
        state.known = known;
    }

    /// The state, with all that was recorded so far.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let calls = std::mem::take(&mut self.inbox().calls);
        for RecordedCall { principal, words, id, ok, at_secs } in calls {
            if principal == OWNER {
                state.known.record_words(&words, &id, ok, at_secs);
                state.fresh.record_words(&words, &id, ok, at_secs);
            } else {
                state.other(principal).record_words(&words, &id, ok, at_secs);
            }
        }
        state
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock()
    }

    fn searches(&self) -> MutexGuard<'_, RecentSearches> {
        self.searches.lock()
    }
}

/// The gateway works without a usage history, so this is only logged.
fn log_error(error: &UsageFileError) {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        message.push_str(&format!(": {source}"));
        cause = source.source();
    }
    tracing::info!("{message}");
}

fn now_secs() -> u64 {
    unix_millis() / 1_000
}
