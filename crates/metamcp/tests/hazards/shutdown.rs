//! The client disconnects: every open call is answered first, and every process exits.

use std::sync::mpsc::channel;

use metamcp_testkit::client::{Answerer, Reply};
use metamcp_testkit::{CallOutcome, EventKind, Workspace, chaos_server, eventually};
use serde_json::json;

use crate::gateway::{Gateway, HUNG};

#[test]
fn open_calls_are_answered_when_the_client_closes_its_end() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("busy", chaos_server(&["ignore-end-of-input", "ignore-signals"]));
    workspace.server("starting", chaos_server(&["never-initialize"]));
    workspace.setting("shutdownDrainMs", json!(0));
    let gateway = Gateway::start(workspace);
    let sent = gateway.mcp_call("busy", "slow", &json!({"ms": 240_000})).unwrap();
    let journal = gateway.workspace.journal("busy");
    assert!(eventually(HUNG, || journal.count(EventKind::Execute).unwrap() == 1));
    let waits = gateway.mcp_call("starting", "effect", &json!({"key": "k"})).unwrap();
    let starting = gateway.workspace.journal("starting");
    assert!(eventually(HUNG, || starting.count(EventKind::Initialize).unwrap() == 1));
    gateway.close_input();
    let CallOutcome::GatewayError(error) = CallOutcome::of(&gateway.answer(sent).value) else {
        panic!("a call that was cut off cannot be fine");
    };
    assert_eq!(error.code, "shutting_down", "{error:?}");
    assert_eq!(error.whole["details"]["sent"], true);
    // It waits for the tool list, so it is the gateway's own request that cannot be answered.
    let answer = gateway.answer(waits);
    let told = answer.value.to_string();
    assert!(told.contains("shutting down"), "{told}");
    gateway.end();
}

#[test]
fn a_client_that_reads_nothing_any_more_and_closes_its_end_is_gone() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace.setting("limits", json!({"maxResultChars": 0}));
    let (asked, heard) = channel();
    let (release, held) = channel::<()>();
    // The client's only reader is blocked while answering a server request.
    let answerer: Answerer = Box::new(move |_, _| {
        asked.send(()).ok();
        held.recv().ok();
        Reply::Silence
    });
    let mut gateway = Gateway::start_answering(workspace, &json!({"elicitation": {}}), answerer);
    gateway.mcp_call("a", "elicit", &json!({})).unwrap();
    heard.recv_timeout(HUNG).unwrap();
    // More than the output queue takes, and then some that is not even read.
    for _ in 0..8 {
        gateway.mcp_call("a", "big", &json!({"bytes": 4_000_000})).unwrap();
    }
    let journal = gateway.workspace.journal("a");
    assert!(eventually(HUNG, || journal.count(EventKind::Execute).unwrap() == 9));
    for _ in 0..100 {
        gateway.mcp_call("a", "echo", &json!({"text": "x"})).unwrap();
    }
    gateway.close_input();
    let ended = gateway.client.wait_exit(HUNG);
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(gateway.workspace.survivors(HUNG), []);
    drop(release);
}
