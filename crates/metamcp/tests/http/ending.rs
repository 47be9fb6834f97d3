//! Shutdown while clients are active.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::served::{Served, Session, call, initialize};
use crate::wire::{PATIENCE, Request, Response};

/// Response size: more than the socket buffers take without a reader.
const LONG: usize = 12_000_000;

type Header = (&'static str, &'static str);

/// The response paths: fast-path document, hyper document, event stream.
const ROADS: [(&str, Header); 3] = [
    ("application/json, text/event-stream", ("X-Road", "usual")),
    ("application/json, text/event-stream", ("TE", "trailers")),
    ("text/event-stream, application/json", ("X-Road", "usual")),
];

#[test]
fn what_is_under_way_is_finished_and_open_streams_do_not_hold_it_up() {
    let mut served = Served::start(&[]);
    let session = served.session(&json!({}));
    let listening = session.listen();
    thread::scope(|scope| {
        let calling = scope.spawn(|| session.text(2, "slow", &json!({"ms": 1500})));
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(EventKind::Execute).unwrap() == 1));
        served.signal(Signal::SIGTERM);
        assert_eq!(calling.join().unwrap(), "waited 1500 ms");
    });
    assert_eq!(listening.events().next(), None, "the open stream just ends");
    drop(session);
    assert_eq!(served.wait_exit().code(), Some(0));
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

#[test]
fn a_server_request_is_answered_during_shutdown_and_nothing_new_begins() {
    let mut served = Served::start(&[]);
    let session = served.session(&json!({"elicitation": {}}));
    let mut events = session.call(2, "elicit", &json!({})).events();
    let question = events.next().unwrap().json();
    assert_eq!(question["method"], "elicitation/create");
    let mut idle = TcpStream::connect(served.address).unwrap();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    served.signal(Signal::SIGTERM);
    let health = || Request::new("GET", "/healthz").send(served.address).status;
    assert!(eventually(PATIENCE, || health() == 503));
    let mut refused = session.call(3, "echo", &json!({"text": "late"}));
    assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));
    assert!(refused.text().contains("shutting down"));
    // The response comes on a connection that was open before.
    let answer = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"name": "Ada"}}});
    let answer = session.request(Request::post(&answer));
    idle.write_all(&answer.bytes(served.address)).unwrap();
    assert_eq!(Response::read(Box::new(idle)).status, 202);
    let result = events.next().unwrap().json();
    assert!(result["id"] == 2 && result.to_string().contains("Ada"), "{result}");
    assert_eq!(events.next(), None);
    drop(session);
    assert_eq!(served.wait_exit().code(), Some(0));
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 1);
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

#[test]
fn what_takes_too_long_is_answered_all_the_same() {
    let mut served = Served::start(&[]);
    let session = served.session(&json!({}));
    thread::scope(|scope| {
        let calling = scope.spawn(|| session.call(2, "slow", &json!({"ms": 600_000})).json());
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(EventKind::Execute).unwrap() == 1));
        served.signal(Signal::SIGTERM);
        let answer = calling.join().unwrap();
        assert_eq!(answer["result"]["structuredContent"]["code"], "shutting_down", "{answer}");
    });
    drop(session);
    assert_eq!(served.wait_exit().code(), Some(0));
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

#[test]
fn a_second_signal_does_not_wait_for_the_first() {
    let mut served = Served::start(&["--shutdown-drain", "600000"]);
    let session = served.session(&json!({}));
    thread::scope(|scope| {
        let calling = scope.spawn(|| session.call(2, "slow", &json!({"ms": 600_000})).json());
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(EventKind::Execute).unwrap() == 1));
        served.signal(Signal::SIGTERM);
        let health = || Request::new("GET", "/healthz").send(served.address).status;
        assert!(eventually(PATIENCE, || health() == 503));
        served.signal(Signal::SIGTERM);
        let answer = calling.join().unwrap();
        assert_eq!(answer["result"]["structuredContent"]["code"], "shutting_down", "{answer}");
    });
    drop(session);
    assert_eq!(served.wait_exit().code(), Some(0));
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

#[test]
fn a_call_of_a_client_of_2024_is_finished_too() {
    let mut served = Served::start(&["--transport", "sse", "--shutdown-drain", "600000"]);
    let mut events = Request::get("/sse").send(served.address).events();
    let endpoint = events.next().unwrap().data;
    let post = |body: &Value| {
        let mut request = Request::post(body);
        request.target.clone_from(&endpoint);
        assert_eq!(request.send(served.address).status, 202);
    };
    post(&initialize("2024-11-05", &json!({})));
    events.next().unwrap();
    post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    post(&call(2, "slow", &json!({"ms": 700})));
    let journal = served.workspace.journal("a");
    assert!(eventually(PATIENCE, || journal.count(EventKind::Execute).unwrap() == 1));
    served.signal(Signal::SIGTERM);
    let answer = events.next().unwrap().json();
    assert_eq!(answer["result"]["content"][0]["text"], "waited 700 ms", "{answer}");
    assert_eq!(events.next(), None, "the stream just ends");
    assert_eq!(served.wait_exit().code(), Some(0));
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

/// A steady stream of new connections must not delay shutdown.
#[test]
fn a_drain_ends_while_clients_keep_coming() {
    let mut served = Served::start(&["--shutdown-drain", "100"]);
    let session = served.session(&json!({}));
    thread::scope(|scope| {
        let calling = scope.spawn(|| session.call(2, "slow", &json!({"ms": 600_000})).json());
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(EventKind::Execute).unwrap() == 1));
        served.signal(Signal::SIGTERM);
        let address = served.address;
        let coming = scope.spawn(move || while TcpStream::connect(address).is_ok() {});
        let answer = calling.join().unwrap();
        assert_eq!(answer["result"]["structuredContent"]["code"], "shutting_down", "{answer}");
        coming.join().unwrap();
    });
    drop(session);
    assert_eq!(served.wait_exit().code(), Some(0));
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

/// Responses larger than the socket buffers, for a slow reader.
#[test]
fn a_long_answer_leaves_before_the_end() {
    for (accept, road) in ROADS {
        let mut served = with_long_answers(&["--shutdown-drain", "600000"]);
        let session = served.session(&json!({}));
        let (mut answer, begun) = long_answer(&session, accept, road);
        served.signal(Signal::SIGTERM);
        let health = || Request::new("GET", "/healthz").send(served.address).status;
        // The gateway is still running although the call is done: the response has not been read yet.
        assert!(eventually(PATIENCE, || health() == 503), "{accept} {road:?}");
        let said = begun + &answer.text();
        assert!(said.len() > LONG && said.trim_end().ends_with('}'), "{road:?}: {}", said.len());
        drop(session);
        assert_eq!(served.wait_exit().code(), Some(0), "{accept}");
        assert_eq!(served.workspace.survivors(PATIENCE), []);
    }
}

#[test]
fn an_answer_that_nobody_reads_is_waited_for_no_longer_than_the_drain() {
    for (accept, road) in ROADS {
        let mut served = with_long_answers(&["--shutdown-drain", "100"]);
        let session = served.session(&json!({}));
        let _unread = long_answer(&session, accept, road);
        served.signal(Signal::SIGTERM);
        drop(session);
        assert_eq!(served.wait_exit().code(), Some(0), "{accept}");
        assert_eq!(served.workspace.survivors(PATIENCE), []);
    }
}

#[test]
fn it_does_not_listen_to_the_world_without_knowing_whom_to_let_in() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let run = |flags: &[&str]| {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_metamcp"));
        let mut command = workspace.command(program).unwrap();
        command.args(["--transport", "streamable", "--port", "0"]).args(flags);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let told = run(&["--host", "0.0.0.0"]);
    assert!(told.contains("0.0.0.0 can be reached from other machines"), "{told}");
    assert!(told.contains("--token-file"), "{told}");
    let told = run(&["--token-env", "NOT_SET"]);
    assert!(told.contains("NOT_SET, which is not set"), "{told}");
    let told = run(&["--tls"]);
    assert!(told.contains("--tls-cert is missing"), "{told}");
}

fn with_long_answers(flags: &[&str]) -> Served {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace.setting("limits", json!({"maxResultChars": 0}));
    Served::start_in(workspace, flags)
}

/// The response to a call with a long result, read only far enough to show that the result is there.
fn long_answer(session: &Session<'_>, accept: &str, (name, value): Header) -> (Response, String) {
    let mut request = Request::post(&call(2, "big", &json!({"bytes": LONG}))).with(name, value);
    for (name, value) in &mut request.headers {
        if name == "Accept" {
            accept.clone_into(value);
        }
    }
    let mut answer = session.request(request).send(session.served.address);
    assert_eq!(answer.status, 200);
    let mut begun = String::new();
    let is_stream = answer.header("content-type") == Some("text/event-stream");
    // A stream sends its head before the tool has run.
    while is_stream && !begun.contains("data: {") {
        begun += std::str::from_utf8(&answer.chunk().unwrap()).unwrap();
    }
    (answer, begun)
}
