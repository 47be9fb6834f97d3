//! Learning from usage history, with a real gateway: what is called after a search ranks higher in the next run,
//! unless that is disabled or cleared.

use std::path::Path;
use std::time::Duration;

use metamcp_testkit::{Client, Workspace, echo_server};
use serde_json::{Value, json};

/// A longer wait means a hang.
const HUNG: Duration = Duration::from_mins(1);

const QUERY: &str = "give some text back";

/// Three servers with the same tools, so that only usage history can rank them.
fn workspace() -> Workspace {
    let mut workspace = Workspace::new().expect("it runs");
    for name in ["alpha", "beta", "gamma"] {
        workspace.server(name, echo_server());
    }
    // A server's name must not matter, and the first search must list all of them.
    workspace.setting("timeouts", json!({ "discoverBudgetMs": 60_000 }));
    workspace.setting("search", json!({ "strategy": "bm25" }));
    workspace
}

fn gateway(workspace: &Workspace, arguments: &[&str]) -> Client {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).expect("it runs");
    command.args(arguments);
    let client = Client::start(command).expect("it runs");
    client.initialize(&json!({}), HUNG).expect("it runs");
    client
}

/// The servers whose `echo` was found, best match first.
fn search(client: &Client) -> Vec<String> {
    let id = client.call_tool("mcp_discover", &json!({ "query": QUERY })).expect("it runs");
    let answer = client.wait(id, HUNG).expect("it runs");
    let result: Value =
        serde_json::from_str(answer.raw_result().expect("it runs")).expect("it runs");
    let text = result["content"][0]["text"].as_str().expect("it runs").to_owned();
    let mut found: Vec<(usize, String)> = ["alpha", "beta", "gamma"]
        .iter()
        .map(|name| {
            let at = text.find(&format!("{name}:echo"));
            (at.unwrap_or_else(|| panic!("{name} in {text}")), (*name).to_owned())
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

fn call(client: &Client, server: &str) {
    client.mcp_call_now(server, "echo", &json!({ "text": "hi" }), HUNG).expect("it runs");
}

fn end(mut client: Client) {
    client.close_input();
    client.wait_exit(HUNG).expect("it runs");
}

fn told(workspace: &Workspace, arguments: &[&str]) -> String {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).expect("it runs");
    let output = command.args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("it runs");
    let home = workspace.home().display().to_string();
    text.replace(&home, "HOME")
}

#[test]
fn what_was_called_after_a_search_comes_first_next_time() {
    let workspace = workspace();
    let file = workspace.home().join(".metamcp/habits.json");
    let client = gateway(&workspace, &[]);
    assert_eq!(search(&client), ["alpha", "beta", "gamma"]);
    call(&client, "gamma");
    assert_eq!(search(&client)[0], "gamma", "at once");
    call(&client, "gamma");
    end(client);
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept.contains("gamma:echo") && !kept.contains("alpha") && !kept.contains("hi"));

    let client = gateway(&workspace, &[]);
    assert_eq!(search(&client)[0], "gamma", "in the next run");
    end(client);
    let client = gateway(&workspace, &["--learn", "false"]);
    assert_eq!(search(&client)[0], "alpha", "not where nobody wants it");
    end(client);

    insta::assert_snapshot!(told(&workspace, &["forget"]), @r"
    Deleted 1 entry of the usage history. Removed:
      HOME/.metamcp/habits.json
    ");
    assert!(!file.exists());
    insta::assert_snapshot!(told(&workspace, &["forget"]), @"There is nothing to delete: HOME/.metamcp/habits.json does not exist.");
    insta::assert_snapshot!(told(&workspace, &["forget", "--json"]), @r#"
    {
      "habits": 0,
      "removed": []
    }
    "#);
    let client = gateway(&workspace, &[]);
    assert_eq!(search(&client)[0], "alpha", "forgotten");
    end(client);
}

#[test]
fn nothing_is_recorded_without_a_search_or_when_disabled() {
    let mut workspace = workspace();
    let file = workspace.home().join(".metamcp/habits.json");
    let client = gateway(&workspace, &[]);
    call(&client, "beta");
    end(client);
    assert!(!file.exists());
    workspace.setting("search", json!({ "strategy": "bm25", "learn": false }));
    let client = gateway(&workspace, &[]);
    search(&client);
    call(&client, "beta");
    end(client);
    assert!(!file.exists());
}

#[test]
fn calls_that_fail_do_not_lift_a_tool() {
    let workspace = workspace();
    let client = gateway(&workspace, &[]);
    search(&client);
    // A tool that does not exist and invalid arguments are rejected before the server is contacted.
    client.mcp_call_now("gamma", "nothing", &json!({}), HUNG).unwrap();
    client.mcp_call_now("gamma", "echo", &json!({ "text": 5 }), HUNG).unwrap();
    end(client);
    let client = gateway(&workspace, &[]);
    assert_eq!(search(&client), ["alpha", "beta", "gamma"]);
    end(client);
}
