//! The demonstration as a person runs it, and the example servers as a client starts them.

#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use metamcp_testkit::DAEMON;
use serde_json::{Value, json};

/// Runs the program until it exits, with its temporary files in `temporary`.
fn metamcp(arguments: &[&str], temporary: &Path, input: &str) -> io::Result<Output> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_metamcp"))
        .args(arguments)
        .env("TMPDIR", temporary)
        .env("TMP", temporary)
        .env(DAEMON.0, DAEMON.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().expect("stdin was asked to be a pipe").write_all(input.as_bytes())?;
    child.wait_with_output()
}

#[test]
fn an_example_server_speaks_over_its_pipes_and_leaves_at_the_end_of_input() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hello.txt"), "hello\n").unwrap();
    let requests = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18" } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
                "params": { "name": "read_file", "arguments": { "path": "hello.txt" } } }),
    ];
    let input: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let ran =
        metamcp(&["__example", "files", folder.path().to_str().unwrap()], folder.path(), &input)
            .unwrap();
    assert!(ran.status.success());
    let lines: Vec<Value> = String::from_utf8(ran.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(lines[1]["result"]["content"][0]["text"], "hello\n");
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_wrong_example_is_refused_with_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let ran = metamcp(&["__example", "clocks"], folder.path(), "").unwrap();
    assert!(!ran.status.success());
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(said.contains("use one of: files DIR, notes FILE, clock, text, numbers"), "{said}");
}

#[test]
fn the_demo_runs_through_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let ran = metamcp(&["demo", "--json"], folder.path(), "").unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["ok"], true, "{report:#}");
    assert_eq!(report["cost"]["everyToolOfEveryServer"]["tools"], 30);
    let (all, ours) = (&report["cost"]["everyToolOfEveryServer"], &report["cost"]["metamcp"]);
    for measure in ["tokensAbout", "tokensHandedToModelAbout"] {
        assert!(
            all[measure].as_u64().unwrap() > 3 * ours[measure].as_u64().unwrap(),
            "{}",
            report["cost"]
        );
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
