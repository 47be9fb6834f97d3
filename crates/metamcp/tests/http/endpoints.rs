//! Several endpoints on one listener: what each exposes, and that a session is bound to its endpoint.

use metamcp_testkit::{Workspace, chaos_server, stored_handle};
use serde_json::{Value, json};

use crate::served::{Served, initialize};
use crate::wire::{Event, Request, Response};

const PATHS: [&str; 3] = ["/mcp", "/mcp/direct", "/mcp/full"];

fn served(flags: &[&str]) -> Served {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]).argument("--offers").argument("some:a"));
    Served::start_in(workspace, flags)
}

fn post(path: &str, body: &Value) -> Request {
    let mut request = Request::post(body);
    path.clone_into(&mut request.target);
    request
}

/// Opens a session at an endpoint and returns its id.
fn session(served: &Served, path: &str) -> String {
    let response = post(path, &initialize("2025-11-25", &json!({}))).send(served.address);
    assert_eq!(response.status, 200, "{path}");
    response.header("mcp-session-id").unwrap().to_owned()
}

fn within(request: Request, session: &str) -> Request {
    request.with("Mcp-Session-Id", session).with("MCP-Protocol-Version", "2025-11-25")
}

fn ask(served: &Served, path: &str, session: &str, method: &str, params: &Value) -> Response {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    within(post(path, &body), session).send(served.address)
}

#[test]
fn each_endpoint_shows_its_own_and_keeps_its_sessions() {
    let served = served(&[]);
    let sessions = PATHS.map(|path| session(&served, path));
    let names = |path: &str, session: &str| -> Vec<String> {
        let list = ask(&served, path, session, "tools/list", &json!({})).json();
        let tools = list["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names("/mcp", &sessions[0]).contains(&"mcp_call".to_owned()));
    let direct = names("/mcp/direct", &sessions[1]);
    assert!(direct.contains(&"echo".to_owned()) && !direct.contains(&"mcp_call".to_owned()));
    let call = json!({"name": "echo", "arguments": {"text": "hello"}});
    let answer = ask(&served, "/mcp/direct", &sessions[1], "tools/call", &call).json();
    assert_eq!(answer["result"]["content"][0]["text"], "hello");
    for (at, path) in PATHS.iter().enumerate() {
        for (from, session) in sessions.iter().enumerate() {
            let expected = if at == from { 200 } else { 404 };
            let found = ask(&served, path, session, "ping", &json!({})).status;
            assert_eq!(found, expected, "a session of {} at {path}", PATHS[from]);
            if at != from {
                let delete = within(Request::new("DELETE", path), session);
                assert_eq!(delete.send(served.address).status, 404);
                let listen = within(Request::get(path), session);
                assert_eq!(listen.send(served.address).status, 404);
            }
        }
    }
    for path in ["/mcp/", "/mcp/other", "/direct"] {
        let refused = post(path, &initialize("2025-11-25", &json!({}))).send(served.address);
        assert_eq!(refused.status, 404, "{path}");
    }
    served.end();
}

#[test]
fn changes_reach_those_who_listen_at_the_endpoint_where_they_show() {
    let served = served(&[]);
    let session = session(&served, "/mcp/direct");
    let before = ask(&served, "/mcp/direct", &session, "tools/list", &json!({})).json();
    assert!(before["result"]["tools"].is_array());
    let mut news = within(Request::get("/mcp/direct"), &session).send(served.address).events();
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": {
        "notifications": {"toolsListChanged": true, "promptsListChanged": true},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let mut modern = post("/mcp/direct", &listen)
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "subscriptions/listen")
        .send(served.address)
        .events();
    let granted = json!({"toolsListChanged": true, "promptsListChanged": true});
    assert_eq!(modern.next().unwrap().json()["params"]["notifications"], granted);
    let grow = json!({"name": "grow", "arguments": {}});
    let grown = ask(&served, "/mcp/direct", &session, "tools/call", &grow);
    assert_eq!(grown.status, 200);
    let told = "notifications/tools/list_changed";
    assert_eq!(news.next().unwrap().json()["method"], told);
    let heard = modern.next().unwrap().json();
    assert_eq!(heard["method"], told);
    assert_eq!(heard["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l");
    // At the main endpoint nothing changes, and there is nothing to subscribe to.
    let mut main = post("/mcp", &listen)
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "subscriptions/listen")
        .send(served.address)
        .events();
    assert_eq!(main.next().unwrap().json()["params"]["notifications"], json!({}));
    drop((news, modern, main));
    served.end();
}

#[test]
fn who_names_events_first_gets_a_stream_to_come_back_to() {
    let served = served(&[]);
    let session = session(&served, "/mcp/direct");
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "echo", "arguments": {"text": "hello"},
    }});
    let mut request = within(post("/mcp/direct", &call), &session);
    request.headers.retain(|(name, _)| name != "Accept");
    let request = request.with("Accept", "text/event-stream, application/json");
    let events: Vec<Event> = request.send(served.address).events().collect();
    let [first, answer] = events.as_slice() else { panic!("{events:?}") };
    assert!(first.data.is_empty() && !first.id.is_empty(), "{first:?}");
    assert_eq!(answer.json()["result"]["content"][0]["text"], "hello");
    let again = within(Request::get("/mcp/direct"), &session).with("Last-Event-ID", &first.id);
    let again: Vec<Event> = again.send(served.address).events().collect();
    assert_eq!(again, std::slice::from_ref(answer));
    served.end();
}

#[test]
fn each_endpoint_says_who_gives_out_its_tokens() {
    let served = served(&["--token-env", "TEST_TOKEN"]);
    for (path, at) in [("/mcp", ""), ("/mcp/direct", "/mcp/direct"), ("/mcp/full", "/mcp/full")] {
        let refused = post(path, &initialize("2025-11-25", &json!({}))).send(served.address);
        assert_eq!(refused.status, 401, "{path}");
        let metadata = format!("/.well-known/oauth-protected-resource{at}");
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(challenge.contains(&format!("{metadata}\"")), "{path}: {challenge}");
        let mut said = Request::new("GET", &metadata).send(served.address);
        let resource = said.json()["resource"].as_str().unwrap().to_owned();
        assert!(resource.ends_with(path), "{resource}");
    }
    served.end();
}

#[test]
fn a_toolset_has_an_endpoint_of_its_own_and_nothing_outside_is_reached_there() {
    let start = |flags: &[&str]| {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&[]));
        workspace.server("b", chaos_server(&[]));
        workspace.setting("toolsets", json!({"small": {"allow": ["a:echo", "a:big"]}, "rest": {}}));
        Served::start_in(workspace, flags)
    };
    let served = start(&[]);
    let (path, main) = ("/mcp/toolsets/small", "/mcp");
    let (inside, outside) = (session(&served, path), session(&served, main));
    let call = |path: &str, session: &str, tool: &str, args: Value| {
        let params = json!({"name": "mcp_call", "arguments": {"tool": tool, "args": args}});
        ask(&served, path, session, "tools/call", &params).json()["result"].clone()
    };
    assert_eq!(call(path, &inside, "a:echo", json!({"text": "x"}))["content"][0]["text"], "x");
    let code = |answer: &Value| answer["structuredContent"]["code"].clone();
    assert_eq!(code(&call(path, &inside, "a:effect", json!({"key": "k"}))), "denied");
    assert_eq!(code(&call(path, &inside, "b:echo", json!({"text": "x"}))), "server_not_found");
    assert_eq!(call(main, &outside, "b:echo", json!({"text": "x"}))["content"][0]["text"], "x");
    // A result stored by one session cannot be read from a toolset it does not belong to.
    let id = |answer: &Value| stored_handle(answer).unwrap().to_owned();
    let open = id(&call(main, &outside, "a:big", json!({"bytes": 400_000})));
    assert_eq!(code(&call(path, &inside, "@results:read", json!({"id": open}))), "tool_not_found");
    let own = id(&call(path, &inside, "a:big", json!({"bytes": 400_000})));
    assert!(call(path, &inside, "@results:read", json!({"id": own}))["isError"].is_null());
    assert_eq!(
        post("/mcp/toolsets/none", &initialize("2025-11-25", &json!({})))
            .send(served.address)
            .status,
        404
    );
    assert_eq!(ask(&served, main, &inside, "ping", &json!({})).status, 404);
    served.end();
    // A gateway restricted to one toolset serves no other.
    let served = start(&["--toolset", "small"]);
    for path in ["/mcp/toolsets/rest", "/mcp/toolsets/small"] {
        let response = post(path, &initialize("2025-11-25", &json!({}))).send(served.address);
        assert_eq!(response.status, 404, "{path}");
    }
    served.end();
}
