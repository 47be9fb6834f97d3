//! A replayed log on a small catalog: what somebody calls again and again rises, and nothing else moves.

use std::sync::Arc;

use metamcp_search::search::{Hit, Index, ServerIndex, Strategy};
use metamcp_search::usage_history::UsageHistory;
use metamcp_tools::tool::Listing;
use serde_json::json;

const DAY: u64 = 24 * 3600;
const NOW: u64 = 1_700_000_000;
const LEARNING: [Strategy; 2] = [Strategy::Bm25, Strategy::Hybrid];

/// Servers that do nearly the same: an issue tracker, a forge, a help desk; two ways to write to people; two to files.
const CATALOG: &[(&str, &str, &str)] = &[
    ("github", "create_issue", "Create an issue in a repository."),
    ("github", "search_issues", "Search issues and pull requests."),
    ("github", "get_issue", "Get one issue of a repository by its number."),
    ("jira", "create_issue", "Create an issue in a project."),
    ("jira", "search_issues", "Search issues with a query."),
    ("jira", "issue", "Show an issue."),
    ("zendesk", "open_ticket", "Open a ticket, an issue a customer reports."),
    ("zendesk", "find_tickets", "Search tickets and issues of customers."),
    ("mail", "send_message", "Send a message to somebody by mail."),
    ("mail", "search_messages", "Search messages in the mailbox."),
    ("chat", "send_message", "Send a message to a channel or a person."),
    ("chat", "search_messages", "Search messages in channels."),
    ("files", "read_file", "Read a file."),
    ("files", "search_files", "Search files by name."),
    ("drive", "download_file", "Download or read a file of the drive."),
    ("drive", "search_files", "Search files of the drive by name or content."),
];

fn catalog() -> Index {
    let mut names: Vec<&str> = CATALOG.iter().map(|(server, ..)| *server).collect();
    names.dedup();
    let part = |server: &str| {
        let own = CATALOG.iter().filter(|(of, ..)| *of == server);
        let list: Vec<_> = own
            .map(|(_, name, description)| json!({ "name": name, "description": description }))
            .collect();
        let mut listing = Listing::new();
        listing.page(json!({ "tools": list }).to_string().as_bytes()).expect("a list");
        Arc::new(ServerIndex::build(server, None, &Arc::new(listing.finish(None, None))))
    };
    Index::new(names.into_iter().map(part).collect())
}

fn found(
    index: &Index,
    history: &UsageHistory,
    query: &str,
    strategy: Strategy,
    now: u64,
) -> Vec<String> {
    let prior = history.prior(query, now);
    let found = index.page_with(query, strategy, 0, 20, None, Some(&prior));
    found.hits.iter().map(Hit::id).collect()
}

/// Three weeks of a user with two favourites, who asks in different words, tries others now and then, and whose
/// calls fail at times.
fn log() -> UsageHistory {
    let mut history = UsageHistory::default();
    let issues = [
        "search through the issues",
        "search through issues",
        "search through our open issues",
        "issues: search through them",
    ];
    let notes = ["send a message", "send a message to Anna", "send message"];
    for day in 0..21u64 {
        let at = NOW + day * DAY;
        let pick = day as usize;
        history.record(issues[pick % issues.len()], "zendesk:find_tickets", day % 9 != 8, at);
        history.record(notes[pick % notes.len()], "mail:send_message", true, at + 60);
        if day % 7 == 3 {
            history.record(issues[pick % issues.len()], "github:search_issues", true, at + 120);
            history.record(notes[0], "chat:send_message", false, at + 180);
        }
    }
    history
}

#[test]
fn the_favourite_rises() {
    let (index, history) = (catalog(), log());
    let (nothing, now) = (UsageHistory::default(), NOW + 21 * DAY);
    let mut lifted = 0;
    for strategy in LEARNING {
        // Where another tool has more of the query's words in its name, habit lifts but does not decide.
        for (query, favourite, to_the_top) in [
            ("search through issues", "zendesk:find_tickets", true),
            ("search through our open issues", "zendesk:find_tickets", false),
            ("please send Anna a new message", "mail:send_message", true),
            ("send a message", "mail:send_message", true),
        ] {
            let place = |history: &UsageHistory| {
                let found = found(&index, history, query, strategy, now);
                found.iter().position(|id| id == favourite).unwrap()
            };
            let (before, after) = (place(&nothing), place(&history));
            if before == 0 {
                // Meaning alone found it; then habit must leave it there.
                assert_eq!(after, 0, "{query:?} by {strategy:?}");
                continue;
            }
            lifted += 1;
            assert!(after < before, "{query:?} by {strategy:?}: {before}, then {after}");
            assert!(after == 0 || !to_the_top, "{query:?} by {strategy:?}: {after}");
        }
    }
    assert!(lifted >= 5, "most of these would show nothing");
}

#[test]
fn after_a_year_without_use_the_ranking_is_the_old_one() {
    let (index, history) = (catalog(), log());
    for strategy in LEARNING {
        let now = NOW + 700 * DAY;
        let plain = found(&index, &UsageHistory::default(), "search through issues", strategy, now);
        assert_eq!(found(&index, &history, "search through issues", strategy, now), plain);
    }
}

#[test]
fn an_irrelevant_history_changes_nothing() {
    let index = catalog();
    let mut history = UsageHistory::default();
    for round in 0..50 {
        history.record("weather in Zurich", "weather:forecast", true, NOW + round);
        history.record("book a table for two", "mail:send_message", true, NOW + round);
        history.record("translate this page", "drive:search_files", true, NOW + round);
    }
    let queries = ["search issues", "send a message", "read a file", "files", "open a ticket", "x"];
    for strategy in Strategy::ALL {
        for query in queries {
            let prior = history.prior(query, NOW + 50);
            let plain = index.page(query, strategy, 0, 20, None);
            let with = index.page_with(query, strategy, 0, 20, None, Some(&prior));
            assert_eq!(format!("{:?}", with.hits), format!("{:?}", plain.hits), "{query}");
        }
    }
}

#[test]
fn habit_finds_nothing_that_does_not_match_and_loses_nothing_that_does() {
    let index = catalog();
    let mut history = UsageHistory::default();
    for round in 0..100 {
        history.record("search issues", "files:read_file", true, NOW + round);
    }
    for strategy in Strategy::ALL {
        let plain = found(&index, &UsageHistory::default(), "search issues", strategy, NOW);
        let with = found(&index, &history, "search issues", strategy, NOW);
        let sorted = |ids: &[String]| {
            let mut ids = ids.to_vec();
            ids.sort();
            ids
        };
        assert_eq!(sorted(&plain), sorted(&with), "{strategy:?}");
    }
}

#[test]
fn a_tool_that_is_named_exactly_stays_before_every_favourite() {
    let index = catalog();
    let mut history = UsageHistory::default();
    for round in 0..100 {
        history.record("issue", "zendesk:open_ticket", true, NOW + round);
        history.record("search files", "drive:download_file", true, NOW + round);
        history.record("search files", "drive:search_files", true, NOW + round);
    }
    for strategy in LEARNING {
        let before = |query: &str, named: &str| {
            let place = |history: &UsageHistory, id: &str| {
                let found = found(&index, history, query, strategy, NOW + 100);
                found.iter().position(|other| other == id)
            };
            place(&history, named).unwrap() <= place(&UsageHistory::default(), named).unwrap()
        };
        assert!(before("issue", "jira:issue"), "{strategy:?}");
        // Of two with that name the favourite may come first; what is only similar may not.
        let found = found(&index, &history, "search files", strategy, NOW + 100);
        assert_eq!(found[0], "drive:search_files", "{strategy:?}: {found:?}");
        assert_eq!(found[1], "files:search_files", "{strategy:?}: {found:?}");
    }
}

#[test]
fn keyword_and_lexical_points_are_as_agreed() {
    let (index, history) = (catalog(), log());
    for strategy in [Strategy::Keyword, Strategy::Lexical] {
        for query in ["search issues", "send a message", "issue"] {
            let plain = found(&index, &UsageHistory::default(), query, strategy, NOW);
            assert_eq!(found(&index, &history, query, strategy, NOW), plain);
        }
    }
}
