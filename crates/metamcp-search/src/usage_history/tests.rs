//! The bounds, the order of records, the round trip, and what moves a boost in which direction.

use proptest::prelude::{Just, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy;

use super::*;

const DAY: u64 = 24 * 3600;
const NOW: u64 = 1_700_000_000;

fn boost(history: &UsageHistory, query: &str, now: u64) -> f32 {
    history.prior(query, now).boost("github", "create_issue")
}

fn with(records: &[(&str, bool)]) -> UsageHistory {
    let mut history = UsageHistory::default();
    for (query, ok) in records {
        history.record(query, "github:create_issue", *ok, NOW);
    }
    history
}

#[test]
fn repeated_success_is_a_habit_and_once_is_a_hint() {
    let mut history = UsageHistory::default();
    assert_eq!(boost(&history, "open a ticket", NOW), 0.0);
    let mut boosts = Vec::new();
    for _ in 0..8 {
        history.record("open a ticket", "github:create_issue", true, NOW);
        boosts.push(boost(&history, "open a ticket", NOW));
    }
    assert!(boosts[0] < 0.4 && boosts[2] > 0.5 && boosts[7] > 0.75, "{boosts:?}");
}

#[test]
fn similar_queries_share_a_habit_and_others_do_not() {
    let history = with(&[("open a bug ticket", true); 5]);
    let same = boost(&history, "open a bug ticket", NOW);
    let near = boost(&history, "please open a new bug ticket", NOW);
    assert!(0.0 < near && near < same, "{near} {same}");
    assert_eq!(boost(&history, "open the door of the garage", NOW), 0.0);
    assert_eq!(boost(&history, "send a mail", NOW), 0.0);
    assert!(history.prior("send a mail", NOW).is_empty());
}

#[test]
fn failures_count_against() {
    let good = with(&[("open a ticket", true), ("open a ticket", true)]);
    let mixed = with(&[("open a ticket", true), ("open a ticket", true), ("open a ticket", false)]);
    assert!(boost(&mixed, "open a ticket", NOW) < boost(&good, "open a ticket", NOW));
    let bad = with(&[("open a ticket", true), ("open a ticket", false)]);
    assert_eq!(boost(&bad, "open a ticket", NOW), 0.0);
}

#[test]
fn habits_fade() {
    let history = with(&[("open a ticket", true); 3]);
    let at = |days: u64| boost(&history, "open a ticket", NOW + days * DAY);
    assert!(at(0) > at(10) && at(10) > at(60) && at(60) > at(365));
    assert!(at(365) < 0.01, "{}", at(365));
    assert_eq!(boost(&history, "open a ticket", 0), at(0), "a clock set back is no time passed");
}

#[test]
fn the_new_habit_overtakes_the_old_one() {
    let mut history = with(&[("open a ticket", true); 5]);
    for day in 90..94 {
        history.record("open a ticket", "jira:create_ticket", true, NOW + day * DAY);
    }
    let prior = history.prior("open a ticket", NOW + 94 * DAY);
    assert!(prior.boost("jira", "create_ticket") > 2.0 * prior.boost("github", "create_issue"));
}

#[test]
fn the_weakest_and_oldest_go_first() {
    let mut history = with(&[("open a ticket", true); 20]);
    for number in 0..3 * MAX_PAIRS {
        let query = format!("{} {}", letters(number), letters(number / 7));
        history.record(&query, "a:b", true, NOW + 20 * DAY + number as u64);
    }
    assert!(history.len() <= MAX_PAIRS);
    assert!(boost(&history, "open a ticket", NOW + 21 * DAY) > 0.5, "a strong habit stays");
    let last = 3 * MAX_PAIRS - 1;
    let newest = format!("{} {}", letters(last), letters(last / 7));
    assert!(history.prior(&newest, NOW + 21 * DAY).boost("a", "b") > 0.0);
    let oldest = format!("{} {}", letters(0), letters(0));
    assert_eq!(history.prior(&oldest, NOW + 21 * DAY).boost("a", "b"), 0.0);
}

#[test]
fn the_longest_pairs_still_fit_into_a_file() {
    let mut history = UsageHistory::default();
    for number in 0..MAX_PAIRS {
        let query: Vec<String> = (0..40).map(|at| letters(number * 40 + at)).collect();
        let id = format!("\u{1}{}:{number}", "\"".repeat(200));
        history.record(&query.join(" "), &id, true, NOW + number as u64);
    }
    let text = history.to_json();
    assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 2_000, "{}", text.len());
    let read = UsageHistory::parse(&text).unwrap();
    assert!(read.len() > 100);
    let id = format!("\u{1}{}", "\"".repeat(200));
    let newest: Vec<String> = (0..40).map(|at| letters((MAX_PAIRS - 1) * 40 + at)).collect();
    let kept = read.prior(&newest.join(" "), NOW);
    assert!(kept.boost(&id, &(MAX_PAIRS - 1).to_string()) > 0.0);
}

#[test]
fn nothing_of_a_query_can_be_read_in_the_file() {
    let mut history = UsageHistory::default();
    history.record("ask Rumpelstiltskin about project Nightingale", "mail:send", true, NOW);
    let text = history.to_json().to_lowercase();
    assert!(!text.contains("rumpel") && !text.contains("night") && !text.contains("project"));
}

/// A word for a number that no sieve takes for a key.
fn letters(mut number: usize) -> String {
    let mut word = String::new();
    for _ in 0..4 {
        word.push(char::from(b"bcdfghklmnprst"[number % 14]));
        word.push(char::from(b"aeiou"[number / 14 % 5]));
        number /= 70;
    }
    word
}

#[derive(Debug, Clone)]
struct Record {
    query: String,
    id: String,
    ok: bool,
    at: u64,
}

fn query() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("open".to_owned()),
        Just("issue".to_owned()),
        Just("mail".to_owned()),
        Just("file".to_owned()),
        "[a-z]{3,9}",
        "\\PC{0,12}",
    ];
    prop::collection::vec(word, 0..8).prop_map(|words| words.join(" "))
}

fn record() -> impl Strategy<Value = Record> {
    let id = prop_oneof!["[ab]:[cd]", "\\PC{0,300}"];
    let at = prop_oneof![Just(NOW), NOW..NOW + 90 * DAY, 0..u64::MAX];
    (query(), id, prop::bool::weighted(0.8), at).prop_map(|(query, id, ok, at)| Record {
        query,
        id,
        ok,
        at,
    })
}

fn replayed<'a>(records: impl IntoIterator<Item = &'a Record>) -> UsageHistory {
    let mut history = UsageHistory::default();
    for Record { query, id, ok, at } in records {
        history.record(query, id, *ok, *at);
    }
    history
}

proptest! {
    #[test]
    fn bounds_hold_and_the_round_trip_is_exact(records in prop::collection::vec(record(), 0..60), asked in query(), now: u64) {
        let history = replayed(&records);
        prop_assert!(history.len() <= MAX_PAIRS);
        let text = history.to_json();
        prop_assert!(text.len() <= MAX_BYTES);
        prop_assert_eq!(&UsageHistory::parse(&text).unwrap(), &history);
        for (_, boost) in history.prior(&asked, now).iter() {
            prop_assert!(boost > 0.0 && boost <= 1.0, "{}", boost);
        }
        let counted: usize = history.pairs.keys().map(|pair| pair.words.iter().count()).sum();
        prop_assert_eq!(history.occurs.values().sum::<u32>() as usize, counted);
    }

    #[test]
    fn records_of_one_time_can_come_in_any_order(records in prop::collection::vec(record(), 0..40)) {
        let level: Vec<Record> = records.into_iter().map(|one| Record { at: NOW, ..one }).collect();
        prop_assert_eq!(replayed(&level), replayed(level.iter().rev()));
    }

    #[test]
    fn records_of_any_time_come_to_the_same_up_to_rounding(records in prop::collection::vec(record(), 0..40), asked in query()) {
        let close: Vec<Record> = records.into_iter().map(|one| Record { at: NOW + one.at % (90 * DAY), ..one }).collect();
        let (there, back) = (replayed(&close), replayed(close.iter().rev()));
        prop_assert_eq!(there.len(), back.len());
        let now = NOW + 90 * DAY;
        for (id, boost) in there.prior(&asked, now).iter() {
            let other = back.prior(&asked, now).iter().find(|(other, _)| *other == id).map_or(0.0, |(_, boost)| boost);
            prop_assert!((boost - other).abs() < 1e-3, "{} {} {}", id, boost, other);
        }
    }

    #[test]
    fn merged_is_as_if_recorded_in_one(records in prop::collection::vec(record(), 0..40), cut in 0usize..40) {
        let level: Vec<Record> = records.into_iter().map(|one| Record { at: NOW, ..one }).collect();
        let (one, other) = level.split_at(cut.min(level.len()));
        let mut merged = replayed(one);
        merged.merge(&replayed(other));
        prop_assert_eq!(merged, replayed(&level));
    }

    #[test]
    fn another_success_never_lowers_and_another_failure_never_raises(
        records in prop::collection::vec(record(), 0..30),
        known in "[ab]:[cd]",
        asked in "(open|issue|mail) (file|issue|door)",
    ) {
        let mut history = replayed(&records);
        // The pair is there before: a new one moves what the words of all others weigh.
        history.record(&asked, &known, true, NOW);
        history.record(&asked, &known, false, NOW);
        let (server, tool) = known.split_once(':').unwrap();
        let before = history.prior(&asked, NOW).boost(server, tool);
        let after = |ok: bool| {
            let mut next = history.clone();
            next.record(&asked, &known, ok, NOW);
            next.prior(&asked, NOW).boost(server, tool)
        };
        prop_assert!(after(true) >= before - 1e-6, "{} {}", before, after(true));
        prop_assert!(after(false) <= before + 1e-6, "{} {}", before, after(false));
    }

    #[test]
    fn unrelated_queries_have_no_prior(records in prop::collection::vec("[a-m]{3,8}( [a-m]{3,8}){0,4}", 0..30), asked in "[n-z]{3,8}( [n-z]{3,8}){0,4}") {
        let mut history = UsageHistory::default();
        for query in &records {
            history.record(query, "a:b", true, NOW);
        }
        prop_assert!(history.prior(&asked, NOW).is_empty());
    }

    #[test]
    fn any_text_can_be_read(text in "\\PC{0,200}") {
        drop(UsageHistory::from_json(&text));
    }
}
