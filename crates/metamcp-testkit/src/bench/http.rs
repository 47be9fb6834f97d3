//! The same benchmark over HTTP: N connections, each with a session and one request in flight.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::patience::eventually;

use super::{Load, find, percentile, processor_ns, resident_kib, tail};

/// Timeout for the server to listen and for a response to arrive. Only a broken server takes that long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Warm-up requests on each connection, not measured.
const WARM_UP: usize = 20;

/// The variable with the bearer token to send, for a server that requires one.
const TOKEN: &str = "BENCH_TOKEN";

/// Starts the server with a free port substituted for `{port}`, and measures it.
pub(super) fn run(load: &Load, command: &[String], path: &str) -> Result<Value> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let port = address.port().to_string();
    let server = Server::start(command, &port)?;
    let mut connections: Vec<Connection> = (0..load.in_flight)
        .map(|_| Connection::open(address, path, load.events))
        .collect::<Result<_>>()?;
    for connection in &mut connections {
        connection.handshake()?;
    }
    let body = tail(load, "echo", &json!({ "text": "x".repeat(load.payload) }), 0);
    let body = [b"{\"jsonrpc\":\"2.0\",\"id\":1,".as_slice(), body.trim_ascii_end()].concat();
    for connection in &mut connections {
        connection.request = connection.post(&body);
    }
    turn(&mut connections, WARM_UP * load.in_flight)?;
    let processor = processor_ns(server.0.id());
    let began = Instant::now();
    let Times { answers: mut times, mut firsts } = turn(&mut connections, load.calls)?;
    let wall = began.elapsed();
    let spent = processor_ns(server.0.id()) - processor;
    times.sort_unstable();
    firsts.sort_unstable();
    Ok(json!({
        "calls": times.len(),
        "first_us": percentile(&firsts, 50),
        "p50_us": percentile(&times, 50),
        "p99_us": percentile(&times, 99),
        "calls_per_s": times.len() as f64 / wall.as_secs_f64(),
        "cpu_us_per_call": spent as f64 / 1000.0 / times.len() as f64,
        "rss_kib": resident_kib(server.0.id()),
    }))
}

/// Response times in nanoseconds.
struct Times {
    /// Until the last byte.
    answers: Vec<u64>,
    /// Until the first byte.
    firsts: Vec<u64>,
}

/// Sends and reads on all connections until `calls` responses have arrived.
fn turn(connections: &mut [Connection], calls: usize) -> Result<Times> {
    let (mut times, mut firsts) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
    let mut sent = 0;
    for connection in connections.iter_mut().take(calls) {
        connection.send()?;
        sent += 1;
    }
    while times.len() < calls {
        let ready: Vec<usize> = {
            let mut waiting: Vec<PollFd<'_>> = connections
                .iter()
                .map(|one| PollFd::new(one.stream.as_fd(), PollFlags::POLLIN))
                .collect();
            let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
            ensure!(poll(&mut waiting, patience)? > 0, "no answer came");
            let is_ready = |one: &PollFd<'_>| one.any().unwrap_or(true);
            waiting.iter().enumerate().filter(|(_, one)| is_ready(one)).map(|(at, _)| at).collect()
        };
        for at in ready {
            let connection = &mut connections[at];
            if let Some(answer) = connection.read()? {
                ensure!(answer.status == 200, "the server answered {}", answer.status);
                let wrong = find(&answer.body, b"\"isError\":true")
                    .or_else(|| find(&answer.body, b"\"error\":"));
                if wrong.is_some() {
                    bail!("{}", String::from_utf8_lossy(&answer.body));
                }
                times.push(connection.sent.elapsed().as_nanos() as u64);
                firsts.push(connection.first.as_nanos() as u64);
                if sent < calls {
                    connection.send()?;
                    sent += 1;
                }
            }
        }
    }
    Ok(Times { answers: times, firsts })
}

/// The measured server; killed on drop.
struct Server(Child);

impl Server {
    fn start(command: &[String], port: &str) -> Result<Server> {
        let child = Command::new(&command[0])
            .args(command[1..].iter().map(|argument| argument.replace("{port}", port)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", command[0]))?;
        Ok(Server(child))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has already exited.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    path: String,
    session: Option<String>,
    token: Option<String>,
    request: Vec<u8>,
    sent: Instant,
    /// Time to first byte of the last response.
    first: Duration,
    /// Prefers event streams over JSON documents.
    events: bool,
    buffer: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Connection {
    /// Connects as soon as the server listens.
    fn open(address: SocketAddr, path: &str, events: bool) -> Result<Connection> {
        let mut stream = TcpStream::connect(address);
        eventually(PATIENCE, || {
            if stream.is_err() {
                stream = TcpStream::connect(address);
            }
            stream.is_ok()
        });
        let stream = stream?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (path, sent) = (path.to_owned(), Instant::now());
        let (request, buffer) = (Vec::new(), Vec::new());
        let first = Duration::ZERO;
        let (session, token) = (None, std::env::var(TOKEN).ok());
        Ok(Connection {
            stream,
            address,
            path,
            session,
            token,
            request,
            sent,
            first,
            events,
            buffer,
        })
    }

    /// The same for who has this token.
    fn open_as(token: &str, address: SocketAddr) -> Result<Connection> {
        let connection = Connection::open(address, "/mcp", false)?;
        Ok(Connection { token: Some(token.to_owned()), ..connection })
    }

    fn handshake(&mut self) -> Result<()> {
        let params = json!({"protocolVersion": self.revision(), "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        self.request = self.post(hello.to_string().as_bytes());
        let answer = self.exchange()?;
        ensure!(answer.status == 200, "initialize was answered with {}", answer.status);
        self.session = answer.headers.get("mcp-session-id").cloned();
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.request = self.post(done.to_string().as_bytes());
        let answer = self.exchange()?;
        ensure!(answer.status < 300, "initialized was answered with {}", answer.status);
        Ok(())
    }

    /// Event streams need the newer revision.
    fn revision(&self) -> &'static str {
        if self.events { "2025-11-25" } else { "2025-06-18" }
    }

    fn post(&self, body: &[u8]) -> Vec<u8> {
        let session = self.session.as_ref().map_or_else(String::new, |id| {
            format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {}\r\n", self.revision())
        });
        let accept = if self.events {
            "text/event-stream, application/json"
        } else {
            "application/json, text/event-stream"
        };
        let authorization = self
            .token
            .as_ref()
            .map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: {accept}\r\n{authorization}{session}Content-Length: {}\r\n\r\n",
            self.path,
            self.address,
            body.len(),
        );
        [head.as_bytes(), body].concat()
    }

    fn send(&mut self) -> Result<()> {
        self.sent = Instant::now();
        // A small request always fits into an empty send buffer, even on a non-blocking socket.
        Ok((&self.stream).write_all(&self.request)?)
    }

    fn exchange(&mut self) -> Result<Answer> {
        self.send()?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer> {
        loop {
            let mut waiting = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
            let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
            ensure!(poll(&mut waiting, patience)? > 0, "no answer came");
            if let Some(answer) = self.read()? {
                return Ok(answer);
            }
        }
    }

    /// Reads what is available; returns the response once it is complete.
    fn read(&mut self) -> Result<Option<Answer>> {
        #[expect(
            clippy::large_stack_arrays,
            reason = "an allocation for each read would be measured"
        )]
        let mut piece = [0; 64 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(count) => {
                if self.buffer.is_empty() {
                    self.first = self.sent.elapsed();
                }
                self.buffer.extend_from_slice(&piece[..count]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let Some(head) = find(&self.buffer, b"\r\n\r\n") else { return Ok(None) };
        let text = std::str::from_utf8(&self.buffer[..head])?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status")?;
        let status = status.parse()?;
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let start = head + 4;
        let end = if let Some(length) = headers.get("content-length") {
            start + length.parse::<usize>()?
        } else if headers.contains_key("transfer-encoding") {
            match find(&self.buffer[start..], b"0\r\n\r\n") {
                Some(at) => start + at + 5,
                None => return Ok(None),
            }
        } else {
            start
        };
        if self.buffer.len() < end {
            return Ok(None);
        }
        let body = self.buffer[start..end].to_vec();
        self.buffer.drain(..end);
        Ok(Some(Answer { status, headers, body }))
    }
}

/// Connections by which sessions are begun and continued.
const CONTINUING: usize = 16;

/// Begins sessions at one gateway, has it killed, and continues each of them at another: how many a second.
pub fn continued(
    token: &str,
    first: SocketAddr,
    other: SocketAddr,
    sessions: usize,
    kill: impl FnOnce(),
) -> Result<f64> {
    let mut ids = Vec::with_capacity(sessions);
    let mut beginning: Vec<Connection> =
        (0..CONTINUING).map(|_| Connection::open_as(token, first)).collect::<Result<_>>()?;
    for number in 0..sessions {
        let connection = &mut beginning[number % CONTINUING];
        connection.session = None;
        connection.handshake()?;
        ids.push(connection.session.clone().context("a session has an id")?);
    }
    kill();
    let mut going_on: Vec<Connection> =
        (0..CONTINUING).map(|_| Connection::open_as(token, other)).collect::<Result<_>>()?;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let began = Instant::now();
    for some in ids.chunks(CONTINUING) {
        for (connection, id) in going_on.iter_mut().zip(some) {
            connection.session = Some(id.clone());
            connection.request = connection.post(ping.as_bytes());
            connection.send()?;
        }
        for connection in &mut going_on[..some.len()] {
            let answer = connection.answer()?;
            ensure!(answer.status == 200, "a session was not continued: {}", answer.status);
        }
    }
    Ok(sessions as f64 / began.elapsed().as_secs_f64())
}

/// One gateway listens, and takes a session; so its fleet is there.
pub fn wait_for(token: &str, gateway: SocketAddr) -> Result<()> {
    Connection::open_as(token, gateway)?.handshake()
}

/// How long a message takes through a server of NATS to somebody who answers, and the answer back: p50.
pub fn bus_round_trip(bus: SocketAddr, times: usize) -> Result<Duration> {
    let mut ends = [bus_connection(bus, "bench.answers")?, bus_connection(bus, "bench.questions")?];
    let mut took = Vec::with_capacity(times);
    for number in 0..times + WARM_UP {
        let began = Instant::now();
        let [asking, answering] = &mut ends;
        asking.0.write_all(b"PUB bench.questions 64\r\n")?;
        asking.0.write_all(&[b'x'; 64])?;
        asking.0.write_all(b"\r\n")?;
        answering.message()?;
        answering.0.write_all(b"PUB bench.answers 64\r\n")?;
        answering.0.write_all(&[b'x'; 64])?;
        answering.0.write_all(b"\r\n")?;
        asking.message()?;
        if number >= WARM_UP {
            took.push(began.elapsed());
        }
    }
    took.sort_unstable();
    took.get(took.len() / 2).copied().context("nothing was measured")
}

/// A connection in the text protocol of NATS.
struct BusConnection(TcpStream, Vec<u8>);

fn bus_connection(bus: SocketAddr, subject: &str) -> Result<BusConnection> {
    let mut stream = TcpStream::connect(bus)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "CONNECT {{\"verbose\":false}}\r\nSUB {subject} 1\r\nPING\r\n")?;
    let mut connection = BusConnection(stream, Vec::new());
    connection.until(b"PONG\r\n")?;
    Ok(connection)
}

impl BusConnection {
    /// The next message, with its 64 bytes.
    fn message(&mut self) -> Result<()> {
        self.until(b"MSG ")?;
        self.until(&[b"x".repeat(64).as_slice(), b"\r\n"].concat())
    }

    fn until(&mut self, wanted: &[u8]) -> Result<()> {
        let mut piece = [0; 4096];
        loop {
            if let Some(at) = find(&self.1, wanted) {
                self.1.drain(..at + wanted.len());
                return Ok(());
            }
            let count = self.0.read(&mut piece)?;
            ensure!(count > 0, "the bus closed the connection");
            self.1.extend_from_slice(&piece[..count]);
        }
    }
}
