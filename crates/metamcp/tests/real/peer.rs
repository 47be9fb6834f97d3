//! A minimal client: lines in, lines out, nothing parsed that a test does not need.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use metamcp_testkit::eventually;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::installed::Start;
use crate::world::World;

/// Far beyond what any server here needs on a loaded machine; reached only when something is broken.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running server, used in the era with `initialize`.
pub(crate) struct Peer {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Arc<Mutex<String>>,
    next_id: u64,
}

/// The members that identify a message.
#[derive(Deserialize)]
struct Envelope<'a> {
    id: Option<u64>,
    method: Option<String>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Peer {
    /// Starts the server and performs the handshake without capabilities.
    pub(crate) fn connect(world: &World, start: &Start) -> Peer {
        let mut child = world
            .command(start)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", start.command));
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&stderr);
        let mut source = child.stderr.take().unwrap();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = source.read(&mut chunk) {
                heard.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..read]));
            }
        });
        let stdin = child.stdin.take();
        let name = format!("{} {}", start.command, start.args.join(" "));
        let mut peer = Peer { name, child, stdin, lines, stderr, next_id: 0 };
        peer.request(
            "initialize",
            &json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": { "name": "plain-peer", "version": "1.0.0" },
            }),
        );
        peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        peer
    }

    /// The result, exactly as it was on the wire.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> String {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line =
                match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(line) => line,
                    Err(RecvTimeoutError::Timeout) => {
                        self.fail(&format!("no answer to {method} in {PATIENCE:?}"))
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        self.fail(&format!("stdout closed during {method}"))
                    }
                };
            let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(&line) else { continue };
            if envelope.method.is_some() || envelope.id != Some(id) {
                continue;
            }
            match (envelope.result, envelope.error) {
                (Some(result), None) => return result.get().to_owned(),
                _ => self.fail(&format!("{method} was answered with {line}")),
            }
        }
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> String {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    pub(crate) fn tools(&mut self) -> Vec<String> {
        let listed: Value = serde_json::from_str(&self.request("tools/list", &json!({}))).unwrap();
        let tools = listed["tools"].as_array().expect("a list of tools");
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Kills the process with SIGKILL, without a chance to clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let sent = self.stdin.as_mut().expect("open until dropped").write_all(line.as_bytes());
        if let Err(error) = sent {
            self.fail(&format!("stdin does not take {line}: {error}"));
        }
    }

    fn fail(&mut self, what: &str) -> ! {
        let status = self.child.try_wait().ok().flatten();
        panic!("{}: {what}; exit: {status:?}; stderr:\n{}", self.name, self.stderr.lock().unwrap());
    }
}

impl Drop for Peer {
    /// Stops the server as a client does, by closing its stdin, and kills it if it does not exit.
    fn drop(&mut self) {
        self.stdin = None;
        if eventually(Duration::from_secs(5), || matches!(self.child.try_wait(), Ok(Some(_)))) {
            return;
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
