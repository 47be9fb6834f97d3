//! The client cancels a request: its server is notified, no response is sent, nothing is left waiting.

use std::time::Duration;

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use serde_json::json;

use crate::gateway::{Gateway, HUNG};

/// Long enough that only a cancellation ends it within a test.
const FOR_EVER: u64 = 240_000;

#[test]
fn a_cancelled_call_reaches_the_child_under_the_childs_own_id() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    let journal = gateway.workspace.journal("a");
    let id = gateway.mcp_call("a", "slow", &json!({"ms": FOR_EVER})).unwrap();
    assert!(eventually(HUNG, || journal.count(EventKind::Execute).unwrap() == 1));
    cancel(&gateway, &json!(id));
    assert!(eventually(HUNG, || journal.count(EventKind::Cancelled).unwrap() == 1));
    let theirs = &journal.of(EventKind::Execute).unwrap()[0].detail["id"];
    let cancelled = &journal.of(EventKind::Cancelled).unwrap()[0].detail;
    assert_eq!(&cancelled["requestId"], theirs);
    // The server still works.
    assert_eq!(gateway.call("a", "echo", &json!({"text": "x"})).text(), Some("x"));
    assert_unanswered(&gateway, id);
    gateway.end();
}

#[test]
fn a_late_answer_to_a_cancelled_call_is_dropped() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&["reply-late=300"]).argument("--only").argument("late"));
    let gateway = Gateway::start(workspace);
    let journal = gateway.workspace.journal("a");
    let id = gateway.mcp_call("a", "effect", &json!({"key": "late"})).unwrap();
    assert!(eventually(HUNG, || journal.executions("late").unwrap() == 1));
    cancel(&gateway, &json!(id));
    // Answered by the same process, long after the late response.
    let answer = gateway.call("a", "slow", &json!({"ms": 1500}));
    assert_eq!(answer.text(), Some("waited 1500 ms"));
    assert_unanswered(&gateway, id);
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").executions("late").unwrap(), 1);
}

#[test]
fn a_call_cancelled_while_its_server_starts_is_never_sent() {
    let mut workspace = Workspace::new().unwrap();
    // Its tools are not cached yet, so the call waits for the list.
    workspace.server("unknown", chaos_server(&["answer-initialize-late=1000"]));
    // Its tools are cached by the first call, so the second waits for the process alone.
    let ephemeral = chaos_server(&["answer-initialize-late=1000"]);
    workspace.server("known", ephemeral.setting("lifecycle", json!("ephemeral")));
    let gateway = Gateway::start(workspace);
    assert_eq!(gateway.call("known", "effect", &json!({"key": "k"})).text(), Some("done k"));
    for server in ["unknown", "known"] {
        let journal = gateway.workspace.journal(server);
        let starts = journal.count(EventKind::Start).unwrap();
        let id = gateway.mcp_call(server, "effect", &json!({"key": "cancelled"})).unwrap();
        assert!(eventually(HUNG, || journal.count(EventKind::Start).unwrap() > starts));
        cancel(&gateway, &json!(id));
        let answer = gateway.call(server, "effect", &json!({"key": "after"}));
        assert_eq!(answer.text(), Some("done after"));
        assert_unanswered(&gateway, id);
        assert_eq!(journal.executions("cancelled").unwrap(), 0, "{server}");
        assert_eq!(journal.count(EventKind::Cancelled).unwrap(), 0, "{server}: what was not sent");
    }
    gateway.end();
}

#[test]
fn cancelling_an_unknown_request_does_nothing() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    assert_eq!(gateway.call("a", "echo", &json!({"text": "x"})).text(), Some("x"));
    let id = gateway.mcp_call("a", "slow", &json!({"ms": 500})).unwrap();
    // None of these match: another type is another id.
    for other in [json!(id.to_string()), json!(id + 1000), json!(null), json!({}), json!([id])] {
        cancel(&gateway, &other);
    }
    gateway.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#).unwrap();
    gateway.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#).unwrap();
    assert_eq!(gateway.answer(id).text(), Some("waited 500 ms"));
    // Too late as well.
    cancel(&gateway, &json!(id));
    gateway.ping();
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").count(EventKind::Cancelled).unwrap(), 0);
}

fn cancel(gateway: &Gateway, id: &serde_json::Value) {
    let params = json!({"requestId": id, "reason": "changed my mind"});
    gateway.notify("notifications/cancelled", &params).unwrap();
}

fn assert_unanswered(gateway: &Gateway, id: u64) {
    gateway.ping();
    let answer = gateway.wait(id, Duration::ZERO);
    assert!(answer.is_err(), "a cancelled request was answered: {answer:?}");
}
