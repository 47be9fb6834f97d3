//! Ten thousand concurrent callers for a server that is not running yet: one process, and every call is answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use metamcp_testkit::census::kill_all;
use metamcp_testkit::{
    CallOutcome, Client, EventKind, Server, Workspace, chaos_server, eventually, programs,
};
use serde_json::json;

use crate::world::{PATIENCE, start, stop, tell, timed};

const CALLERS: usize = 10_000;

#[test]
fn ten_thousand_first_calls_start_one_process() {
    let mut workspace = Workspace::new().unwrap();
    // Slow enough to start that all calls arrive before it is ready.
    workspace.server("one", chaos_server(&["answer-initialize-late=2000"]));
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
    assert_eq!(journal.count(EventKind::Start).unwrap(), 1);
    assert_eq!(journal.count(EventKind::Initialize).unwrap(), 1);
    assert_eq!(journal.count(EventKind::List).unwrap(), 1);
    let executions = journal.executions_by_key().unwrap();
    assert_eq!(executions.len(), CALLERS);
    assert!(executions.values().all(|&times| times == 1));
    tell(format_args!("{CALLERS} first calls: one process, all answered in {took:.1?}"));
    stop(client, &workspace);
}

#[test]
fn ten_thousand_callers_of_a_server_that_fails_to_start_share_one_attempt() {
    let mut workspace = Workspace::new().unwrap();
    // It never becomes ready; it is killed here, while all callers wait for it.
    workspace.server("one", chaos_server(&["never-initialize"]));
    let client = start(&workspace);
    let ids = call_from_everyone(&client);
    let program = programs::chaos_child();
    let over = AtomicBool::new(false);
    let told = thread::scope(|scope| {
        scope.spawn(|| {
            eventually(PATIENCE, || {
                kill_all(&workspace.processes_of(&program));
                over.load(Ordering::Relaxed)
            })
        });
        let told = errors_of_all(&client, &ids);
        over.store(true, Ordering::Relaxed);
        told
    });
    let starts = workspace.journal("one").count(EventKind::Start).unwrap();
    tell(format_args!("{CALLERS} callers, {starts} starts: {told:?}"));
    assert_eq!(told.len(), 1, "everyone is told the same");
    assert!(told.keys().all(|(code, _)| code == "server_unavailable"), "{told:?}");
    // A start that was interrupted is retried once, for all callers together. A race: the second process may be killed
    // before it has recorded its start.
    assert!((1..=2).contains(&starts), "{starts} starts: somebody tried for himself");
    assert_eq!(workspace.journal("one").count(EventKind::Execute).unwrap(), 0);
    stop(client, &workspace);
}

#[test]
fn ten_thousand_callers_of_a_missing_command_get_the_reason() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", Server::new("/nonexistent/server", &[]));
    let client = start(&workspace);
    let ids = call_from_everyone(&client);
    let told = errors_of_all(&client, &ids);
    tell(format_args!("{CALLERS} callers of nothing: {told:?}"));
    // All callers that waited for one start get the same error. Later ones get the remaining restart backoff or, after
    // enough failures, the circuit breaker's error.
    let in_a_pause = |message: &str| message.contains("is not contacted for another");
    let waited = told
        .keys()
        .filter(|(code, message)| code == "server_unavailable" && !in_a_pause(message))
        .count();
    assert_eq!(waited, 1, "those who waited are told the same");
    for (code, message) in told.keys() {
        assert!(["server_unavailable", "circuit_open"].contains(&code.as_str()), "{code}");
        assert!(message.contains("/nonexistent/server"), "{message}");
    }
    stop(client, &workspace);
}

/// All calls have been read when this returns: lines are read in order, and the last one is answered at once.
fn call_from_everyone(client: &Client) -> Vec<u64> {
    let ids = (0..CALLERS)
        .map(|n| client.mcp_call("one", "effect", &json!({"key": format!("call-{n}")})).unwrap())
        .collect();
    client.ask("ping", &json!({}), PATIENCE).unwrap();
    ids
}

/// How many callers got which error, by code and message.
fn errors_of_all(client: &Client, ids: &[u64]) -> HashMap<(String, String), usize> {
    let mut told = HashMap::new();
    for id in ids {
        let answer = client.wait(*id, PATIENCE).unwrap();
        match CallOutcome::of(&answer.value) {
            CallOutcome::GatewayError(error) => {
                *told.entry((error.code, error.message)).or_insert(0) += 1;
            }
            other => panic!("{other}"),
        }
    }
    told
}
