//! Benchmark client: one path to a server, one load, one JSON line of numbers.
//! Owns: the load and the clock of a benchmark.      Never: judges a number; `cargo xtask bench` computes the ratios.
//! In: arguments.  Out: one JSON object on stdout.
//! Tests: `cargo xtask bench` itself; a short run of it is part of the tests.

pub mod http;
mod search;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// One run, as the command line describes it.
#[derive(Debug, Clone)]
struct Load {
    payload: usize,
    in_flight: usize,
    calls: usize,
    children: usize,
    /// Small requests, large responses.
    blob: bool,
    /// Over HTTP: responses as event streams rather than JSON documents.
    events: bool,
    /// Whether calls go through `mcp_call`.
    gateway: bool,
    /// Only measures start-up: time to the response of `initialize`.
    startup: bool,
    /// Measures one `mcp_discover` over all servers.
    discover: bool,
    /// Concurrent searches while single calls are measured.
    searches: usize,
    /// A script to run instead of calls.
    script: Option<String>,
    /// A tool of the gateway and its arguments, called instead of the default tool.
    call: Option<(String, Value)>,
    /// Sequential calls without a warm-up.
    one_by_one: bool,
}

/// The entry point: `bench-client [options] -- COMMAND…`.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    match run(arguments) {
        Ok(numbers) => {
            let written = writeln!(std::io::stdout(), "{numbers}");
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            // With stderr closed the message is lost; the exit code still reports the failure.
            drop(writeln!(std::io::stderr(), "bench-client: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: impl Iterator<Item = String>) -> Result<Value> {
    let mut load = Load {
        payload: 64,
        in_flight: 1,
        calls: 1000,
        children: 1,
        blob: false,
        events: false,
        gateway: false,
        startup: false,
        discover: false,
        searches: 0,
        script: None,
        call: None,
        one_by_one: false,
    };
    let (mut command, mut http) = (Vec::new(), None);
    while let Some(argument) = arguments.next() {
        if argument == "--script" {
            load.script = Some(arguments.next().context("a script is missing")?);
            continue;
        }
        if argument == "--http" {
            http = Some(arguments.next().context("a path is missing")?);
            continue;
        }
        if argument == "--call" {
            let tool = arguments.next().context("a tool is missing")?;
            let given = arguments.next().context("the arguments of the tool are missing")?;
            load.call = Some((tool, serde_json::from_str(&given)?));
            continue;
        }
        let mut number =
            || -> Result<usize> { Ok(arguments.next().context("a number is missing")?.parse()?) };
        match argument.as_str() {
            "--payload" => load.payload = number()?,
            "--in-flight" => load.in_flight = number()?,
            "--calls" => load.calls = number()?,
            "--searches" => load.searches = number()?,
            "--children" => load.children = number()?,
            "--blob" => load.blob = true,
            "--events" => load.events = true,
            "--gateway" => load.gateway = true,
            "--startup" => load.startup = true,
            "--discover" => load.discover = true,
            "--one-by-one" => load.one_by_one = true,
            "--" => command.extend(arguments.by_ref()),
            other => bail!("unknown argument {other:?}"),
        }
    }
    ensure!(!command.is_empty(), "no command after --");
    if let Some(path) = http {
        return http::run(&load, &command, &path);
    }
    let started = Instant::now();
    let mut route = Route::start(&command)?;
    route.handshake()?;
    let startup_us = started.elapsed().as_micros();
    if load.startup {
        let resident = resident_kib(route.child.id());
        return Ok(json!({ "startup_us": startup_us, "idle_rss_kib": resident }));
    }
    if load.discover {
        let arguments = json!({"query": "files topic under heading"});
        return route.one_by_one("mcp_discover", &arguments, load.calls);
    }
    if load.searches > 0 {
        return search::run(&mut route, &load);
    }
    if let Some(code) = load.script.as_ref().filter(|_| load.one_by_one) {
        return route.one_by_one("mcp_execute", &json!({ "code": code }), load.calls);
    }
    if load.payload * load.in_flight > WRITTEN_AT_ONCE && !load.blob {
        route = route.on_a_thread();
    }
    route.measure(&load)
}

/// Above this many bytes in flight a separate thread writes: otherwise both pipes could fill up and deadlock.
const WRITTEN_AT_ONCE: usize = 32 * 1024;

/// Writes to the measured process, from this thread or from a separate one.
enum Writer {
    Here(ChildStdin),
    Thread(Sender<Vec<u8>>),
}

impl Writer {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Writer::Here(input) => Ok(input.write_all(bytes)?),
            Writer::Thread(sender) => {
                sender.send(bytes.to_vec()).context("the writing thread ended")
            }
        }
    }

    /// Moves writing to a separate thread.
    fn on_a_thread(self) -> Writer {
        let Writer::Here(mut input) = self else { return self };
        let (sender, waiting) = channel::<Vec<u8>>();
        std::thread::spawn(move || {
            // The reader notices when the process has exited.
            for bytes in waiting {
                if input.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        Writer::Thread(sender)
    }
}

/// A process that speaks MCP over stdio.
struct Route {
    child: Child,
    input: Writer,
    output: ChildStdout,
    buffer: Vec<u8>,
    used: usize,
}

impl Route {
    fn start(command: &[String]) -> Result<Route> {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("cannot start {}", command[0]))?;
        let input = Writer::Here(child.stdin.take().context("no stdin")?);
        let output = child.stdout.take().context("no stdout")?;
        Ok(Route { child, input, output, buffer: vec![0; 1 << 16], used: 0 })
    }

    fn on_a_thread(mut self) -> Route {
        let (sender, _) = channel();
        self.input = std::mem::replace(&mut self.input, Writer::Thread(sender)).on_a_thread();
        self
    }

    fn handshake(&mut self) -> Result<()> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        self.input.write_all(&line(
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
        ))?;
        self.lines(|_| true)?;
        self.input
            .write_all(&line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})))?;
        Ok(())
    }

    /// Reads until `done` returns true for a line; later lines stay buffered.
    fn lines(&mut self, mut done: impl FnMut(&[u8]) -> bool) -> Result<()> {
        let mut searched = 0;
        loop {
            let mut start = 0;
            while let Some(end) = memchr(&self.buffer[searched.max(start)..self.used]) {
                let end = searched.max(start) + end;
                let finished = done(&self.buffer[start..end]);
                start = end + 1;
                if finished {
                    self.buffer.copy_within(start..self.used, 0);
                    self.used -= start;
                    return Ok(());
                }
            }
            self.buffer.copy_within(start..self.used, 0);
            self.used -= start;
            searched = self.used;
            if self.used == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let read = self.output.read(&mut self.buffer[self.used..])?;
            ensure!(read > 0, "the road ended");
            self.used += read;
        }
    }

    fn one_by_one(&mut self, tool: &str, arguments: &Value, calls: usize) -> Result<Value> {
        let mut times = Vec::with_capacity(calls);
        let params = json!({ "name": tool, "arguments": arguments });
        for id in 0..calls {
            let request = line(
                &json!({"jsonrpc": "2.0", "id": id + 1, "method": "tools/call", "params": params}),
            );
            let sent = Instant::now();
            self.input.write_all(&request)?;
            let mut refused = None;
            self.lines(|line| {
                refused = find(line, b"\"isError\":true").map(|_| line.to_vec());
                true
            })?;
            times.push(sent.elapsed().as_nanos() as u64);
            if let Some(line) = refused {
                bail!("{}", String::from_utf8_lossy(&line[..line.len().min(400)]));
            }
        }
        let first = times[0];
        times.sort_unstable();
        Ok(json!({
            "first_us": first as f64 / 1000.0,
            "p50_us": percentile(&times, 50),
            "p99_us": percentile(&times, 99),
            "calls": calls,
        }))
    }

    fn measure(&mut self, load: &Load) -> Result<Value> {
        let text = "x".repeat(load.payload);
        let (tool, args) = if load.blob {
            ("blob", json!({ "bytes": load.payload }))
        } else {
            ("echo", json!({ "text": text }))
        };
        let tails: Vec<Vec<u8>> =
            (0..load.children).map(|child| tail(load, tool, &args, child)).collect();
        // Calls each child once, so that all are warm.
        for number in 0..load.children.max(load.in_flight.min(64)) {
            self.input.write_all(&message(number + 1, &tails[number % load.children]))?;
            self.lines(|line| {
                assert!(
                    find(line, b"\"isError\":true").is_none()
                        && find(line, b"\"error\":{").is_none(),
                    "{}",
                    String::from_utf8_lossy(&line[..line.len().min(400)])
                );
                true
            })?;
        }
        let processor = processor_ns(self.child.id());
        let began = Instant::now();
        let mut sent_at = vec![Instant::now(); load.calls];
        let mut times = Vec::with_capacity(load.calls);
        let mut sent = 0;
        let mut batch = Vec::new();
        while sent < load.in_flight.min(load.calls) {
            batch.extend_from_slice(&message(FIRST + sent, &tails[sent % load.children]));
            sent_at[sent] = Instant::now();
            sent += 1;
        }
        self.input.write_all(&batch)?;
        while times.len() < load.calls {
            batch.clear();
            // Takes all responses of one read, then sends as many calls with one write, as an event loop does.
            let missing = load.calls - times.len();
            let mut taken = 0;
            let (times_now, sent_now) = (&mut times, &mut sent_at);
            self.chunk(|line| {
                let id = id_of(line) - FIRST;
                times_now.push(sent_now[id].elapsed().as_nanos() as u64);
                taken += 1;
            })?;
            ensure!(taken <= missing, "more answers than calls");
            for _ in 0..taken {
                if sent < load.calls {
                    batch.extend_from_slice(&message(FIRST + sent, &tails[sent % load.children]));
                    sent_at[sent] = Instant::now();
                    sent += 1;
                }
            }
            self.input.write_all(&batch)?;
        }
        let wall = began.elapsed();
        let spent = processor_ns(self.child.id()) - processor;
        times.sort_unstable();
        Ok(json!({
            "calls": load.calls,
            "p50_us": percentile(&times, 50),
            "p99_us": percentile(&times, 99),
            "calls_per_s": load.calls as f64 / wall.as_secs_f64(),
            "cpu_us_per_call": spent as f64 / 1000.0 / load.calls as f64,
            "rss_kib": resident_kib(self.child.id()),
        }))
    }

    /// The complete lines of one read, at least one.
    fn chunk(&mut self, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut searched = 0;
        loop {
            if self.used == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let read = self.output.read(&mut self.buffer[self.used..])?;
            ensure!(read > 0, "the road ended");
            self.used += read;
            let mut start = 0;
            while let Some(end) = memchr(&self.buffer[searched.max(start)..self.used]) {
                let end = searched.max(start) + end;
                each(&self.buffer[start..end]);
                start = end + 1;
            }
            searched = self.used - start;
            self.buffer.copy_within(start..self.used, 0);
            self.used -= start;
            if start > 0 {
                return Ok(());
            }
        }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // Both fail only if the process has already exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Ids of measured calls start here: all have the same number of digits, so message sizes stay constant in a run.
const FIRST: usize = 1_000_000;

fn message(id: usize, tail: &[u8]) -> Vec<u8> {
    let mut message = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},").into_bytes();
    message.extend_from_slice(tail);
    message
}

fn tail(load: &Load, tool: &str, args: &Value, child: usize) -> Vec<u8> {
    let params = if let Some(code) = &load.script {
        json!({ "name": "mcp_execute", "arguments": { "code": code } })
    } else if let Some((tool, arguments)) = &load.call {
        json!({ "name": tool, "arguments": arguments })
    } else if load.gateway {
        json!({ "name": "mcp_call", "arguments": { "server": format!("s{child}"), "tool": tool, "args": args } })
    } else {
        json!({ "name": tool, "arguments": args })
    };
    format!("\"method\":\"tools/call\",\"params\":{params}}}\n").into_bytes()
}

fn line(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    // The standard library's search is vectorised where it matters: in `contains`-like loops over bytes.
    bytes.iter().position(|&byte| byte == b'\n')
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// The id, which both direct and proxied responses write near one end of the line.
fn id_of(line: &[u8]) -> usize {
    let head = &line[..line.len().min(64)];
    let digits = match find(head, b"\"id\":") {
        Some(at) => &line[at + 5..],
        None => {
            let tail = &line[line.len().saturating_sub(64)..];
            &tail[find(tail, b"\"id\":").expect("every answer has an id") + 5..]
        }
    };
    digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |sum, byte| sum * 10 + usize::from(byte - b'0'))
}

/// CPU time of a process over all its threads, in nanoseconds.
fn processor_ns(process: u32) -> u64 {
    let tasks = format!("/proc/{process}/task");
    let Ok(threads) = std::fs::read_dir(Path::new(&tasks)) else { return 0 };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|stat| stat.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len() - 1);
    sorted[at] as f64 / 1000.0
}
