//! A user's profile of its own, the program in it, and a client.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough for a loaded machine; only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Lines that may wait to be looked at.
const LINES: usize = 1000;

/// The program. Under Wine the path that cargo names is absolute but for the drive.
pub(crate) fn program() -> PathBuf {
    std::path::absolute(env!("CARGO_BIN_EXE_metamcp")).unwrap()
}

/// What the test command says; `None` where the tests run without it.
pub(crate) fn said(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The folder of a program: the one that the test command says, or the first in `PATH` that has it.
pub(crate) fn folder_of(program: &str, variable: &str) -> Option<PathBuf> {
    let in_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join(program).is_file())
    };
    said(variable).or_else(in_path)
}

/// A user with a home that has nothing in it.
pub(crate) struct User {
    root: TempDir,
    path: Vec<PathBuf>,
}

impl User {
    pub(crate) fn new() -> User {
        let root = tempfile::Builder::new().prefix("Nutzer Ü ").tempdir().unwrap();
        for folder in ["AppData/Roaming", "AppData/Local", ".metamcp", "work", "tmp"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        User { root, path: Vec::new() }
    }

    /// With servers of these names and definitions.
    pub(crate) fn with_servers(servers: &Value) -> User {
        let user = User::new();
        user.write(".metamcp/mcp.json", &json!({ "mcpServers": servers }).to_string());
        user
    }

    /// With a folder in front of the system's in `PATH`.
    pub(crate) fn with_path(mut self, folder: &Path) -> User {
        self.path.push(folder.to_owned());
        self
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Any program with the user's variables.
    pub(crate) fn start(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let system = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .collect::<Vec<_>>();
        let path = std::env::join_paths(self.path.iter().chain(&system)).unwrap();
        command
            .current_dir(self.path("work"))
            .env("USERPROFILE", self.root.path())
            .env("APPDATA", self.path("AppData/Roaming"))
            .env("LOCALAPPDATA", self.path("AppData/Local"))
            .env("TEMP", self.path("tmp"))
            .env("TMP", self.path("tmp"))
            .env("PATH", path)
            .env("METAMCP_DAEMON", "off")
            .env_remove("METAMCP_HOME")
            .env_remove("HOME");
        command
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.start(&program());
        command.args(arguments);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// What a command prints that succeeds.
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(arguments);
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{arguments:?}: {status}\n{stdout}\n{stderr}");
        stdout.into_owned()
    }

    /// A client with its gateway.
    pub(crate) fn client(&self) -> Client {
        Client::start(&mut self.command(&["serve"]))
    }
}

/// A client on the pipes of a gateway.
pub(crate) struct Client {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    next: u64,
}

impl Client {
    pub(crate) fn start(command: &mut Command) -> Client {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (say, lines) = sync_channel(LINES);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Client { child, input, lines, next: 0 }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("its input is open");
        writeln!(input, "{message}").and_then(|()| input.flush()).unwrap();
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The answer to a request.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        let began = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(began.elapsed());
            let line = self.lines.recv_timeout(left).expect("an answer in time");
            let message: Value = serde_json::from_str(&line).expect("a line of JSON");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    pub(crate) fn initialize(&mut self) -> Value {
        let client = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "windows-test", "version": "1" },
        });
        let answer = self.ask("initialize", &client);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }

    /// Asks for a call without waiting for its answer.
    pub(crate) fn begin_call(&mut self, server: &str, tool: &str, args: &Value) -> u64 {
        let arguments = json!({ "server": server, "tool": tool, "args": args });
        self.request("tools/call", &json!({ "name": "mcp_call", "arguments": arguments }))
    }

    /// The text of a call's result.
    pub(crate) fn call(&mut self, server: &str, tool: &str, args: &Value) -> String {
        let id = self.begin_call(server, tool, args);
        let answer = self.answer(id);
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text in {answer}")).to_owned()
    }

    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// Waits for the end of the gateway.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < PATIENCE, "the gateway goes on");
            std::thread::yield_now();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
