//! Every tool of the full surface, with valid and with invalid input.

use metamcp_testkit::{Workspace, chaos_server, echo_server};
use serde_json::{Value, json};

use crate::gateway::Gateway;

pub(crate) fn two_servers() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    let one = chaos_server(&[])
        .setting("description", json!("Answers and changes the world"))
        .setting("tags", json!(["test"]))
        .setting("examples", json!({"echo": [{"text": "from the operator"}]}))
        .setting("timeoutMs", json!(5000));
    workspace.server("one", one);
    workspace.server("two", echo_server());
    workspace
}

fn gateway() -> Gateway {
    let gateway = Gateway::start(two_servers(), &["--surface", "full"]);
    // Both are listed from here on, so that no result depends on which one starts first.
    for id in ["one:echo", "two:echo"] {
        gateway.full("run_tool", &json!({"tool_id": id, "args": {"text": "hi"}}));
    }
    gateway
}

fn names(gateway: &Gateway) -> Vec<String> {
    let list = gateway.client.ask("tools/list", &json!({}), crate::gateway::HUNG).unwrap();
    let tools = list.value["result"]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_surface_lists_its_tools_and_accepts_those_of_both() {
    let compact = ["mcp_discover", "mcp_call", "mcp_execute", "mcp_provision"];
    for surface in ["compact", "full", "both"] {
        let gateway = Gateway::start(two_servers(), &["--surface", surface]);
        let full = metamcp_surface::full_surface::NAMES;
        let expected: Vec<&str> = match surface {
            "compact" => compact.to_vec(),
            // The one tool of the compact surface that has no counterpart in the full one.
            "full" => full.iter().copied().chain(["mcp_provision"]).collect(),
            _ => compact.iter().chain(&full).copied().collect(),
        };
        assert_eq!(names(&gateway), expected, "{surface}");
        let run = gateway.call("run_tool", &json!({"tool_id": "one:echo", "args": {"text": "a"}}));
        assert_eq!(run.value["result"]["structuredContent"]["structured"], "a", "{surface}");
        let call =
            gateway.client.mcp_call_now("one", "echo", &json!({"text": "b"}), crate::gateway::HUNG);
        assert_eq!(call.unwrap().text(), Some("b"), "{surface}");
    }
}

#[test]
fn finding_tools() {
    let gateway = gateway();
    let page = gateway.transcript(&[
        ("search_tools", json!({"query": "change the world", "limit": 2})),
        ("search_tools", json!({"query": "vvvkkk"})),
        ("search_tools", json!({})),
        ("search_tools", json!({"query": "x", "cursor": "bm9uc2Vuc2U"})),
        ("search_tools", json!({"query": "x", "limits": 3})),
        ("list_tools", json!({"namespace": "two"})),
        ("list_tools", json!({"backend_name": "two", "backend_kind": "mcp", "limit": 1})),
        ("list_tools", json!({"backend_kind": "local"})),
        ("list_tools", json!({"namespace": "three"})),
        ("list_tools", json!({"limit": "many"})),
        ("list_namespaces", json!({})),
        ("list_namespaces", json!({"limit": 1})),
        ("list_namespaces", json!({"cursor": 7})),
    ]);
    insta::assert_snapshot!(page);
}

#[test]
fn describing_tools() {
    let gateway = gateway();
    let page = gateway.transcript(&[
        ("describe_tool", json!({"tool_id": "one:echo", "detail_level": "summary"})),
        ("describe_tool", json!({"tool_id": "one:echo"})),
        ("describe_tool", json!({"tool_id": "mcp.one:echo", "detail_level": "full"})),
        (
            "describe_tool",
            json!({"tool_id": "one:effect", "detail_level": "full", "examples_max": 1}),
        ),
        ("describe_tool", json!({"tool_id": "one:ecko"})),
        ("describe_tool", json!({"tool_id": "onee:echo"})),
        ("describe_tool", json!({"tool_id": "echo"})),
        ("describe_tool", json!({"tool_id": "one:echo", "detail_level": "everything"})),
        ("describe_tool", json!({})),
        ("list_tool_examples", json!({"tool_id": "one:echo"})),
        ("list_tool_examples", json!({"tool_id": "one:echo", "max": 1})),
        ("list_tool_examples", json!({"tool_id": "one:fail"})),
        ("list_tool_examples", json!({"tool_id": "one:none"})),
        ("list_tool_examples", json!({"max": 1})),
    ]);
    insta::assert_snapshot!(page);
}

#[test]
fn running_tools() {
    let gateway = gateway();
    let page = gateway.transcript(&[
        ("run_tool", json!({"tool_id": "one:echo", "args": {"text": "plain text"}})),
        ("run_tool", json!({"tool_id": "one:echo", "args": {"text": "{\"n\": [1, 2]}"}})),
        ("run_tool", json!({"tool_id": "one:echo", "args": "{\"text\": \"in a string\"}", "include_backend": true})),
        ("run_tool", json!({"tool_id": "one:echo", "args": {"text": "x"}, "include_tool": true, "include_mcp_result": true})),
        ("run_tool", json!({"tool_id": "one:exotic"})),
        ("run_tool", json!({"tool_id": "one:fail"})),
        ("run_tool", json!({"tool_id": "one:rpc_error", "args": {"code": -32000}})),
        ("run_tool", json!({"tool_id": "one:echo", "args": {"text": 7}})),
        ("run_tool", json!({"tool_id": "one:ecko", "args": {}})),
        ("run_tool", json!({"tool_id": "none:echo", "args": {}})),
        ("run_tool", json!({"tool_id": "echo", "args": {}})),
        ("run_tool", json!({"tool_id": "one:echo", "args": {"text": "x"}, "stream": true})),
        ("run_tool", json!({"tool_id": "one:echo", "args": {"text": "x"}, "backend_override": {"kind": "local"}})),
        ("run_tool", json!({"tool_id": "one:echo", "args": [1]})),
        ("run_tool", json!({"tool_id": "one:echo", "arguments": {"text": "x"}})),
        ("run_tool", json!({"args": {}})),
        ("run_tool", json!({"tool_id": "@results:read", "args": {"id": "r0"}})),
        ("run_tols", json!({})),
    ]);
    insta::assert_snapshot!(page);
}

#[test]
fn a_call_that_runs_out_of_time_says_timeout() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]).setting("timeoutMs", json!(300)));
    let gateway = Gateway::start(workspace, &["--surface", "full"]);
    let answer = gateway.full("run_tool", &json!({"tool_id": "one:slow", "args": {"ms": 30_000}}));
    assert_eq!(answer["error"]["code"], "timeout", "{answer:#}");
    assert_eq!(answer["error"]["details"]["sent"], true);
    assert_eq!(answer["error"]["op"], "run_tool");
    let compact = gateway.call("mcp_call", &json!({"tool": "one:slow", "args": {"ms": 30_000}}));
    assert_eq!(compact.value["result"]["structuredContent"]["code"], "timeout");
}

#[test]
fn a_cancelled_run_is_called_off_at_the_server_and_not_answered() {
    let gateway = Gateway::start(two_servers(), &["--surface", "full"]);
    gateway.full("run_tool", &json!({"tool_id": "one:echo", "args": {"text": "warm"}}));
    let id = gateway
        .client
        .call_tool("run_tool", &json!({"tool_id": "one:slow", "args": {"ms": 60_000}}))
        .unwrap();
    let journal = gateway.workspace.journal("one");
    let began =
        || journal.records().unwrap().iter().any(|record| record.tool.as_deref() == Some("slow"));
    assert!(metamcp_testkit::eventually(crate::gateway::HUNG, began));
    gateway.client.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
    // The server is free at once: nothing waits for the cancelled call.
    gateway.full("run_tool", &json!({"tool_id": "one:echo", "args": {"text": "after"}}));
    let answered = gateway
        .client
        .lines()
        .iter()
        .any(|line| String::from_utf8_lossy(&line.bytes).contains(&format!("\"id\":{id},")));
    assert!(!answered);
    assert_eq!(gateway.client.violations(), Vec::<String>::new());
}

#[test]
fn executing_code() {
    let gateway = gateway();
    let page = gateway.transcript(&[
        ("execute_code", json!({"language": "typescript", "code": "console.log('a'); console.error('b'); return await one.echo({ text: 'x' })"})),
        ("execute_code", json!({"code": "return 1 +"})),
        ("execute_code", json!({"code": "await one.echo({ text: 'done' }); throw new Error('no')"})),
        ("execute_code", json!({"code": "await one.echo({ text: '1' }); await one.echo({ text: '2' })", "max_tool_calls": 1})),
        ("execute_code", json!({"code": "return 1", "language": "go"})),
        ("execute_code", json!({"language": "typescript"})),
    ]);
    insta::assert_snapshot!(page);
    let answer = gateway
        .full("execute_code", &json!({"code": "await one.slow({ ms: 60000 })", "timeout_ms": 500}));
    assert_eq!(answer["error"]["code"], "timeout", "{answer:#}");
    assert_eq!(answer["toolCalls"][0]["tool_id"], "one:slow");
    assert_eq!(answer["toolCalls"][0]["reason"], "cancelled by the limit, which may have run");
    let answer =
        gateway.full("execute_code", &json!({"code": "one.slow({ ms: 60000 }); return 1"}));
    let reason = answer["toolCalls"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("not awaited"), "{answer:#}");
    let answer = gateway.full("execute_code", &json!({"code": "const x = 1;"}));
    assert!(answer["stderr"].as_str().unwrap().contains("nothing was returned"), "{answer:#}");
    // More calls than are configured: said, not ignored.
    let many = json!({"code": "return 1", "max_tool_calls": 90_000});
    let answer = gateway.full("execute_code", &many);
    let told = answer["stderr"].as_str().unwrap();
    assert!(told.contains("90000 tool calls were asked for, 2000 are the most here"), "{told}");
    let long = json!({"code": "return 'x'.repeat(50000)"});
    let more = gateway.full("execute_code", &long)["value"]["more"].clone();
    let (_, words) = more.as_str().unwrap().split_once("run_tool ").unwrap();
    let (words, _) = words.split_once(", or ").unwrap();
    let answer = gateway.full("run_tool", &serde_json::from_str(words).unwrap());
    assert!(answer["structured"].as_str().unwrap().starts_with("xxx"), "{answer:#}");
}

#[test]
fn every_answer_of_every_tool_fits_what_was_published() {
    let gateway = gateway();
    let asked: Vec<(&str, Value)> = vec![
        ("search_tools", json!({"query": "echo"})),
        ("list_tools", json!({})),
        ("list_namespaces", json!({})),
        ("describe_tool", json!({"tool_id": "one:echo", "detail_level": "full"})),
        ("list_tool_examples", json!({"tool_id": "one:echo"})),
        (
            "run_tool",
            json!({"tool_id": "one:exotic", "include_backend": true, "include_tool": true}),
        ),
        ("run_tool", json!({"tool_id": "one:fail"})),
        ("run_tool", json!({"tool_id": "one:env"})),
        (
            "run_chain",
            json!({"steps": [{"tool_id": "one:exotic"}, {"tool_id": "one:fail"}], "include_tools": true}),
        ),
        ("execute_code", json!({"code": "return { a: 1e300 }"})),
        ("describe_tool", json!({"tool_id": "nobody:nothing"})),
        ("run_tool", json!({"tool_id": "nobody:nothing"})),
        ("run_chain", json!({"steps": [{"tool_id": "nobody:nothing"}]})),
        ("list_tools", json!({"namespace": "nobody"})),
    ];
    for (tool, arguments) in asked {
        gateway.full(tool, &arguments);
    }
}

#[test]
fn clients_of_the_stateless_era_get_the_same_answers() {
    let gateway = gateway();
    let ask = |tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        let id = gateway.client.stateless("tools/call", &params, &json!({}), &json!({})).unwrap();
        gateway.client.wait(id, crate::gateway::HUNG).unwrap().value["result"].clone()
    };
    let ran = ask("run_tool", json!({"tool_id": "one:echo", "args": {"text": "x"}}));
    assert_eq!(
        (&ran["resultType"], &ran["structuredContent"]["structured"]),
        (&json!("complete"), &json!("x"))
    );
    let chain = ask(
        "run_chain",
        json!({"steps": [{"tool_id": "one:echo", "args": {"text": "y"}}, {"tool_id": "one:fail"}]}),
    );
    assert_eq!(chain["structuredContent"]["final"], "y");
    assert_eq!((&chain["isError"], &chain["resultType"]), (&json!(true), &json!("complete")));
    let found = ask("search_tools", json!({"query": "echo"}));
    assert_eq!(found["structuredContent"]["error"], Value::Null);
    let refused = ask("describe_tool", json!({"tool_id": "one:none"}));
    assert_eq!(refused["structuredContent"]["error"]["code"], "tool_not_found");
}
