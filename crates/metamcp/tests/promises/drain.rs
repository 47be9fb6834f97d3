//! Shutdown under load: calls in flight may finish, nothing new begins, and nothing waits for what cannot come.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use metamcp_testkit::call_outcome::ErrorObject;
use metamcp_testkit::client::{Answerer, Kind, Reply};
use metamcp_testkit::{CallOutcome, Client, EventKind, Workspace, chaos_server, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::world::{PATIENCE, call, command};

/// A drain timeout longer than any test: what ends before it ends for another reason.
const LONG: &str = "600000";

#[test]
fn a_signal_lets_calls_finish_and_refuses_new_ones() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let workspace = one_server();
        let mut client = start(&workspace, LONG, &[]);
        let slow = begin(&client, &workspace, "slow", &json!({"ms": 700}));
        client.signal(signal).unwrap();
        // Rejections are the only external sign that it drains.
        assert_eq!(refused_while_draining(&client).whole["details"]["sent"], false);
        assert_eq!(
            CallOutcome::of(&client.wait(slow, PATIENCE).unwrap().value),
            CallOutcome::Success
        );
        ended_well(&mut client, &workspace);
        assert_eq!(executions(&workspace), 1, "what was refused never reached the server");
    }
}

#[test]
fn calls_longer_than_the_drain_get_an_error() {
    let workspace = one_server();
    let mut client = start(&workspace, "50", &[]);
    let slow = begin(&client, &workspace, "slow", &json!({"ms": 600_000}));
    client.signal(Signal::SIGTERM).unwrap();
    let error = refusal(&client, slow);
    assert_eq!(
        (error.code.as_str(), &error.whole["details"]["sent"]),
        ("shutting_down", &json!(true))
    );
    ended_well(&mut client, &workspace);
}

#[test]
fn a_second_signal_does_not_wait_for_the_first() {
    let workspace = one_server();
    let mut client = start(&workspace, LONG, &[]);
    let slow = begin(&client, &workspace, "slow", &json!({"ms": 600_000}));
    client.signal(Signal::SIGTERM).unwrap();
    refused_while_draining(&client);
    client.signal(Signal::SIGINT).unwrap();
    assert_eq!(refusal(&client, slow).code, "shutting_down");
    ended_well(&mut client, &workspace);
}

#[test]
fn with_nothing_in_flight_nothing_waits() {
    for by_signal in [true, false] {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&["ignore-end-of-input", "ignore-signals"]));
        let mut client = start(&workspace, LONG, &[]);
        assert_eq!(call(&client, "a", "echo", &json!({"text": "up"})), CallOutcome::Success);
        match by_signal {
            true => client.signal(Signal::SIGTERM).unwrap(),
            false => client.close_input(),
        }
        ended_well(&mut client, &workspace);
    }
}

#[test]
fn scripts_chains_and_calls_that_wait_for_a_start_are_in_flight_too() {
    for by_signal in [true, false] {
        let mut workspace = one_server();
        workspace.server("late", chaos_server(&["answer-initialize-late=500"]));
        let mut client = start(&workspace, LONG, &[]);
        let script = "await servers.a.call('slow', {ms: 400}); \
                      return await servers.a.call('echo', {text: 'after the word'})";
        let script = client.call_tool("mcp_execute", &json!({"code": script})).unwrap();
        let steps = json!([{"tool_id": "a:slow", "args": {"ms": 400}},
            {"tool_id": "a:echo", "args": {"text": "second step"}}]);
        let chain = client.call_tool("run_chain", &json!({"steps": steps})).unwrap();
        assert!(eventually(PATIENCE, || executions(&workspace) == 2));
        let late = client.mcp_call("late", "echo", &json!({"text": "started late"})).unwrap();
        let starting = workspace.journal("late");
        assert!(eventually(PATIENCE, || starting.count(EventKind::Start).unwrap() == 1));
        match by_signal {
            true => client.signal(Signal::SIGTERM).unwrap(),
            false => client.close_input(),
        }
        for (id, text) in
            [(script, "after the word"), (chain, "second step"), (late, "started late")]
        {
            let answer = client.wait(id, PATIENCE).unwrap();
            assert_eq!(
                CallOutcome::of(&answer.value),
                CallOutcome::Success,
                "{text}: {}",
                answer.value
            );
            assert!(answer.value.to_string().contains(text), "{}", answer.value);
        }
        ended_well(&mut client, &workspace);
    }
}

/// `printf '…' | metamcp`: a client that closes its end of stdin still reads the response.
#[test]
fn what_was_piped_in_is_answered() {
    let workspace = one_server();
    let asked = workspace.file("asked");
    let slow = json!({"name": "mcp_call",
        "arguments": {"server": "a", "tool": "slow", "args": {"ms": 300}}});
    let mut file = File::create(&asked).unwrap();
    writeln!(file, "{}", hello()).unwrap();
    // The last line has no newline, as people write it.
    write!(file, "{}", request(2, "tools/call", &slow)).unwrap();
    let mut command = draining(&workspace, LONG);
    let output = command.stdin(File::open(&asked).unwrap()).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&last["id"], CallOutcome::of(&last)), (&json!(2), CallOutcome::Success), "{said}");
    assert_eq!(workspace.survivors(PATIENCE), []);
}

/// A host that died: both pipes are closed, and its servers must not stay alive for a response that nobody reads.
#[test]
fn a_client_that_can_read_nothing_is_not_waited_for() {
    let workspace = one_server();
    let (mut gateway, mut output) = bare(&workspace);
    let mut input = gateway.stdin.take().unwrap();
    let slow = json!({"name": "mcp_call",
        "arguments": {"server": "a", "tool": "slow", "args": {"ms": 600_000}}});
    writeln!(input, "{}\n{}", hello(), request(2, "tools/call", &slow)).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(eventually(PATIENCE, || executions(&workspace) == 1));
    drop(input);
    drop(output);
    let mut status = None;
    assert!(eventually(PATIENCE, || {
        status = gateway.try_wait().unwrap();
        status.is_some()
    }));
    assert_eq!(status.unwrap().code(), Some(0));
    assert_eq!(workspace.survivors(Duration::ZERO), []);
}

/// A response larger than a pipe buffer, for a slow reader.
#[test]
fn a_long_answer_leaves_before_the_end() {
    let mut workspace = one_server();
    workspace.setting("limits", json!({"maxResultChars": 0}));
    let (mut gateway, mut output) = bare(&workspace);
    let mut input = gateway.stdin.take().unwrap();
    let big = json!({"name": "mcp_call",
        "arguments": {"server": "a", "tool": "big", "args": {"bytes": 8_000_000}}});
    writeln!(input, "{}\n{}", hello(), request(2, "tools/call", &big)).unwrap();
    assert!(eventually(PATIENCE, || executions(&workspace) == 1));
    drop(input);
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(gateway.wait().unwrap().success());
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&last["id"], CallOutcome::of(&last)), (&json!(2), CallOutcome::Success));
    assert!(said.len() > 8_000_000);
}

#[test]
fn an_unanswerable_server_request_does_not_delay_shutdown() {
    let workspace = one_server();
    let silent: Answerer = Box::new(|_, _| Reply::Silence);
    let mut client = Client::start_answering(draining(&workspace, LONG), silent).unwrap();
    client.initialize(&json!({"elicitation": {}}), PATIENCE).unwrap();
    let asking = client.mcp_call("a", "elicit", &json!({})).unwrap();
    let question = Kind::Question("elicitation/create".to_owned());
    assert!(eventually(PATIENCE, || client.lines().iter().any(|line| line.kind == question)));
    client.close_input();
    client.wait(asking, PATIENCE).expect("the call has its answer, whatever the server made of it");
    ended_well(&mut client, &workspace);
}

fn one_server() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace
}

fn draining(workspace: &Workspace, drain: &str) -> Command {
    let mut command = command(workspace);
    command.args(["--shutdown-drain", drain]);
    command
}

fn start(workspace: &Workspace, drain: &str, flags: &[&str]) -> Client {
    let mut command = draining(workspace, drain);
    command.args(flags);
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    client
}

/// A gateway whose pipes the test controls.
fn bare(workspace: &Workspace) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = draining(workspace, LONG);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut gateway = command.spawn().unwrap();
    let output = BufReader::new(gateway.stdout.take().unwrap());
    (gateway, output)
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn hello() -> Value {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    request(1, "initialize", &params)
}

/// Makes a call and waits until its server executes it.
fn begin(client: &Client, workspace: &Workspace, tool: &str, args: &Value) -> u64 {
    let id = client.mcp_call("a", tool, args).unwrap();
    assert!(eventually(PATIENCE, || executions(workspace) == 1));
    id
}

fn executions(workspace: &Workspace) -> usize {
    workspace.journal("a").count(EventKind::Execute).unwrap()
}

fn refusal(client: &Client, id: u64) -> ErrorObject {
    match CallOutcome::of(&client.wait(id, PATIENCE).unwrap().value) {
        CallOutcome::GatewayError(error) => error,
        other => panic!("call {id} ended with {other}"),
    }
}

/// Sends requests without side effects until one is rejected.
fn refused_while_draining(client: &Client) -> ErrorObject {
    let mut refused = None;
    let drains = eventually(PATIENCE, || {
        let id = client.call_tool("mcp_discover", &json!({})).unwrap();
        match CallOutcome::of(&client.wait(id, PATIENCE).unwrap().value) {
            CallOutcome::GatewayError(error) => refused = Some(error),
            CallOutcome::Success => {}
            other => panic!("{other}"),
        }
        refused.is_some()
    });
    assert!(drains, "it goes on taking calls");
    let error = refused.unwrap();
    assert_eq!(error.code, "shutting_down");
    // The same for a call of a server, which must not receive it.
    let late = client.mcp_call("a", "echo", &json!({"text": "late"})).unwrap();
    assert_eq!(refusal(client, late).code, "shutting_down");
    error
}

fn ended_well(client: &mut Client, workspace: &Workspace) {
    let status = client.wait_exit(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0), "stderr:\n{}", client.stderr());
    assert_eq!(workspace.survivors(Duration::ZERO), []);
    assert_eq!(client.violations(), Vec::<String>::new());
}
