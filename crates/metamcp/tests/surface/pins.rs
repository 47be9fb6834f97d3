//! Pins: tools that are listed beside the gateway's own, within their budget, and called by their names.

use std::path::Path;
use std::process::Stdio;

use metamcp_testkit::{Client, EventKind, Workspace, chaos_server};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

fn pinned(budget: u64) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    let overrides = json!({
        "effect": { "name": "note", "pin": true },
        "echo": { "pin": true },
        "*": { "pin": "auto" },
    });
    workspace.server("a", chaos_server(&[]).setting("overrides", overrides));
    workspace.setting("pins", json!({ "maxTokens": budget }));
    workspace
}

fn names(gateway: &Gateway) -> Vec<String> {
    let list = gateway.client.ask("tools/list", &json!({}), HUNG).unwrap().value;
    let tools = list["result"]["tools"].as_array().unwrap().clone();
    tools.iter().filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect()
}

/// Lists the tools of the server once, so that they are known from the cache.
fn warm(workspace: &Workspace) {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    let output = command.args(["tools", "a"]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_pinned_tool_is_listed_with_its_schema_and_called_by_its_name() {
    let workspace = pinned(2_000);
    warm(&workspace);
    let gateway = Gateway::start(workspace, &[]);
    let before = names(&gateway);
    assert_eq!(before[before.len() - 2..], ["a__echo", "a__note"], "{before:?}");
    let echo = gateway.tool("a__echo");
    assert_eq!(echo["inputSchema"]["required"], json!(["text"]), "{echo:#}");
    assert_eq!(echo["annotations"]["readOnlyHint"], true);
    let called = gateway.call("a__echo", &json!({ "text": "hello" })).value;
    assert!(called["result"]["content"][0]["text"].as_str().unwrap().contains("hello"));
    // The same checks as on every other road.
    let wrong = gateway.call("a__echo", &json!({ "text": 7 })).value;
    assert_eq!(wrong["result"]["structuredContent"]["code"], "validation_input", "{wrong:#}");
    gateway.call("a__note", &json!({ "key": "k" }));
    let executed = gateway.workspace.journal("a").of(EventKind::Execute).unwrap();
    assert!(executed.iter().any(|one| one.tool.as_deref() == Some("effect")));
    // What is not pinned has no name of its own here.
    assert!(gateway.call("a__big", &json!({ "bytes": 1 })).value["error"].is_object());
    // The list stays as it is while the session lives.
    gateway.call("mcp_call", &json!({ "tool": "a:grow" }));
    assert_eq!(names(&gateway), before);
}

#[test]
fn pins_stay_within_their_budget_and_doctor_says_what_does_not_fit() {
    let workspace = pinned(100);
    warm(&workspace);
    let gateway = Gateway::start(workspace, &[]);
    let listed = names(&gateway);
    let pins = listed.iter().filter(|name| name.starts_with("a__")).count();
    assert!(pins < 2, "{listed:?}");
    let mut command = gateway.workspace.command_as_it_is(Path::new(env!("CARGO_BIN_EXE_metamcp")));
    let output = command.args(["doctor", "a"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("pins.maxTokens") && said.contains("a__"), "{said}");
}

#[test]
fn a_pinned_tool_needs_the_approval_that_it_needs_otherwise_and_full_and_new_clients_call_it_too() {
    let mut workspace = pinned(2_000);
    workspace.setting("approvals", json!({ "rule": "destructive" }));
    warm(&workspace);
    let gateway = Gateway::start(workspace, &["--surface", "full"]);
    let refused = gateway.call("a__note", &json!({ "key": "k" })).value;
    let code = |answer: &Value| answer["result"]["structuredContent"]["code"].clone();
    assert_eq!(code(&refused), "approval_required", "{refused:#}");
    assert!(names(&gateway).contains(&"a__note".to_owned()));
    // A client that was listed the tool by a gateway before may call it at once.
    let command = gateway.workspace.command_as_it_is(Path::new(env!("CARGO_BIN_EXE_metamcp")));
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    let id = client.call_tool("a__note", &json!({ "key": "k" })).unwrap();
    assert_eq!(code(&client.wait(id, HUNG).unwrap().value), "approval_required");
    let executed = gateway.workspace.journal("a").of(EventKind::Execute).unwrap_or_default();
    assert!(executed.is_empty(), "{executed:?}");
}
