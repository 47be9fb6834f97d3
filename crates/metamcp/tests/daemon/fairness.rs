//! One client's flood is not another's delay, and several instances are started by need.

use std::collections::BTreeSet;

use metamcp_testkit::{EventKind, Server, Workspace, chaos_server, eventually, programs};
use serde_json::json;

use crate::crowd::{HUNG, command, join, told, workspace};

/// Calls of the client that floods.
const FLOOD: usize = 500;

/// Milliseconds of one call: long enough that the flood is a queue, whatever the machine.
const WORK: u64 = 20;

/// Calls of the flood that may run between the arrival of another client's call and that call. Those in flight and those
/// on their way count; the rest of the queue does not.
const TURNS: usize = 5;

fn with(server: Server, pool: usize) -> Workspace {
    let mut workspace = workspace();
    workspace.setting("pool", json!({"poolSize": pool}));
    workspace.server("one", server.setting("share", json!("machine")));
    workspace.write_config().unwrap();
    workspace
}

fn flood(keys: usize) -> Vec<serde_json::Value> {
    (0..keys)
        .map(|number| {
            let args = json!({"key": format!("flood {number}"), "ms": WORK});
            json!({"name": "mcp_call", "arguments": {"server": "one", "tool": "slow", "args": args}})
        })
        .collect()
}

/// The keys in the order in which the server ran them.
fn order(workspace: &Workspace) -> Vec<String> {
    let ran = workspace.journal("one").of(EventKind::Execute).unwrap();
    ran.into_iter().filter_map(|record| record.key).collect()
}

#[test]
fn a_flood_of_one_client_delays_another_by_a_few_calls_only() {
    let server = chaos_server(&[]).setting("exclusive", json!(true));
    let workspace = with(server, 4);
    let (flooding, other) = (join(command(&workspace)), join(command(&workspace)));
    told(&other, "one", "env", &json!({}));
    let ids = flooding.request_at_once("tools/call", &flood(FLOOD)).unwrap();
    // Until the flood is there: all of it is in one write, so some of it has run.
    assert!(eventually(HUNG, || order(&workspace).len() > 3));
    let mut waits = Vec::new();
    for number in 0..3 {
        let before = order(&workspace).len();
        let key = format!("other {number}");
        let answer = other.mcp_call_now("one", "effect", &json!({"key": key}), HUNG).unwrap();
        assert_eq!(answer.text(), Some(format!("done {key}").as_str()), "{}", answer.value);
        let ran = order(&workspace);
        let at = ran.iter().position(|known| *known == key).unwrap();
        waits.push(at - before);
    }
    assert!(order(&workspace).len() < FLOOD / 2, "the flood was over before it was one");
    // The journal is looked at a moment before the call is sent, so a slow machine adds to what is counted here: the
    // smallest of three is what the queue costs.
    assert!(waits.iter().any(|wait| *wait <= TURNS), "{waits:?} calls of the flood came first");
    for id in ids {
        let answer = flooding.wait(id, HUNG).unwrap();
        assert!(answer.text().is_some_and(|text| text.starts_with("waited")));
    }
    let ran = order(&workspace);
    let once: BTreeSet<&String> = ran.iter().collect();
    assert_eq!((ran.len(), once.len()), (FLOOD + 4, FLOOD + 4));
}

#[test]
fn calls_that_wait_get_more_instances_and_no_more_than_allowed() {
    for (pool, most) in [(8, 3), (2, 2)] {
        let server =
            chaos_server(&[]).setting("exclusive", json!(true)).setting("instances", json!(3));
        let workspace = with(server, pool);
        let (one, two) = (join(command(&workspace)), join(command(&workspace)));
        told(&one, "one", "env", &json!({}));
        let first = one.request_at_once("tools/call", &flood(60)).unwrap();
        let second = two.request_at_once("tools/call", &flood(60)).unwrap();
        let mut alive = 0;
        for (client, ids) in [(&one, first), (&two, second)] {
            for id in ids {
                alive = alive.max(workspace.processes_of(&programs::chaos_child()).len());
                let answer = client.wait(id, HUNG).unwrap();
                assert!(answer.text().is_some_and(|text| text.starts_with("waited")));
            }
        }
        let started = workspace.journal("one").count(EventKind::Start).unwrap();
        assert_eq!(started, most, "with a pool of {pool}");
        assert!(alive <= most, "{alive} were alive at once with a pool of {pool}");
        // One call after another needs one process.
        for number in 0..5 {
            told_effect(&one, number);
        }
    }
}

fn told_effect(client: &metamcp_testkit::Client, number: usize) {
    let args = json!({"key": format!("after {number}")});
    let answer = client.mcp_call_now("one", "effect", &args, HUNG).unwrap();
    assert!(answer.text().is_some(), "{}", answer.value);
}
