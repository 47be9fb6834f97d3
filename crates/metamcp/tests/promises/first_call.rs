//! Ten thousand callers at once for a server that is not there yet: one process, and everyone is answered.

use std::collections::HashMap;
use std::time::Duration;

use metamcp_testkit::{Outcome, What, Workspace, chaos_server};
use serde_json::{Value, json};

use crate::world::{PATIENCE, start, stop, tell, timed};

const CALLERS: usize = 10_000;

#[test]
fn ten_thousand_first_calls_start_one_process() {
    let mut workspace = Workspace::new().unwrap();
    // Slow enough to start that all of them come before it is ready.
    workspace.server("one", chaos_server(&["5=2000"]));
    let client = start(&workspace);
    let ((), took) = timed(|| {
        let ids: Vec<u64> = (0..CALLERS)
            .map(|n| {
                client.mcp_call("one", "effect", &json!({"key": format!("call-{n}")})).unwrap()
            })
            .collect();
        for (n, id) in ids.into_iter().enumerate() {
            let answer = client.wait(id, PATIENCE).unwrap();
            let right = format!("done call-{n}");
            assert_eq!(answer.text(), Some(right.as_str()), "{}", answer.value);
        }
    });
    let journal = workspace.journal("one");
    assert_eq!(journal.count(What::Start).unwrap(), 1);
    assert_eq!(journal.count(What::Initialize).unwrap(), 1);
    assert_eq!(journal.count(What::List).unwrap(), 1);
    let executions = journal.executions_by_key().unwrap();
    assert_eq!(executions.len(), CALLERS);
    assert!(executions.values().all(|&times| times == 1));
    tell(format_args!("{CALLERS} first calls: one process, all answered in {took:.1?}"));
    stop(client, &workspace);
}

#[test]
fn ten_thousand_callers_of_a_server_that_fails_to_start_share_one_attempt() {
    let mut workspace = Workspace::new().unwrap();
    // It lives long enough for all callers to be waiting when it ends.
    workspace.server("one", chaos_server(&["2=3000", "4"]));
    let client = start(&workspace);
    let ids: Vec<u64> = (0..CALLERS)
        .map(|n| client.mcp_call("one", "effect", &json!({"key": format!("call-{n}")})).unwrap())
        .collect();
    let mut told: HashMap<(String, String), usize> = HashMap::new();
    for id in ids {
        let answer: Value = client.wait(id, PATIENCE).unwrap().value;
        match Outcome::of(&answer) {
            Outcome::Refused(error) => {
                *told.entry((error.code, error.message)).or_insert(0) += 1;
            }
            other => panic!("{other}"),
        }
    }
    let starts = workspace.journal("one").count(What::Start).unwrap();
    tell(format_args!("{CALLERS} callers, {starts} starts: {told:?}"));
    assert_eq!(told.len(), 1, "everyone is told the same");
    assert_eq!(starts, 1, "and nobody tries for himself");
    assert_eq!(workspace.journal("one").count(What::Execute).unwrap(), 0);
    assert!(told.keys().all(|(code, _)| code == "server_unavailable"));
    stop(client, &workspace);
    assert_eq!(workspace.survivors(Duration::ZERO), []);
}
