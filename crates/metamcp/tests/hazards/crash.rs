//! A server dies during a call: what may have run is never replayed, what cannot have run is.

use metamcp_testkit::{CallOutcome, EventKind, Record, Server, Workspace, census, chaos_server};
use serde_json::json;

use crate::gateway::Gateway;

#[test]
fn a_call_that_ran_before_the_crash_is_not_repeated() {
    let mut workspace = Workspace::new().unwrap();
    let server = dies_once(&workspace, "die-before-reply");
    workspace.server("a", server);
    let gateway = Gateway::start(workspace);
    let error = gateway.refusal("a", "effect", &json!({"key": "k"}));
    assert_eq!(error.code, "outcome_unknown", "{error:?}");
    assert_eq!(error.server.as_deref(), Some("a"));
    assert_eq!(error.category.as_deref(), Some("stdio-exit"));
    assert_eq!(error.whole["details"]["sent"], true);
    assert!(!error.retryable, "repeating it is not ours to advise");
    // The next call gets a fresh process.
    assert_eq!(gateway.call("a", "effect", &json!({"key": "next"})).text(), Some("done next"));
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").executions("k").unwrap(), 1);
    assert_eq!(workspace.journal("a").executions("next").unwrap(), 1);
}

#[test]
fn a_read_only_call_is_replayed_once_under_a_new_id_and_the_same_key() {
    for tool in ["echo", "effect_idempotent"] {
        let mut workspace = Workspace::new().unwrap();
        let server = dies_once(&workspace, "die-before-reply");
        workspace.server("a", server);
        let gateway = Gateway::start(workspace);
        let (args, text) = match tool {
            "echo" => (json!({"text": "k"}), "k"),
            _ => (json!({"key": "k"}), "done k"),
        };
        assert_eq!(gateway.call("a", tool, &args).text(), Some(text));
        let workspace = gateway.end();
        let ran = workspace.journal("a").of(EventKind::Execute).unwrap();
        let [first, second] = &ran[..] else { panic!("{tool} ran {ran:?}") };
        assert!(first.call.is_some(), "{first:?}");
        assert_eq!(first.call, second.call);
        assert_ne!(first.detail["id"], second.detail["id"]);
        assert_eq!(workspace.journal("a").count(EventKind::Start).unwrap(), 2);
    }
}

#[test]
fn two_calls_have_two_keys() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    for _ in 0..2 {
        gateway.call("a", "echo", &json!({"text": "same"}));
    }
    let ran: Vec<Record> = gateway.end().journal("a").of(EventKind::Execute).unwrap();
    assert_ne!(ran[0].call, ran[1].call);
}

#[test]
fn the_operator_may_forbid_or_order_the_replay() {
    for (retry, tool, runs) in [("never", "echo", 1), ("always", "effect", 2)] {
        let mut workspace = Workspace::new().unwrap();
        let server = dies_once(&workspace, "die-before-reply");
        workspace.server("a", server.setting("retry", json!(retry)));
        let gateway = Gateway::start(workspace);
        let outcome = gateway.outcome("a", tool, &json!({"key": "k", "text": "k"}));
        match runs {
            1 => assert_eq!(outcome.code(), Some("outcome_unknown"), "{retry}"),
            _ => assert_eq!(outcome, CallOutcome::Success, "{retry}"),
        }
        assert_eq!(gateway.end().journal("a").executions("k").unwrap(), runs, "{retry}");
    }
}

#[test]
fn a_call_the_server_cannot_have_read_is_sent_to_the_next_process() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    assert_eq!(gateway.call("a", "echo", &json!({"text": "x"})).text(), Some("x"));
    let child = gateway.only_child();
    assert!(census::freeze(&child));
    // Far more than a pipe holds, so the child is certain to die before the end of the line.
    let args = json!({"key": "k", "padding": "p".repeat(1 << 20)});
    let id = gateway.mcp_call("a", "effect", &args).unwrap();
    // Once this is answered, the gateway has read the call.
    gateway.ping();
    census::kill_all(&[child]);
    assert_eq!(gateway.answer(id).text(), Some("done k"));
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").executions("k").unwrap(), 1);
    assert_eq!(workspace.journal("a").count(EventKind::Start).unwrap(), 2);
}

#[test]
fn a_server_that_cannot_start_is_reported_with_its_stderr() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&["exit-at-start"]));
    workspace.server("missing", Server::new("/no/such/program", &[]));
    let gateway = Gateway::start(workspace);
    let error = gateway.refusal("a", "effect", &json!({"key": "k"}));
    assert_eq!(error.code, "server_unavailable");
    assert!(error.whole["details"]["stderr"].to_string().contains("left-pad"), "{error:?}");
    let error = gateway.refusal("missing", "effect", &json!({"key": "k"}));
    assert_eq!(error.code, "server_unavailable");
    assert_eq!(error.category.as_deref(), Some("offline"));
    assert!(error.message.contains("/no/such/program"), "{error:?}");
    gateway.end();
}

/// A server whose first process misbehaves; all later ones are correct.
fn dies_once(workspace: &Workspace, item: &str) -> Server {
    let once = workspace.file("once");
    chaos_server(&[item]).argument("--once").argument(&once.to_string_lossy())
}
