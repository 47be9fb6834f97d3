//! A blocking MCP client over stdio: starts a command, exchanges messages, records every line.
//! Owns: the process it started, the ids it allocated, the lines in order of arrival.  Never: forgives a bad line.
//! In: a command, requests.  Out: responses with their raw bytes, notifications, violations of the protocol.
//! Tests: `tests/it/honest.rs`.

mod inbox;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::patience::eventually;
use inbox::Inbox;
pub use inbox::{Answer, Kind, Line, returned};

/// How much of the process's stderr tail is stored for error messages.
const STDERR_KEPT: usize = 64 * 1024;

/// How the client responds to a server request.
pub enum Reply {
    /// With a result.
    Result(Value),
    /// With an error object.
    Error(Value),
    /// No response.
    Silence,
}

/// Decides the response to a server request, given its method and params.
pub type Answerer = Box<dyn FnMut(&str, &Value) -> Reply + Send>;

/// A running server and the connection to it; killed on drop.
pub struct Client {
    process: Child,
    input: Arc<Mutex<Option<ChildStdin>>>,
    inbox: Arc<Inbox>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    next_id: AtomicU64,
}

impl Client {
    /// Starts `command` with its stdio connected to us. Server requests are refused.
    pub fn start(command: Command) -> Result<Self> {
        Self::start_answering(
            command,
            Box::new(|_, _| Reply::Error(json!({"code": -32601, "message": "not here"}))),
        )
    }

    /// Starts `command` and answers its server requests with `answerer`, on the reading thread.
    pub fn start_answering(mut command: Command, answerer: Answerer) -> Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let input = Arc::new(Mutex::new(process.stdin.take()));
        let output = process.stdout.take().context("the process has no stdout")?;
        let errors = process.stderr.take().context("the process has no stderr")?;
        let inbox = Arc::new(Inbox::default());
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        thread::spawn({
            let (inbox, input) = (Arc::clone(&inbox), Arc::clone(&input));
            move || read_lines(output, &inbox, &input, answerer)
        });
        thread::spawn({
            let stderr = Arc::clone(&stderr);
            move || keep_tail(errors, &stderr)
        });
        Ok(Self { process, input, inbox, stderr, next_id: AtomicU64::new(1) })
    }

    /// Performs the handshake as a client of the 2025-11-25 revision and returns the result.
    pub fn initialize(&self, capabilities: &Value, deadline: Duration) -> Result<Value> {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "testkit", "version": env!("CARGO_PKG_VERSION")},
        });
        let answer = self.ask("initialize", &params, deadline)?;
        self.notify("notifications/initialized", &json!({}))?;
        answer
            .result()
            .cloned()
            .with_context(|| format!("initialize was refused: {}", answer.value))
    }

    /// Sends a request and returns its id.
    pub fn request(&self, method: &str, params: &Value) -> Result<u64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.request_as(&id.to_string(), method, params)?;
        Ok(id)
    }

    /// Sends requests in one write, so that nothing happens between any two of them, and returns their ids.
    pub fn request_at_once(&self, method: &str, params: &[Value]) -> Result<Vec<u64>> {
        let count = u64::try_from(params.len())?;
        let first = self.next_id.fetch_add(count, Ordering::Relaxed);
        let mut lines = String::new();
        for (id, params) in (first..).zip(params) {
            self.inbox.expect(&id.to_string());
            lines.push_str(&format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
            ));
        }
        self.send_bytes(lines.as_bytes())?;
        Ok((first..first + count).collect())
    }

    /// Sends a request with a custom id, in its wire format; the same id may be used again.
    pub fn request_as(&self, id: &str, method: &str, params: &Value) -> Result<()> {
        self.inbox.expect(id);
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ))
    }

    /// Sends a request of the 2026-07-28 revision, which carries its own protocol version, and returns its id. `meta`
    /// is merged into the required `_meta`.
    pub fn stateless(
        &self,
        method: &str,
        params: &Value,
        capabilities: &Value,
        meta: &Value,
    ) -> Result<u64> {
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "testkit", "version": env!("CARGO_PKG_VERSION")},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        for (key, value) in meta.as_object().into_iter().flatten() {
            params["_meta"][key] = value.clone();
        }
        self.request(method, &params)
    }

    pub fn notify(&self, method: &str, params: &Value) -> Result<()> {
        self.send(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#))
    }

    /// Sends any line; no response to an id in it is expected unless `expect` was called for it.
    pub fn send(&self, line: &str) -> Result<()> {
        send(&self.input, line)
    }

    /// Sends any bytes, without adding a newline.
    pub fn send_bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut input = lock(&self.input);
        input
            .as_mut()
            .context("stdin is closed")?
            .write_all(bytes)
            .context("writing to the process")
    }

    /// Allows one more response to this id, for requests written by hand; `null` is an id here.
    pub fn expect(&self, id: &str) {
        self.inbox.expect(id);
    }

    /// Waits for the response to a request.
    pub fn wait(&self, id: u64, deadline: Duration) -> Result<Answer> {
        self.wait_as(&id.to_string(), 0, deadline)
    }

    /// Waits for a response to a custom id, skipping `earlier` previous ones.
    pub fn wait_as(&self, id: &str, earlier: usize, deadline: Duration) -> Result<Answer> {
        self.inbox
            .wait(id, earlier, deadline)
            .with_context(|| format!("stderr of the process:\n{}", self.stderr()))
    }

    /// Sends a request and waits for its response.
    pub fn ask(&self, method: &str, params: &Value, deadline: Duration) -> Result<Answer> {
        self.wait(self.request(method, params)?, deadline)
    }

    /// Calls a tool of the connected server and returns the id.
    pub fn call_tool(&self, name: &str, arguments: &Value) -> Result<u64> {
        self.request("tools/call", &json!({"name": name, "arguments": arguments}))
    }

    /// Calls a tool of a server behind a gateway and returns the id.
    pub fn mcp_call(&self, server: &str, tool: &str, args: &Value) -> Result<u64> {
        self.call_tool("mcp_call", &json!({"server": server, "tool": tool, "args": args}))
    }

    /// Calls a tool of a server behind a gateway and waits for the response.
    pub fn mcp_call_now(
        &self,
        server: &str,
        tool: &str,
        args: &Value,
        deadline: Duration,
    ) -> Result<Answer> {
        self.wait(self.mcp_call(server, tool, args)?, deadline)
    }

    /// Every line received so far, in order.
    pub fn lines(&self) -> Vec<Line> {
        self.inbox.lines()
    }

    /// The params of every notification of one method, in order.
    pub fn notifications(&self, method: &str) -> Vec<Value> {
        self.inbox.notifications(method)
    }

    /// Protocol violations of the peer: unreadable lines, responses to unknown ids, duplicate responses.
    pub fn violations(&self) -> Vec<String> {
        self.inbox.violations()
    }

    /// Whether the process has closed its stdout.
    pub fn has_ended(&self) -> bool {
        self.inbox.has_ended()
    }

    /// The stderr tail of the process.
    pub fn stderr(&self) -> String {
        let bytes: Vec<u8> = lock(&self.stderr).iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Closes the process's stdin, as a host does when it exits.
    pub fn close_input(&self) {
        lock(&self.input).take();
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.process.id()).context("a process id fits in 31 bits")?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("sending {signal} to {pid}"))
    }

    /// Waits for the process to exit by itself.
    pub fn wait_exit(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let mut status = None;
        eventually(deadline, || {
            status = self.process.try_wait().transpose();
            status.is_some()
        });
        match status {
            Some(status) => Ok(status?),
            None => bail!("process {} still runs after {deadline:?}", self.process.id()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail only if the process has already exited.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn read_lines(
    output: impl Read,
    inbox: &Inbox,
    input: &Mutex<Option<ChildStdin>>,
    mut answerer: Answerer,
) {
    let mut output = BufReader::with_capacity(256 * 1024, output);
    loop {
        let mut bytes = Vec::new();
        match output.read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return inbox.end(),
            Ok(_) => {}
        }
        if bytes.pop_if(|byte| *byte == b'\n').is_none() {
            inbox.complain(format!("the output ended inside a line of {} bytes", bytes.len()));
        }
        let Some(question) = inbox.take(bytes) else { continue };
        let reply = match answerer(&question.method, &question.params) {
            Reply::Result(result) => {
                format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, question.id)
            }
            Reply::Error(error) => {
                format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, question.id)
            }
            Reply::Silence => continue,
        };
        // A process that has exited meanwhile needs no response.
        send(input, &reply).ok();
    }
}

fn keep_tail(mut errors: impl Read, tail: &Mutex<VecDeque<u8>>) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(length) = errors.read(&mut chunk) {
        if length == 0 {
            return;
        }
        let mut tail = lock(tail);
        tail.extend(&chunk[..length]);
        let surplus = tail.len().saturating_sub(STDERR_KEPT);
        tail.drain(..surplus);
    }
}

fn send(input: &Mutex<Option<ChildStdin>>, line: &str) -> Result<()> {
    let mut bytes = Vec::with_capacity(line.len() + 1);
    bytes.extend_from_slice(line.as_bytes());
    bytes.push(b'\n');
    lock(input)
        .as_mut()
        .context("stdin is closed")?
        .write_all(&bytes)
        .context("writing to the process")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
