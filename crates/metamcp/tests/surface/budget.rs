//! The initial tool list of the model stays small and does not change during a session.

use std::path::Path;
use std::time::Duration;

use metamcp_testkit::{Client, Workspace, echo_server};
use serde_json::{Value, json};

/// A longer wait means a hang.
const HUNG: Duration = Duration::from_mins(1);

/// The token budget of all four tools together with the instructions, and what each server adds.
const BUDGET: usize = 450;
const PER_SERVER: usize = 6;
const SERVERS: usize = 20;

/// Of those, what code mode may take to say what a script has.
const CODE_BUDGET: usize = 130;

#[test]
fn the_list_of_tools_is_within_its_budget_and_byte_identical() {
    let mut workspace = Workspace::new().unwrap();
    for number in 0..SERVERS {
        let description = format!(
            "Server number {number}, which keeps files, notes and tickets of team {number}"
        );
        let server = echo_server().setting("description", Value::from(description));
        workspace.server(&format!("server-{number}"), server);
    }
    let mut lists = Vec::new();
    let mut instructions = String::new();
    for _ in 0..2 {
        let command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
        let client = Client::start(command).unwrap();
        let initialized = client.initialize(&json!({}), HUNG).unwrap();
        instructions = initialized["instructions"].as_str().unwrap_or_default().to_owned();
        let list =
            || client.ask("tools/list", &json!({}), HUNG).unwrap().raw_result().unwrap().to_owned();
        for _ in 0..2 {
            lists.push(list());
        }
        // What is cached about servers meanwhile must not show.
        client.mcp_call_now("server-3", "echo", &json!({"text": "hi"}), HUNG).unwrap();
        lists.push(list());
    }
    assert!(lists.windows(2).all(|pair| pair[0] == pair[1]), "the list changed");
    let text = lists.remove(0);
    let whole = format!("{text}\n{instructions}");
    let tokens = tiktoken_rs::cl100k_base().unwrap().encode_ordinary(&whole).len();
    assert!(tokens <= BUDGET + PER_SERVER * SERVERS, "{tokens} tokens:\n{whole}");
    assert!(!instructions.contains("server-"), "the servers are named once: {instructions}");
    assert!(
        text.contains("server-0") && text.contains("mcp_discover") && text.contains("mcp_call")
    );
    let value: Value = serde_json::from_str(&text).unwrap();
    for tool in value["tools"].as_array().unwrap() {
        if tool["name"] == "mcp_execute" {
            let said = tool["description"].as_str().unwrap();
            let tokens = tiktoken_rs::cl100k_base().unwrap().encode_ordinary(said).len();
            assert!(tokens <= CODE_BUDGET, "{tokens} tokens: {said}");
        }
        assert!(
            tool["title"].is_string() && tool["annotations"]["readOnlyHint"].is_boolean(),
            "{tool}"
        );
    }
}
