//! A gateway whose audit log is on, and the log as a test reads it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use metamcp_testkit::{Client, Workspace, chaos_server};
use serde_json::{Value, json};

pub(crate) const METAMCP: &str = env!("CARGO_BIN_EXE_metamcp");

/// However busy the machine is, exceeding this means a hang.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A workspace with a server `one`, and these settings of the audit log.
pub(crate) fn workspace(audit: &Value) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]).setting("deniedTools", json!(["sample"])));
    workspace.setting("audit", audit.clone());
    workspace
}

pub(crate) fn client(mut command: Command, args: &[&str]) -> Client {
    command.args(args);
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    client
}

pub(crate) fn gateway(workspace: &Workspace, args: &[&str]) -> Client {
    client(workspace.command(Path::new(METAMCP)).unwrap(), args)
}

/// The result of a tool of the server `one`.
pub(crate) fn call(client: &Client, tool: &str, args: &Value) -> Value {
    let id = client.mcp_call("one", tool, args).unwrap();
    client.wait(id, PATIENCE).unwrap().value["result"].clone()
}

pub(crate) fn end(mut client: Client) {
    client.close_input();
    let status = client.wait_exit(PATIENCE).unwrap();
    assert!(status.success(), "{status}; stderr:\n{}", client.stderr());
}

/// Runs a command in the workspace.
pub(crate) fn run(workspace: &Workspace, args: &[&str]) -> Output {
    workspace.command_as_it_is(Path::new(METAMCP)).args(args).output().unwrap()
}

/// Its stdout as JSON, and its exit code.
pub(crate) fn json_of(workspace: &Workspace, args: &[&str]) -> (Value, Option<i32>) {
    let output = run(workspace, args);
    let told = serde_json::from_slice(&output.stdout);
    (told.unwrap_or_else(|error| panic!("{error}: {output:?}")), output.status.code())
}

/// Every line of the log.
pub(crate) fn lines(workspace: &Workspace) -> Vec<Value> {
    let output = run(workspace, &["audit", "query", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Those of one kind.
pub(crate) fn of_kind(workspace: &Workspace, kind: &str) -> Vec<Value> {
    lines(workspace).into_iter().filter(|line| line["kind"] == kind).collect()
}

/// What `audit verify` says, which must be that the log is whole.
pub(crate) fn whole(workspace: &Workspace) -> Value {
    let (report, code) = json_of(workspace, &["audit", "verify", "--json"]);
    assert_eq!((&report["whole"], code), (&json!(true), Some(0)), "{report:#}");
    report
}

/// All bytes of the log.
pub(crate) fn bytes(workspace: &Workspace) -> Vec<u8> {
    let folder = workspace.home().join(".metamcp/audit");
    let files = fs::read_dir(folder).unwrap();
    files.flat_map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

/// In hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    ring::digest::digest(&ring::digest::SHA256, bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
