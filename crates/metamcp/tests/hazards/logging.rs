//! Log messages of servers, and the log level the client sets.

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

#[test]
fn the_level_reaches_servers_that_run_and_those_that_start_later() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("runs", chaos_server(&[])).server("later", chaos_server(&[]));
    workspace.server("mute", chaos_server(&["capabilities-null"]));
    let gateway = Gateway::start(workspace);
    gateway.call("runs", "echo", &json!({"text": "x"}));
    for level in ["warning", "debug"] {
        let answer = gateway.ask("logging/setLevel", &json!({"level": level}), HUNG).unwrap();
        assert_eq!(answer.result(), Some(&json!({})));
    }
    gateway.call("later", "echo", &json!({"text": "x"}));
    gateway.call("mute", "echo", &json!({"text": "x"}));
    let levels = |server: &str| -> Vec<Value> {
        let told = gateway.workspace.journal(server).of(EventKind::Level).unwrap();
        told.into_iter().map(|record| record.detail["level"].clone()).collect()
    };
    assert!(eventually(HUNG, || levels("runs") == ["warning", "debug"]), "{:?}", levels("runs"));
    assert!(eventually(HUNG, || levels("later") == ["debug"]), "{:?}", levels("later"));
    assert_eq!(levels("mute"), Vec::<Value>::new(), "it did not say that it can log");
    gateway.end();
}

#[test]
fn a_level_that_does_not_exist_is_refused_and_reaches_nobody() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    gateway.call("a", "echo", &json!({"text": "x"}));
    for params in [json!({"level": "loud"}), json!({"level": 3}), json!({}), json!([])] {
        let answer = gateway.ask("logging/setLevel", &params, HUNG).unwrap();
        assert_eq!(answer.value["error"]["code"], -32602, "{params}: {}", answer.value);
    }
    gateway.call("a", "echo", &json!({"text": "x"}));
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").count(EventKind::Level).unwrap(), 0);
}

#[test]
fn log_messages_arrive_before_the_answer_that_follows_them() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    for number in 0..20 {
        let text = format!("caf\u{e9} \u{0} {number}");
        let answer = gateway.call("a", "log", &json!({"text": text}));
        assert_eq!(answer.text(), Some("logged"));
        // What has arrived by now came before it: the response is the last line.
        assert_eq!(answer.index + 1, gateway.lines().len());
        let logged = gateway.notifications("notifications/message");
        assert_eq!(logged.len(), number + 1);
        let expected = json!({"level": "info", "logger": "chaos", "data": text});
        assert_eq!(logged[number], expected);
    }
    gateway.end();
}
