//! A daemon dies, and the client notices nothing but its calls in flight.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use metamcp_testkit::client::Reply;
use metamcp_testkit::{CallOutcome, Client, chaos_server, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::stand_in::{
    PATIENCE, StandIn, command, connect, obliging, places, shake_hands, silent, workspace,
};

#[test]
fn the_next_daemon_hears_the_handshake_and_the_client_one_verdict_per_call() {
    let workspace = workspace();
    let first = StandIn::start(&workspace, silent);
    let client = connect(&workspace);
    shake_hands(&client);
    let call = client.call_tool("effect", &json!({})).unwrap();
    let list = client.request("tools/list", &json!({ "cursor": "c" })).unwrap();
    first.wait_for("tools/list");
    // While this is held nobody starts a real one.
    let held = places(&workspace).hold_start(Duration::ZERO).unwrap().unwrap();
    first.die();
    let outcome = CallOutcome::of(&client.wait(call, PATIENCE).unwrap().value);
    assert_eq!(outcome.code(), Some("outcome_unknown"), "{outcome}");
    let second = StandIn::start(&workspace, obliging);
    drop(held);
    let listed = client.wait(list, PATIENCE).unwrap();
    assert_eq!(listed.result().unwrap()["heard"]["cursor"], "c");
    assert_eq!(second.methods(), ["initialize", "notifications/initialized", "tools/list"]);
    let handshake: Value = serde_json::from_str(&second.lines()[0]).unwrap();
    assert_eq!(handshake["params"]["clientInfo"]["name"], "testkit");
    assert!(handshake["id"].as_str().is_some_and(|id| id.starts_with("metamcp-")));
    // Nothing of ours reached the client, and nothing twice.
    let answered = client.ask("ping", &json!({}), PATIENCE).unwrap();
    assert!(answered.result().is_some());
    assert_eq!(client.violations(), Vec::<String>::new());
    let lines = client.lines();
    let with_id =
        lines.iter().filter(|line| String::from_utf8_lossy(&line.bytes).contains("\"id\""));
    assert_eq!(with_id.count(), 4, "handshake, call, list, ping");
}

#[test]
fn a_late_answer_reaches_no_daemon_that_did_not_ask() {
    let workspace = workspace();
    let first = StandIn::start(&workspace, obliging);
    let (release, wait) = sync_channel::<()>(2);
    let answerer = Box::new(move |_: &str, params: &Value| {
        if params["which"] == "first" {
            wait.recv().ok();
        }
        Reply::Result(json!({ "answer": params["which"] }))
    });
    let client = Client::start_answering(command(&workspace), answerer).unwrap();
    shake_hands(&client);
    let question = |which: &str| {
        let params = json!({ "which": which });
        let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": params });
        format!("{asked}\n")
    };
    first.say(&question("first"));
    let held = places(&workspace).hold_start(Duration::ZERO).unwrap().unwrap();
    first.die();
    let second = StandIn::start(&workspace, obliging);
    drop(held);
    second.wait_for("notifications/initialized");
    second.say(&question("second"));
    release.send(()).unwrap();
    second.wait_for("\"second\"");
    let answers: Vec<String> =
        second.lines().into_iter().filter(|line| line.contains("answer")).collect();
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert_eq!((&answer["id"], &answer["result"]["answer"]), (&json!(1), &json!("second")));
}

#[test]
fn a_stopped_daemon_is_started_again_when_the_client_needs_it() {
    let workspace = workspace();
    let client = connect(&workspace);
    shake_hands(&client);
    let first = only_daemon(&workspace);
    let mut stop = command(&workspace);
    assert!(stop.args(["daemon", "stop"]).output().unwrap().status.success());
    assert!(eventually(PATIENCE, || workspace.daemons().is_empty()));
    assert!(client.ask("tools/list", &json!({}), PATIENCE).unwrap().result().is_some());
    assert_ne!(only_daemon(&workspace), first);
}

#[test]
fn a_killed_daemon_is_replaced_and_calls_go_on() {
    let mut workspace = workspace();
    workspace.server("a", chaos_server(&[]));
    let client = connect(&workspace);
    shake_hands(&client);
    for round in 0..3 {
        let text = format!("round {round}");
        let call = client.mcp_call("a", "echo", &json!({ "text": text })).unwrap();
        let outcome = CallOutcome::of(&client.wait(call, PATIENCE).unwrap().value);
        assert!(outcome.code().is_none(), "{outcome}");
        let daemon = only_daemon(&workspace);
        let running = client.mcp_call("a", "slow", &json!({ "ms": 60_000 })).unwrap();
        client.ask("ping", &json!({}), PATIENCE).unwrap();
        kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
        let outcome = CallOutcome::of(&client.wait(running, PATIENCE).unwrap().value);
        assert!(outcome.code().is_some(), "{outcome}");
    }
    assert_eq!(client.violations(), Vec::<String>::new());
}

fn only_daemon(workspace: &metamcp_testkit::Workspace) -> i32 {
    assert!(eventually(PATIENCE, || workspace.daemons().len() == 1), "{:?}", workspace.daemons());
    i32::try_from(workspace.daemons()[0].pid).unwrap()
}
