//! Revision 2026-07-28 over HTTP: no session, self-contained requests, and what a disconnect means.

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::served::Served;
use crate::wire::{PATIENCE, Request, Response};

fn both_kinds() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("old", chaos_server(&[]));
    workspace.server("new", chaos_server(&[]).argument("--era").argument("modern"));
    workspace
}

/// A complete request of the revision, with its headers.
fn request(id: &Value, method: &str, params: &Value) -> Request {
    let mut params = params.clone();
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let request =
        Request::post(&body).with("MCP-Protocol-Version", "2026-07-28").with("Mcp-Method", method);
    match params["name"].as_str() {
        Some(name) => request.with("Mcp-Name", name),
        None => request,
    }
}

fn send(served: &Served, method: &str, params: &Value) -> Response {
    request(&json!(1), method, params).send(served.address)
}

fn calling(server: &str, tool: &str, args: &Value) -> Value {
    json!({"name": "mcp_call", "arguments": {"server": server, "tool": tool, "args": args}})
}

#[test]
fn everything_is_there_without_a_session() {
    for flags in [&[][..], &["--json-response"], &["--stateless"]] {
        let served = Served::start_in(both_kinds(), flags);
        let mut found = send(&served, "server/discover", &json!({}));
        assert_eq!((found.status, found.header("mcp-session-id")), (200, None));
        assert_eq!(found.json()["result"]["supportedVersions"][0], "2026-07-28");
        let list = send(&served, "tools/list", &json!({})).json();
        assert_eq!(list["result"]["tools"][0]["name"], "mcp_discover");
        for server in ["old", "new"] {
            let params = calling(server, "echo", &json!({"text": "hello"}));
            let answer = send(&served, "tools/call", &params).json();
            assert_eq!(answer["result"]["content"][0]["text"], "hello", "{answer}");
            assert_eq!(answer["result"]["resultType"], "complete");
        }
        served.end();
    }
}

#[test]
fn input_required_is_answered_by_a_retry() {
    let served = Served::start_in(both_kinds(), &[]);
    // All use the same id, and none gets another's response.
    let params: Vec<Value> = ["old", "new"]
        .into_iter()
        .flat_map(|server| (0..8).map(move |number| (server, number)))
        .map(|(server, number)| {
            calling(server, "elicit", &json!({"key": format!("{server}{number}")}))
        })
        .collect();
    let asked: Vec<Response> =
        params.iter().map(|params| send(&served, "tools/call", params)).collect();
    let mut names = std::collections::BTreeSet::new();
    for ((number, mut asked), params) in asked.into_iter().enumerate().zip(&params) {
        let asked = asked.json();
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        let mut retry = params.clone();
        retry["requestState"] = asked["result"]["requestState"].clone();
        for key in asked["result"]["inputRequests"].as_object().unwrap().keys() {
            retry["inputResponses"][key] =
                json!({"action": "accept", "content": {"name": format!("n{number}")}});
        }
        let answer = send(&served, "tools/call", &retry).json();
        let name = &answer["result"]["structuredContent"]["result"]["content"]["name"];
        names.insert(name.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned());
    }
    assert_eq!(names.len(), 16);
    served.end();
}

#[test]
fn what_was_begun_by_one_is_not_ended_by_another() {
    let workspace = both_kinds();
    let file = workspace.file("tokens");
    std::fs::write(&file, "first-token\nsecond-token\n").unwrap();
    let served = Served::start_in(workspace, &["--token-file", file.to_str().unwrap()]);
    let params = calling("old", "elicit", &json!({}));
    let (mine, theirs) = ("Bearer first-token", "Bearer second-token");
    let as_who = |who: &str, params: &Value| {
        request(&json!(1), "tools/call", params).with("Authorization", who).send(served.address)
    };
    let asked = as_who(mine, &params).json();
    let mut retry = params.clone();
    retry["requestState"] = asked["result"]["requestState"].clone();
    retry["inputResponses"] =
        json!({"question-1": {"action": "accept", "content": {"name": "Ada"}}});
    let refused = as_who(theirs, &retry).json();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // Nor at another endpoint.
    let mut elsewhere = request(&json!(1), "tools/call", &retry).with("Authorization", mine);
    "/mcp/full".clone_into(&mut elsewhere.target);
    let refused = elsewhere.send(served.address).json();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let answer = as_who(mine, &retry).json();
    assert!(answer["result"].to_string().contains("Ada"), "{answer}");
    served.end();
}

#[test]
fn what_is_written_twice_is_refused_before_anything_runs() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]).argument("--offers").argument("some:a"));
    let served = Served::start_in(workspace, &[]);
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    for (method, params) in [
        ("tools/call", r#""name":"effect","name":"effect","arguments":{}"#),
        ("tools/call", r#""name":"effect","arguments":{},"arguments":{"key":"x"}"#),
        ("tools/call", r#""name":"effect","arguments":{"key":"x","key":"y"}"#),
        ("resources/read", r#""uri":"memo://a/1","uri":"memo://a/2""#),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},{meta}}}}}"#
        );
        let mut request = Request::post(&json!({}))
            .body(&body)
            .with("MCP-Protocol-Version", "2026-07-28")
            .with("Mcp-Method", method);
        "/mcp/direct".clone_into(&mut request.target);
        let without = request.send(served.address);
        assert_eq!(without.status, 400, "{params}");
        let name = if method == "tools/call" { "effect" } else { "memo://a/1" };
        let mut with = request.with("Mcp-Name", name).send(served.address);
        assert_eq!(with.json()["error"]["code"], -32602, "{params}");
    }
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 0);
    served.end();
}

#[test]
fn headers_that_say_something_else_are_refused_with_their_status() {
    let served = Served::start_in(both_kinds(), &[]);
    let with = |changed: &str, value: Option<&str>| {
        let params = calling("old", "effect", &json!({"key": "k"}));
        let mut request = request(&json!(1), "tools/call", &params);
        request.headers.retain(|(name, _)| name != changed);
        let request = match value {
            Some(value) => request.with(changed, value),
            None => request,
        };
        let mut response = request.send(served.address);
        let code = response.json()["error"]["code"].as_i64();
        (response.status, code)
    };
    for name in ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"] {
        assert_eq!(with(name, None), (400, Some(-32020)), "{name}");
    }
    for (name, value) in [
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Name", "mcp_discover"),
        ("Mcp-Name", "=?base64?bWNwX2Rpc2NvdmVy?="),
    ] {
        assert_eq!(with(name, Some(value)), (400, Some(-32020)), "{name}: {value}");
    }
    assert_eq!(served.workspace.journal("old").of(EventKind::Execute).unwrap().len(), 0);
    assert_eq!(with("Mcp-Name", Some("=?base64?bWNwX2NhbGw=?=")), (200, None));
    let mut response = send(&served, "no/such", &json!({}));
    assert_eq!((response.status, &response.json()["error"]["code"]), (404, &json!(-32601)));
    for method in ["GET", "DELETE"] {
        let request = Request::new(method, "/mcp")
            .with("Accept", "text/event-stream")
            .with("MCP-Protocol-Version", "2026-07-28");
        assert_eq!(request.send(served.address).status, 405, "{method}");
    }
    served.end();
}

#[test]
fn going_away_calls_the_request_off() {
    let served = Served::start_in(both_kinds(), &[]);
    for server in ["old", "new"] {
        send(&served, "tools/call", &calling(server, "echo", &json!({"text": "warm"}))).json();
        let mut params = calling(server, "progress", &json!({"count": 60_000, "ms": 100}));
        params["_meta"]["progressToken"] = "t".into();
        let mut events = send(&served, "tools/call", &params).events();
        let first = events.next().unwrap();
        assert_eq!(
            (first.id.as_str(), &first.json()["method"]),
            ("", &json!("notifications/progress"))
        );
        drop(events);
        let journal = served.workspace.journal(server);
        assert!(
            eventually(PATIENCE, || journal.of(EventKind::Cancelled).unwrap().len() == 1),
            "{server}"
        );
    }
    served.end();
}

#[test]
fn a_subscription_is_a_stream_that_ends_in_good_order() {
    for flags in [&[][..], &["--json-response"]] {
        let mut served = Served::start_in(both_kinds(), flags);
        let params = json!({"notifications": {"toolsListChanged": true}});
        let mut events =
            request(&json!("sub"), "subscriptions/listen", &params).send(served.address).events();
        let tagged = json!({"io.modelcontextprotocol/subscriptionId": "sub"});
        let first = events.next().unwrap().json();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(first["params"], json!({"_meta": tagged, "notifications": {}}));
        served.signal(nix::sys::signal::Signal::SIGTERM);
        let last = events.next().unwrap().json();
        assert_eq!(last["result"], json!({"resultType": "complete", "_meta": tagged}));
        assert_eq!(served.wait_exit().code(), Some(0));
    }
}
