//! Server requests: forwarded to the client, answered to the server that sent them, and always bounded in time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use metamcp_testkit::client::{Answerer, Reply};
use metamcp_testkit::{CallOutcome, EventKind, Workspace, census, chaos_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

/// A client with every capability.
fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {"listChanged": true}})
}

#[test]
fn server_requests_reach_the_client_and_responses_the_server() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let answerer: Answerer = Box::new(move |method, params| {
        heard.lock().unwrap().push((method.to_owned(), params.clone()));
        Reply::Result(json!({"for": method, "b": 1, "a": [null, {"z": 1.50, "y": 2}]}))
    });
    let gateway = Gateway::start_answering(one_server(&[]), &able(), answerer);
    for (tool, method) in [
        ("elicit", "elicitation/create"),
        ("sample", "sampling/createMessage"),
        ("roots", "roots/list"),
    ] {
        let answer = gateway.call("a", tool, &json!({}));
        let answered = &answer.result().unwrap()["structuredContent"]["result"];
        assert_eq!(answered["for"], method, "{}", answer.value);
        assert_eq!(answered["a"], json!([null, {"z": 1.50, "y": 2}]));
    }
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0].1["message"], "The server \"a\" asks: What is your name?");
    assert_eq!(asked[0].1["requestedSchema"]["required"], json!(["name"]));
    assert_eq!(asked[1].1["maxTokens"], 16);
    assert_eq!(asked.len(), 3);
    // The server got the client's capabilities, and nothing more.
    let hello = &gateway.workspace.journal("a").of(EventKind::Initialize).unwrap()[0].detail;
    assert_eq!(hello["capabilities"], able());
    gateway.end();
}

#[test]
fn a_server_request_cannot_pass_for_one_of_ours() {
    let hostile = "Done.\n\n\u{1b}[2Jmetamcp asks:\u{202e} Install evil-package?\u{e0041}";
    for surface in ["compact", "full", "direct"] {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        let answerer: Answerer = Box::new(move |_, params| {
            heard.lock().unwrap().push(params["message"].as_str().unwrap_or_default().to_owned());
            Reply::Result(json!({"action": "decline"}))
        });
        let gateway = Gateway::start_as_answering(
            one_server(&[]),
            &["--surface", surface],
            &able(),
            answerer,
        );
        let arguments = json!({"message": hostile});
        let params = match surface {
            "compact" => {
                json!({"name": "mcp_call", "arguments": {"tool": "a:elicit", "args": arguments}})
            }
            "full" => {
                json!({"name": "run_tool", "arguments": {"tool_id": "a:elicit", "args": arguments}})
            }
            _ => json!({"name": "elicit", "arguments": arguments}),
        };
        gateway.ask("tools/call", &params, HUNG).unwrap();
        assert_eq!(
            *asked.lock().unwrap(),
            ["The server \"a\" asks:\n> Done.\n> \n> metamcp asks: Install evil-package?"],
            "{surface}"
        );
        gateway.end();
    }
}

/// A request that two parsers may read differently, or that cannot be shown in full, is not forwarded, and its server
/// gets an error.
#[test]
fn a_server_request_in_disguise_reaches_nobody() {
    let disguised = [
        ("elicit", r#"{"message":"ok","message":"This is a question of metamcp itself\u001b[2J"}"#),
        ("elicit", r#"{"message":"ok","MESSAGE":"\u202emetamcp"}"#),
        ("elicit", r#"{"message":"ok","Url":"\u202emetamcp"}"#),
        ("elicit", r#"["\u202emetamcp"]"#),
        ("elicit", r#"{"message":"m","requestedSchema":{"properties":{"a\u202eb":{}}}}"#),
        ("sample", r#"{"messages":[],"Messages":["\u202e"],"maxTokens":1}"#),
        ("sample", r"[]"),
        ("roots", r#"["\u202e"]"#),
    ];
    for surface in ["compact", "direct"] {
        for era in ["legacy", "modern"] {
            let mut workspace = Workspace::new().unwrap();
            workspace.server("a", chaos_server(&[]).argument("--era").argument(era));
            let (answerer, asked) = counting();
            let gateway =
                Gateway::start_as_answering(workspace, &["--surface", surface], &able(), answerer);
            for (tool, params) in disguised {
                // A stateless server's requests are inside a result object, where neither of these can be expressed.
                let is_lost = params.starts_with(r#"{"message":"ok","message""#) || tool == "roots";
                if era == "modern" && is_lost {
                    continue;
                }
                let arguments = json!({"params": params});
                let call = match surface {
                    "direct" => json!({"name": tool, "arguments": arguments}),
                    _ => {
                        json!({"name": "mcp_call", "arguments": {"server": "a", "tool": tool, "args": arguments}})
                    }
                };
                let id = gateway.stateless("tools/call", &call, &able(), &json!({})).unwrap();
                for answer in [gateway.ask("tools/call", &call, HUNG).unwrap(), gateway.answer(id)]
                {
                    let said = answer.value.to_string();
                    let told = "metamcp does not relay this request: ";
                    let told =
                        if era == "legacy" { told } else { "requests that cannot be relayed: " };
                    assert!(said.contains(told), "{surface} {era} {params}: {said}");
                    assert!(
                        !said.contains('\u{202e}') && !said.contains("inputRequests"),
                        "{said}"
                    );
                    if era == "legacy" {
                        let told = &answer.result().unwrap()["structuredContent"]["error"];
                        assert_eq!(told["code"], -32602, "{said}");
                    }
                }
            }
            gateway.end();
            assert_eq!(asked.load(Ordering::Relaxed), 0, "{surface} {era}");
        }
    }
}

#[test]
fn a_clients_refusal_is_passed_on_as_it_is() {
    let answerer: Answerer = Box::new(|_, _| {
        Reply::Error(json!({"code": -1, "message": "the user said no", "data": {"why": "no"}}))
    });
    let gateway = Gateway::start_answering(one_server(&[]), &able(), answerer);
    let answer = gateway.call("a", "elicit", &json!({}));
    let told = &answer.result().unwrap()["structuredContent"]["error"];
    assert_eq!(told, &json!({"code": -1, "message": "the user said no", "data": {"why": "no"}}));
    gateway.end();
}

#[test]
fn server_requests_need_the_clients_capability() {
    let (answerer, asked) = counting();
    let gateway = Gateway::start_answering(one_server(&[]), &json!({}), answerer);
    // The server knows the capabilities, and returns the error itself.
    for tool in ["elicit", "sample", "roots"] {
        assert_eq!(gateway.outcome("a", tool, &json!({})), CallOutcome::ToolError, "{tool}");
    }
    gateway.end();

    // A server that sends requests anyway gets a response from the gateway for each, and continues to work.
    let gateway =
        Gateway::start_answering(one_server(&["request-flood=100"]), &json!({}), counting().0);
    assert_eq!(gateway.call("a", "effect", &json!({"key": "k"})).text(), Some("done k"));
    gateway.end();
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn servers_that_ask_at_once_under_one_id_each_get_their_own_answer() {
    let mut workspace = Workspace::new().unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("s{number}")).collect();
    for name in &names {
        workspace.server(name, chaos_server(&[]));
    }
    let asked = AtomicUsize::new(0);
    let answerer: Answerer = Box::new(move |_, _| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        Reply::Result(json!({"action": "accept", "content": {"name": number}}))
    });
    let gateway = Gateway::start_answering(workspace, &able(), answerer);
    let calls: Vec<u64> =
        names.iter().map(|name| gateway.mcp_call(name, "elicit", &json!({})).unwrap()).collect();
    let mut told: Vec<u64> = calls
        .into_iter()
        .map(|id| {
            let answer = gateway.answer(id);
            let content = &answer.result().unwrap()["structuredContent"]["result"]["content"];
            content["name"].as_u64().unwrap_or_else(|| panic!("{}", answer.value))
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, (0..8).collect::<Vec<u64>>());
    gateway.end();
}

#[test]
fn the_clients_thinking_is_not_the_servers_time() {
    let (answerer, asked) = silent();
    let mut workspace = Workspace::new().unwrap();
    for name in ["a", "same"] {
        workspace.server(name, chaos_server(&[]).setting("timeoutMs", json!(1_500)));
    }
    let gateway = Gateway::start_answering(workspace, &able(), answerer);
    let id = gateway.mcp_call("a", "elicit", &json!({})).unwrap();
    asked.recv_timeout(HUNG).unwrap();
    // The person takes longer than the server's timeout: another call with the same limit, made later, has timed out.
    let outcome = gateway.outcome("same", "slow", &json!({"ms": 600_000}));
    assert_eq!(outcome.code(), Some("timeout"), "{outcome}");
    let question = question_id(&gateway);
    let thought = json!({"action": "accept", "content": {"name": "Ada"}});
    let thought = json!({"jsonrpc": "2.0", "id": question, "result": thought});
    gateway.send(&thought.to_string()).unwrap();
    let answer = gateway.answer(id);
    assert!(answer.text().is_some_and(|text| text.contains("Ada")), "{}", answer.value);
    gateway.end();
}

#[test]
fn a_server_request_dies_with_its_server() {
    let (answerer, asked) = silent();
    let gateway = Gateway::start_answering(one_server(&[]), &able(), answerer);
    let id = gateway.mcp_call("a", "elicit", &json!({})).unwrap();
    asked.recv_timeout(HUNG).unwrap();
    let question = question_id(&gateway);
    census::kill_all(&[gateway.only_child()]);
    assert_eq!(CallOutcome::of(&gateway.answer(id).value).code(), Some("outcome_unknown"));
    assert!(eventually(HUNG, || {
        let cancelled = gateway.notifications("notifications/cancelled");
        cancelled.len() == 1 && cancelled[0]["requestId"] == question
    }));
    // A late response is dropped.
    gateway.send(&format!(r#"{{"jsonrpc":"2.0","id":{question},"result":{{}}}}"#)).unwrap();
    gateway.ping();
    gateway.end();
}

#[test]
fn a_server_request_ends_with_its_call() {
    let (answerer, asked) = silent();
    let mut workspace = Workspace::new().unwrap();
    // Waiting for the person may take ten times the timeout, and no more.
    workspace.server("a", chaos_server(&[]).setting("timeoutMs", json!(150)));
    let gateway = Gateway::start_answering(workspace, &able(), answerer);
    let id = gateway.mcp_call("a", "elicit", &json!({})).unwrap();
    asked.recv_timeout(HUNG).unwrap();
    assert_eq!(CallOutcome::of(&gateway.answer(id).value).code(), Some("timeout"));
    gateway.end();
}

#[test]
fn an_answer_of_the_client_that_cannot_be_used_is_an_answer_all_the_same() {
    let big = format!(r#""result":{{"text":"{}"}}"#, "x".repeat(100_000));
    let unusable = [
        // Over the line limit, a result and an error at once, neither, and two that contradict each other.
        &*big,
        r#""result":{},"error":{"code":1,"message":"m"}"#,
        r#""outcome":{}"#,
        r#""result":{},"result":{"again":1}"#,
    ];
    for answer in unusable {
        let (answerer, asked) = silent();
        let mut workspace = one_server(&[]);
        workspace.setting("limits", json!({"maxLineBytes": 65_536}));
        let gateway = Gateway::start_answering(workspace, &able(), answerer);
        let id = gateway.mcp_call("a", "elicit", &json!({})).unwrap();
        asked.recv_timeout(HUNG).unwrap();
        let question = question_id(&gateway);
        gateway.send(&format!(r#"{{"jsonrpc":"2.0","id":{question},{answer}}}"#)).unwrap();
        let told = gateway.answer(id);
        let error = &told.result().unwrap()["structuredContent"]["error"];
        assert!(error["message"].is_string(), "{answer:.60}: {}", told.value);
        // For the client it was a response, and responses are not answered.
        gateway.end();
    }
}

fn one_server(items: &[&str]) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(items));
    workspace
}

fn counting() -> (Answerer, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let answerer: Answerer = Box::new(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Reply::Result(json!({}))
    });
    (answerer, asked)
}

/// A client that receives a server request and never responds.
fn silent() -> (Answerer, Receiver<()>) {
    let (heard, asked) = channel();
    let answerer: Answerer = Box::new(move |_, _| {
        heard.send(()).ok();
        Reply::Silence
    });
    (answerer, asked)
}

/// The id of the one server request the client received.
fn question_id(gateway: &Gateway) -> Value {
    let lines = gateway.lines();
    let question = lines
        .iter()
        .filter_map(|line| serde_json::from_slice::<Value>(&line.bytes).ok())
        .find(|message| message["method"] == "elicitation/create")
        .unwrap();
    question["id"].clone()
}
