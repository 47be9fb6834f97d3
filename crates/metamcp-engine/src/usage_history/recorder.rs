//! One client's searches and the calls that follow them. A call belongs to the newest search that showed its tool, and
//! each search speaks for a tool once.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use metamcp_search::usage_history::QueryWords;
use metamcp_types::moment::Moment;

use super::UsageStore;

/// Searches of a client that calls may still belong to.
const SEARCHES: usize = 8;

/// A call later than this after a search is about something else.
const BELONGS: Duration = Duration::from_secs(10 * 60);

/// Calls under way that belong to searches; of more, nothing is learnt.
const CALLS: usize = 64;

/// See the module. Calls of a client that has not searched cost one look at a flag at their start and one at their end.
#[derive(Debug)]
pub struct Recorder {
    usage_store: Arc<UsageStore>,
    principal: u64,
    expects: AtomicBool,
    waits: AtomicBool,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    /// The newest first.
    searches: VecDeque<Search>,
    /// By the tag of the call.
    calls: HashMap<Bytes, (QueryWords, String)>,
}

#[derive(Debug)]
struct Search {
    words: QueryWords,
    /// What it showed and what was not called since.
    ids: Vec<String>,
    at: Moment,
}

impl Recorder {
    /// The recorder of one client, for whoever it is of.
    pub fn new(usage_store: Arc<UsageStore>, principal: u64) -> Recorder {
        Recorder {
            usage_store,
            principal,
            expects: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            recent: Mutex::default(),
        }
    }

    /// The client searched and was shown these tools.
    pub fn searched(&self, query: &str, ids: Vec<String>, now: Moment) {
        let words = QueryWords::of(query);
        if words.is_empty() {
            return;
        }
        let mut recent = self.lock();
        recent.searches.truncate(SEARCHES - 1);
        recent.searches.push_front(Search { words, ids, at: now });
        self.expects.store(true, Ordering::Release);
    }

    /// Whether a call that starts now may belong to a search.
    pub fn expects(&self) -> bool {
        self.expects.load(Ordering::Acquire)
    }

    /// A call goes to a tool.
    pub fn calling(&self, tag: &Bytes, server: &str, tool: &str, now: Moment) {
        let mut recent = self.lock();
        recent.searches.retain(|search| now.since(search.at) <= BELONGS);
        let is_it = |id: &String| {
            id.strip_prefix(server).and_then(|rest| rest.strip_prefix(':')) == Some(tool)
        };
        let mut belongs = None;
        for search in &mut recent.searches {
            if let Some(at) = search.ids.iter().position(is_it) {
                belongs = Some((search.words.clone(), search.ids.swap_remove(at)));
                break;
            }
        }
        self.expects.store(!recent.searches.is_empty(), Ordering::Release);
        if let Some(call) = belongs.filter(|_| recent.calls.len() < CALLS) {
            recent.calls.insert(tag.clone(), call);
            self.waits.store(true, Ordering::Release);
        }
    }

    /// Whether the end of a call may be of interest.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// A call ended; `None` where its end says nothing about the tool.
    pub fn ended(&self, tag: &Bytes, ok: Option<bool>) {
        let call = {
            let mut recent = self.lock();
            let call = recent.calls.remove(tag);
            self.waits.store(!recent.calls.is_empty(), Ordering::Release);
            call
        };
        if let (Some((words, id)), Some(ok)) = (call, ok) {
            self.usage_store.record(self.principal, &words, &id, ok);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::UsageFile;
    use super::*;
    use crate::shapes::OWNER;

    struct Client {
        recorder: Recorder,
        usage_store: Arc<UsageStore>,
        _home: tempfile::TempDir,
    }

    impl Client {
        fn new() -> Client {
            let home = tempfile::tempdir().unwrap();
            let usage_store = UsageStore::start(UsageFile::new(home.path()));
            Client {
                recorder: Recorder::new(Arc::clone(&usage_store), OWNER),
                usage_store,
                _home: home,
            }
        }

        fn search(&self, query: &str, ids: &[&str], minute: u64) {
            let ids = ids.iter().map(|&id| id.to_owned()).collect();
            self.recorder.searched(query, ids, at(minute));
        }

        fn call(&self, id: &str, ok: Option<bool>, minute: u64) {
            let tag = Bytes::from_static(b"7");
            let (server, tool) = id.split_once(':').unwrap();
            if self.recorder.expects() {
                self.recorder.calling(&tag, server, tool, at(minute));
            }
            if self.recorder.waits() {
                self.recorder.ended(&tag, ok);
            }
        }

        async fn boost(&self, query: &str, id: &str) -> f32 {
            let (server, tool) = id.split_once(':').unwrap();
            self.usage_store.prior(OWNER, query).boost(server, tool)
        }
    }

    fn at(minute: u64) -> Moment {
        Moment::after_start(Duration::from_secs(60 * minute))
    }

    #[tokio::test]
    async fn a_call_belongs_to_the_newest_search_that_showed_it_and_once() {
        let client = Client::new();
        client.search("open a ticket", &["jira:create", "zendesk:open"], 0);
        client.search("write to Anna", &["mail:send", "zendesk:open"], 1);
        client.call("zendesk:open", Some(true), 2);
        client.call("jira:create", Some(true), 2);
        assert!(client.boost("write to Anna", "zendesk:open").await > 0.0);
        assert_eq!(client.boost("open a ticket", "zendesk:open").await, 0.0);
        let once = client.boost("open a ticket", "jira:create").await;
        assert!(once > 0.0);
        client.call("jira:create", Some(true), 3);
        assert_eq!(client.boost("open a ticket", "jira:create").await, once);
    }

    #[tokio::test]
    async fn what_was_not_shown_or_not_searched_for_lately_is_not_learnt() {
        let client = Client::new();
        client.call("jira:create", Some(true), 0);
        assert!(!client.recorder.expects() && !client.recorder.waits());
        client.search("open a ticket", &["jira:create"], 0);
        client.call("mail:send", Some(true), 1);
        assert!(client.recorder.expects() && !client.recorder.waits());
        client.call("jira:create", Some(true), 11);
        assert!(!client.recorder.expects(), "an old search is let go");
        assert!(client.usage_store.prior(OWNER, "open a ticket").is_empty());
    }

    #[tokio::test]
    async fn calls_that_end_without_a_word_about_the_tool_teach_nothing() {
        let client = Client::new();
        client.search("open a ticket", &["jira:create"], 0);
        client.call("jira:create", None, 1);
        assert!(!client.recorder.waits());
        assert!(client.usage_store.prior(OWNER, "open a ticket").is_empty());
    }

    #[tokio::test]
    async fn searches_and_calls_are_bounded() {
        let client = Client::new();
        for number in 0..1_000 {
            client.search("open a ticket", &["jira:create"], 0);
            let tag = Bytes::from(format!("{number}"));
            client.recorder.calling(&tag, "jira", "create", at(0));
        }
        let recent = client.recorder.lock();
        assert_eq!((recent.searches.len(), recent.calls.len()), (SEARCHES, CALLS));
    }
}
