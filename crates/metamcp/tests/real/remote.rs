//! Real servers over HTTP: the everything server with both of its transports, and both Python SDKs with both of
//! theirs, each detected from its address alone.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use metamcp_testkit::eventually;
use serde_json::{Value, json};

use crate::installed::{Start, sources, text};
use crate::peer::Peer;
use crate::world::World;

/// How long a server may take to listen on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A listening server; stopped on drop.
pub(crate) struct Listening {
    process: Child,
}

impl Listening {
    pub(crate) fn start(world: &World, start: &Start, port: u16) -> Listening {
        let mut process = world
            .command(start)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let listens = eventually(PATIENCE, || {
            assert!(process.try_wait().unwrap().is_none(), "the server ended");
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        assert!(listens, "the server does not listen");
        Listening { process }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn free_port() -> u16 {
    free_ports(1)
}

/// The first of this many consecutive free ports.
pub(crate) fn free_ports(count: u16) -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let free = |next: u16| {
            port.checked_add(next)
                .is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        };
        if (1..count).all(free) {
            return port;
        }
    }
}

fn everything(world: &World, way: &str, port: u16) -> Start {
    let mut start = world.installed.start("everything");
    start.args.push(way.to_owned());
    start.env.push(("PORT".to_owned(), port.to_string()));
    start
}

fn python(world: &World, environment: &str, way: &str, port: u16) -> Start {
    let script = text(&sources().join("server.py"));
    let args = vec![script, way.to_owned(), port.to_string()];
    Start { command: world.installed.python(environment), args, env: Vec::new() }
}

/// The gateway in front of one server at this address.
pub(crate) fn gateway(world: &World, url: &str) -> Peer {
    let config = world.path().join("remote.json");
    fs::write(&config, json!({ "mcpServers": { "far": { "url": url } } }).to_string()).unwrap();
    let args = vec!["--config".to_owned(), text(&config)];
    let command = env!("CARGO_BIN_EXE_metamcp").to_owned();
    Peer::connect(world, &Start { command, args, env: Vec::new() })
}

pub(crate) fn call(peer: &mut Peer, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": "mcp_call", "arguments": {"server": "far", "tool": tool, "args": arguments}});
    serde_json::from_str(&peer.request("tools/call", &params)).unwrap()
}

fn echoes(peer: &mut Peer, words: &str) {
    let result = call(peer, "echo", &json!({ "message": words }));
    let said = result["content"][0]["text"].as_str().unwrap_or_default();
    assert!(said.contains(words), "{result}");
}

#[test]
fn everything_over_streamable_http_and_again_after_a_restart() {
    let world = World::new();
    let port = free_port();
    let start = everything(&world, "streamableHttp", port);
    let listening = Listening::start(&world, &start, port);
    let mut peer = gateway(&world, &format!("http://127.0.0.1:{port}/mcp"));
    for _ in 0..3 {
        echoes(&mut peer, "over http");
    }
    drop(listening);
    let _again = Listening::start(&world, &start, port);
    echoes(&mut peer, "as if nothing had happened");
}

#[test]
fn everything_over_the_transport_of_2024() {
    let world = World::new();
    let port = free_port();
    let _listening = Listening::start(&world, &everything(&world, "sse", port), port);
    let mut peer = gateway(&world, &format!("http://127.0.0.1:{port}/sse"));
    for _ in 0..3 {
        echoes(&mut peer, "over sse");
    }
}

#[test]
fn both_python_sdks_in_both_ways() {
    let world = World::new();
    for environment in ["python-v1", "python"] {
        for (way, path) in [("streamable-http", "/mcp"), ("sse", "/sse")] {
            let port = free_port();
            let start = python(&world, environment, way, port);
            let _listening = Listening::start(&world, &start, port);
            let mut peer = gateway(&world, &format!("http://127.0.0.1:{port}{path}"));
            echoes(&mut peer, &format!("{environment} {way}"));
            let result = call(&mut peer, "steps", &json!({ "count": 3 }));
            assert_eq!(result["content"][0]["text"], "3 steps", "{environment} {way}: {result}");
        }
    }
    // The newer one was used without a handshake, the older one with, and both also with the 2024 transport.
    let cache = world.home().join(".metamcp/cache/eras.json");
    let remembered = || fs::read_to_string(&cache).unwrap_or_default();
    let words = ["\"stateless\"", "\"initialize\"", "\"sse\""];
    let all = || words.iter().all(|word| remembered().contains(word));
    assert!(eventually(PATIENCE, all), "{}", remembered());
}
