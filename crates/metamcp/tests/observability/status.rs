//! `metamcp status --metrics`: what the daemon counts, for all its clients together.

use std::path::Path;
use std::process::{Output, Stdio};

use metamcp_testkit::{Workspace, chaos_server};
use serde_json::json;

use crate::{PATIENCE, client};

fn status(workspace: &Workspace, args: &[&str]) -> Output {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.arg("status").args(args).stdin(Stdio::null());
    command.output().unwrap()
}

pub(crate) fn metrics(workspace: &Workspace) -> String {
    let output = status(workspace, &["--metrics"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_daemon_shows_what_all_its_clients_did() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    workspace.server("a", chaos_server(&[]));
    let clients = [client(&workspace, &[], &[]), client(&workspace, &[], &[])];
    for client in &clients {
        client.mcp_call_now("a", "echo", &json!({"text": "x"}), PATIENCE).unwrap();
        let code = "await a.echo({text: 'x'}); return 1;";
        let id = client.call_tool("mcp_execute", &json!({"code": code})).unwrap();
        client.wait(id, PATIENCE).unwrap();
        let id = client.call_tool("mcp_discover", &json!({"query": "echo"})).unwrap();
        client.wait(id, PATIENCE).unwrap();
    }
    let text = metrics(&workspace);
    for line in [
        r#"metamcp_calls_total{server="a",tool="echo",verdict="ok"} 4"#,
        r#"metamcp_scripts_total{verdict="ok"} 2"#,
        "metamcp_script_calls_total 2",
        "metamcp_script_duration_seconds_count 2",
        "metamcp_searches_total 2",
        "metamcp_sessions 2.0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    let saved = r#"metamcp_tokens_saved_total{by="scripts"} "#;
    let saved = text.lines().find_map(|line| line.strip_prefix(saved)).unwrap();
    assert!(saved.parse::<u64>().unwrap() > 0);
}

#[test]
fn without_a_daemon_it_says_so() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    let output = status(&workspace, &["--metrics"]);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the first client starts the daemon"), "{said}");
}
