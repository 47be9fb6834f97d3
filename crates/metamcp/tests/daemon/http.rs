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
        let mut command = command(workspace);
        command.args(["--transport", "http", "--port", &port.to_string(), "--code-profile", "off"]);
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
