//! Gateways of a fleet over HTTP: whose process it is, who may come in, and what a load balancer is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use metamcp_testkit::nats::get;
use metamcp_testkit::{EventKind, eventually};
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::nodes::Fleet;

const TOKENS: [&str; 2] = ["the-token-of-ada", "the-token-of-bob"];

/// A gateway that listens; killed on drop.
struct Listening {
    process: Child,
    address: SocketAddr,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn http(fleet: &Fleet, name: &str, auth: &[&str]) -> Command {
    let mut command = fleet.command(name, 0);
    command.args(["--transport", "http", "--host", "127.0.0.1", "--port", "0", "--json-response"]);
    command.args(auth).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn listening(fleet: &Fleet, name: &str) -> Listening {
    let tokens = fleet.workspace.file("tokens");
    std::fs::write(&tokens, TOKENS.join("\n")).unwrap();
    let mut process =
        http(fleet, name, &["--token-file", tokens.to_str().unwrap()]).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut all = String::new();
    let address = loop {
        let Some(Ok(line)) = lines.next() else { panic!("it does not listen:\n{all}") };
        if let Some((_, address)) = line.split_once("listening on ") {
            let address = address.rsplit('/').find(|part| part.contains(':')).unwrap_or(address);
            break address.trim().parse().unwrap_or_else(|_| panic!("{line}"));
        }
        all = all + &line + "\n";
    };
    // What is not read would fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Listening { process, address }
}

/// One request, and its response: the session it names, and the body.
fn post(
    to: &Listening,
    token: &str,
    session: Option<&str>,
    body: &Value,
) -> (Option<String>, Value) {
    let mut socket = TcpStream::connect(to.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = body.to_string();
    let session = session.map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
    write!(
        socket,
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n{session}\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        to.address,
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let id = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    (id, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn effect(at: &Listening, token: &str, key: &str) {
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let (session, answer) = post(at, token, None, &hello);
    let session = session.unwrap_or_else(|| panic!("{answer}"));
    post(
        at,
        token,
        Some(&session),
        &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    );
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "effect", "arguments": {"key": key}}});
    let (_, answer) = post(at, token, Some(&session), &call);
    assert_eq!(answer["result"]["content"][0]["text"], format!("done {key}"), "{answer}");
}

#[test]
fn each_principal_has_one_process_in_the_whole_fleet() {
    let fleet = Fleet::sharing("principal");
    let nodes = [listening(&fleet, "one"), listening(&fleet, "two")];
    for (node, name) in nodes.iter().zip(["one", "two"]) {
        let is_ready = || get(node.address, "/readyz").is_ok_and(|(status, _)| status == 200);
        assert!(eventually(PATIENCE, is_ready), "{name}");
    }
    for token in TOKENS {
        for (number, node) in nodes.iter().enumerate() {
            let key = format!("{token} {number}");
            effect(node, token, &key);
            assert_eq!(fleet.journal().executions(&key).unwrap(), 1);
        }
    }
    assert_eq!(fleet.journal().count(EventKind::Start).unwrap(), 2);
}

#[test]
fn a_gateway_that_lets_everybody_in_is_no_part_of_a_fleet() {
    let fleet = Fleet::sharing("fleet");
    let open = http(&fleet, "open", &["--no-auth"]).output().unwrap();
    let told = String::from_utf8_lossy(&open.stderr);
    assert!(!open.status.success() && told.contains("needs tokens"), "{told}");
}
