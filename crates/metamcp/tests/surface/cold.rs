//! The first searches of a gateway: servers that may have what is looked for are waited for, and the answer says how many
//! have answered.

use metamcp_testkit::programs::echo_child;
use metamcp_testkit::{Server, Workspace, chaos_server, echo_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

/// Longer than a search waits for servers in general, shorter than its budget.
const SLOW: &str = "4000";

fn slow_server() -> Server {
    Server::new(echo_child(), &["--slow-start", SLOW])
}

fn discover(gateway: &Gateway, arguments: &Value) -> String {
    let result = gateway.call("mcp_discover", arguments).value["result"].clone();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_server_or_tool_that_is_named_is_waited_for() {
    for arguments in [
        json!({"tool": "slow:echo"}),
        json!({"tool": "echo"}),
        json!({"server": "slow"}),
        json!({"server": "slow", "query": "say it again"}),
    ] {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("slow", slow_server());
        let gateway = Gateway::start(workspace, &["--search", "hybrid"]);
        let text = discover(&gateway, &arguments);
        assert!(text.contains("slow:echo("), "{arguments}: {text}");
    }
}

#[test]
fn a_first_search_waits_for_servers_whose_name_fits_and_while_nothing_does() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("quick", echo_server());
    workspace.server("weather-station", slow_server());
    let gateway = Gateway::start(workspace, &["--search", "hybrid"]);
    let text = discover(&gateway, &json!({"query": "echo from the weather station", "limit": 20}));
    assert!(text.contains("weather-station:echo("), "{text}");
    assert!(!text.contains("pending"), "{text}");
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", slow_server());
    let gateway = Gateway::start(workspace, &["--search", "hybrid"]);
    let text = discover(&gateway, &json!({"query": "echo the text"}));
    assert!(text.contains("one:echo("), "{text}");
}

#[test]
fn asking_the_same_again_waits_for_the_servers_that_were_missing() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("quick", echo_server());
    workspace.server("slow", Server::new(echo_child(), &["--slow-start", "6000"]));
    let gateway = Gateway::start(workspace, &["--search", "hybrid"]);
    let asked = json!({"query": "echo the text back", "limit": 20});
    let text = discover(&gateway, &asked);
    assert!(text.contains("quick:echo("), "{text}");
    assert!(text.contains("pending: slow (1 of 2 servers have answered"), "{text}");
    let text = discover(&gateway, &asked);
    assert!(text.contains("slow:echo(") && !text.contains("pending"), "{text}");
}

#[test]
fn an_answer_without_all_servers_says_how_many_answered_and_to_ask_the_same_again() {
    let mut workspace = Workspace::new().unwrap();
    workspace.setting("timeouts", json!({ "discoverBudgetMs": 50 }));
    workspace.server("hung", chaos_server(&["never-initialize"]));
    workspace.server("quick", echo_server());
    let gateway = Gateway::start(workspace, &[]);
    gateway.client.mcp_call_now("quick", "echo", &json!({"text": "hi"}), HUNG).unwrap();
    let text = discover(&gateway, &json!({"query": "echo the text"}));
    let pending =
        "pending: hung (1 of 2 servers have answered; ask the same again, do not rephrase)";
    assert!(text.ends_with(pending), "{text}");
    let missing = gateway.call("mcp_discover", &json!({"tool": "no_such_tool"})).value;
    let error = &missing["result"]["structuredContent"];
    assert_eq!(error["code"], "tool_not_found");
    assert!(
        error["message"].as_str().unwrap().contains("1 of 2 servers have answered"),
        "{error:#}"
    );
    assert_eq!(error["retryable"], true);
}

#[test]
fn what_a_tool_returned_is_part_of_its_signature() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", echo_server());
    let gateway = Gateway::start(workspace, &[]);
    let text = discover(&gateway, &json!({"tool": "one:echo"}));
    assert!(!text.contains('→'), "{text}");
    let said = json!({"text": r#"{"rows": [{"id": 1}]}"#});
    gateway.client.mcp_call_now("one", "echo", &said, HUNG).unwrap();
    for arguments in [json!({"tool": "one:echo"}), json!({"query": "echo the text"})] {
        let learned = eventually(HUNG, || {
            discover(&gateway, &arguments).contains("→ {rows: {id: integer}[]}")
        });
        assert!(learned, "{}", discover(&gateway, &arguments));
    }
}

#[test]
fn nothing_that_fits_is_said_and_resources_are_named_where_they_are_asked_for() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]));
    let gateway = Gateway::start(workspace, &["--search", "hybrid"]);
    let text = discover(&gateway, &json!({"query": "weather forecast for tomorrow in Berlin"}));
    assert!(text.starts_with("Nothing among "), "{text}");
    assert!(text.contains("mcp_provision {\"intent\": …}"), "{text}");
    assert!(!text.contains("@resources") && !text.contains("cursor"), "{text}");
}
