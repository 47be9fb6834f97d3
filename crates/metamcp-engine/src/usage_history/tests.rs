//! The file among several gateways and after damage; a store through its whole life.

use std::time::Duration;

use super::*;

const NOW_MS: u64 = 1_700_000_000_000;

/// What a search sees.
async fn prior_of(usage_store: &Arc<UsageStore>, principal: u64, query: &str) -> Prior {
    usage_store.refresh(principal).await;
    usage_store.prior(principal, query)
}

fn one(query: &str, id: &str) -> UsageHistory {
    let mut history = UsageHistory::default();
    history.record(query, id, true, NOW_MS / 1_000);
    history
}

#[test]
fn gateways_add_to_each_other() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(&home.path().join("home"));
    assert!(file.read().unwrap().is_empty(), "nothing is made by reading");
    assert!(!home.path().join("home").exists());
    file.add(&one("open a ticket", "jira:create"), NOW_MS).unwrap();
    file.add(&one("open a ticket", "jira:create"), NOW_MS).unwrap();
    let all = file.add(&one("read mail", "mail:read"), NOW_MS).unwrap();
    let mut expected = one("open a ticket", "jira:create");
    expected.merge(&one("open a ticket", "jira:create"));
    expected.merge(&one("read mail", "mail:read"));
    assert_eq!(all, expected);
    assert_eq!(file.read().unwrap(), expected);
}

#[test]
fn many_gateways_at_once_leave_a_whole_file() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    std::thread::scope(|scope| {
        for number in 0..12 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..10 {
                    let fresh = one("open a ticket", &format!("server{number}:tool{round}"));
                    let all = file.add(&fresh, NOW_MS).unwrap();
                    assert!(!all.is_empty());
                }
            });
        }
    });
    assert_eq!(file.read().unwrap().len(), 120, "what each learnt is there");
    let names: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    file.add(&one("open a ticket", "jira:create"), NOW_MS).unwrap();
    let mode = std::fs::metadata(file.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_damaged_file_is_renamed_and_another_version_is_not_read() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    let too_long = " ".repeat(300 * 1024);
    for damaged in ["", "{\"version\":1", "\u{1}", too_long.as_str()] {
        std::fs::write(file.path(), damaged).unwrap();
        assert!(file.read().unwrap().is_empty());
        assert!(!file.path().exists());
        let aside = std::fs::read_to_string(home.path().join("habits.json.corrupt")).unwrap();
        assert_eq!(aside, damaged);
    }
    std::fs::write(file.path(), "{\"version\":7,\"habits\":[]}").unwrap();
    assert!(file.read().unwrap().is_empty());
    assert!(file.path().exists(), "the other version may still want it");
    assert_eq!(file.add(&one("open a ticket", "jira:create"), NOW_MS).unwrap().len(), 1);
}

#[cfg(unix)]
#[test]
fn a_link_in_its_place_is_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    let other = home.path().join("other");
    std::fs::write(&other, "precious").unwrap();
    std::os::unix::fs::symlink(&other, file.path()).unwrap();
    file.add(&one("open a ticket", "jira:create"), NOW_MS).unwrap();
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
    assert_eq!(file.read().unwrap().len(), 1);
}

#[test]
fn forgetting_removes_every_trace() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    assert_eq!(file.forget().unwrap(), Forgotten::default());
    file.add(&one("open a ticket", "jira:create"), NOW_MS).unwrap();
    for left in ["habits.json.corrupt", ".habits.json.1.0123"] {
        std::fs::write(home.path().join(left), "x").unwrap();
    }
    std::fs::write(home.path().join("mcp.json"), "{}").unwrap();
    let forgotten = file.forget().unwrap();
    assert_eq!((forgotten.history, forgotten.removed.len()), (1, 3));
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

fn boost(prior: &Prior) -> f32 {
    prior.boost("jira", "create")
}

#[tokio::test(start_paused = true)]
async fn the_history_is_written_after_a_while_and_read_by_the_next() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    let usage_store = UsageStore::start(file.clone());
    assert!(prior_of(&usage_store, OWNER, "open a ticket").await.is_empty());
    usage_store.record(OWNER, &QueryWords::of("open a ticket"), "jira:create", true);
    assert!(boost(&prior_of(&usage_store, OWNER, "open a ticket").await) > 0.0, "known at once");
    assert!(!file.path().exists(), "written later");
    let written = async {
        while !file.path().exists() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(10), written).await.unwrap();
    let next = UsageStore::start(file.clone());
    assert!(boost(&prior_of(&next, OWNER, "open a ticket").await) > 0.0);
}

#[tokio::test(start_paused = true)]
async fn what_is_removed_is_forgotten_by_those_who_run() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    let usage_store = UsageStore::start(file.clone());
    usage_store.record(OWNER, &QueryWords::of("open a ticket"), "jira:create", true);
    usage_store.finish().await;
    assert!(file.path().exists());
    assert!(boost(&prior_of(&usage_store, OWNER, "open a ticket").await) > 0.0);
    file.forget().unwrap();
    tokio::time::advance(EVERY).await;
    assert!(prior_of(&usage_store, OWNER, "open a ticket").await.is_empty());
    usage_store.record(OWNER, &QueryWords::of("read mail"), "mail:read", true);
    usage_store.finish().await;
    assert_eq!(file.read().unwrap().len(), 1, "the forgotten does not come back");
}

#[tokio::test(start_paused = true)]
async fn two_gateways_learn_from_each_other_without_counting_twice() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    let (one, other) = (UsageStore::start(file.clone()), UsageStore::start(file.clone()));
    for _ in 0..3 {
        one.record(OWNER, &QueryWords::of("open a ticket"), "jira:create", true);
        one.finish().await;
        other.record(OWNER, &QueryWords::of("open a ticket"), "jira:create", true);
        other.finish().await;
    }
    let mut expected = UsageHistory::default();
    let now = now_secs();
    for _ in 0..6 {
        expected.record("open a ticket", "jira:create", true, now);
    }
    let read = boost(&file.read().unwrap().prior("open a ticket", now));
    let expected = boost(&expected.prior("open a ticket", now));
    assert!((read - expected).abs() < 1e-3, "{read} {expected}");
    tokio::time::advance(EVERY).await;
    let known = boost(&prior_of(&one, OWNER, "open a ticket").await);
    assert!((known - expected).abs() < 1e-3, "{known} {expected}");
}

#[tokio::test(start_paused = true)]
async fn a_home_that_cannot_be_used_costs_nothing_but_the_file() {
    let home = tempfile::tempdir().unwrap();
    let blocked = home.path().join("file");
    std::fs::write(&blocked, "not a folder").unwrap();
    let usage_store = UsageStore::start(UsageFile::new(&blocked));
    usage_store.record(OWNER, &QueryWords::of("open a ticket"), "jira:create", true);
    usage_store.finish().await;
    assert!(boost(&prior_of(&usage_store, OWNER, "open a ticket").await) > 0.0);
    assert_eq!(std::fs::read_to_string(&blocked).unwrap(), "not a folder");
}

/// The owner's history is in the file; those of a listener's principals are separate, and end with the process.
#[tokio::test]
async fn no_search_uses_the_history_of_another_principal() {
    let home = tempfile::tempdir().unwrap();
    let file = UsageFile::new(home.path());
    let usage_store = UsageStore::start(file.clone());
    let words = QueryWords::of("open a ticket");
    usage_store.record(7, &words, "jira:create", true);
    assert!(boost(&prior_of(&usage_store, 7, "open a ticket").await) > 0.0);
    for other in [OWNER, 8] {
        assert!(prior_of(&usage_store, other, "open a ticket").await.is_empty(), "{other}");
    }
    usage_store.finish().await;
    assert!(file.read().unwrap().is_empty());
    usage_store.record(OWNER, &words, "jira:create", true);
    assert!(prior_of(&usage_store, 8, "open a ticket").await.is_empty());
    for principal in 100..100 + MOST_OTHERS as u64 {
        usage_store.record(principal, &words, "jira:create", true);
    }
    assert!(
        prior_of(&usage_store, 7, "open a ticket").await.is_empty(),
        "forgotten for newer ones"
    );
}

/// A search scans the whole history on a low-priority thread.
#[tokio::test]
async fn a_call_is_recorded_while_the_history_is_scanned() {
    let home = tempfile::tempdir().unwrap();
    let usage_store = UsageStore::start(UsageFile::new(home.path()));
    let held = usage_store.lock();
    let (told, heard) = std::sync::mpsc::channel();
    let recording = Arc::clone(&usage_store);
    std::thread::spawn(move || {
        recording.record(OWNER, &QueryWords::of("open a ticket"), "jira:create", true);
        told.send(())
    });
    assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok(()));
    drop(held);
    assert!(boost(&usage_store.prior(OWNER, "open a ticket")) > 0.0);
}
