//! One client: documents and streams, resuming a stream, server requests, and disconnecting.

use metamcp_testkit::{EventKind, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::served::{Served, call, initialize};
use crate::wire::{Event, PATIENCE, Request};

#[test]
fn a_session_from_its_beginning_to_its_end() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    let mut listed =
        session.post(&json!({"jsonrpc": "2.0", "id": "x", "method": "tools/list", "params": {}}));
    assert_eq!(listed.header("content-type"), Some("application/json"));
    assert_eq!(listed.json()["id"], "x");
    assert_eq!(session.text(7, "echo", &json!({"text": "grüezi"})), "grüezi");
    // Pretty-printed, with line breaks, and accepted all the same.
    let pretty = format!("{:#}", call(8, "echo", &json!({"text": "two\nlines"})));
    let mut answer = session.request(Request::post(&json!(0)).body(&pretty)).send(served.address);
    assert_eq!(answer.json()["result"]["content"][0]["text"], "two\nlines");
    let delete = || session.request(Request::new("DELETE", "/mcp")).send(served.address).status;
    assert_eq!(delete(), 204);
    assert_eq!(delete(), 404);
    let mut gone = session.call(9, "echo", &json!({"text": "x"}));
    assert_eq!(gone.status, 404);
    assert!(gone.json()["error"]["message"].as_str().unwrap().contains("initialize"));
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 2);
    served.end();
}

#[test]
fn progress_comes_before_the_answer_on_the_stream_of_its_request() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    let events: Vec<Event> = session.call(3, "progress", &json!({"count": 5})).events().collect();
    let messages: Vec<_> = events.iter().map(Event::json).collect();
    let (answer, progress) = messages.split_last().unwrap();
    assert_eq!(answer["id"], 3);
    // If the call is slow to start, the gateway reports that it has begun.
    let is_servers = |message: &&serde_json::Value| message["params"]["progress"] != 0;
    let progress: Vec<_> = progress.iter().filter(is_servers).collect();
    assert_eq!(progress.len(), 5);
    for (at, message) in progress.iter().enumerate() {
        assert_eq!(message["params"]["progress"], at + 1);
        assert_eq!(message["params"]["progressToken"], "token 3");
    }
    served.end();
}

#[test]
fn a_client_that_lost_its_stream_comes_back_to_it() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    let mut events = session.call(3, "progress", &json!({"count": 6, "ms": 50})).events();
    let first = events.next().unwrap();
    drop(events);
    let again = |last: &str| {
        let request = session.request(Request::get("/mcp")).with("Last-Event-ID", last);
        request.send(served.address).events()
    };
    let rest: Vec<Event> = again(&first.id).collect();
    assert_eq!(
        rest.last().unwrap().json()["id"],
        3,
        "the call went on, and its stream ends with it"
    );
    assert_eq!(rest.len(), 6, "{rest:?}");
    // Once more, after the stream has ended.
    let last_two: Vec<Event> = again(&rest[3].id).collect();
    assert_eq!(last_two, rest[4..]);
    let foreign = session.request(Request::get("/mcp")).with("Last-Event-ID", "not one of ours");
    assert_eq!(foreign.send(served.address).status, 400);
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 1);
    served.end();
}

#[test]
fn server_requests_use_the_stream_of_the_call() {
    let served = Served::start(&[]);
    let session = served.session(&json!({"elicitation": {}}));
    let mut events = session.call(4, "elicit", &json!({})).events();
    let question = events.next().unwrap().json();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"name": "Ada"}}});
    // Another session that guesses the id cannot answer in its place.
    let other = served.session(&json!({"elicitation": {}}));
    let forged = json!({"jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": {"name": "Eve"}}});
    assert_eq!(other.post(&forged).status, 202);
    assert_eq!(session.post(&answer).status, 202);
    let result = events.next().unwrap().json();
    assert_eq!(result["id"], 4);
    assert_eq!(result["result"]["structuredContent"]["result"]["content"]["name"], "Ada");
    assert_eq!(events.next(), None);
    served.end();
}

#[test]
fn logs_take_the_stream_of_the_call_and_nobody_elses() {
    let served = Served::start(&[]);
    let (one, two) = (served.session(&json!({})), served.session(&json!({})));
    let mut other = two.listen().events();
    let events: Vec<Event> = one.call(5, "log", &json!({"text": "mine"})).events().collect();
    assert_eq!(events[0].json()["params"]["data"], "mine");
    assert_eq!(events[1].json()["id"], 5);
    // The other session's stream ends with the gateway, and stayed empty.
    served.signal(Signal::SIGTERM);
    assert_eq!(other.next(), None);
}

#[test]
fn a_cancelled_call_is_not_answered_and_its_stream_ends() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    let mut events = session.call(6, "progress", &json!({"count": 1000, "ms": 20})).events();
    events.next().unwrap();
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}});
    assert_eq!(session.post(&cancel).status, 202);
    assert!(events.all(|event| event.json()["id"] != 6));
    let journal = served.workspace.journal("a");
    assert!(eventually(PATIENCE, || journal.count(EventKind::Cancelled).unwrap() == 1));
    served.end();
}

#[test]
fn an_id_in_flight_is_refused() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    let mut events = session.call(6, "progress", &json!({"count": 1000, "ms": 20})).events();
    events.next().unwrap();
    let mut second = session.call(6, "echo", &json!({"text": "x"}));
    assert_eq!(second.status, 400);
    assert!(second.text().contains("under way"));
    assert_eq!(served.workspace.journal("a").executions("x").unwrap(), 0);
}

#[test]
fn without_sessions_each_request_stands_alone() {
    let served = Served::start(&["--stateless"]);
    let mut hello = Request::post(&initialize("2025-06-18", &json!({}))).send(served.address);
    assert_eq!(hello.header("mcp-session-id"), None);
    assert_eq!(hello.json()["result"]["protocolVersion"], "2025-06-18");
    let mut answer = Request::post(&call(1, "echo", &json!({"text": "hi"}))).send(served.address);
    assert_eq!(answer.json()["result"]["content"][0]["text"], "hi");
    // Disconnecting cancels the call.
    let long = Request::post(&call(1, "progress", &json!({"count": 1000, "ms": 20})));
    let mut events = long.send(served.address).events();
    events.next().unwrap();
    drop(events);
    let journal = served.workspace.journal("a");
    assert!(eventually(PATIENCE, || journal.count(EventKind::Cancelled).unwrap() == 1));
    served.end();
}

#[test]
fn documents_only_where_the_operator_says_so() {
    let served = Served::start(&["--json-response"]);
    let session = served.session(&json!({}));
    let mut answer = session.call(3, "progress", &json!({"count": 5, "ms": 10}));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()["result"]["content"][0]["text"], "5 steps");
    // Progress goes to the listening stream.
    let mut events = session.listen().events();
    assert_eq!(events.next().unwrap().json()["method"], "notifications/progress");
    served.end();
}

#[test]
fn several_messages_at_once_as_one_revision_allowed() {
    let served = Served::start(&[]);
    let batch =
        json!([call(1, "echo", &json!({"text": "one"})), call(2, "echo", &json!({"text": "two"}))]);
    let old = served.session_of("2025-03-26", &json!({}));
    let events: Vec<Event> = old.post(&batch).events().collect();
    let mut ids: Vec<u64> =
        events.iter().map(|event| event.json()["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    let new = served.session_of("2025-06-18", &json!({}));
    assert_eq!(new.post(&batch).status, 400);
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 2);
    served.end();
}

#[test]
fn a_large_result_is_the_same_on_both_ways() {
    let served = Served::start(&["--max-result-chars", "0"]);
    let session = served.session(&json!({}));
    let text = session.text(1, "big", &json!({"bytes": 3_000_000}));
    assert_eq!(text.len(), 3_000_000);
    served.end();
}
