//! Resource limits of the system: how a gateway behaves with little.

use std::os::unix::process::CommandExt;
use std::process::Command;

use metamcp_testkit::{CallOutcome, Client, Workspace, chaos_server, echo_server, returned};
use serde_json::{Value, json};

use crate::world::{PATIENCE, call, command, home, stop};

/// A gateway after the handshake, started by a shell that sets the limit first.
fn limited(workspace: &Workspace, limit: &str) -> Client {
    let inner = command(workspace);
    let mut outer = Command::new("sh");
    outer.arg0("sh").arg("-c").arg(format!("ulimit {limit}; exec \"$0\" \"$@\""));
    outer.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(folder) = inner.get_current_dir() {
        outer.current_dir(folder);
    }
    let client = Client::start(outer).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    client
}

fn script(client: &Client, code: &str) -> Value {
    let id = client.call_tool("mcp_execute", &json!({ "code": code })).unwrap();
    client.wait(id, PATIENCE).unwrap().value
}

#[test]
fn with_few_files_idle_servers_make_room_and_scripts_run() {
    let mut workspace = Workspace::new().unwrap();
    let names: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
    for name in &names {
        workspace.server(name, chaos_server(&[]));
    }
    let client = limited(&workspace, "-n 64");
    for name in names.iter().chain(&names[..3]) {
        let outcome = call(&client, name, "echo", &json!({"text": "x"}));
        assert_eq!(outcome, CallOutcome::Success, "{name}: {outcome}; {}", client.stderr());
    }
    let answer = script(&client, "return 1 + 1");
    assert_eq!(answer["result"]["isError"], Value::Null, "{answer}; {}", client.stderr());
    stop(client, &workspace);
}

#[test]
fn where_all_files_are_in_use_that_is_what_is_said() {
    let mut workspace = Workspace::new().unwrap();
    let names: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
    for name in &names {
        // None of them may be evicted.
        workspace.server(name, chaos_server(&[]).setting("lifecycle", json!("keep-alive")));
    }
    let client = limited(&workspace, "-n 64");
    let mut refused = Vec::new();
    for name in &names {
        if let CallOutcome::GatewayError(error) = call(&client, name, "echo", &json!({"text": "x"}))
        {
            refused.push(error);
        }
    }
    assert!(!refused.is_empty(), "it was to run out of files");
    for error in refused {
        assert_eq!(error.code, "server_unavailable", "{}", error.whole);
        assert!(error.message.contains("no file descriptors left"), "{}", error.whole);
        assert!(error.whole["hint"].as_str().unwrap().contains("ulimit -n"), "{}", error.whole);
    }
    let answer = script(&client, "return 1 + 1").to_string();
    assert!(!answer.contains("memory"), "{answer}");
    stop(client, &workspace);
}

/// Spare workers are started beside those that run. Whichever step finds no file descriptor, it ends no running
/// script, and a script that cannot begin gets an error with the reason.
#[test]
fn scripts_without_file_descriptors_fail_alone() {
    for limit in 26..=41 {
        let mut workspace = Workspace::new().unwrap();
        for name in ["a", "b", "c"] {
            workspace.server(name, echo_server().setting("lifecycle", json!("keep-alive")));
        }
        let client = limited(&workspace, &format!("-n {limit}"));
        for name in ["a", "b", "c"] {
            // With the lowest limits the last of them is rejected, which is fine.
            call(&client, name, "echo", &json!({"text": "x"}));
        }
        for _ in 0..2 {
            let code = json!({ "code": "await sleep(3); return 1 + 1" });
            let ids = [(); 4].map(|()| client.call_tool("mcp_execute", &code).unwrap());
            for id in ids {
                let answer = client.wait(id, PATIENCE).unwrap().value;
                match CallOutcome::of(&answer) {
                    CallOutcome::Success => {
                        assert_eq!(returned(&answer["result"]), Some(json!(2)), "{answer}");
                    }
                    // A race: the descriptors the others have open at that moment decide whether one is left.
                    _ => {
                        let told = answer["result"]["content"][0]["text"].as_str().unwrap();
                        assert!(told.contains("no file descriptors left"), "{limit}: {answer}");
                    }
                }
            }
        }
        stop(client, &workspace);
    }
}

#[test]
fn files_that_may_not_grow_end_nobody() {
    let mut workspace = Workspace::new().unwrap();
    // One that writes no file of its own.
    workspace.server("one", echo_server());
    let client = limited(&workspace, "-f 0");
    assert_eq!(call(&client, "one", "echo", &json!({"text": "x"})), CallOutcome::Success);
    assert_eq!(call(&client, "one", "echo", &json!({"text": "y"})), CallOutcome::Success);
    stop(client, &workspace);
    let empty = |entry: std::fs::DirEntry| entry.metadata().unwrap().len() == 0;
    let cache = home(&workspace).join("cache").join("one");
    let left = std::fs::read_dir(cache).into_iter().flatten().flatten();
    assert!(left.into_iter().all(empty), "nothing could be written");
}

#[test]
fn a_small_stack_is_enough() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]));
    let client = limited(&workspace, "-s 128");
    assert_eq!(call(&client, "one", "echo", &json!({"text": "x"})), CallOutcome::Success);
    stop(client, &workspace);
}
