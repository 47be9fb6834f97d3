//! A minimal MCP client over a child's stdio.
//! Owns: one child, its pipes, the deadlines.      Never: leaves the child running.
//! In: requests.  Out: results, or errors with the tail of the child's stderr.
//! Tests: `tests/demo.rs`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use metamcp_engine::clock;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Longest wait for a response; the example servers take milliseconds, a busy machine may take seconds.
const ANSWER: Duration = Duration::from_secs(20);
/// Longest wait for the child to exit after its input ended; the gateway's shutdown escalation takes under two seconds.
const FAREWELL: Duration = Duration::from_secs(5);
/// Polling interval while waiting for the child to exit.
const LOOK: Duration = Duration::from_millis(5);
/// Lines read ahead; responses come one at a time, the rest are notifications.
const LINES_AHEAD: usize = 64;
/// Longest wait for the end of a dead child's stderr, which a process it started may hold open.
const LAST_WORD: Duration = Duration::from_millis(300);
/// How much of the child's stderr is kept for an error.
const LAST_WORDS: usize = 4 << 10;

/// A connection to one MCP server.
pub(super) struct Client {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: thread::JoinHandle<()>,
    last_words: Arc<Mutex<Vec<u8>>>,
    asked: u64,
}

impl Client {
    /// Starts `command` with its stdio piped; `name` is what errors call it.
    pub(super) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{name} cannot be started"))?;
        let (sender, lines) = sync_channel(LINES_AHEAD);
        let stdout = child.stdout.take().context("the child has no stdout")?;
        let stderr = child.stderr.take().context("the child has no stderr")?;
        let input = child.stdin.take();
        thread::spawn(move || read_lines(stdout, &sender));
        let last_words = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&last_words);
        let stderr = thread::spawn(move || keep_stderr_tail(stderr, &kept));
        Ok(Self { name: name.to_owned(), child, input, lines, stderr, last_words, asked: 0 })
    }

    pub(super) fn initialize(&mut self) -> Result<Value> {
        let client = json!({ "name": "metamcp-demo", "version": env!("CARGO_PKG_VERSION") });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let result = self.ask("initialize", &params)?;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(result)
    }

    /// Sends one request and waits for its result.
    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        let deadline = clock::std_instant() + ANSWER;
        loop {
            let line = match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(clock::std_instant()))
            {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} did not answer {method} within {} s", self.name, ANSWER.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.gone(&format!("answering {method}")));
                }
            };
            let message: Value = serde_json::from_str(&line)
                .with_context(|| format!("{} wrote a line that is not JSON: {line}", self.name))?;
            if message.get("method").is_some() {
                self.reply(&message)?;
            } else if message["id"] == id {
                return match message.get("error") {
                    Some(error) => Err(anyhow!(
                        "{} answered {method} with error {}: {}",
                        self.name,
                        error["code"],
                        error["message"]
                    )),
                    None => Ok(message["result"].clone()),
                };
            }
        }
    }

    /// Whether the child has exited.
    pub(super) fn is_gone(&self) -> bool {
        self.input.is_none()
    }

    /// Closes the input, upon which a well-behaved server exits; one that does not is killed and reported.
    pub(super) fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let deadline = clock::std_instant() + FAREWELL;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if clock::std_instant() >= deadline {
                bail!(
                    "{} was still there {} s after its input ended, and was killed",
                    self.name,
                    FAREWELL.as_secs()
                );
            }
            // Drain its remaining output, so that a full pipe does not block it.
            while self.lines.try_recv().is_ok() {}
            thread::sleep(LOOK);
        };
        if status.success() { Ok(()) } else { Err(self.gone("leaving")) }
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().context("the input has ended")?;
        match writeln!(input, "{message}").and_then(|()| input.flush()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.gone("reading")),
        }
    }

    /// Answers a server's requests: `ping`, and nothing else since no capability was declared.
    fn reply(&mut self, message: &Value) -> Result<()> {
        let Some(id) = message.get("id") else { return Ok(()) };
        if message["method"] == "ping" {
            return self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
        }
        let error = json!({ "code": -32601, "message": "this client has no such capability" });
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
    }

    /// The error for a child that has exited, with its exit status and stderr tail.
    fn gone(&mut self, instead_of: &str) -> anyhow::Error {
        self.kill();
        let ended = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let deadline = clock::std_instant() + LAST_WORD;
        while !self.stderr.is_finished() && clock::std_instant() < deadline {
            thread::sleep(LOOK);
        }
        let words = self.last_words.lock();
        let words = String::from_utf8_lossy(&words);
        match words.trim() {
            "" => anyhow!("{} ended instead of {instead_of} ({ended})", self.name),
            words => anyhow!(
                "{} ended instead of {instead_of} ({ended}); its stderr ended with: {words}",
                self.name
            ),
        }
    }

    fn kill(&mut self) {
        drop(self.input.take());
        // It may have exited by itself, which is the goal.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_lines(stdout: ChildStdout, sender: &SyncSender<String>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if sender.send(line).is_err() {
            return;
        }
    }
}

/// Reads stderr to its end and keeps the tail, so that a chatty child never blocks.
fn keep_stderr_tail(mut stderr: ChildStderr, kept: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut chunk) {
        let mut kept = kept.lock();
        kept.extend_from_slice(&chunk[..count]);
        let excess = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..excess);
    }
}
