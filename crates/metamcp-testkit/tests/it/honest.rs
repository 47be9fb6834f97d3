//! The chaos child when nobody told it to misbehave.

use std::time::Duration;

use metamcp_testkit::client::{Kind, Reply};
use metamcp_testkit::{CallOutcome, EventKind, eventually};
use serde_json::{Value, json};

use super::{PATIENCE, direct, greeted, start};

#[test]
fn it_shakes_hands_lists_and_echoes() {
    let child = direct(&[]);
    let hello = child.client.initialize(&json!({"roots": {}}), PATIENCE).unwrap();
    assert_eq!(hello["protocolVersion"], "2025-11-25");
    let tools = child.client.ask("tools/list", &json!({}), PATIENCE).unwrap();
    let tools = tools.result().unwrap()["tools"].as_array().unwrap();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(named("echo")["annotations"]["readOnlyHint"], true);
    assert_eq!(named("effect").get("annotations"), None);
    assert_eq!(named("effect_idempotent")["annotations"]["idempotentHint"], true);

    let id = child.client.call_tool("echo", &json!({"text": "hé\n"})).unwrap();
    assert_eq!(child.client.wait(id, PATIENCE).unwrap().text(), Some("hé\n"));
    assert_eq!(child.client.violations(), Vec::<String>::new());
}

#[test]
fn every_execution_is_journalled_with_its_keys() {
    let child = greeted(&[]);
    for _ in 0..2 {
        let params = json!({
            "name": "effect", "arguments": {"key": "k1"}, "_meta": {"org.metamcp/callKey": "c-9"},
        });
        child.client.ask("tools/call", &params, PATIENCE).unwrap();
    }
    assert_eq!(child.journal.executions("k1").unwrap(), 2);
    let executions = child.journal.of(EventKind::Execute).unwrap();
    assert_eq!(executions[0].call.as_deref(), Some("c-9"));
    assert_eq!(executions[0].tool.as_deref(), Some("effect"));
    assert_eq!(executions[0].pid, child.client.pid());
    assert_eq!(child.journal.count(EventKind::Start).unwrap(), 1);
}

#[test]
fn slow_calls_overlap_and_a_cancelled_one_is_not_answered() {
    let child = greeted(&[]);
    let slow = child.client.call_tool("slow", &json!({"ms": 600_000})).unwrap();
    let quick = child.client.call_tool("echo", &json!({"text": "quick"})).unwrap();
    assert_eq!(
        child.client.wait(quick, PATIENCE).unwrap().text(),
        Some("quick"),
        "answered while the other waits"
    );
    child.client.notify("notifications/cancelled", &json!({"requestId": slow})).unwrap();
    assert!(eventually(PATIENCE, || child.journal.count(EventKind::Cancelled).unwrap() == 1));
    let last = child.client.call_tool("slow", &json!({"ms": 1})).unwrap();
    child.client.wait(last, PATIENCE).unwrap();
    assert!(child.client.wait(slow, Duration::ZERO).is_err());
}

#[test]
fn progress_comes_in_order_before_the_answer() {
    let child = greeted(&[]);
    let params =
        json!({"name": "progress", "arguments": {"count": 50}, "_meta": {"progressToken": "p"}});
    let answer = child.client.ask("tools/call", &params, PATIENCE).unwrap();
    let steps = child.client.notifications("notifications/progress");
    let numbers: Vec<u64> = steps.iter().map(|step| step["progress"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=50).collect::<Vec<u64>>());
    let lines = child.client.lines();
    assert!(
        lines[answer.index + 1..].iter().all(|line| !matches!(line.kind, Kind::Notification(_)))
    );
}

#[test]
fn it_asks_the_client_and_returns_what_was_answered() {
    let answer = |method: &str, _: &Value| match method {
        "elicitation/create" => {
            Reply::Result(json!({"action": "accept", "content": {"name": "Ada"}}))
        }
        "roots/list" => Reply::Result(json!({"roots": [{"uri": "file:///r"}]})),
        _ => Reply::Error(json!({"code": -1, "message": "no model"})),
    };
    let child = start(&[], Some(Box::new(answer)));
    child
        .client
        .initialize(&json!({"elicitation": {}, "roots": {}, "sampling": {}}), PATIENCE)
        .unwrap();
    let said = |tool: &str| {
        let id = child.client.call_tool(tool, &json!({})).unwrap();
        child.client.wait(id, PATIENCE).unwrap().result().unwrap()["structuredContent"].clone()
    };
    assert_eq!(said("elicit")["result"]["content"]["name"], "Ada");
    assert_eq!(said("roots")["result"]["roots"][0]["uri"], "file:///r");
    assert_eq!(said("sample")["error"]["message"], "no model");
}

#[test]
fn it_does_not_ask_a_client_without_the_capability() {
    let child = greeted(&[]);
    let id = child.client.call_tool("elicit", &json!({})).unwrap();
    assert_eq!(
        CallOutcome::of(&child.client.wait(id, PATIENCE).unwrap().value),
        CallOutcome::ToolError
    );
}

#[test]
fn failures_are_of_both_kinds() {
    let child = greeted(&[]);
    let id = child.client.call_tool("fail", &json!({})).unwrap();
    assert_eq!(
        CallOutcome::of(&child.client.wait(id, PATIENCE).unwrap().value),
        CallOutcome::ToolError
    );
    let id = child.client.call_tool("rpc_error", &json!({"code": -32001})).unwrap();
    let outcome = CallOutcome::of(&child.client.wait(id, PATIENCE).unwrap().value);
    assert!(matches!(outcome, CallOutcome::Protocol { code: -32001, .. }), "{outcome}");
}

#[test]
fn the_exotic_result_holds_a_number_no_float_can() {
    let child = greeted(&[]);
    let id = child.client.call_tool("exotic", &json!({})).unwrap();
    let answer = child.client.wait(id, PATIENCE).unwrap();
    let raw = answer.raw_result().unwrap();
    assert!(raw.starts_with(r#"{"zeta":1,"alpha": [ 1.0,"#), "{raw}");
    assert_eq!(raw.matches("12345678901234567890123").count(), 4);
    assert_eq!(raw.matches(r#""type":"#).count(), 6);
}

#[test]
fn it_shows_the_environment_and_files_it_was_born_with() {
    let child = greeted(&[]);
    let id = child.client.call_tool("env", &json!({})).unwrap();
    let around =
        child.client.wait(id, PATIENCE).unwrap().result().unwrap()["structuredContent"].clone();
    assert_eq!(around["environment"]["TESTKIT_MARK"], child.workspace.mark());
    // There may be more: whatever this test was started with and did not close.
    for file in ["0", "1", "2"] {
        assert!(around["files"][file].is_string(), "{around}");
    }
}

#[test]
fn a_grown_list_is_announced() {
    let child = greeted(&[]);
    let count = || {
        let list = child.client.ask("tools/list", &json!({}), PATIENCE).unwrap();
        list.result().unwrap()["tools"].as_array().unwrap().len()
    };
    let before = count();
    let id = child.client.call_tool("grow", &json!({})).unwrap();
    child.client.wait(id, PATIENCE).unwrap();
    assert_eq!(child.client.notifications("notifications/tools/list_changed").len(), 1);
    assert_eq!(count(), before + 1);
}

#[test]
fn it_ends_when_its_input_ends() {
    let mut child = direct(&[]);
    child.client.initialize(&json!({}), PATIENCE).unwrap();
    child.client.close_input();
    assert!(child.client.wait_exit(PATIENCE).unwrap().success());
    assert_eq!(child.journal.count(EventKind::EndOfInput).unwrap(), 1);
}
