//! Names as callers write them, on every road; and what is refused with the right call.

use metamcp_testkit::{Workspace, chaos_server, echo_server};
use serde_json::{Value, json};

use crate::gateway::Gateway;

/// `first-one` may run everything but `effect_idempotent`; both have `echo`, and only it has `rpc_error`.
fn gateway(args: &[&str]) -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.server(
        "first-one",
        chaos_server(&[]).setting("deniedTools", json!(["effect_idempotent"])),
    );
    workspace.server("two", echo_server());
    Gateway::start(workspace, args)
}

fn text(answer: &metamcp_testkit::Answer) -> String {
    answer.value["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn called(gateway: &Gateway, arguments: &Value) -> String {
    text(&gateway.call("mcp_call", arguments))
}

#[test]
fn a_call_is_made_by_any_spelling_that_means_one_tool() {
    let gateway = gateway(&["--surface", "both"]);
    // Also before anything is known of the server: its own list then says what is meant.
    for tool in [
        "FirstOne:ECHO",
        "first-one:echo",
        "first_one.echo",
        "first-one__echo",
        "first-one/Echo",
        "mcp.first-one:echo",
        "mcp__first-one__echo",
    ] {
        let answer = called(&gateway, &json!({ "tool": tool, "args": {"text": "heard"} }));
        assert!(answer.contains("heard"), "{tool}: {answer}");
    }
    let answer = called(
        &gateway,
        &json!({ "server": "First_One", "tool": "first-one.echo", "args": {"text": "heard"} }),
    );
    assert!(answer.contains("heard"), "{answer}");
    // A tool that one server alone has.
    let bare = called(&gateway, &json!({ "tool": "rpcError" }));
    assert!(bare.contains("answered with error"), "{bare}");
    // The server saw the real names.
    let records = gateway.workspace.journal("first-one").records().unwrap();
    let tools: Vec<&str> = records.iter().filter_map(|record| record.tool.as_deref()).collect();
    assert!(tools.iter().all(|tool| ["echo", "rpc_error"].contains(tool)), "{tools:?}");
    // The other roads.
    let ran =
        gateway.full("run_tool", &json!({ "tool_id": "firstOne.echo", "args": {"text": "heard"} }));
    assert!(ran["structured"].to_string().contains("heard"), "{ran}");
    let chain = json!({ "steps": [{ "tool_id": "FIRST_ONE:Echo", "args": {"text": "heard"} }] });
    let chained = gateway.full("run_chain", &chain);
    assert_eq!(chained["final"], "heard", "{chained}");
    let described = gateway.full("describe_tool", &json!({ "tool_id": "firstOne.Echo" }));
    assert!(described.to_string().contains("first-one:echo"), "{described}");
    for arguments in [
        json!({ "tool": "firstOne.Echo" }),
        json!({ "server": "FIRST-one", "tool": "ECHO" }),
        json!({ "tool": "rpcError" }),
    ] {
        let told = text(&gateway.call("mcp_discover", &arguments));
        assert!(told.starts_with("first-one:"), "{arguments}: {told}");
    }
}

#[test]
fn a_name_that_means_several_or_none_is_answered_with_the_right_calls() {
    let gateway = gateway(&[]);
    for server in ["first-one", "two"] {
        called(&gateway, &json!({ "server": server, "tool": "echo", "args": {"text": "x"} }));
    }
    for tool in ["echo", "ECHO"] {
        let told = called(&gateway, &json!({ "tool": tool, "args": {"text": "x"} }));
        for call in [
            r#"mcp_call {"tool": "first-one:echo", "args": {…}}"#,
            r#"mcp_call {"tool": "two:echo", "args": {…}}"#,
        ] {
            assert!(told.contains(call), "{tool}: {told}");
        }
    }
    let near = called(&gateway, &json!({ "tool": "two:ecko" }));
    assert!(near.contains(r#"mcp_call {"tool": "two:echo", "args": {…}}"#), "{near}");
    let bare = called(&gateway, &json!({ "tool": "rpc_eror" }));
    assert!(bare.contains(r#"mcp_call {"tool": "first-one:rpc_error", "args": {…}}"#), "{bare}");
}

#[test]
fn what_is_denied_cannot_be_reached_by_another_spelling() {
    let gateway = gateway(&[]);
    for tool in [
        "first-one:effect_idempotent",
        "first-one:effectIdempotent",
        "first-one.effect_idempotent",
        "effectIdempotent",
        "effect_idempotent",
        "FirstOne/effect-idempotent",
    ] {
        // Before and after its tools are known.
        let answer = gateway.call("mcp_call", &json!({ "tool": tool, "args": {} }));
        let code = answer.value["result"]["structuredContent"]["code"].as_str().unwrap_or_default();
        let is_refused = ["denied", "tool_not_found", "server_not_found"].contains(&code);
        assert!(is_refused, "{tool}: {}", answer.value);
        let said = text(&answer).replace(tool, "");
        assert!(!said.contains("mcp_call {\"tool\": \"first-one:effect_idem"), "{tool}: {said}");
    }
    let records = gateway.workspace.journal("first-one").records().unwrap();
    let ran = records.iter().filter_map(|record| record.tool.as_deref());
    assert_eq!(ran.filter(|tool| tool.contains("idempotent")).count(), 0);
}

#[test]
fn arguments_that_a_tool_does_not_have_are_named() {
    let gateway = gateway(&["--surface", "both"]);
    for (tool, arguments, said) in [
        ("mcp_call", json!({"tool": "two:echo", "text": "x"}), "goes into `args`"),
        ("mcp_call", json!({"tool": "two:echo", "agrs": {"text": "x"}}), "did you mean `args`?"),
        ("mcp_discover", json!({"query": "x", "limt": 3}), "did you mean `limit`?"),
        ("mcp_provision", json!({"itent": "x"}), "did you mean `intent`?"),
        ("mcp_execute", json!({"code": "1", "timeout": 5}), "did you mean `timeoutMs`?"),
        ("mcp_provision", json!({}), "needs `intent`"),
        (
            "mcp_call",
            json!({"tool": "@resources:list", "args": {"serever": "two"}}),
            "did you mean `server`?",
        ),
        (
            "mcp_call",
            json!({"tool": "@results.read", "args": {"id": "x", "lenght": 3}}),
            "did you mean `length`?",
        ),
    ] {
        let told = gateway.call(tool, &arguments);
        let code = &told.value["result"]["structuredContent"]["code"];
        assert_eq!(code, "validation_input", "{tool} {arguments}: {}", told.value);
        assert!(text(&told).contains(said), "{tool} {arguments}: {}", text(&told));
    }
    // One that is like none of them changes nothing.
    let heard = called(
        &gateway,
        &json!({"tool": "two:echo", "args": {"text": "heard"}, "explanation": "why"}),
    );
    assert!(heard.contains("heard"), "{heard}");
    let found = gateway.call("mcp_discover", &json!({"intent": "echo a text"}));
    assert!(text(&found).contains("echo"), "{}", found.value);
}
