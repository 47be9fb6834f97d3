//! Servers that are slow: to start, to respond, to read.

use std::os::unix::fs::symlink;

use metamcp_testkit::{EventKind, Server, Workspace, census, chaos_server, eventually, programs};
use serde_json::json;

use crate::gateway::{Gateway, HUNG};

#[test]
fn a_call_that_ran_out_of_time_may_have_run_and_is_not_sent_again() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&["hang-after-effect"]).setting("timeoutMs", json!(700)));
    let gateway = Gateway::start(workspace);
    let journal = gateway.workspace.journal("a");
    // Not even one that is marked idempotent.
    for tool in ["effect", "effect_idempotent"] {
        let error = gateway.refusal("a", tool, &json!({"key": tool}));
        assert_eq!(error.code, "timeout", "{error:?}");
        assert_eq!(error.whole["details"]["sent"], true);
        assert_eq!(error.whole["details"]["outcome"], "unknown");
        assert!(!error.retryable);
        assert!(eventually(HUNG, || journal.executions(tool).unwrap() == 1));
    }
    // The server is notified of the cancellation.
    assert!(eventually(HUNG, || journal.count(EventKind::Cancelled).unwrap() == 2));
    let ran = journal.of(EventKind::Execute).unwrap();
    let cancelled = journal.of(EventKind::Cancelled).unwrap();
    for (ran, cancelled) in ran.iter().zip(&cancelled) {
        assert_eq!(ran.detail["id"], cancelled.detail["requestId"]);
    }
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").count(EventKind::Execute).unwrap(), 2);
}

#[test]
fn progress_gives_a_call_its_time_again() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]).setting("timeoutMs", json!(3_000)));
    let gateway = Gateway::start(workspace);
    let params = json!({
        "name": "mcp_call",
        "arguments": {"server": "a", "tool": "progress", "args": {"count": 5, "ms": 700}},
        "_meta": {"progressToken": 1},
    });
    let answer = gateway.ask("tools/call", &params, HUNG).unwrap();
    assert_eq!(answer.text(), Some("5 steps"), "{}", answer.value);
    gateway.end();
}

#[test]
fn a_server_that_never_shakes_hands_is_given_up() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&["never-initialize"]));
    workspace.setting("timeouts", json!({"connectTimeoutMs": 700}));
    let gateway = Gateway::start(workspace);
    let error = gateway.refusal("a", "effect", &json!({"key": "k"}));
    assert_eq!(error.code, "server_unavailable", "{error:?}");
    assert!(error.retryable, "nothing was sent");
    gateway.end();
}

#[test]
fn an_installer_that_shows_activity_is_not_timed_out() {
    let mut workspace = Workspace::new().unwrap();
    // Only package runners get more time to start, and they are recognised by name.
    let installer = workspace.file("npx");
    symlink(programs::chaos_child(), &installer).unwrap();
    let arguments = ["--do", "slow-installer=4000"];
    workspace.server("installer", Server::new(&installer, &arguments));
    workspace.server("other", chaos_server(&["slow-installer=4000"]));
    workspace.setting("timeouts", json!({"connectTimeoutMs": 2_000, "installTimeoutMs": 40_000}));
    let gateway = Gateway::start(workspace);
    let installing = gateway.mcp_call("installer", "effect", &json!({"key": "k"})).unwrap();
    let error = gateway.refusal("other", "effect", &json!({"key": "k"}));
    assert_eq!(error.code, "server_unavailable", "{error:?}");
    let answer = gateway.answer(installing);
    assert_eq!(answer.text(), Some("done k"), "{}", answer.value);
    gateway.end();
}

#[test]
fn a_server_that_stops_reading_is_replaced_and_what_it_did_not_read_goes_to_the_next() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    assert_eq!(gateway.call("a", "echo", &json!({"text": "x"})).text(), Some("x"));
    assert!(census::freeze(&gateway.only_child()));
    let args = json!({"key": "k", "padding": "p".repeat(1 << 20)});
    let answer = gateway.call("a", "effect", &args);
    assert_eq!(answer.text(), Some("done k"), "{}", answer.value);
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").executions("k").unwrap(), 1);
}
