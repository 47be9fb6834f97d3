//! Several clients of one daemon, in a workspace of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use metamcp_testkit::client::Answerer;
use metamcp_testkit::{Client, EventKind, Server, Workspace, chaos_server};
use serde_json::{Value, json};

/// A longer wait means a hang, however busy the machine is.
pub(crate) const HUNG: Duration = Duration::from_mins(2);

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_metamcp");

/// A workspace whose clients share a daemon.
pub(crate) fn workspace() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    workspace
}

/// A server that keeps what it was told, shared as said.
pub(crate) fn stateful(share: &str) -> Server {
    chaos_server(&[]).argument("--stateful").argument("yes").setting("share", json!(share))
}

/// The metamcp home of a workspace.
pub(crate) fn home(workspace: &Workspace) -> PathBuf {
    workspace.home().join(".metamcp")
}

/// A client's command line, with the config as it was written last.
pub(crate) fn command(workspace: &Workspace) -> Command {
    let mut command = workspace.command_as_it_is(Path::new(PROGRAM));
    command.env("METAMCP_HOME", home(workspace));
    command
}

/// A client after its handshake.
pub(crate) fn join(command: Command) -> Client {
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    client
}

/// A client with these capabilities, which answers what it is asked.
pub(crate) fn join_answering(command: Command, able: &Value, answerer: Answerer) -> Client {
    let client = Client::start_answering(command, answerer).unwrap();
    client.initialize(able, HUNG).unwrap();
    client
}

/// What a tool returned as structure.
pub(crate) fn told(client: &Client, server: &str, tool: &str, args: &Value) -> Value {
    let answer = client.mcp_call_now(server, tool, args, HUNG).unwrap();
    structure(&answer.value)
}

/// The structure in the response to a call.
pub(crate) fn structure(answer: &Value) -> Value {
    let found = &answer["result"]["structuredContent"];
    assert!(found.is_object() && answer["result"]["isError"] != true, "{answer:#}");
    found.clone()
}

/// The process that serves this client.
pub(crate) fn process(client: &Client, server: &str) -> u64 {
    told(client, server, "recall", &json!({}))["process"].as_u64().unwrap()
}

/// How many processes a server ever had.
pub(crate) fn starts(workspace: &Workspace, server: &str) -> usize {
    workspace.journal(server).count(EventKind::Start).unwrap()
}

/// A folder in the workspace, as processes started in it see it.
pub(crate) fn folder(workspace: &Workspace, name: &str) -> PathBuf {
    let folder = workspace.file(name);
    fs::create_dir_all(&folder).unwrap();
    folder.canonicalize().unwrap()
}

/// Runs a command of the shell in this workspace.
pub(crate) fn shell(workspace: &Workspace, line: &[&str]) -> Output {
    command(workspace).args(line).output().unwrap()
}

/// What the daemon says of itself.
pub(crate) fn status(workspace: &Workspace) -> Value {
    let output = shell(workspace, &["daemon", "status", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The process of the daemon.
pub(crate) fn daemon(workspace: &Workspace) -> u64 {
    let status = status(workspace);
    status["pid"].as_u64().unwrap_or_else(|| panic!("no daemon: {status:#}"))
}

/// A variable of a process of a stateful server, as it wrote it down when it started.
pub(crate) fn variable(
    workspace: &Workspace,
    server: &str,
    process: u64,
    name: &str,
) -> Option<String> {
    let all = workspace.journal(server).of(EventKind::Surroundings).unwrap();
    let found = all.into_iter().find(|record| record.detail["process"] == process);
    let found = found.unwrap_or_else(|| panic!("{server} has no process {process}"));
    found.detail["environment"][name].as_str().map(str::to_owned)
}
