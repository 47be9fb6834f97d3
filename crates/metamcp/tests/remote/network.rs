//! Networks that fail between the gateway and a correct server: every call is answered once, and none runs twice.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use metamcp_testkit::faults::{Fault, Network};
use metamcp_testkit::site::honest::RemoteTransport;
use metamcp_testkit::site::{Exchange, HonestServer, ReceivedRequest, Site, Wire};
use metamcp_testkit::{CallOutcome, Workspace};
use serde_json::{Value, json};

use crate::world::{Gateway, HUNG, Remote};

/// How many calls each network gets: a few by default, a thousand in the full run.
fn calls() -> usize {
    if std::env::var_os("METAMCP_FULL").is_some_and(|value| value == "1") { 1000 } else { 40 }
}

/// The outcomes of many calls through a network, with limited concurrency, and how often each ran.
fn through(
    fault: Fault,
    transport: RemoteTransport,
    streams: bool,
    at_once: usize,
) -> BTreeMap<String, usize> {
    let calls = calls();
    let remote = Remote::honest(transport, streams);
    let network = Network::before(remote.site.address(), fault).unwrap();
    let mut workspace = Workspace::new().unwrap();
    let path = if transport == RemoteTransport::Sse { "sse" } else { "mcp" };
    let url = format!("http://{}/{path}", network.address());
    workspace.entry("far", json!({ "url": url, "timeoutMs": 2000 }));
    // The network is what fails here; the circuit breaker must not interfere.
    workspace.setting("pool", json!({ "failureThreshold": 1000 }));
    workspace.setting("timeouts", json!({ "connectTimeoutMs": 3000 }));
    let gateway = Gateway::start(workspace);
    let mut outcomes = BTreeMap::new();
    for batch in 0..calls.div_ceil(at_once) {
        let open: Vec<u64> = (0..at_once)
            .map(|place| {
                let text = (batch * at_once + place).to_string();
                gateway.mcp_call("far", "echo", &json!({ "text": text })).unwrap()
            })
            .collect();
        for call in open {
            let outcome = CallOutcome::of(&gateway.wait(call, HUNG).unwrap().value);
            *outcomes.entry(outcome.code().unwrap_or("fine").to_owned()).or_default() += 1;
        }
    }
    let mut ran: Vec<String> = remote.honest.executed().iter().map(Value::to_string).collect();
    let all = ran.len();
    ran.sort();
    ran.dedup();
    assert_eq!(ran.len(), all, "{fault:?}: a call ran twice");
    assert!(outcomes.get("fine").copied().unwrap_or(0) <= all, "{fault:?} {outcomes:?}");
    gateway.end();
    outcomes
}

#[test]
fn slow_and_sliced_networks_change_nothing() {
    for fault in [Fault::None, Fault::Latency(20), Fault::Slices] {
        for (transport, streams) in [
            (RemoteTransport::Sessions, true),
            (RemoteTransport::Stateless, false),
            (RemoteTransport::Sse, false),
        ] {
            let outcomes = through(fault, transport, streams, 8);
            assert_eq!(outcomes.keys().collect::<Vec<_>>(), ["fine"], "{fault:?} {outcomes:?}");
        }
    }
}

#[test]
fn connection_resets_are_reported_as_such() {
    for (after, transport) in [
        (1, RemoteTransport::NoSessions),
        (60, RemoteTransport::NoSessions),
        (200, RemoteTransport::NoSessions),
        (200, RemoteTransport::Sse),
    ] {
        let outcomes = through(Fault::Reset(after), transport, true, 8);
        // A race: every third connection is reset, and the order of opening decides which one that is: a handshake's,
        // a call's or that of an unneeded stream.
        let known = |code: &String| {
            ["fine", "outcome_unknown", "server_unavailable"].contains(&code.as_str())
        };
        assert!(outcomes.keys().all(known), "{after} {outcomes:?}");
        assert!(outcomes.contains_key("fine"), "{after} {outcomes:?}");
    }
}

#[test]
fn black_holes_and_slow_drips_end_with_their_deadline() {
    for fault in [Fault::BlackHole, Fault::SlowLoris(100)] {
        // Each batch takes as long as its deadline.
        let outcomes = through(fault, RemoteTransport::NoSessions, false, calls().min(250));
        // Not even the handshake gets through, so nothing was sent.
        assert_eq!(outcomes.keys().collect::<Vec<_>>(), ["server_unavailable"], "{fault:?}");
    }
}

#[test]
fn a_proxy_is_used_for_remote_hosts_but_not_for_local_ones() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(socket) = socket else { return };
            let mut line = String::new();
            let mut reader = BufReader::new(socket);
            reader.read_line(&mut line).unwrap();
            assert_eq!(line, "CONNECT mcp.invalid:443 HTTP/1.1\r\n");
            seen.fetch_add(1, Ordering::SeqCst);
            let mut socket: TcpStream = reader.into_inner();
            socket.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").unwrap();
        }
    });
    let near = Remote::honest(RemoteTransport::NoSessions, false);
    let mut workspace = Workspace::new().unwrap();
    workspace.entry("far", json!({ "url": "https://mcp.invalid/mcp" }));
    workspace.entry("near", json!({ "url": near.site.url("/mcp") }));
    workspace.entry("except", json!({ "url": "https://x.except.invalid/mcp" }));
    let gateway = Gateway::start_as(workspace, |command| {
        command
            .env("HTTPS_PROXY", format!("http://{place}"))
            .env("NO_PROXY", "except.invalid,localhost");
    });
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(
        (error.code.as_str(), error.category.as_deref()),
        ("server_unavailable", Some("offline"))
    );
    assert!(asked.load(Ordering::SeqCst) >= 1);
    let before = asked.load(Ordering::SeqCst);
    let answer = gateway.mcp_call_now("near", "echo", &json!({"text": "x"}), HUNG).unwrap();
    assert_eq!(CallOutcome::of(&answer.value), CallOutcome::Success);
    gateway.mcp_call_now("except", "echo", &json!({"text": "x"}), HUNG).unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), before);
    gateway.end();
}

/// A connection that is reset when `cut` is set: what is sent on it then is lost.
struct Mortal {
    socket: TcpStream,
    is_old: bool,
    cut: Arc<AtomicBool>,
}

impl Read for Mortal {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.socket.read(into)?;
        if self.is_old && self.cut.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        Ok(read)
    }
}

impl Write for Mortal {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush()
    }
}

#[test]
fn many_connections_that_died_together_cost_one_call() {
    const MANY: usize = 8;
    let cut = Arc::new(AtomicBool::new(false));
    let honest = Arc::new(HonestServer::new(RemoteTransport::NoSessions, false));
    // As many at once as connections are wanted.
    let together = Barrier::new(MANY);
    let (inner, is_cut) = (Arc::clone(&honest), Arc::clone(&cut));
    let answer = move |asked: &ReceivedRequest, exchange: &mut Exchange<'_>| {
        if asked.rpc() == "tools/call" && !is_cut.load(Ordering::SeqCst) {
            together.wait();
        }
        inner.answer(asked, exchange)
    };
    let is_cut = Arc::clone(&cut);
    let wrap = move |socket: TcpStream| {
        let is_old = !is_cut.load(Ordering::SeqCst);
        Ok(Box::new(Mortal { socket, is_old, cut: Arc::clone(&is_cut) }) as Box<dyn Wire>)
    };
    let site = Site::start_on("127.0.0.1:0", Arc::new(answer), Arc::new(wrap)).unwrap();
    let gateway = Gateway::to(&site.url("/mcp"));
    let first: Vec<u64> = (0..MANY)
        .map(|n| gateway.mcp_call("far", "echo", &json!({ "text": n.to_string() })).unwrap())
        .collect();
    for call in first {
        assert_eq!(CallOutcome::of(&gateway.wait(call, HUNG).unwrap().value), CallOutcome::Success);
    }
    assert!(site.connections() >= MANY);
    cut.store(true, Ordering::SeqCst);
    let codes: Vec<Option<String>> = (0..2 * MANY)
        .map(|n| {
            let outcome = gateway.call("echo", &json!({ "text": format!("later {n}") }));
            outcome.code().map(str::to_owned)
        })
        .collect();
    let lost = codes.iter().flatten().count();
    assert_eq!(lost, 1, "{codes:?}");
    assert_eq!(honest.executed().len(), MANY + 2 * MANY - 1, "and nothing ran twice");
    gateway.end();
}
