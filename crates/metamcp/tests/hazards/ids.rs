//! Ids of the client: any string or number, as written, even twice.

use metamcp_testkit::{Workspace, chaos_server};
use serde_json::json;

use crate::gateway::{Gateway, HUNG};

#[test]
fn an_id_comes_back_as_it_was_written() {
    let gateway = honest();
    for id in [
        "0",
        "-0",
        "-7",
        "12345678901234567890123",
        "-9223372036854775809",
        "1.5",
        "1e3",
        "1.0",
        "\"\"",
        "\"a\"",
        "\"0\"",
        "\"caf\\u00e9 \\ud83d\\ude00\"",
        "\"\u{1f600}\"",
        "\"a\\\"b\\\\\"",
    ] {
        gateway.request_as(id, "ping", &json!({})).unwrap();
        gateway.wait_as(id, 0, HUNG).unwrap();
        let call =
            json!({"name": "mcp_call", "arguments": {"tool": "a:echo", "args": {"text": id}}});
        gateway.request_as(id, "tools/call", &call).unwrap();
        assert_eq!(gateway.wait_as(id, 1, HUNG).unwrap().text(), Some(id));
        let discover = json!({"name": "mcp_discover", "arguments": {}});
        gateway.request_as(id, "tools/call", &discover).unwrap();
        gateway.wait_as(id, 2, HUNG).unwrap();
    }
    gateway.end();
}

#[test]
fn calls_under_one_id_at_once_are_each_answered() {
    let gateway = honest();
    let call = |text: &str, ms: u64| {
        let (tool, args) = match ms {
            0 => ("a:echo", json!({"text": text})),
            ms => ("a:slow", json!({"ms": ms})),
        };
        let params = json!({"name": "mcp_call", "arguments": {"tool": tool, "args": args}});
        gateway.request_as("\"same\"", "tools/call", &params).unwrap();
    };
    call("", 1_000);
    for number in 0..20 {
        call(&format!("t{number}"), 0);
    }
    let mut texts: Vec<String> = (0..21)
        .map(|earlier| gateway.wait_as("\"same\"", earlier, HUNG).unwrap())
        .map(|answer| answer.text().unwrap().to_owned())
        .collect();
    let last = texts.pop();
    assert_eq!(last.as_deref(), Some("waited 1000 ms"));
    texts.sort();
    let mut expected: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    expected.sort();
    assert_eq!(texts, expected);
    gateway.end();
}

#[test]
fn ids_the_protocol_does_not_know_are_refused_and_nothing_runs() {
    let gateway = honest();
    for id in ["null", "true", "{}", "[1]"] {
        gateway.expect("null");
        gateway
            .send(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"mcp_call","arguments":{{"tool":"a:effect","args":{{"key":"k"}}}}}}}}"#
            ))
            .unwrap();
    }
    for earlier in 0..4 {
        let answer = gateway.wait_as("null", earlier, HUNG).unwrap();
        assert_eq!(answer.value["error"]["code"], -32600, "{}", answer.value);
    }
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").executions("k").unwrap(), 0);
}

fn honest() -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    Gateway::start(workspace)
}
