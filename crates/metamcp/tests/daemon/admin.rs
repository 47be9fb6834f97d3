//! What an operator does to servers, and an admin connection that is spoken to in all the wrong ways.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use metamcp_testkit::{Workspace, chaos_server, eventually};
use metamcp_wire::local::{Hello, Kind};
use serde_json::{Value, json};

use crate::calls::{parsed, text};
use crate::crowd::{HUNG, command, join, process, shell, stateful, status, told, workspace};

/// Consecutive failures that open a circuit breaker.
const THRESHOLD: usize = 5;

/// A connection of an operator.
struct Operator(BufReader<UnixStream>);

impl Operator {
    fn connect(workspace: &Workspace) -> Operator {
        let status = status(workspace);
        let stream = UnixStream::connect(status["socket"].as_str().unwrap()).unwrap();
        stream.set_read_timeout(Some(HUNG)).unwrap();
        let version = status["version"].as_str().unwrap();
        let hello = Hello::plain(version, Kind::Admin, std::process::id());
        (&stream).write_all(&hello.to_line()).unwrap();
        let mut operator = Operator(BufReader::new(stream));
        operator.line().expect("a reply to the hello");
        operator
    }

    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    fn say(&mut self, words: &[u8]) -> Option<Value> {
        self.0.get_ref().write_all(words).unwrap();
        self.0.get_ref().write_all(b"\n").unwrap();
        self.line()
    }
}

#[test]
fn a_restart_gives_another_process_and_loses_no_call() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.server("slow", chaos_server(&[]));
    workspace.write_config().unwrap();
    let client = join(command(&workspace));
    let before = process(&client, "kept");
    let told_of = parsed(&workspace, &["restart", "kept", "--json"]);
    assert_eq!(told_of["instances"][0]["wasRunning"], true, "{told_of}");
    let after = process(&client, "kept");
    assert_ne!(before, after);

    // A call in flight finishes where it is.
    client.mcp_call_now("slow", "echo", &json!({"text": "x"}), HUNG).unwrap();
    let go = workspace.file("go");
    let id = client.mcp_call("slow", "slow", &json!({"ms": 0, "until": go})).unwrap();
    let is_sent = || {
        let all = status(&workspace)["servers"].clone();
        let slow = all.as_array().unwrap().iter().find(|server| server["name"] == "slow").cloned();
        slow.is_some_and(|slow| slow["instances"][0]["inFlight"] == 1)
    };
    assert!(eventually(HUNG, is_sent));
    let said = text(&workspace, &["restart", "slow"]);
    assert!(said.contains("once its calls are finished"), "{said}");
    std::fs::write(&go, "").unwrap();
    let answer = client.wait(id, HUNG).unwrap();
    assert!(answer.text().is_some(), "{}", answer.value);
    assert!(client.violations().is_empty(), "{:?}", client.violations());
    assert_eq!(workspace.daemons().len(), 1);
}

#[test]
fn a_restart_closes_the_breaker_and_what_it_refused_has_two_steps() {
    let mut workspace = workspace();
    let silent = chaos_server(&["hang-after-effect"]).setting("timeoutMs", json!(500));
    workspace.server("broken", silent);
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    let client = join(command(&workspace));
    let breaker = || {
        let all = status(&workspace)["servers"].clone();
        let broken =
            all.as_array().unwrap().iter().find(|server| server["name"] == "broken").cloned();
        broken.map(|broken| broken["breaker"].as_str().unwrap().to_owned()).unwrap_or_default()
    };
    // As many as open it, at once.
    let ask =
        |key: usize| client.mcp_call("broken", "effect", &json!({"key": key.to_string()})).unwrap();
    let asked: Vec<u64> = (0..THRESHOLD).map(ask).collect();
    for id in asked {
        client.wait(id, HUNG).unwrap();
    }
    assert!(eventually(HUNG, || breaker() == "open"));
    client.wait(ask(THRESHOLD), HUNG).unwrap();
    let last = parsed(&workspace, &["calls", "--json", "--server", "broken", "-n", "1"]);
    let call = &last["calls"][0];
    assert_eq!((&call["outcome"], &call["waitedUs"]), (&json!("failed"), &Value::Null), "{call}");
    let shown = parsed(&workspace, &["calls", "show", &call["id"].to_string(), "--json"]);
    assert_eq!(shown["steps"].as_array().unwrap().len(), 2, "{shown:#}");
    let words = text(&workspace, &["calls", "show", &call["id"].to_string()]);
    assert!(words.contains("It was not sent to the server"), "{words}");
    let screen = text(&workspace, &["status"]);
    assert!(screen.contains("circuit breaker open: broken"), "{screen}");
    assert!(screen.contains("last warnings"), "{screen}");
    text(&workspace, &["restart", "broken"]);
    assert_eq!(breaker(), "normal");

    let unknown = shell(&workspace, &["restart", "kep"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.code() == Some(2) && said.contains("did you mean `kept`"), "{said}");
}

#[test]
fn garbage_on_an_admin_connection_gets_an_error_and_service_goes_on() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    let client = join(command(&workspace));
    told(&client, "kept", "remember", &json!({"key": "x"}));
    let mut operator = Operator::connect(&workspace);
    for garbage in [
        &b"no json"[..],
        b"[]",
        b"{}",
        b"{\"ask\":7}",
        b"\xff\xfe",
        b"{\"ask\":\"calls\",\"params\":{\"most\":\"all\"}}",
        b"{\"ask\":\"call\",\"params\":{\"id\":-1}}",
        b"{\"ask\":\"restart\",\"params\":[[[[]]]]}",
    ] {
        let answer = operator.say(garbage).unwrap();
        assert_eq!(answer["error"]["code"], "bad_params", "{answer}");
    }
    for (request, code) in [
        ("{\"ask\":\"weather\"}", "unknown_request"),
        ("{\"ask\":\"call\",\"params\":{\"id\":99999999}}", "not_found"),
        ("{\"ask\":\"logs\",\"params\":{\"server\":\"\\u001b[2J\"}}", "not_found"),
        ("{\"ask\":\"restart\"}", "not_found"),
    ] {
        let answer = operator.say(request.as_bytes()).unwrap();
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert!(!answer.to_string().contains('\u{1b}'));
    }
    let many =
        operator.say(b"{\"ask\":\"calls\",\"params\":{\"most\":18446744073709551615}}").unwrap();
    assert_eq!(many["ok"]["calls"].as_array().unwrap().len(), 1, "{many}");

    // Longer than a request may be: the connection ends, and nothing else does.
    let mut stream = Operator::connect(&workspace).0;
    let megabyte = vec![b'x'; 1 << 20];
    let mut sent = 0;
    while sent < 64 && stream.get_ref().write_all(&megabyte).is_ok() {
        sent += 1;
    }
    assert!(sent < 64, "it took everything");
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest));
    assert!(operator.say(b"{\"ask\":\"overview\"}").unwrap()["ok"]["status"]["pid"].is_u64());
    told(&client, "kept", "recall", &json!({}));
    assert_eq!(workspace.daemons().len(), 1);
}
