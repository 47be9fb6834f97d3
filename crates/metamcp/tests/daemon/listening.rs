//! `metamcp --transport http`: the daemon listens, for as long as that process lives.

use metamcp_testkit::{Workspace, chaos_server, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::crowd::{HUNG, command, daemon, join, starts, status, workspace};
use crate::http::Listening;

fn with() -> Workspace {
    let mut workspace = workspace();
    workspace.server("one", chaos_server(&[]).setting("share", json!("machine")));
    workspace.write_config().unwrap();
    workspace
}

fn echo(listening: &Listening, text: &str) -> Result<String, String> {
    let answer = listening.call("one", "echo", &json!({"text": text}))?;
    let said = answer["result"]["content"][0]["text"].as_str();
    said.map(str::to_owned).ok_or_else(|| answer.to_string())
}

#[test]
fn the_daemon_listens_and_says_where() {
    let workspace = with();
    let mut listening = Listening::start(&workspace, 0);
    assert_eq!(echo(&listening, "hello"), Ok("hello".to_owned()));
    let told = status(&workspace);
    let address = format!("http://{}/mcp", listening.address);
    assert_eq!(told["listeners"], json!([address]), "{told:#}");
    // A client over stdio uses the same process of the server.
    let client = join(command(&workspace));
    let answer = client.mcp_call_now("one", "echo", &json!({"text": "x"}), HUNG).unwrap();
    assert_eq!(answer.text(), Some("x"));
    assert_eq!(starts(&workspace, "one"), 1);
    listening.signal(Signal::SIGTERM);
    assert!(listening.wait_exit().success());
    assert!(!listening.is_open(), "the port is still taken");
    assert_eq!(status(&workspace)["listeners"], json!([]));
    // The next one may have it.
    let next = Listening::start(&workspace, listening.address.port());
    assert_eq!(echo(&next, "again"), Ok("again".to_owned()));
    assert_eq!(workspace.daemons().len(), 1);
}

#[test]
fn a_configuration_that_wants_http_has_the_daemon_listen() {
    let mut workspace = with();
    workspace.setting("serve", json!({ "transport": "http", "port": 0 }));
    workspace.write_config().unwrap();
    let mut listening = Listening::start_as(&workspace, &[]);
    assert_eq!(echo(&listening, "hello"), Ok("hello".to_owned()));
    let address = format!("http://{}/mcp", listening.address);
    assert_eq!(status(&workspace)["listeners"], json!([address]));
    listening.signal(Signal::SIGTERM);
    assert!(listening.wait_exit().success());
}

#[test]
fn a_listener_comes_back_at_its_port_when_the_daemon_is_killed() {
    let workspace = with();
    let mut listening = Listening::start(&workspace, 0);
    for round in 0..3 {
        assert_eq!(echo(&listening, "before"), Ok("before".to_owned()));
        let old = daemon(&workspace);
        kill(Pid::from_raw(i32::try_from(old).unwrap()), Signal::SIGKILL).unwrap();
        let back = || echo(&listening, "after").as_deref() == Ok("after");
        assert!(eventually(HUNG, back), "round {round}: {:?}", echo(&listening, "after"));
        assert_ne!(daemon(&workspace), old);
    }
    assert!(!listening.is_over());
    listening.signal(Signal::SIGTERM);
    assert!(listening.wait_exit().success());
    assert!(!listening.is_open());
}

#[test]
fn a_port_that_is_taken_is_said() {
    let workspace = with();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = command(&workspace).args(["--transport", "http", "--port", &port]).output();
    let output = output.unwrap();
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&port), "{said}");
}
