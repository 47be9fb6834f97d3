//! A disk that is full, by a limit on the size of files: the same for whoever runs the tests.

use std::path::Path;

use metamcp_testkit::{Client, Workspace, eventually};
use serde_json::{Value, json};

use crate::logged::{METAMCP, PATIENCE, call, client, end, of_kind, whole, workspace};

/// A gateway that can write no file beyond so many blocks of 512 bytes, and is told so instead of killed.
fn narrow(workspace: &Workspace, blocks: u32) -> Client {
    let mut command = workspace.command(Path::new("sh")).unwrap();
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, METAMCP]);
    client(command, &[])
}

fn fill(client: &Client) -> Vec<Value> {
    // The server writes its own journal under the same limit, and less of it.
    (0..80).map(|_| call(client, "slow", &json!({"ms": 0}))).collect()
}

#[test]
fn a_call_that_cannot_be_recorded_is_not_made() {
    let workspace = workspace(&json!({ "required": true }));
    let client = narrow(&workspace, 64);
    let results = fill(&client);
    let is_refused = |result: &&Value| result["structuredContent"]["code"] == "audit_unavailable";
    let refused: Vec<&Value> = results.iter().filter(is_refused).collect();
    assert!(!refused.is_empty() && refused.len() < results.len(), "{refused:?}");
    let message = refused[0]["structuredContent"]["message"].as_str().unwrap();
    assert!(message.contains("File too large") && message.contains("000001.jsonl"), "{message}");
    // The server ran exactly the calls whose line is there.
    let ran = workspace.journal("one").count(metamcp_testkit::EventKind::Execute).unwrap();
    assert_eq!(ran, results.len() - refused.len());
    assert_eq!(of_kind(&workspace, "begun").len(), ran);
    whole(&workspace);
    end(client);
    whole(&workspace);
}

#[test]
fn without_that_calls_go_on_and_the_log_says_what_it_lacks() {
    let workspace = workspace(&json!({ "enabled": true }));
    let client = narrow(&workspace, 64);
    let results = fill(&client);
    assert!(results.iter().all(|result| result["isError"] != true), "{results:#?}");
    let warned = || client.stderr().contains("the audit log cannot be written");
    assert!(eventually(PATIENCE, warned));
    assert_eq!(client.stderr().matches("the audit log cannot be written").count(), 1);
    assert!(of_kind(&workspace, "call").len() < results.len());
    whole(&workspace);
    end(client);
}
