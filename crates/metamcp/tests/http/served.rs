//! A gateway over HTTP in its own workspace.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use metamcp_testkit::{Workspace, chaos_server, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::wire::{self, PATIENCE, Request, Response};

/// See the module documentation; killed on drop.
pub(crate) struct Served {
    process: Child,
    pub(crate) address: SocketAddr,
    /// The URL it reports on stderr.
    pub(crate) url: String,
    stderr: Arc<Mutex<String>>,
    pub(crate) workspace: Workspace,
}

impl Served {
    /// A gateway with one correct server called `a`.
    pub(crate) fn start(flags: &[&str]) -> Served {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&[]));
        Served::start_in(workspace, flags)
    }

    pub(crate) fn start_in(workspace: Workspace, flags: &[&str]) -> Served {
        let command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
        Served::launch(workspace, command, flags)
    }

    /// A gateway with a limit on open files.
    pub(crate) fn start_narrow(open_files: u32) -> Served {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&[]));
        let mut command = workspace.command(Path::new("sh")).unwrap();
        let script = format!("ulimit -n {open_files}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_metamcp")]);
        Served::launch(workspace, command, &[])
    }

    fn launch(workspace: Workspace, mut command: Command, flags: &[&str]) -> Served {
        if !flags.contains(&"--transport") {
            command.args(["--transport", "http"]);
        }
        command.args(["--port", "0"]).args(flags);
        if !flags.contains(&"--code-profile") {
            command.args(["--code-profile", "off"]);
        }
        command.env("TEST_TOKEN", "the token of the environment");
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut heard = String::new();
        let url = loop {
            let Some(Ok(line)) = lines.next() else { panic!("it does not listen:\n{heard}") };
            if let Some((_, url)) = line.split_once("listening on ") {
                break url.to_owned();
            }
            heard.push_str(&line);
        };
        let stderr = Arc::new(Mutex::new(heard));
        let keep = Arc::clone(&stderr);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut kept = keep.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let address = url.split('/').nth(2).unwrap().parse().unwrap();
        if let Ok(token) = fs::read_to_string(token_file(&workspace)) {
            wire::knows(address, token.trim());
        }
        Served { process, address, url, stderr, workspace }
    }

    /// Opens a session for a client with these capabilities.
    pub(crate) fn session(&self, capabilities: &Value) -> Session<'_> {
        self.session_of("2025-11-25", capabilities)
    }

    pub(crate) fn session_of(&self, revision: &str, capabilities: &Value) -> Session<'_> {
        let mut response = Request::post(&initialize(revision, capabilities)).send(self.address);
        assert_eq!(response.status, 200);
        let id = response.header("mcp-session-id").expect("a session has an id").to_owned();
        assert_eq!(response.json()["result"]["protocolVersion"], revision);
        let session = Session { served: self, id, revision: revision.to_owned() };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&initialized).status, 202);
        session
    }

    /// The generated token.
    pub(crate) fn token(&self) -> String {
        fs::read_to_string(token_file(&self.workspace)).unwrap().trim().to_owned()
    }

    /// Its stderr so far.
    pub(crate) fn said(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        let mut status = None;
        let gone = eventually(PATIENCE, || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        assert!(gone, "it does not end:\n{}", self.stderr.lock().unwrap());
        status.unwrap()
    }

    /// Shuts it down, and checks that nothing is left.
    pub(crate) fn end(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait_exit();
        assert_eq!(status.code(), Some(0), "{}", self.stderr.lock().unwrap());
        assert_eq!(self.workspace.survivors(PATIENCE), []);
    }
}

/// Where a gateway stores the token it generates.
pub(crate) fn token_file(workspace: &Workspace) -> PathBuf {
    workspace.home().join(".metamcp/http-token")
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A session, from the client's side.
pub(crate) struct Session<'a> {
    pub(crate) served: &'a Served,
    pub(crate) id: String,
    pub(crate) revision: String,
}

impl Session<'_> {
    /// Adds the session headers to a request.
    pub(crate) fn request(&self, request: Request) -> Request {
        request.with("Mcp-Session-Id", &self.id).with("MCP-Protocol-Version", &self.revision)
    }

    pub(crate) fn post(&self, body: &Value) -> Response {
        self.request(Request::post(body)).send(self.served.address)
    }

    pub(crate) fn call(&self, id: u64, tool: &str, args: &Value) -> Response {
        self.post(&call(id, tool, args))
    }

    /// The text of a tool's result.
    pub(crate) fn text(&self, id: u64, tool: &str, args: &Value) -> String {
        let mut response = self.call(id, tool, args);
        let answer = response.json();
        assert_eq!(answer["id"], id);
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    pub(crate) fn listen(&self) -> Response {
        self.request(Request::get("/mcp")).send(self.served.address)
    }
}

pub(crate) fn initialize(revision: &str, capabilities: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": revision,
        "capabilities": capabilities,
        "clientInfo": {"name": "wire", "version": "1"},
    }})
}

/// A call of the server `a`. A progress token makes the response an event stream, so it is sent only for tools that
/// report progress.
pub(crate) fn call(id: u64, tool: &str, args: &Value) -> Value {
    let mut call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": "mcp_call",
        "arguments": {"server": "a", "tool": tool, "args": args},
    }});
    if tool == "progress" {
        call["params"]["_meta"] = json!({"progressToken": format!("token {id}")});
    }
    call
}
