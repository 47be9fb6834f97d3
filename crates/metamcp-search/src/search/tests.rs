//! Tokens, scores, order, quota; and that the index does not depend on the order of updates.

use std::sync::Arc;

use proptest::prelude::{TestCaseError, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as AnyStrategy;
use serde_json::{Value, json};

use super::*;
use metamcp_tools::tool::Listing;

pub(super) fn tools(list: &[Value]) -> Arc<ServerTools> {
    let mut listing = Listing::new();
    listing.page(json!({"tools": list}).to_string().as_bytes()).unwrap();
    Arc::new(listing.finish(None, None))
}

pub(super) fn part(server: &str, list: &[Value]) -> Arc<ServerIndex> {
    Arc::new(ServerIndex::build(server, None, &tools(list)))
}

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description})
}

fn ids(hits: &[Hit]) -> Vec<String> {
    hits.iter().map(Hit::id).collect()
}

pub(super) fn office() -> Index {
    let files = [
        json!({"name": "read_file", "description": "Read the complete contents of a file.", "inputSchema": {"properties": {"path": {"type": "string"}}}}),
        json!({"name": "write_file", "description": "Create or overwrite a file.", "inputSchema": {"properties": {"path": {}, "content": {}}}}),
        json!({"name": "list_directory", "description": "List what is in a directory."}),
    ];
    let mail = [
        json!({"name": "sendEmail", "description": "Send a message to someone.", "inputSchema": {"properties": {"recipient": {"description": "who receives it"}}}}),
        json!({"name": "search_inbox", "title": "Search mail", "description": "Find messages."}),
    ];
    let git =
        [tool("git_log", "Shows the commit history."), tool("git_commit", "Records changes.")];
    Index::new(vec![part("files", &files), part("mail", &mail), part("git", &git)])
}

#[test]
fn words_are_split_where_people_read_them() {
    let check = |text: &str, expected: &[&str]| assert_eq!(tokens(text), expected, "{text}");
    check("read_file", &["read", "fil", "readfile"]);
    check("readFile", &["read", "fil", "readfile"]);
    check("HTTPServer", &["http", "server", "httpserver"]);
    check("GitHub", &["git", "hub", "github"]);
    check("get-user.by/id", &["get", "user", "id", "getuserbyid"]);
    check("the files are created", &["fil", "creat"]);
    check("queries querying query", &["queri", "queri", "queri"]);
    check("base64 s3 oauth2", &["bas", "base64", "s3", "oauth", "oauth2"]);
    check("搜索file", &["搜", "索", "fil"]);
    check("Übergröße", &["übergröße"]);
    check("-- ... //", &[]);
}

#[test]
fn the_keyword_score_is_the_documented_one() {
    let index = Index::new(vec![part(
        "s",
        &[
            tool("search", "Nothing else"),
            tool("web_search", "Search the web"),
            tool("find", "A SEARCH of files"),
            tool("Search_All", "x"),
            tool("other", "nothing"),
        ],
    )]);
    let scores = |query: &str| -> Vec<(String, f32)> {
        let hits = index.search(query, Strategy::Keyword, 20, None);
        hits.iter().map(|hit| (hit.tool().name.to_string(), hit.score)).collect()
    };
    let expected = [("search", 1.0), ("web_search", 0.7), ("Search_All", 0.5), ("find", 0.2)];
    assert_eq!(scores("Search"), expected.map(|(name, score)| (name.to_owned(), score)));
    assert_eq!(
        scores("the web"),
        [("web_search".to_owned(), 0.2)],
        "a query of several words is one string"
    );
    assert!(scores("web the").is_empty());
    assert!(scores("  ").is_empty());
}

#[test]
fn bm25_finds_by_any_field() {
    let index = office();
    let best = |query: &str| index.search(query, Strategy::Bm25, 1, None).first().map(Hit::id);
    assert_eq!(best("read file").as_deref(), Some("files:read_file"));
    assert_eq!(best("reading files").as_deref(), Some("files:read_file"));
    assert_eq!(best("readFile").as_deref(), Some("files:read_file"));
    assert_eq!(best("send an email").as_deref(), Some("mail:sendEmail"));
    assert_eq!(best("recipient").as_deref(), Some("mail:sendEmail"), "by a parameter");
    assert_eq!(
        best("who receives").as_deref(),
        Some("mail:sendEmail"),
        "by a parameter's description"
    );
    assert_eq!(best("git history").as_deref(), Some("git:git_log"));
    assert_eq!(best("commit the changes").as_deref(), Some("git:git_commit"));
    assert_eq!(best("zebra"), None);
    assert_eq!(best("the of and"), None);
    assert_eq!(
        ids(&index.search("file", Strategy::Bm25, 20, Some("files"))).len(),
        3,
        "the server's own name counts"
    );
    assert!(index.search("file", Strategy::Bm25, 20, Some("mail")).is_empty());
    assert!(index.search("file", Strategy::Bm25, 20, Some("nobody")).is_empty());
}

#[test]
fn a_misspelt_name_is_forgiven() {
    let index = office();
    let best = |query: &str| index.search(query, Strategy::Bm25, 1, None).first().map(Hit::id);
    assert_eq!(best("list the directroy").as_deref(), Some("files:list_directory"));
    assert_eq!(best("git comit").as_deref(), Some("git:git_commit"));
    assert_eq!(best("zzebra"), None, "nothing is near");
}

#[test]
fn meaning_finds_what_shares_no_word() {
    let index = office();
    for (query, expected) in [
        ("show the folder", "files:list_directory"),
        ("look for a letter in my mailbox", "mail:search_inbox"),
    ] {
        let hits = index.search(query, Strategy::Hybrid, 3, None);
        assert_eq!(hits.first().map(Hit::id).as_deref(), Some(expected), "{query}: {hits:?}");
    }
}

#[test]
fn a_request_for_two_things_finds_both() {
    let list = [
        tool("parcel_status", "Tells where a delivery is."),
        tool("cancel_repair", "Withdraws an appointment with a technician."),
        tool("repair_history", "All repairs of an appliance so far."),
        tool("change_address", "Moves a customer to another street."),
        tool("weather", "The forecast of a town."),
        tool("buy_ticket", "Buys a ticket for a train."),
    ];
    let index = Index::new(vec![part("home", &list)]);
    let query = "Cancel the repair of my washing machine and tell me where the parcel is now";
    let first = ids(&index.search(query, Strategy::Hybrid, 2, None));
    assert_eq!(first, ["home:cancel_repair", "home:parcel_status"]);
    let stands_out = |query: &str| {
        let seen = index.candidates(query, None);
        let parcel = seen.iter().find(|seen| &*seen.hit.tool().name == "parcel_status");
        let [words, meaning, clause_words, clause_meaning, ..] = parcel.unwrap().features;
        (clause_words > words, clause_meaning > meaning)
    };
    // A part counts by itself where there are several, and is the whole where there are not.
    assert_eq!(stands_out(query), (true, true));
    assert_eq!(stands_out("tell me where the parcel is now"), (false, false));
}

#[test]
fn a_clock_is_no_weather_service() {
    let time = [
        tool("get_current_time", "Get the current time in a timezone."),
        tool("convert_time", "Convert a time between timezones."),
    ];
    let database =
        [tool("query", "Run a read-only SQL query."), tool("list_tables", "List tables.")];
    let mut parts = office().servers().to_vec();
    parts.extend([part("time", &time), part("postgres", &database)]);
    let index = Index::new(parts);
    let hits = |query: &str| index.search(query, Strategy::Hybrid, 20, None);
    let is_met = |query: &str| meets(query, &hits(query));
    for need in ["current weather forecast", "weather in Vienna", "current stock price of Apple"] {
        assert!(!is_met(need), "{need}: {:?}", hits(need));
    }
    for need in ["what is the current time", "send an email", "read a text file"] {
        assert!(is_met(need), "{need}: {:?}", hits(need));
    }
    assert!(!nothing_fits("read a file", &hits("read a file")));
    for need in ["current weather forecast", "current stock price of Apple"] {
        assert!(nothing_fits(need, &hits(need)), "{need}: {:?}", hits(need));
    }
}

#[test]
fn a_question_to_the_wrong_catalog_is_told_from_a_right_one() {
    let index = office();
    let sure = |query: &str| {
        let hits = index.search(query, Strategy::Hybrid, 1, None);
        hits.first().and_then(|hit| hit.confidence).unwrap_or(0.0)
    };
    let (right, wrong) = (sure("read the contents of a file"), sure("temperature in Zurich"));
    assert!(right > 0.5 && wrong < 0.3 && right > 2.0 * wrong, "{right} and {wrong}");
}

#[test]
fn similarity_from_elsewhere_is_joined() {
    let index = office();
    let hits = index.search("file", Strategy::Hybrid, 9, None);
    assert!(hits.len() >= 3);
    let page = |similarity: &[f32], beside| {
        let compared = BlendedRanker::new(&index, &hits, similarity, beside);
        index.page_by(&compared, "file", (0, 9), None, None).hits
    };
    let joined = page(&[0.1, 1.0], Strategy::Keyword);
    assert_eq!(joined[0].id(), hits[1].id());
    let keyword = keyword::score("file", hits[1].tool());
    assert!((joined[0].score - 0.6 - 0.4 * keyword).abs() < 1e-6, "{joined:?}");
    assert!(joined.windows(2).all(|pair| pair[0].score >= pair[1].score), "{joined:?}");
    let joined = page(&[f32::NAN, f32::INFINITY], Strategy::Hybrid);
    assert!(joined.iter().all(|hit| hit.score.is_finite()));
    assert_eq!(joined.len(), hits.len());
    assert_eq!(ids(&page(&[], Strategy::Hybrid)), ids(&hits));
}

/// A query whose words match nothing, and vectors that know better.
#[test]
fn the_nearest_by_vector_are_hits_in_their_own_right() {
    let index = office();
    let query = "xqzv wvut";
    assert!(index.search(query, Strategy::Hybrid, 9, None).is_empty());
    let all: Vec<Hit> =
        index.servers().iter().flat_map(|part| Hit::all_of(part.server(), part.tools())).collect();
    let near = [&all[1], &all[4], &all[2]].map(Clone::clone);
    let similarity = [0.9, 0.5, 0.0];
    for beside in [Strategy::Keyword, Strategy::Hybrid] {
        let compared = BlendedRanker::new(&index, &near, &similarity, beside);
        let found = index.page_by(&compared, query, (0, 9), None, None);
        assert_eq!(ids(&found.hits), [all[1].id(), all[4].id()], "nothing of what is not similar");
        assert_eq!(found.total, 2);
        assert!((found.hits[0].score - 0.6 * 0.9).abs() < 1e-6, "{:?}", found.hits);
        let other = index.servers().iter().find(|part| **part.server() != *all[1].server);
        let other = other.map(|part| part.server().to_string());
        let found = index.page_by(&compared, query, (0, 9), other.as_deref(), None);
        assert!(found.hits.iter().all(|hit| Some(&*hit.server) == other.as_deref()));
    }
    // Beside words they are joined by the same rule: 0.6 of similarity, 0.4 of the other.
    let hits = index.search("file", Strategy::Hybrid, 1, None);
    let stranger = all.iter().find(|hit| {
        index.search("file", Strategy::Hybrid, 99, None).iter().all(|one| one.id() != hit.id())
    });
    let both = [hits[0].clone(), stranger.unwrap().clone()];
    let compared = BlendedRanker::new(&index, &both, &[0.2, 1.0], Strategy::Keyword);
    let found = index.page_by(&compared, "file", (0, 9), None, None);
    let keyword = keyword::score("file", hits[0].tool());
    let joined = |id: String| found.hits.iter().find(|hit| hit.id() == id).unwrap().score;
    assert!((joined(both[0].id()) - (0.12 + 0.4 * keyword)).abs() < 1e-6);
    assert!((joined(both[1].id()) - 0.6).abs() < 1e-6);
}

#[test]
fn pages_follow_each_other() {
    let index = office();
    let whole = index.page("file directory message commit", Strategy::Bm25, 0, 100, None);
    assert_eq!(whole.total, whole.hits.len());
    let mut paged = Vec::new();
    for offset in 0..whole.total {
        let page = index.page("file directory message commit", Strategy::Bm25, offset, 1, None);
        assert_eq!(page.total, whole.total);
        paged.extend(ids(&page.hits));
    }
    assert_eq!(paged, ids(&whole.hits));
}

#[test]
fn equal_scores_are_in_order_of_server_and_tool() {
    let same = [tool("b", "find things"), tool("a", "find things")];
    let index = Index::new(vec![part("z", &same), part("m", &same)]);
    for strategy in [Strategy::Bm25, Strategy::Keyword] {
        assert_eq!(ids(&index.search("find", strategy, 9, None)), ["m:a", "m:b", "z:a", "z:b"]);
    }
}

#[test]
fn a_stuffed_server_gets_a_quarter_of_the_page() {
    let stuffed: Vec<Value> = (0..40)
        .map(|n| {
            tool(
                &format!("read_file_search_web_send_mail_{n}"),
                &"read file search web send mail ".repeat(60),
            )
        })
        .collect();
    let mut parts = vec![part("stuffed", &stuffed)];
    for server in 0..10 {
        let honest: Vec<Value> = (0..4)
            .map(|n| tool(&format!("tool_{n}"), &format!("Read a file of kind {n} and return it.")))
            .collect();
        parts.push(part(&format!("honest{server}"), &honest));
    }
    let index = Index::new(parts);
    for (query, strategy) in [
        ("read file", Strategy::Bm25),
        ("read file", Strategy::Hybrid),
        ("read", Strategy::Keyword),
        ("file", Strategy::Keyword),
        ("read file", Strategy::Lexical),
    ] {
        let hits = index.search(query, strategy, 20, None);
        let own = hits.iter().filter(|hit| &*hit.server == "stuffed").count();
        assert_eq!(hits.len(), 20);
        assert!(own <= 5, "{own} of 20 for {query}");
    }
    assert_eq!(
        index.search("send mail", Strategy::Bm25, 20, None).len(),
        20,
        "nobody else matches"
    );
    assert_eq!(index.search("read file", Strategy::Bm25, 20, Some("stuffed")).len(), 20);
    let all = index.page("read file", Strategy::Bm25, 0, 1_000, None);
    assert_eq!((all.total, all.hits.len()), (80, 80), "the rest comes later, none is lost");
}

#[test]
fn only_the_start_of_a_description_is_ranked() {
    let padded = format!("{} zebra", "word ".repeat(200));
    let index = Index::new(vec![part("s", &[tool("a", &padded), tool("b", "a zebra")])]);
    assert_eq!(ids(&index.search("zebra", Strategy::Bm25, 9, None)), ["s:b"]);
}

#[test]
fn an_empty_index_answers() {
    let index = Index::default();
    assert!(index.search("x", Strategy::Bm25, 5, None).is_empty());
    assert!(Index::new(Vec::new()).search("x", Strategy::Keyword, 5, None).is_empty());
    assert!(Index::new(vec![part("s", &[])]).search("s", Strategy::Bm25, 5, None).is_empty());
}

pub(super) fn word() -> impl AnyStrategy<Value = String> {
    prop::sample::select(vec![
        "read", "file", "send", "mail", "web", "search", "list", "Commit", "user_id",
    ])
    .prop_map(ToOwned::to_owned)
}

pub(super) fn server_tools() -> impl AnyStrategy<Value = Vec<Value>> {
    let words = || prop::collection::vec(word(), 0..6).prop_map(|words| words.join(" "));
    let one = (word(), word(), words(), word()).prop_map(|(first, second, description, parameter)| {
        json!({"name": format!("{first}_{second}"), "description": description, "inputSchema": {"properties": {parameter: {}}}})
    });
    prop::collection::vec(one, 0..8)
}

/// Every ranker, those with vectors from elsewhere included; what these say is made up.
pub(super) fn each_ranker(
    index: &Index,
    query: &str,
    mut check: impl FnMut(&dyn Ranker) -> Checked,
) -> Checked {
    for strategy in Strategy::ALL {
        check(ranker(strategy))?;
    }
    let hits = index.search(query, Strategy::Hybrid, BLENDED, None);
    let similarity: Vec<f32> = hits.iter().map(|hit| hit.id().len() as f32 % 7.0 / 7.0).collect();
    for beside in [Strategy::Keyword, Strategy::Hybrid] {
        check(&BlendedRanker::new(index, &hits, &similarity, beside))?;
    }
    Ok(())
}

pub(super) type Checked = Result<(), TestCaseError>;

pub(super) fn same(a: &Index, b: &Index, query: &str) -> Checked {
    each_ranker(a, query, |ranker| {
        let page = |index: &Index| index.page_by(ranker, query, (0, 100), None, None);
        let (left, right) = (page(a), page(b));
        prop_assert_eq!(left.total, right.total);
        prop_assert_eq!(ids(&left.hits), ids(&right.hits));
        for (one, other) in left.hits.iter().zip(&right.hits) {
            prop_assert_eq!(one.score.to_bits(), other.score.to_bits());
            prop_assert_eq!(one.confidence, other.confidence);
        }
        Ok(())
    })
}

proptest! {
    #[test]
    fn changing_one_server_is_the_same_as_building_anew(
        lists in prop::collection::vec(server_tools(), 1..5),
        changed in server_tools(),
        query in prop::collection::vec(word(), 1..4),
    ) {
        let query = query.join(" ");
        let build = |lists: &[Vec<Value>]| -> Vec<Arc<ServerIndex>> {
            lists.iter().enumerate().map(|(n, list)| part(&format!("server{n}"), list)).collect()
        };
        let mut parts = build(&lists);
        parts[0] = part("server0", &changed);
        parts.reverse();
        let mut fresh = lists;
        fresh[0] = changed;
        same(&Index::new(parts), &Index::new(build(&fresh)), &query)?;
    }

    #[test]
    fn hits_are_ordered_and_complete(
        lists in prop::collection::vec(server_tools(), 1..5),
        query in prop::collection::vec(word(), 1..4),
        limit in 1usize..30,
    ) {
        let parts = lists.iter().enumerate().map(|(n, list)| part(&format!("server{n}"), list)).collect();
        let index = Index::new(parts);
        let query = query.join(" ");
        each_ranker(&index, &query, |ranker| {
            let page = |limit| index.page_by(ranker, &query, (0, limit), None, None);
            let all = page(1_000);
            let mut unique = ids(&all.hits);
            unique.sort();
            unique.dedup();
            prop_assert_eq!(unique.len(), all.total);
            prop_assert!(all.hits.iter().all(|hit| hit.score.is_finite() && hit.score > 0.0));
            let chance = |hit: &Hit| hit.confidence.is_none_or(|sure| (0.0..=1.0).contains(&sure));
            prop_assert!(all.hits.iter().all(chance));
            prop_assert_eq!(ids(&page(limit).hits), ids(&all.hits[..limit.min(all.hits.len())]));
            Ok(())
        })?;
    }

    #[test]
    fn any_query_is_survived(query: String) {
        let index = office();
        for strategy in Strategy::ALL {
            index.search(&query, strategy, 5, None);
        }
        tokens(&query);
    }
}

#[test]
fn bm25_can_be_weighed_otherwise() {
    let list = [tool("zebra", "Nothing of note."), tool("horse", "A zebra, a zebra and a zebra.")];
    let build = |tuning: Tuning, tags: &[String]| {
        let about = About { description: None, tags };
        let mut words = CachedTokenizer::default();
        let part = ServerIndex::build_tuned(&mut words, "s", about, &tools(&list), &tuning);
        Index::tuned(vec![Arc::new(part)], tuning)
    };
    let first = |tuning: Tuning| ids(&build(tuning, &[]).search("zebra", Strategy::Bm25, 5, None));
    assert_eq!(first(Tuning::default()), ["s:horse", "s:zebra"]);
    assert_eq!(first(Tuning { name: 10.0, ..Tuning::default() }), ["s:zebra", "s:horse"]);
    assert_eq!(first(Tuning { name: 0.0, ..Tuning::default() }), ["s:horse"]);
    assert_eq!(first(Tuning { tools: 1, ..Tuning::default() }), ["s:zebra"]);
    assert_eq!(first(Tuning { chars: 1, ..Tuning::default() }), ["s:zebra"]);
    let tagged = build(Tuning::default(), &["savanna".to_owned()]);
    assert_eq!(tagged.search("savanna", Strategy::Bm25, 5, None).len(), 2);
    let deaf = build(Tuning { tags: 0.0, ..Tuning::default() }, &["savanna".to_owned()]);
    assert_eq!(deaf.search("savanna", Strategy::Bm25, 5, None).len(), 0);
}
