//! Being told to go while clients are at work.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use metamcp_testkit::{What, Workspace, chaos_server, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::served::Served;
use crate::wire::{PATIENCE, Request, Response};

/// The drain is 5 s long and children get 1.6 s. Twice over and more is a hang, whatever the machine does.
const HUNG: Duration = Duration::from_secs(20);

#[test]
fn what_is_under_way_is_finished_and_open_streams_do_not_hold_it_up() {
    let mut served = Served::start(&[]);
    let session = served.session(&json!({}));
    let listening = session.listen();
    thread::scope(|scope| {
        let calling = scope.spawn(|| session.text(2, "slow", &json!({"ms": 1500})));
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(What::Execute).unwrap() == 1));
        served.signal(Signal::SIGTERM);
        assert_eq!(calling.join().unwrap(), "waited 1500 ms");
    });
    assert_eq!(listening.events().next(), None, "the open stream just ends");
    drop(session);
    assert_eq!(served.wait_exit().code(), Some(0));
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

#[test]
fn a_question_is_answered_while_it_ends_and_nothing_new_begins() {
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
    // The answer comes on a connection that was there before.
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
    assert_eq!(served.workspace.journal("a").count(What::Execute).unwrap(), 1);
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

#[test]
fn what_takes_too_long_is_answered_all_the_same() {
    let mut served = Served::start(&[]);
    let session = served.session(&json!({}));
    let began = thread::scope(|scope| {
        let calling = scope.spawn(|| session.call(2, "slow", &json!({"ms": 600_000})).json());
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(What::Execute).unwrap() == 1));
        let began = Instant::now();
        served.signal(Signal::SIGTERM);
        let answer = calling.join().unwrap();
        assert_eq!(answer["result"]["structuredContent"]["code"], "shutting_down", "{answer}");
        began
    });
    drop(session);
    assert_eq!(served.wait_exit().code(), Some(0));
    assert!(began.elapsed() < HUNG, "{:?}", began.elapsed());
    assert_eq!(served.workspace.survivors(PATIENCE), []);
}

#[test]
fn a_second_signal_does_not_wait_for_the_first() {
    let mut served = Served::start(&["--shutdown-drain", "600000"]);
    let session = served.session(&json!({}));
    thread::scope(|scope| {
        let calling = scope.spawn(|| session.call(2, "slow", &json!({"ms": 600_000})).json());
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(What::Execute).unwrap() == 1));
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

/// New connections all the time must not put the end off.
#[test]
fn a_drain_ends_while_clients_keep_coming() {
    let mut served = Served::start(&["--shutdown-drain", "100"]);
    let session = served.session(&json!({}));
    thread::scope(|scope| {
        let calling = scope.spawn(|| session.call(2, "slow", &json!({"ms": 600_000})).json());
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(What::Execute).unwrap() == 1));
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
