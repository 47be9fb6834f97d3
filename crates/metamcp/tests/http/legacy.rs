//! The 2024 transport (HTTP+SSE): one stream, and an endpoint to post to.

use metamcp_testkit::{EventKind, eventually};
use serde_json::{Value, json};

use crate::served::{Served, call, initialize};
use crate::wire::{PATIENCE, Request};

#[test]
fn a_client_of_2024_is_served_on_its_one_stream() {
    let served = Served::start(&["--transport", "sse"]);
    assert!(served.url.ends_with("/sse"), "{}", served.url);
    let mut events = Request::get("/sse").send(served.address).events();
    let endpoint = events.next().unwrap();
    assert_eq!(endpoint.kind, "endpoint");
    assert!(endpoint.data.starts_with("/messages?sessionId="), "{endpoint:?}");
    let post = |body: &Value| {
        let mut request = Request::post(body);
        request.target.clone_from(&endpoint.data);
        request.send(served.address).status
    };
    assert_eq!(post(&initialize("2024-11-05", &json!({}))), 202);
    let hello = events.next().unwrap();
    assert_eq!((hello.kind.as_str(), hello.id.as_str()), ("message", ""));
    assert_eq!(hello.json()["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})), 202);
    assert_eq!(post(&call(2, "progress", &json!({"count": 3}))), 202);
    let mut steps = 0;
    let answer = loop {
        let message = events.next().unwrap().json();
        if message["method"] != "notifications/progress" {
            break message;
        }
        // The gateway reports the start of a call if the server is slow to send progress itself.
        steps += usize::from(message["params"]["progress"] != 0.0);
    };
    assert_eq!((steps, &answer["id"]), (3, &json!(2)));
    assert_eq!(post(&json!("no message")), 400);
    let refused = |body: &str, target: &str| {
        let mut request = Request::post(&json!({})).body(body);
        target.clone_into(&mut request.target);
        let mut response = request.send(served.address);
        let error = response.json()["error"].clone();
        (response.status, error["code"].as_i64(), error["message"].as_str().unwrap().to_owned())
    };
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string();
    assert_eq!(refused("{", &endpoint.data).1, Some(-32700));
    assert_eq!(refused(&format!("[{ping}]"), &endpoint.data).0, 400);
    let (status, _, why) = refused(&ping, "/messages?sessionId=x");
    assert!(status == 404 && why.contains("GET /sse"), "{status}: {why}");
    // Its stream is its session: when it closes, pending calls are cancelled.
    assert_eq!(post(&call(3, "slow", &json!({"ms": 600_000}))), 202);
    let journal = served.workspace.journal("a");
    assert!(eventually(PATIENCE, || journal.count(EventKind::Execute).unwrap() == 2));
    drop(events);
    assert!(eventually(PATIENCE, || journal.count(EventKind::Cancelled).unwrap() == 1));
    assert_eq!(post(&call(4, "echo", &json!({"text": "x"}))), 404);
    // The newer transport works too.
    assert_eq!(served.session(&json!({})).text(1, "echo", &json!({"text": "new"})), "new");
    served.end();
}
