//! More servers than pool slots: idle ones are evicted, busy ones are left alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually, programs};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

const SERVERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[test]
fn idle_servers_make_room_and_no_more_than_the_pool_are_ever_alive() {
    let gateway = Gateway::start(pool_of_two(&json!({})));
    let (over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let alive = gateway.workspace.processes_of(&programs::chaos_child()).len();
                most.fetch_max(alive, Ordering::Relaxed);
            }
        });
        for round in 0..2 {
            let calls: Vec<(String, u64)> = SERVERS
                .iter()
                .map(|server| {
                    let key = format!("{server}{round}");
                    let id = gateway.mcp_call(server, "effect", &json!({"key": key})).unwrap();
                    (key, id)
                })
                .collect();
            for (key, id) in calls {
                let answer = gateway.answer(id);
                assert_eq!(answer.text(), Some(&*format!("done {key}")), "{}", answer.value);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let most = most.into_inner();
    assert!((1..=2).contains(&most), "{most} were alive at once");
    let workspace = gateway.end();
    for server in SERVERS {
        let journal = workspace.journal(server);
        assert_eq!(journal.executions_by_key().unwrap().values().max(), Some(&1), "{server}");
        let starts = journal.count(EventKind::Start).unwrap();
        assert!((1..=2).contains(&starts), "{server} was started {starts} times for two calls");
    }
}

#[test]
fn busy_servers_keep_their_slots_and_a_timed_out_caller_learns_which() {
    let gateway = Gateway::start(pool_of_two(&json!({"poolWaitTimeoutMs": 500})));
    let busy: Vec<u64> = ["a", "b"]
        .map(|server| {
            let id = gateway.mcp_call(server, "slow", &json!({"ms": 4_000})).unwrap();
            let journal = gateway.workspace.journal(server);
            assert!(eventually(HUNG, || journal.count(EventKind::Execute).unwrap() == 1));
            id
        })
        .to_vec();
    let error = gateway.refusal("c", "effect", &json!({"key": "k"}));
    assert_eq!(error.code, "pool_exhausted", "{error:?}");
    assert!(error.retryable);
    assert!(error.message.contains("a, b"), "in the order in which they came: {error:?}");
    // A connected server needs no new slot.
    assert_eq!(gateway.call("a", "echo", &json!({"text": "x"})).text(), Some("x"));
    for id in busy {
        assert_eq!(gateway.answer(id).text(), Some("waited 4000 ms"));
    }
    // Now they are idle.
    assert_eq!(gateway.call("c", "effect", &json!({"key": "k"})).text(), Some("done k"));
    gateway.end();
}

#[test]
fn a_server_that_is_stopped_and_started_by_us_is_not_in_a_crash_loop() {
    let mut workspace = Workspace::new().unwrap();
    let brief = || chaos_server(&[]).setting("lifecycle", json!("ephemeral"));
    // One slot for two, and one that lives for a single call.
    workspace
        .server("a", chaos_server(&[]))
        .server("b", chaos_server(&[]))
        .server("brief", brief());
    workspace.setting("pool", json!({"poolSize": 1}));
    let gateway = Gateway::start(workspace);
    for round in 0..8 {
        for server in ["a", "b", "brief"] {
            let answer = gateway.call(server, "effect", &json!({"key": format!("k{round}")}));
            assert_eq!(answer.text(), Some(&*format!("done k{round}")), "{}", answer.value);
        }
    }
    let workspace = gateway.end();
    for server in ["a", "b", "brief"] {
        assert!(workspace.journal(server).count(EventKind::Start).unwrap() >= 8, "{server}");
    }
}

fn pool_of_two(more: &Value) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    for server in SERVERS {
        workspace.server(server, chaos_server(&[]));
    }
    let mut pool = json!({"poolSize": 2});
    for (key, value) in more.as_object().into_iter().flatten() {
        pool[key] = value.clone();
    }
    workspace.setting("pool", pool);
    workspace
}
