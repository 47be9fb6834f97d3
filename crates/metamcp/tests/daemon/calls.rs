//! The calls of clients as `metamcp calls` shows them, what servers wrote to stderr, and following both.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use metamcp_testkit::{Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::crowd::{HUNG, command, join, shell, stateful, told, workspace};

/// The output of a command that succeeds.
pub(crate) fn text(workspace: &Workspace, line: &[&str]) -> String {
    let output = shell(workspace, line);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn parsed(workspace: &Workspace, line: &[&str]) -> Value {
    serde_json::from_str(&text(workspace, line)).unwrap()
}

fn calls(workspace: &Workspace, line: &[&str]) -> Vec<Value> {
    let line = [&["calls", "--json"], line].concat();
    parsed(workspace, &line)["calls"].as_array().unwrap().clone()
}

/// The steps of the newest call, by their names.
fn newest(workspace: &Workspace) -> (Value, Vec<String>) {
    let id = calls(workspace, &["-n", "1"])[0]["id"].to_string();
    let detail = parsed(workspace, &["calls", "show", &id, "--json"]);
    let steps = detail["steps"].as_array().unwrap();
    let steps = steps.iter().map(|step| step["what"].as_str().unwrap().to_owned()).collect();
    (detail, steps)
}

/// A command whose lines come as they are printed.
struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    fn start(mut command: Command, line: &[&str]) -> Following {
        // One pipe for both, so that lines come in the order in which they were written.
        let (both, writer) = std::io::pipe().unwrap();
        command.args(line).stdin(Stdio::null());
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap();
        // It keeps the pipe open as long as it lives.
        drop(command);
        let (say, lines) = sync_channel(1_000);
        std::thread::spawn(move || {
            for line in BufReader::new(both).lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Following { child, lines }
    }

    fn until(&self, words: &str) -> String {
        let mut seen = Vec::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(HUNG) else {
                panic!("{words:?} never came: {seen:?}")
            };
            if line.contains(words) {
                return line;
            }
            seen.push(line);
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn the_first_call_starts_its_server_and_the_next_finds_it_warm() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    let client = join(command(&workspace));
    told(&client, "kept", "remember", &json!({"key": "x"}));
    let (detail, steps) = newest(&workspace);
    assert_eq!(detail["call"]["server"], "kept");
    assert_eq!(
        (&detail["call"]["tool"], &detail["call"]["verdict"]),
        (&json!("remember"), &json!("ok"))
    );
    // Its list of tools was read before, so the call may have come when the start was over.
    assert_eq!((&*steps[0], steps.last().unwrap().as_str()), ("arrived", "answered"));
    assert!(steps.contains(&"sent".to_owned()), "{steps:?}");
    told(&client, "kept", "recall", &json!({}));
    let (_, warm) = newest(&workspace);
    assert!(!warm.contains(&"starting".to_owned()) && warm[1] == "sent", "{warm:?}");

    let listed = text(&workspace, &["calls"]);
    assert!(listed.contains("kept:remember") && listed.contains("kept:recall"), "{listed}");
    assert!(!listed.contains('\u{1b}'), "no colours in a pipe");
    let shown = text(&workspace, &["calls", "show", &detail["call"]["id"].to_string()]);
    assert!(shown.contains("kept:remember") && shown.contains("went into"), "{shown}");

    // A server that is known from the disk is started by its call.
    text(&workspace, &["restart", "kept"]);
    told(&client, "kept", "recall", &json!({}));
    let (_, started) = newest(&workspace);
    let expected = ["arrived", "starting", "opened", "ready", "sent"];
    assert_eq!(started[..5], expected, "{started:?}");

    let missing = shell(&workspace, &["calls", "show", "999999"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("999999"));
    let status = parsed(&workspace, &["status", "--json"]);
    assert_eq!(
        (status["running"] == true, status["traffic"]["calls"].as_u64()),
        (true, Some(3)),
        "{status:#}"
    );
    assert!(text(&workspace, &["status"]).contains("3 calls since it started"));
}

#[test]
fn a_call_that_was_lost_and_sent_again_says_so_and_filters_find_what_they_name() {
    let mut workspace = workspace();
    let once = workspace.file("died");
    let dies =
        chaos_server(&["die-before-reply"]).argument("--once").argument(once.to_str().unwrap());
    workspace.server("dies", dies);
    workspace.server("good", chaos_server(&[]));
    workspace.write_config().unwrap();
    let client = join(command(&workspace));
    let answer =
        client.mcp_call_now("dies", "effect_idempotent", &json!({"key": "a"}), HUNG).unwrap();
    assert!(answer.text().is_some(), "{}", answer.value);
    let (detail, steps) = newest(&workspace);
    let sent = steps.iter().filter(|step| *step == "sent").count();
    assert_eq!((sent, steps.contains(&"lost".to_owned())), (2, true), "{detail:#}");
    let told = detail["steps"].to_string();
    assert!(told.contains("sent again"), "{told}");
    let shown = text(&workspace, &["calls", "show", &detail["call"]["id"].to_string()]);
    assert!(shown.contains("The first attempt was lost after"), "{shown}");
    assert!(shown.contains("it was sent again because"), "{shown}");

    client.mcp_call_now("good", "slow", &json!({"ms": 300}), HUNG).unwrap();
    client.mcp_call_now("good", "big", &json!({"bytes": 2_000_000}), HUNG).unwrap();
    let (big, steps) = newest(&workspace);
    assert!(steps.contains(&"first byte".to_owned()), "{big:#}");
    client.mcp_call_now("good", "fail", &json!({}), HUNG).unwrap();

    let tools = |line: &[&str]| -> Vec<String> {
        let all = calls(&workspace, line);
        all.iter().map(|call| call["tool"].as_str().unwrap().to_owned()).collect()
    };
    assert!(tools(&["--slow", "299ms"]).contains(&"slow".to_owned()));
    assert!(!tools(&["--slow", "60s"]).contains(&"slow".to_owned()));
    assert_eq!(tools(&["--server", "dies"]), ["effect_idempotent"]);
    assert_eq!(tools(&["--server", "good", "-n", "1"]).len(), 1);
    assert!(tools(&["--tool", "big"]).iter().all(|tool| tool == "big"));
    let failed = calls(&workspace, &["--failed"]);
    assert!(failed.iter().all(|call| call["outcome"] != "ok"), "{failed:?}");
    let empty = text(&workspace, &["calls", "--server", "nowhere"]);
    assert!(empty.contains("None of the calls"), "{empty}");
}

#[test]
fn calls_are_followed_from_one_daemon_to_the_next() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    let client = join(command(&workspace));
    told(&client, "kept", "remember", &json!({"key": "x"}));
    let text_of = Following::start(command(&workspace), &["calls", "-f"]);
    let json_of = Following::start(command(&workspace), &["calls", "-f", "--json"]);
    // Both are following once they have shown what came before them.
    text_of.until("kept:remember");
    json_of.until("remember");
    told(&client, "kept", "recall", &json!({}));
    text_of.until("kept:recall");
    let row: Value = serde_json::from_str(&json_of.until("recall")).unwrap();
    assert_eq!((&row["server"], &row["outcome"]), (&json!("kept"), &json!("ok")));
    text(&workspace, &["daemon", "stop"]);
    text_of.until("The daemon has ended");
    // The client's connector starts the next one.
    told(&client, "kept", "remember", &json!({"key": "y"}));
    text_of.until("Another daemon is there");
    text_of.until("kept:remember");
    json_of.until("remember");
}

/// A server that says a secret on stderr, and then serves.
fn talkative(workspace: &mut Workspace, name: &str, words: &str) {
    let script = workspace.file(&format!("{name}.sh"));
    let text = format!("#!/bin/sh\n{words}\nexec \"$@\"\n");
    std::fs::write(&script, text).unwrap();
    let program = env!("CARGO_BIN_EXE_metamcp");
    let entry = json!({
        "command": "/bin/sh",
        "args": [script, program, "__example", "numbers"],
        "env": {"SECRET": "${VERY_SECRET}"},
        "share": "machine",
    });
    workspace.entry(name, entry);
}

#[test]
fn stderr_of_a_server_is_shown_without_its_secrets_and_followed() {
    const SECRET: &str = "sk-live-0123456789abcdefghij";
    let mut workspace = workspace();
    talkative(&mut workspace, "loud", "echo \"starts with $SECRET \x1b[31mnow\" >&2");
    workspace.write_config().unwrap();
    let with_secret = || {
        let mut command = command(&workspace);
        command.env("VERY_SECRET", SECRET);
        command
    };
    let client = join(with_secret());
    let before = text(&workspace, &["logs", "loud"]);
    assert_eq!(before.trim(), "loud has not been started.");
    let following = Following::start(command(&workspace), &["logs", "loud", "-f"]);
    let events = Following::start(command(&workspace), &["logs", "-f", "--json"]);
    client.mcp_call_now("loud", "factorize", &json!({"number": 12}), HUNG).unwrap();
    let line = following.until("starts with");
    assert!(!line.contains(SECRET) && !line.contains('\u{1b}'), "{line}");
    let event: Value = serde_json::from_str(&events.until("\"started\"")).unwrap();
    assert_eq!(event["server"], "loud");
    let logs = parsed(&workspace, &["logs", "loud", "--json"]);
    assert_eq!(logs["instances"].as_array().unwrap().len(), 1, "{logs:#}");
    assert!(!logs.to_string().contains(SECRET));
    // Each process says whose lines are whose once there was another.
    text(&workspace, &["restart", "loud"]);
    client.mcp_call_now("loud", "factorize", &json!({"number": 12}), HUNG).unwrap();
    let line = following.until("starts with");
    assert!(line.starts_with('['), "{line}");
    let happened = text(&workspace, &["logs"]);
    assert!(happened.contains("loud  started"), "{happened}");

    let near = shell(&workspace, &["logs", "lou"]);
    let said = String::from_utf8_lossy(&near.stderr).into_owned();
    assert!(near.status.code() == Some(2) && said.contains("did you mean `loud`"), "{said}");
}

#[test]
fn without_a_daemon_every_command_says_so() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    for line in [
        &["calls"][..],
        &["calls", "-f"],
        &["calls", "show", "1"],
        &["logs"],
        &["logs", "kept"],
        &["restart", "kept"],
        &["top", "--json"],
    ] {
        let output = shell(&workspace, line);
        let all = [&output.stdout[..], &output.stderr].concat();
        let all = String::from_utf8(all).unwrap();
        assert_eq!(output.status.code(), Some(4), "{line:?}: {all}");
        assert!(all.contains("No daemon is running"), "{line:?}: {all}");
    }
    assert!(eventually(HUNG, || workspace.daemons().is_empty()), "none was started");
}
