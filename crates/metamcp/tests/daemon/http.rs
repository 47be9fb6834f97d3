//! A client of the daemon's HTTP listeners: one request a connection, none of it kept.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::time::Duration;

use metamcp_testkit::{Workspace, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::crowd::{HUNG, command, home};

/// `metamcp --transport http`, killed on drop.
pub(crate) struct Listening {
    process: Child,
    pub(crate) address: SocketAddr,
    token: Option<String>,
    // Its other end: what it says must not fail.
    _stderr: BufReader<ChildStderr>,
}

impl Listening {
    /// Starts one and waits until it says where it listens.
    pub(crate) fn start(workspace: &Workspace, port: u16) -> Listening {
        let port = port.to_string();
        Listening::start_as(workspace, &["--transport", "http", "--port", &port])
    }

    /// The same with these flags, for a configuration that says what they leave out.
    pub(crate) fn start_as(workspace: &Workspace, flags: &[&str]) -> Listening {
        let mut command = command(workspace);
        command.args(flags).args(["--code-profile", "off"]);
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let mut heard = String::new();
        let address = loop {
            let from = heard.len();
            assert!(stderr.read_line(&mut heard).unwrap() > 0, "it does not listen:\n{heard}");
            if let Some((_, url)) = heard[from..].split_once("listening on ") {
                break url.split('/').nth(2).unwrap().parse().unwrap();
            }
        };
        let token = fs::read_to_string(home(workspace).join("http-token")).ok();
        let token = token.map(|token| token.trim().to_owned());
        Listening { process, address, token, _stderr: stderr }
    }

    /// Calls a tool of a server in one request of its own.
    pub(crate) fn call(&self, server: &str, tool: &str, args: &Value) -> Result<Value, String> {
        let params = json!({
            "name": "mcp_call",
            "arguments": {"server": server, "tool": tool, "args": args},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (status, body) = self.post(&body.to_string()).map_err(|error| error.to_string())?;
        let value: Value =
            serde_json::from_str(&body).map_err(|error| format!("{status}: {error}: {body}"))?;
        match status {
            200 => Ok(value),
            _ => Err(format!("{status}: {value}")),
        }
    }

    /// A session of 2025 over HTTP, whose client says these roots when it is asked.
    pub(crate) fn session(&self, roots: &[&str]) -> HttpSession<'_> {
        let roots = roots.iter().map(|uri| json!({"uri": uri})).collect();
        let mut session = HttpSession { listening: self, id: None, roots, asked: 0 };
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {"listChanged": true}},
            "clientInfo": {"name": "http", "version": "1"},
        });
        session.ask("initialize", &hello).unwrap();
        session.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn post(&self, body: &str) -> std::io::Result<(u16, String)> {
        let mut socket = TcpStream::connect_timeout(&self.address, HUNG)?;
        socket.set_read_timeout(Some(HUNG))?;
        let token = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
             Mcp-Method: tools/call\r\nMcp-Name: mcp_call\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            token.unwrap_or_default(),
            body.len()
        );
        socket.write_all(head.as_bytes())?;
        socket.write_all(body.as_bytes())?;
        let mut response = String::new();
        socket.read_to_string(&mut response)?;
        let lost = || std::io::Error::other(format!("no response: {response:?}"));
        let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (_, body) = response.split_once("\r\n\r\n").ok_or_else(lost)?;
        Ok((status.ok_or_else(lost)?, body.to_owned()))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        let mut status = None;
        let gone = eventually(HUNG, || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        assert!(gone, "it does not end");
        status.unwrap()
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Whether anybody accepts connections there.
    pub(crate) fn is_open(&self) -> bool {
        TcpStream::connect_timeout(&self.address, Duration::from_secs(5)).is_ok()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// See [`Listening::session`].
pub(crate) struct HttpSession<'a> {
    listening: &'a Listening,
    id: Option<String>,
    roots: Vec<Value>,
    /// How often it was asked for its roots.
    pub(crate) asked: usize,
}

impl HttpSession<'_> {
    /// Calls a tool by `mcp_call`; answers what it is asked meanwhile.
    pub(crate) fn call(&mut self, server: &str, tool: &str, args: &Value) -> Value {
        let arguments = json!({"server": server, "tool": tool, "args": args});
        let params = json!({"name": "mcp_call", "arguments": arguments});
        self.ask("tools/call", &params).unwrap()
    }

    /// Has other roots from now on.
    pub(crate) fn moves_to(&mut self, roots: &[&str]) {
        self.roots = roots.iter().map(|uri| json!({"uri": uri})).collect();
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    }

    fn ask(&mut self, method: &str, params: &Value) -> Option<Value> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut reader = BufReader::new(self.send(&request).unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 0 {
            let text = std::mem::take(&mut line);
            if let Some(id) = text.to_ascii_lowercase().strip_prefix("mcp-session-id: ") {
                self.id = Some(id.trim().to_owned());
            }
            let json = text.strip_prefix("data:").unwrap_or(&text).trim();
            let Ok(message) = serde_json::from_str::<Value>(json) else { continue };
            if message["method"] == "roots/list" {
                self.asked += 1;
                let result = json!({"roots": self.roots});
                self.say(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
            } else if message["id"] == 1 {
                return Some(message);
            }
        }
        None
    }

    fn say(&self, message: &Value) {
        let mut response = String::new();
        self.send(message).unwrap().read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 202"), "{response}");
    }

    fn send(&self, message: &Value) -> std::io::Result<TcpStream> {
        let Listening { address, token, .. } = self.listening;
        let mut socket = TcpStream::connect_timeout(address, HUNG)?;
        socket.set_read_timeout(Some(HUNG))?;
        let header = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("{name}{value}\r\n")).unwrap_or_default()
        };
        let body = message.to_string();
        write!(
            socket,
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\n{}{}Content-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            header("Authorization: Bearer ", token),
            header("Mcp-Session-Id: ", &self.id),
            body.len()
        )?;
        Ok(socket)
    }
}
