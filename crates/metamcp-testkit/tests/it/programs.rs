//! The two small programs of the benchmarks.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use metamcp_testkit::{CallOutcome, Client, programs};
use serde_json::json;

use super::PATIENCE;

#[test]
fn the_programs_are_found_beside_the_test() {
    assert_eq!(programs::chaos_child(), Path::new(env!("CARGO_BIN_EXE_chaos-child")));
    assert_eq!(programs::echo_child(), Path::new(env!("CARGO_BIN_EXE_echo-child")));
    assert_eq!(programs::copy_relay(), Path::new(env!("CARGO_BIN_EXE_copy-relay")));
}

#[test]
fn the_relay_carries_a_conversation_and_the_end_of_input() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_copy-relay"));
    command.arg(env!("CARGO_BIN_EXE_echo-child")).args(["--tools", "7"]);
    let mut client = Client::start(command).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    let list = client.ask("tools/list", &json!({}), PATIENCE).unwrap();
    assert_eq!(list.result().unwrap()["tools"].as_array().unwrap().len(), 9);

    let text = "0123456789\\\"é".repeat(100_000);
    let ids: Vec<u64> =
        (0..8).map(|_| client.call_tool("echo", &json!({"text": text})).unwrap()).collect();
    for id in ids {
        assert_eq!(client.wait(id, PATIENCE).unwrap().text(), Some(text.as_str()));
    }
    let id = client.call_tool("blob", &json!({"bytes": 10_000_000})).unwrap();
    assert_eq!(client.wait(id, PATIENCE).unwrap().text().unwrap().len(), 10_000_000);
    assert_eq!(client.violations(), Vec::<String>::new());
    client.close_input();
    assert!(client.wait_exit(PATIENCE).unwrap().success());
}

#[test]
fn the_relay_passes_on_the_exit_code_and_names_what_it_cannot_start() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_copy-relay"));
    command.args(["sh", "-c", "exit 7"]);
    assert_eq!(command.status().unwrap().code(), Some(7));
    let output =
        Command::new(env!("CARGO_BIN_EXE_copy-relay")).arg("/no/such/program").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"));
}

#[test]
fn many_calls_in_flight_are_each_answered_once() {
    let client = Client::start(Command::new(env!("CARGO_BIN_EXE_echo-child"))).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    let calls: Vec<(u64, String)> = (0..2_000)
        .map(|number| {
            let text = format!("call {number}");
            (client.call_tool("echo", &json!({"text": text})).unwrap(), text)
        })
        .collect();
    for (id, text) in calls {
        assert_eq!(client.wait(id, PATIENCE).unwrap().text(), Some(text.as_str()));
    }
    let refused = client.ask("server/discover", &json!({}), PATIENCE).unwrap();
    assert!(matches!(CallOutcome::of(&refused.value), CallOutcome::Protocol { code: -32601, .. }));
    assert_eq!(client.violations(), Vec::<String>::new());
}

#[test]
fn a_slow_start_is_slow() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_echo-child"));
    command.args(["--slow-start", "600000"]);
    let client = Client::start(command).unwrap();
    assert!(client.initialize(&json!({}), Duration::from_millis(50)).is_err());
}
