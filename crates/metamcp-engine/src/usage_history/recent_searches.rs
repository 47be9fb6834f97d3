//! Searches that calls may still belong to, by session. A call belongs to the newest search that showed its tool before
//! the call was made, and each search counts for a tool once.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use metamcp_search::usage_history::QueryWords;
use metamcp_types::moment::Moment;

/// Searches of a session that calls may still belong to.
const SEARCHES: usize = 8;
/// Most sessions with searches; a new one evicts the one that searched longest ago.
const SESSIONS: usize = 256;
/// A call later than this after a search is about something else.
const BELONGS: Duration = Duration::from_mins(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RecentSearches {
    /// The newest first; none is empty.
    by_session: HashMap<u64, VecDeque<Search>>,
}

#[derive(Debug)]
struct Search {
    words: QueryWords,
    /// The tools it showed that were not called since.
    ids: Vec<String>,
    at: Moment,
}

impl RecentSearches {
    /// A session searched and was shown these tools.
    pub(super) fn add(&mut self, session: u64, query: &str, ids: &[String], at: Moment) {
        let words = QueryWords::of(query);
        if words.is_empty() {
            return;
        }
        if !self.by_session.contains_key(&session) && self.by_session.len() >= SESSIONS {
            let newest = |searches: &VecDeque<Search>| searches.front().map(|search| search.at);
            let oldest = self.by_session.iter().min_by_key(|(_, searches)| newest(searches));
            if let Some(oldest) = oldest.map(|(session, _)| *session) {
                self.by_session.remove(&oldest);
            }
        }
        let searches = self.by_session.entry(session).or_default();
        searches.truncate(SEARCHES - 1);
        searches.push_front(Search { words, ids: ids.to_vec(), at });
    }

    /// The query that a call of this session belongs to, and the tool's id as it was shown.
    pub(super) fn claim(
        &mut self,
        session: u64,
        (server, tool): (&str, &str),
        made: Moment,
    ) -> Option<(QueryWords, String)> {
        let searches = self.by_session.get_mut(&session)?;
        searches.retain(|search| made.since(search.at) <= BELONGS);
        let is_it = |id: &String| {
            id.strip_prefix(server).and_then(|rest| rest.strip_prefix(':')) == Some(tool)
        };
        let claimed = searches.iter_mut().filter(|search| search.at <= made).find_map(|search| {
            let at = search.ids.iter().position(is_it)?;
            Some((search.words.clone(), search.ids.swap_remove(at)))
        });
        if searches.is_empty() {
            self.by_session.remove(&session);
        }
        claimed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: u64) -> Moment {
        Moment::after_start(Duration::from_secs(60 * minute))
    }

    fn search(recent: &mut RecentSearches, query: &str, ids: &[&str], minute: u64) {
        let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
        recent.add(1, query, &ids, at(minute));
    }

    /// Whether a call of session 1 belongs to this query.
    fn belongs(recent: &mut RecentSearches, id: &str, minute: u64, query: &str) -> bool {
        let claimed = recent.claim(1, id.split_once(':').unwrap(), at(minute));
        claimed.is_some_and(|(words, shown)| shown == id && words == QueryWords::of(query))
    }

    #[test]
    fn a_call_belongs_to_the_newest_search_that_showed_it_and_once() {
        let mut recent = RecentSearches::default();
        search(&mut recent, "open a ticket", &["jira:create", "zendesk:open"], 0);
        search(&mut recent, "write to Anna", &["mail:send", "zendesk:open"], 1);
        assert!(belongs(&mut recent, "zendesk:open", 2, "write to Anna"));
        assert!(belongs(&mut recent, "jira:create", 2, "open a ticket"));
        assert!(!belongs(&mut recent, "jira:create", 3, "open a ticket"));
    }

    #[test]
    fn what_was_not_shown_or_not_searched_for_lately_belongs_to_nothing() {
        let mut recent = RecentSearches::default();
        assert!(!belongs(&mut recent, "jira:create", 0, "open a ticket"));
        search(&mut recent, "open a ticket", &["jira:create"], 5);
        assert!(!belongs(&mut recent, "mail:send", 6, "open a ticket"));
        assert!(recent.claim(2, ("jira", "create"), at(6)).is_none(), "another session searched");
        assert!(!belongs(&mut recent, "jira:create", 4, "open a ticket"), "made before the search");
        assert!(!belongs(&mut recent, "jira:create", 16, "open a ticket"), "too long ago");
        assert!(recent.is_empty(), "an old search is dropped");
    }

    #[test]
    fn searches_and_sessions_are_bounded() {
        let mut recent = RecentSearches::default();
        let ids = ["jira:create".to_owned()];
        for number in 0..1_000 {
            recent.add(1, "open a ticket", &ids, at(0));
            recent.add(number, "open a ticket", &ids, at(number));
        }
        assert_eq!(recent.by_session.len(), SESSIONS);
        assert!(recent.by_session.values().all(|searches| searches.len() <= SEARCHES));
        assert!(recent.by_session.contains_key(&999) && !recent.by_session.contains_key(&2));
    }
}
