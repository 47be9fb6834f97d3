//! One call, one record: whichever path a call takes and however it ends, the log at `debug` has one line for it, with
//! its caller.

use std::time::Duration;

use metamcp_testkit::{Workspace, chaos_server, echo_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

fn gateway(surface: &str) -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]).setting("deniedTools", json!(["sleep"])));
    workspace.server("two", echo_server());
    Gateway::start(workspace, &["--surface", surface, "--log-level", "debug"])
}

/// The records so far, as `by server:tool verdict`.
fn records(gateway: &Gateway) -> Vec<String> {
    let stderr = gateway.client.stderr();
    stderr.lines().filter(|line| line.contains(" ended id=")).map(in_short).collect()
}

fn in_short(line: &str) -> String {
    assert!(line.contains("client=\"testkit\""), "{line}");
    assert!(line.contains("session=1"), "{line}");
    let field = |name: &str| {
        let value = line.split_once(&format!(" {name}=")).expect("a record has it").1;
        value.trim_start_matches('"').split(['"', ' ']).next().unwrap().to_owned()
    };
    format!("{} {}:{} {}", field("by"), field("server"), field("tool"), field("verdict"))
}

fn expect_records(gateway: &Gateway, expected: &[&str]) {
    // A separate thread writes the line.
    eventually(Duration::from_secs(20), || records(gateway).len() >= expected.len());
    assert_eq!(records(gateway), expected);
}

fn call(gateway: &Gateway, tool: &str, arguments: &Value) {
    let id = gateway.client.call_tool(tool, arguments).unwrap();
    gateway.client.wait(id, HUNG).unwrap();
}

#[test]
fn every_path_of_a_call_leaves_one_record() {
    let gateway = gateway("both");
    let hi = json!({"text": "hi"});
    call(&gateway, "mcp_call", &json!({"server": "two", "tool": "echo", "args": hi}));
    call(&gateway, "run_tool", &json!({"tool_id": "one:echo", "args": hi}));
    let steps = json!([{"tool_id": "one:echo", "args": hi}, {"tool_id": "two:echo", "args": hi}]);
    call(&gateway, "run_chain", &json!({"steps": steps}));
    let code = "await two.echo({text: 'a'}); return await one.echo({text: 'b'});";
    call(&gateway, "mcp_execute", &json!({"code": code}));
    expect_records(
        &gateway,
        &[
            "mcp_call two:echo ok",
            "run_tool one:echo ok",
            "chain one:echo ok",
            "chain two:echo ok",
            "script two:echo ok",
            "script one:echo ok",
        ],
    );
}

#[test]
fn every_end_of_a_call_leaves_one_record() {
    let gateway = gateway("compact");
    let mcp_call = |server: &str, tool: &str, args: Value| {
        call(&gateway, "mcp_call", &json!({"server": server, "tool": tool, "args": args}));
    };
    mcp_call("one", "echo", json!({"text": "hi"}));
    mcp_call("one", "echo", json!({"text": 7}));
    mcp_call("one", "nowhere", json!({}));
    mcp_call("nobody", "echo", json!({}));
    mcp_call("one", "sleep", json!({"ms": 1}));
    mcp_call("one", "fail", json!({}));
    expect_records(
        &gateway,
        &[
            "mcp_call one:echo ok",
            "mcp_call one:echo validation_input",
            "mcp_call one:nowhere tool_not_found",
            "mcp_call nobody:echo server_not_found",
            "mcp_call one:sleep denied",
            "mcp_call one:fail tool_error",
        ],
    );
}

#[test]
fn direct_mode_leaves_a_record_too() {
    let gateway = gateway("direct");
    call(&gateway, "two__echo", &json!({"text": "hi"}));
    let records = || -> Vec<String> {
        records(&gateway).into_iter().filter(|record| record.contains(":echo ")).collect()
    };
    eventually(Duration::from_secs(20), || !records().is_empty());
    assert_eq!(records(), ["direct two:echo ok"]);
}
