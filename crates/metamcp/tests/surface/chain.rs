//! Chains: what is passed from step to step, where they stop, and their progress.

use metamcp_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::full::two_servers;
use crate::gateway::{Gateway, HUNG};

fn gateway() -> Gateway {
    Gateway::start(two_servers(), &["--surface", "full"])
}

fn chain(gateway: &Gateway, steps: &Value) -> Value {
    gateway.full("run_chain", &json!({ "steps": steps }))
}

#[test]
fn chains_as_they_read() {
    let gateway = gateway();
    for id in ["one:echo", "two:echo"] {
        gateway.full("run_tool", &json!({"tool_id": id, "args": {"text": "hi"}}));
    }
    let page = gateway.transcript(&[
        (
            "run_chain",
            json!({"steps": [
                {"tool_id": "one:echo", "args": {"text": "{\"user\": {\"name\": \"Ada\"}, \"ids\": [7, 8]}"}, "id": "who"},
                {"tool_id": "two:echo", "args": {"text": {"$from": "who", "path": "/user/name"}}},
                {"tool_id": "one:effect", "args": {"key": {"$from": 1}}},
            ]})
        ),
        (
            "run_chain",
            json!({"steps": [
                {"tool_id": "one:echo", "args": {"text": "first"}},
                {"tool_id": "one:fail"},
                {"tool_id": "one:effect", "args": {"key": "never"}},
            ]})
        ),
        (
            "run_chain",
            json!({"steps": [
                {"tool_id": "one:echo", "args": {"text": "first"}},
                {"tool_id": "one:echo", "args": {"text": {"$from": 0, "path": "/nothing"}}},
            ], "include_backends": false})
        ),
        ("run_chain", json!({"steps": [{"tool_id": "one:ecko"}]})),
        ("run_chain", json!({"steps": [{"tool_id": "one:echo", "args": {"text": 1}}]})),
        ("run_chain", json!({"steps": []})),
        ("run_chain", json!({"steps": [{"tool": "one:echo"}]})),
    ]);
    insta::assert_snapshot!(page);
    let effects = gateway.workspace.journal("one").records().unwrap();
    assert!(effects.iter().all(|record| record.key.as_deref() != Some("never")));
}

#[test]
fn the_previous_result_goes_into_the_arguments() {
    let gateway = gateway();
    let answer = chain(
        &gateway,
        &json!([
            {"tool_id": "two:echo", "args": {"text": "[1, 2]"}},
            {"tool_id": "one:echo", "args": {"text": "x"}, "use_previous": true},
        ]),
    );
    // The tool does not know `previous`, and its schema does not forbid it.
    assert_eq!((&answer["error"], &answer["final"]), (&Value::Null, &json!("x")), "{answer:#}");
    // The recorded shape of its arguments shows what it was called with.
    let examples = gateway.full("list_tool_examples", &json!({"tool_id": "one:echo"}));
    let used = examples["examples"].as_array().unwrap().last().unwrap();
    assert_eq!(used["args"], json!({"text": "<string>", "previous": "<array>"}), "{examples:#}");
}

#[test]
fn thirty_two_steps_run_and_one_more_is_refused() {
    let gateway = gateway();
    let steps = |count: usize| vec![json!({"tool_id": "two:echo", "args": {"text": "x"}}); count];
    let answer = chain(&gateway, &json!(steps(32)));
    assert_eq!(answer["results"].as_array().unwrap().len(), 32);
    let refused = gateway.call("run_chain", &json!({"steps": steps(33)}));
    assert_eq!(refused.value["error"]["code"], -32602);
}

#[test]
fn time_that_runs_out_in_the_middle_of_a_step_says_so_and_keeps_what_was_done() {
    let gateway = gateway();
    chain(&gateway, &json!([{"tool_id": "one:echo", "args": {"text": "warm"}}]));
    let answer = gateway.full(
        "run_chain",
        &json!({
            "steps": [
                {"tool_id": "one:echo", "args": {"text": "kept"}},
                {"tool_id": "one:slow", "args": {"ms": 60_000}},
            ],
            "timeout_ms": 1500,
        }),
    );
    let error = &answer["error"];
    assert_eq!((&error["code"], &error["step_index"]), (&json!("chain_step_failed"), &json!(1)));
    assert_eq!(error["details"]["cause"]["code"], "timeout", "{answer:#}");
    assert_eq!(
        (&answer["results"][0]["structured"], &answer["final"]),
        (&json!("kept"), &json!("kept"))
    );
    // The server was notified of the cancellation, and is free for the next call.
    chain(&gateway, &json!([{"tool_id": "one:echo", "args": {"text": "after"}}]));
}

#[test]
fn progress_rises_through_the_steps_and_ends_at_their_number() {
    let gateway = gateway();
    let arguments = json!({"steps": [
        {"tool_id": "one:progress", "args": {"count": 4}},
        {"tool_id": "two:echo", "args": {"text": "x"}},
    ]});
    let params =
        json!({"name": "run_chain", "arguments": arguments, "_meta": {"progressToken": "p"}});
    gateway.client.ask("tools/call", &params, HUNG).unwrap();
    let told = gateway.client.notifications("notifications/progress");
    let values: Vec<f64> = told.iter().map(|one| one["progress"].as_f64().unwrap()).collect();
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
    assert!(values.iter().any(|value| (0.2..1.0).contains(value)), "{values:?}");
    assert_eq!(*values.last().unwrap(), 2.0);
    assert!(told.iter().all(|one| one["total"] == 2.0 && one["progressToken"] == "p"), "{told:?}");
    assert!(told[0]["message"].as_str().unwrap().contains("step 1 of 2"), "{told:?}");
}

#[test]
fn a_cancelled_chain_makes_no_further_step() {
    let gateway = gateway();
    chain(&gateway, &json!([{"tool_id": "one:echo", "args": {"text": "warm"}}]));
    let steps = json!([
        {"tool_id": "one:slow", "args": {"ms": 60_000}},
        {"tool_id": "one:effect", "args": {"key": "never"}},
    ]);
    let id = gateway.client.call_tool("run_chain", &json!({ "steps": steps })).unwrap();
    let journal = gateway.workspace.journal("one");
    let began =
        || journal.records().unwrap().iter().any(|record| record.tool.as_deref() == Some("slow"));
    assert!(eventually(HUNG, began));
    gateway.client.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
    chain(&gateway, &json!([{"tool_id": "one:echo", "args": {"text": "after"}}]));
    let records = journal.records().unwrap();
    assert!(records.iter().all(|record| record.tool.as_deref() != Some("effect")));
    assert_eq!(gateway.client.violations(), Vec::<String>::new());
}

#[test]
fn a_gateway_that_goes_down_tells_what_was_done() {
    let gateway = Gateway::start(two_servers(), &["--surface", "full", "--shutdown-drain", "50"]);
    let steps = json!([
        {"tool_id": "one:effect", "args": {"key": "k"}},
        {"tool_id": "one:slow", "args": {"ms": 60_000}},
    ]);
    let id = gateway.client.call_tool("run_chain", &json!({ "steps": steps })).unwrap();
    let journal = gateway.workspace.journal("one");
    let began =
        || journal.records().unwrap().iter().any(|record| record.tool.as_deref() == Some("slow"));
    assert!(eventually(HUNG, began));
    gateway.client.signal(Signal::SIGTERM).unwrap();
    let answer = gateway.client.wait(id, HUNG).unwrap();
    let structured = &answer.value["result"]["structuredContent"];
    assert_eq!(structured["results"][0]["structured"], "done k", "{structured:#}");
    assert_eq!(structured["error"]["details"]["cause"]["code"], "shutting_down");
}
