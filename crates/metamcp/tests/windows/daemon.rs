//! The daemon: one process behind named pipes, for clients and commands.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::world::{Client, PATIENCE, User, program};

/// A user whose clients insist on the daemon, which ends with the test.
struct Daemon {
    user: User,
}

impl Daemon {
    fn new() -> Daemon {
        let example = json!({ "command": program(), "args": ["__example", "text"] });
        Daemon { user: User::with_servers(&json!({ "text": example })) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.user.command(arguments);
        command.env("METAMCP_DAEMON", "require");
        command
    }

    /// What a command prints, and its exit code.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        // It ends although the daemon that it may have started does not: that one has no handle of these pipes.
        let ran = self.command(arguments).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        (ran.status.code(), text + &String::from_utf8_lossy(&ran.stderr))
    }

    fn told(&self, arguments: &[&str]) -> String {
        let (code, told) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {told}");
        told
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.told(&["status", "--json"])).unwrap()
    }

    fn pid(&self) -> u64 {
        self.status()["pid"].as_u64().expect("it runs")
    }

    fn client(&self) -> Client {
        let mut client = Client::start(&mut self.command(&[]));
        client.initialize();
        client
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.run(&["daemon", "stop"]);
    }
}

fn count(client: &mut Client) -> String {
    client.call("text", "count_words", &json!({ "text": "a b c" }))
}

#[test]
fn a_client_and_commands_share_one_daemon() {
    let daemon = Daemon::new();
    assert_eq!(daemon.run(&["daemon", "status"]).0, Some(4));
    let mut client = daemon.client();
    assert!(count(&mut client).contains('3'));
    let status = daemon.status();
    assert_eq!(status["sessions"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(status["servers"].as_array().map(Vec::len), Some(1), "{status}");
    assert!(daemon.told(&["call", "text:count_words", "text=a b"]).contains('2'));
    assert!(daemon.told(&["list"]).contains("text"));
    assert_eq!(daemon.status()["pid"], status["pid"]);
    client.close();
    assert_eq!(client.exit_code(), Some(0));
}

#[test]
fn what_a_client_wrote_before_its_input_ended_is_answered() {
    let daemon = Daemon::new();
    let mut client = daemon.client();
    let calls: Vec<u64> = (0..8)
        .map(|_| client.begin_call("text", "count_words", &json!({ "text": "a b c" })))
        .collect();
    client.close();
    for call in calls {
        assert!(client.answer(call).to_string().contains('3'));
    }
    assert_eq!(client.exit_code(), Some(0));
}

#[test]
fn a_long_line_passes_both_ways() {
    let daemon = Daemon::new();
    let mut client = daemon.client();
    let long = "wort ".repeat(100_000);
    let counted = client.call("text", "count_words", &json!({ "text": long }));
    assert!(counted.contains("100000"), "{counted}");
}

#[test]
fn many_clients_at_once_make_one_daemon() {
    const CLIENTS: usize = 50;
    let daemon = Daemon::new();
    let mut clients: Vec<Client> =
        (0..CLIENTS).map(|_| Client::start(&mut daemon.command(&[]))).collect();
    for client in &mut clients {
        client.initialize();
    }
    let status = daemon.status();
    assert_eq!(status["sessions"].as_array().map(Vec::len), Some(CLIENTS), "{status}");
    for client in &mut clients {
        assert!(count(client).contains('3'));
        client.close();
        assert_eq!(client.exit_code(), Some(0));
    }
}

#[test]
fn a_daemon_that_is_killed_is_replaced_and_the_client_goes_on() {
    let daemon = Daemon::new();
    let mut client = daemon.client();
    count(&mut client);
    let killed = daemon.pid();
    let mut kill = daemon.user.start("taskkill".as_ref());
    assert!(kill.args(["/F", "/PID", &killed.to_string()]).status().unwrap().success());
    // A call may have been on its way; the client hears that, once.
    let first = count(&mut client);
    assert!(first.contains('3') || first.contains("outcome_unknown"), "{first}");
    assert!(count(&mut client).contains('3'));
    assert_ne!(daemon.pid(), killed);
}

#[test]
fn a_restart_loses_no_call() {
    let daemon = Daemon::new();
    let mut client = daemon.client();
    count(&mut client);
    let before = daemon.pid();
    daemon.told(&["daemon", "restart"]);
    assert!(count(&mut client).contains('3'));
    assert_ne!(daemon.pid(), before);
    daemon.told(&["daemon", "stop"]);
    assert_eq!(daemon.run(&["daemon", "status"]).0, Some(4));
    assert!(count(&mut client).contains('3'), "the client starts another");
}

#[test]
fn a_daemon_that_nobody_needs_ends() {
    let daemon = Daemon::new();
    let mut command = daemon.command(&["call", "text:count_words", "text=a"]);
    // Longer than the command takes from starting it to using it.
    let ran = command.env("METAMCP_DAEMON_IDLE_EXIT", "5s").output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let began = Instant::now();
    while daemon.run(&["daemon", "status"]).0 != Some(4) {
        assert!(began.elapsed() < PATIENCE, "it goes on");
    }
}

#[test]
fn a_listener_keeps_its_address_when_the_daemon_is_replaced() {
    let daemon = Daemon::new();
    let arguments = ["--transport", "http", "--port", "0", "--no-auth"];
    let mut listening = daemon.command(&arguments);
    let listening = listening.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut connector = listening.spawn().unwrap();
    let mut said = std::io::BufReader::new(connector.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("no address in {line}")).to_owned();
    assert!(answered(&address), "at {address}");
    daemon.told(&["daemon", "restart"]);
    let began = Instant::now();
    while !answered(&address) {
        assert!(began.elapsed() < PATIENCE, "nobody listens at {address}");
    }
    connector.kill().unwrap();
    connector.wait().unwrap();
}

fn answered(address: &str) -> bool {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
    }})
    .to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json, \
         text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    let asked =
        stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    asked.is_ok() && answer.contains("\"serverInfo\"")
}
