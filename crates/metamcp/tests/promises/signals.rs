//! Shutdown: by a signal, by many, by a host that closes its end. Every call is answered, no process is left.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use metamcp_testkit::{CallOutcome, Client, EventKind, Workspace, chaos_server, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::world::{CONTAINMENTS, PATIENCE, SeededRng, call, command, size, tell};

/// How long a graceful host waits before it kills.
const HOST_PATIENCE: Duration = Duration::from_secs(2);

#[test]
fn a_signal_with_twenty_deaf_children_answers_every_call_and_ends_them_all() {
    for containment in CONTAINMENTS {
        let (workspace, servers) = deaf(20);
        let (mut client, calls) = start_with_calls_under_way(&workspace, &servers, containment);
        let began = Instant::now();
        client.signal(Signal::SIGTERM).unwrap();
        for id in &calls {
            assert_shutdown_error(&client, *id);
        }
        let answered = began.elapsed();
        let status = client.wait_exit(PATIENCE).unwrap();
        let took = began.elapsed();
        assert_eq!(workspace.survivors(Duration::ZERO), [], "all are gone before the gateway is");
        assert_eq!(status.code(), Some(0), "stderr:\n{}", client.stderr());
        assert_eq!(client.violations(), Vec::<String>::new());
        tell(format_args!(
            "SIGTERM with {} deaf children held by {containment}: {} calls answered after {} ms, gone after {} ms (promised 1,600)",
            servers.len(),
            calls.len(),
            answered.as_millis(),
            took.as_millis()
        ));
    }
}

#[test]
fn a_host_that_closes_its_end_is_followed_at_once() {
    for servers in [0, 6] {
        let (workspace, servers) = deaf(servers);
        let (mut client, _) = start_with_calls_under_way(&workspace, &servers, "auto");
        let began = Instant::now();
        client.close_input();
        let status = client.wait_exit(PATIENCE).unwrap();
        let took = began.elapsed();
        assert_eq!(workspace.survivors(Duration::ZERO), []);
        assert_eq!(status.code(), Some(0), "stderr:\n{}", client.stderr());
        assert_eq!(client.violations(), Vec::<String>::new());
        tell(format_args!(
            "stdin closed with {} deaf children: gone after {} ms (promised 1,900, hosts wait {HOST_PATIENCE:?})",
            servers.len(),
            took.as_millis()
        ));
    }
}

#[test]
fn a_host_that_stops_reading_is_gone_and_nothing_is_left() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&["ignore-end-of-input", "ignore-signals"]));
    let mut command = command(&workspace);
    let mut gateway =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = gateway.stdin.take().unwrap();
    let mut output = BufReader::new(gateway.stdout.take().unwrap());
    let mut line = String::new();
    writeln!(
        input,
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    )
    .unwrap();
    output.read_line(&mut line).unwrap();
    let echo = |id: u32| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "mcp_call",
            "arguments": {"server": "one", "tool": "echo", "args": {"text": "hello"}}}})
    };
    writeln!(input, "{}", echo(2)).unwrap();
    line.clear();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("hello"), "{line}");
    drop(output);
    // The next response has nowhere to go. Stdin stays open: only the broken pipe shows it.
    writeln!(input, "{}", echo(3)).unwrap();
    let mut status = None;
    assert!(eventually(PATIENCE, || {
        status = gateway.try_wait().unwrap();
        status.is_some()
    }));
    assert_eq!(status.unwrap().code(), Some(0), "a client that went away is no failure");
    assert_eq!(workspace.survivors(Duration::ZERO), []);
    assert_eq!(workspace.journal("one").executions("hello").unwrap(), 2);
}

#[test]
fn storms_of_signals_end_it_once() {
    let mut rng = SeededRng::of("signal storms");
    for round in 0..size(12, 200, 400) {
        let mut workspace = Workspace::new().unwrap();
        let servers: Vec<String> =
            ["deaf", "setsid", "honest", "slow-to-start"].map(String::from).to_vec();
        workspace
            .server("deaf", chaos_server(&["ignore-end-of-input", "ignore-signals"]))
            .server("setsid", chaos_server(&["session-grandchild"]))
            .server("honest", chaos_server(&[]))
            .server("slow-to-start", chaos_server(&["answer-initialize-late=400"]));
        let mut client = start_at_once(&workspace, CONTAINMENTS[round % 2]);
        // The signal comes while all servers start, while some do, or when two are busy.
        let phase = round % 3;
        if phase > 0 {
            // Two are running; the others are first needed by the calls below.
            for server in &servers[..2] {
                assert_eq!(
                    call(&client, server, "echo", &json!({"text": "up"})),
                    CallOutcome::Success
                );
            }
        }
        let done = || servers.iter().map(|name| events(&workspace, name)).sum::<usize>();
        let before = done();
        let calls: Vec<u64> = servers
            .iter()
            .map(|server| client.mcp_call(server, "slow", &json!({"ms": 60_000})).unwrap())
            .collect();
        if phase == 2 {
            let begun = || servers[..2].iter().all(|name| executions(&workspace, name) == 2);
            assert!(eventually(PATIENCE, begun), "round {round}");
        } else {
            // A starting server's journal is sure to get its start, its handshake and its call; a running one's its
            // call; the slow one's its start.
            let due = before + rng.below(if phase == 0 { 11 } else { 7 });
            assert!(eventually(PATIENCE, || done() >= due), "round {round}");
        }
        let storm = 1 + rng.below(50);
        let early = 1 + rng.below(storm);
        let began = Instant::now();
        let pid = Pid::from_raw(i32::try_from(client.pid()).unwrap());
        for n in 0..storm {
            if n == early {
                // The other signals arrive while unresponsive servers are being killed.
                assert_shutdown_error(&client, calls[0]);
            }
            let signal = *rng.pick(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
            // A gateway that has exited is a zombie until it is waited for, so its pid is still its own.
            kill(pid, signal).unwrap();
        }
        let status = client.wait_exit(PATIENCE).unwrap();
        let took = began.elapsed();
        let story =
            format!("round {round}: {storm} signals in phase {phase}, {status} after {took:?}");
        assert_eq!(workspace.survivors(Duration::ZERO), [], "{story}");
        assert_eq!(status.code(), Some(0), "{story}; stderr:\n{}", client.stderr());
        for id in &calls {
            assert_shutdown_error(&client, *id);
        }
        assert_eq!(client.violations(), Vec::<String>::new(), "{story}");
    }
}

/// Servers that ignore end of input and every catchable signal.
fn deaf(count: usize) -> (Workspace, Vec<String>) {
    let mut workspace = Workspace::new().unwrap();
    let servers: Vec<String> = (0..count).map(|n| format!("deaf-{n}")).collect();
    for server in &servers {
        workspace.server(server, chaos_server(&["ignore-end-of-input", "ignore-signals"]));
    }
    (workspace, servers)
}

/// A gateway that does not wait for calls in flight: this tests the shutdown escalation.
fn start_at_once(workspace: &Workspace, containment: &str) -> Client {
    let mut command = command(workspace);
    command.env("METAMCP_CONTAINMENT", containment).env("METAMCP_SHUTDOWN_DRAIN", "0");
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    client
}

/// A gateway with two calls running in each server.
fn start_with_calls_under_way(
    workspace: &Workspace,
    servers: &[String],
    containment: &str,
) -> (Client, Vec<u64>) {
    let client = start_at_once(workspace, containment);
    let mut calls = Vec::new();
    for server in servers.iter().chain(servers) {
        calls.push(client.mcp_call(server, "slow", &json!({"ms": 60_000})).unwrap());
    }
    for server in servers {
        assert!(eventually(PATIENCE, || executions(workspace, server) == 2), "{server}");
    }
    (client, calls)
}

/// The number of journal records of a server.
fn events(workspace: &Workspace, server: &str) -> usize {
    workspace.journal(server).records().unwrap().len()
}

fn executions(workspace: &Workspace, server: &str) -> usize {
    workspace.journal(server).count(EventKind::Execute).unwrap()
}

fn assert_shutdown_error(client: &Client, id: u64) {
    let answer = client.wait(id, PATIENCE).expect("every call is answered before the gateway goes");
    match CallOutcome::of(&answer.value) {
        CallOutcome::GatewayError(error) => {
            assert_eq!(error.code, "shutting_down", "{}", error.message);
        }
        // A race in the signal storms: the signal arrived before the call was read, which is then rejected as a
        // request.
        CallOutcome::Protocol { code: -32000, message } => {
            assert!(message.contains("shutting down"), "{message}");
        }
        other => panic!("call {id} ended with {other}"),
    }
}
