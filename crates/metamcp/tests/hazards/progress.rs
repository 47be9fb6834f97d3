//! Progress: complete, in order, before the response, under the client's own token.

use metamcp_testkit::client::Kind;
use metamcp_testkit::{Workspace, chaos_server};
use serde_json::{Value, json};

use crate::gateway::Gateway;

const STEPS: usize = 200;

#[test]
fn every_step_arrives_in_order_before_the_answer_under_the_clients_token() {
    for token in
        ["\"a token\"", "7", "0", "-1", "\"\"", "12345678901234567890123", "\"caf\\u00e9\""]
    {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&[]));
        let gateway = Gateway::start(workspace);
        let id = call(&gateway, 501, token, STEPS);
        let answer = gateway.answer(id);
        assert_eq!(answer.text(), Some("200 steps"));
        let before = &gateway.lines()[..answer.index];
        let steps: Vec<&[u8]> = before
            .iter()
            .filter(|line| line.kind == Kind::Notification("notifications/progress".to_owned()))
            .map(|line| &*line.bytes)
            .filter(|line| !is_begin(line))
            .collect();
        assert_eq!(steps.len(), STEPS, "token {token}");
        for (number, step) in (1..).zip(steps) {
            let text = std::str::from_utf8(step).unwrap();
            assert!(text.contains(&format!(r#""progressToken":{token}"#)), "{text}");
            let message: Value = serde_json::from_str(text).unwrap();
            assert_eq!(message["params"]["progress"], number);
            assert_eq!(message["params"]["total"], STEPS);
            assert_eq!(message["params"]["message"], format!("step {number}"));
            assert!(text.contains(r#""futureField":{"b":1,"a":2}"#), "{text}");
        }
        gateway.end();
    }
}

#[test]
fn calls_side_by_side_each_have_their_own_steps() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[])).server("b", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    let mut calls = Vec::new();
    for number in 0..8_u64 {
        calls.push(call(&gateway, 600 + number, &format!("\"t{number}\""), 20 + number as usize));
    }
    let answers: Vec<usize> = calls.iter().map(|&id| gateway.answer(id).index).collect();
    let lines = gateway.lines();
    for (number, last) in answers.into_iter().enumerate() {
        let steps: Vec<u64> = lines[..last]
            .iter()
            .filter(|line| matches!(line.kind, Kind::Notification(_)) && !is_begin(&line.bytes))
            .filter_map(|line| serde_json::from_slice::<Value>(&line.bytes).ok())
            .filter(|message| message["params"]["progressToken"] == format!("t{number}"))
            .filter_map(|message| message["params"]["progress"].as_u64())
            .collect();
        let expected: Vec<u64> = (1..=20 + number as u64).collect();
        assert_eq!(steps, expected, "call {number}");
    }
    let all = lines.iter().filter(|line| matches!(line.kind, Kind::Notification(_)));
    assert_eq!(all.filter(|line| !is_begin(&line.bytes)).count(), (20..28).sum::<usize>());
    gateway.end();
}

#[test]
fn who_does_not_ask_for_progress_gets_none() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[])).server("forger", chaos_server(&["progress-flood=50"]));
    let gateway = Gateway::start(workspace);
    assert_eq!(gateway.call("a", "progress", &json!({"count": 5})).text(), Some("5 steps"));
    // A server that makes up a token gets no progress through either.
    assert_eq!(gateway.call("forger", "effect", &json!({"key": "k"})).text(), Some("done k"));
    assert_eq!(gateway.notifications("notifications/progress"), Vec::<Value>::new());
    gateway.end();
}

fn call(gateway: &Gateway, id: u64, token: &str, count: usize) -> u64 {
    gateway.expect(&id.to_string());
    gateway
        .send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"progressToken":{token}}},"name":"mcp_call","arguments":{{"server":"a","tool":"progress","args":{{"count":{count}}}}}}}}}"#
        ))
        .unwrap();
    id
}

/// While a server is slow to start, the gateway reports to the caller that the call began.
fn is_begin(line: &[u8]) -> bool {
    let message: Value = serde_json::from_slice(line).unwrap_or_default();
    message["params"]["progress"] == 0.0
}
