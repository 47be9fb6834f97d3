//! Being told to go while clients are at work.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use metamcp_testkit::{What, Workspace, chaos_server, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::served::Served;
use crate::wire::PATIENCE;

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
