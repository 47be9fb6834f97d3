//! Gateways that share a key and nothing else: what one began, the next one goes on with, or says why it cannot.

use std::fs;

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually, stored_handle};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::served::{Served, Session, call, initialize};
use crate::wire::{Event, PATIENCE, Request, Response, knows};

const KEY: &str = "u8uBlFpHbYuV6J1m0bD2cQ3nS8X7kZ5yTqWvEo4fGhI=";
const OTHER_KEY: &str = "3a7f0c91d4e852b6af13c0de9972461b58ee0f7da4c3b21966850a4fd1e7c39b";
/// The tokens of every gateway, but not in the same order everywhere.
const TOKENS: [&str; 2] = ["the-token-of-ada", "the-token-of-bob"];

/// One gateway of a fleet, with these lines in its key file.
fn gateway_with(key: &str, tokens: &[&str], workspace: Workspace, flags: &[&str]) -> Served {
    let (keys, file) = (workspace.file("cluster-key"), workspace.file("tokens"));
    fs::write(&keys, key).unwrap();
    fs::write(&file, tokens.join("\n")).unwrap();
    let mut all = vec!["--cluster-key", keys.to_str().unwrap()];
    all.extend(["--token-file", file.to_str().unwrap()]);
    all.extend(flags);
    let served = Served::start_in(workspace, &all);
    knows(served.address, TOKENS[0]);
    served
}

fn workspace() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace
}

/// Two gateways that differ in everything but their key, their servers and who may use them.
fn two_of(make: impl Fn() -> Workspace, flags: &[&str]) -> [Served; 2] {
    let swapped = [TOKENS[1], TOKENS[0]];
    [gateway_with(KEY, &TOKENS, make(), flags), gateway_with(KEY, &swapped, make(), flags)]
}

fn two() -> [Served; 2] {
    two_of(workspace, &[])
}

impl Session<'_> {
    /// The same session, at another gateway.
    fn at<'a>(&self, served: &'a Served) -> Session<'a> {
        Session { served, id: self.id.clone(), revision: self.revision.clone() }
    }
}

#[test]
fn a_session_goes_on_at_any_gateway_and_ends_where_its_client_says_so() {
    let [one, two] = two();
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = one.session_of(revision, &json!({"elicitation": {}}));
        for (number, gateway) in [&two, &one, &two, &two, &one].into_iter().enumerate() {
            let text = format!("{revision} {number}");
            let said = session.at(gateway).text(10 + number as u64, "echo", &json!({"text": text}));
            assert_eq!(said, text);
        }
        // What its client declared came along: it can be asked.
        let mut events = session.at(&two).call(4, "elicit", &json!({})).events();
        let question = loop {
            let message = events.next().unwrap().json();
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        let answer = json!({"jsonrpc": "2.0", "id": question["id"],
            "result": {"action": "accept", "content": {"name": "Ada"}}});
        // The answer has to reach who asked; elsewhere it is not dropped without a word.
        let mut lost = session.at(&one).post(&answer);
        assert_eq!(lost.status, 409);
        assert!(lost.text().contains("another gateway of this fleet asked"));
        assert_eq!(session.at(&two).post(&answer).status, 202);
        assert!(events.any(|event| event.data.contains("Ada")));
        let ended = |gateway: &Served| {
            let delete = session.at(gateway).request(Request::new("DELETE", "/mcp"));
            delete.send(gateway.address).status
        };
        assert_eq!(ended(&two), 204);
        assert_eq!(session.at(&two).call(20, "echo", &json!({"text": "x"})).status, 404);
        assert_eq!(ended(&two), 404);
    }
    one.end();
    two.end();
}

#[test]
fn its_client_is_known_at_the_next_gateway() {
    let [one, mut two] = two_of(workspace, &["--audit"]);
    let session = one.session(&json!({}));
    session.at(&two).text(2, "echo", &json!({"text": "x"}));
    two.signal(Signal::SIGTERM);
    assert_eq!(two.wait_exit().code(), Some(0));
    let folder = two.workspace.home().join(".metamcp/audit");
    let logged: String = fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    let line = logged.lines().find(|line| line.contains("\"echo\"")).expect(&logged);
    assert!(line.contains("wire") && line.contains("token:2"), "{line}");
}

#[test]
fn an_id_opens_for_its_owner_at_its_endpoint_with_its_key_and_as_it_is() {
    let [one, two] = two();
    let stranger = gateway_with(OTHER_KEY, &TOKENS, workspace(), &[]);
    let session = one.session(&json!({}));
    let echo = call(2, "echo", &json!({"text": "x"}));
    let refused = |mut response: Response| {
        assert_eq!(response.status, 404);
        assert!(response.text().contains("there is no such session"));
    };
    refused(session.at(&stranger).post(&echo));
    let as_bob = format!("Bearer {}", TOKENS[1]);
    let request = || session.at(&two).request(Request::post(&echo));
    refused(request().with("Authorization", &as_bob).send(two.address));
    let mut elsewhere = request();
    "/mcp/full".clone_into(&mut elsewhere.target);
    refused(elsewhere.send(two.address));
    for at in [0, 7, session.id.len() / 2, session.id.len() - 1] {
        let mut id = session.id.clone();
        let other = if &id[at..=at] == "A" { "B" } else { "A" };
        id.replace_range(at..=at, other);
        refused(Session { served: &two, id, revision: "2025-11-25".to_owned() }.post(&echo));
    }
    for id in [session.id[1..].to_owned(), session.id.repeat(2), "x".repeat(5000), "a".repeat(32)] {
        refused(Session { served: &two, id, revision: "2025-11-25".to_owned() }.post(&echo));
    }
    assert_eq!(two.workspace.journal("a").count(EventKind::Execute).unwrap(), 0);
    assert_eq!(session.at(&two).text(3, "echo", &json!({"text": "mine"})), "mine");
    for gateway in [one, two, stranger] {
        gateway.end();
    }
}

#[test]
fn keys_are_replaced_while_sessions_go_on() {
    // A fleet in the middle of each step: one gateway has taken it, the other has not.
    let steps = [
        KEY.to_owned(),
        format!("{KEY}\n{OTHER_KEY}"),
        format!("{OTHER_KEY}\n{KEY}"),
        OTHER_KEY.to_owned(),
    ];
    let fleet: Vec<Served> =
        steps.iter().map(|key| gateway_with(key, &TOKENS, workspace(), &[])).collect();
    for pair in fleet.windows(2) {
        for (begun, next) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let session = begun.session(&json!({}));
            assert_eq!(session.at(next).text(2, "echo", &json!({"text": "x"})), "x");
        }
    }
    let old = fleet[0].session(&json!({}));
    assert_eq!(old.at(&fleet[3]).call(2, "echo", &json!({"text": "x"})).status, 404);
    for gateway in fleet {
        gateway.end();
    }
}

#[test]
fn what_is_only_at_one_gateway_is_refused_with_the_reason() {
    let make = || {
        let mut workspace = workspace();
        workspace.server("own", chaos_server(&[]).setting("share", json!("session")));
        workspace.setting("limits", json!({"maxResultChars": 1000}));
        workspace
    };
    let [one, two] = two_of(make, &[]);
    let session = one.session(&json!({}));
    let own = |number: u64| {
        let mut own = call(number, "echo", &json!({"text": "x"}));
        own["params"]["arguments"]["server"] = "own".into();
        own
    };
    assert!(session.post(&own(2)).json()["result"].to_string().contains("\"x\""));
    // A process of its own: one started here would be another one, without its state.
    let answer = session.at(&two).post(&own(3)).json();
    assert_eq!(answer["result"]["structuredContent"]["code"], "server_unavailable", "{answer}");
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        told.contains("keeps a process for each session") && told.contains("load balancer"),
        "{told}"
    );
    assert_eq!(two.workspace.journal("own").count(EventKind::Execute).unwrap(), 0);
    // It has one where its client has said that it is initialized, which a load balancer may have sent there.
    let mut hello = Request::post(&initialize("2025-11-25", &json!({}))).send(one.address);
    let id = hello.header("mcp-session-id").unwrap().to_owned();
    hello.text();
    let other = Session { served: &one, id, revision: "2025-11-25".to_owned() };
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(other.at(&two).post(&initialized).status, 202);
    assert!(other.at(&two).post(&own(4)).json()["result"].to_string().contains("\"x\""));
    let answer = other.post(&own(8)).json();
    assert_eq!(answer["result"]["structuredContent"]["code"], "server_unavailable", "{answer}");
    // A stored result.
    let long = "long ".repeat(2000);
    let shown = session.call(5, "echo", &json!({"text": long})).json();
    let handle = stored_handle(&shown["result"]).expect("it is stored").to_owned();
    let read = |number: u64| {
        json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
            "name": "mcp_call",
            "arguments": {"server": "@results", "tool": "read", "args": {"id": handle, "length": 10}},
        }})
    };
    assert!(session.post(&read(6)).json()["result"].to_string().contains("long"));
    let answer = session.at(&two).post(&read(7)).json();
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("stays at the gateway that stored it"), "{told}");
    one.end();
    two.end();
}

#[test]
fn a_stream_that_another_gateway_answers_ends_with_an_error_for_its_request() {
    let [one, two] = two();
    let session = one.session(&json!({}));
    let mut events = session.call(31, "progress", &json!({"count": 1000, "ms": 20})).events();
    let first = events.next().unwrap();
    drop(events);
    let again = |gateway: &Served| {
        let listen = session.at(gateway).request(Request::get("/mcp"));
        listen.with("Last-Event-ID", &first.id).send(gateway.address).events()
    };
    let told: Vec<Event> = again(&two).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].json()["id"], 31);
    let message = told[0].json()["error"]["message"].to_string();
    assert!(message.contains("may have run") && message.contains("another gateway"), "{message}");
    // Where it is, it goes on.
    assert!(again(&one).next().is_some());
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 31}});
    assert_eq!(session.post(&cancel).status, 202);
    one.end();
    two.end();
}

/// A request of revision 2026-07-28.
fn stateless(gateway: &Served, name: &str, arguments: &Value, more: &Value) -> Value {
    let mut params = json!({"name": name, "arguments": arguments});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    Request::post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "tools/call")
        .with("Mcp-Name", name)
        .send(gateway.address)
        .json()
}

#[test]
fn requests_without_a_session_are_answered_anywhere() {
    let make = || {
        let mut workspace = workspace();
        workspace.server("new", chaos_server(&[]).argument("--era").argument("modern"));
        workspace
    };
    let [one, two] = two_of(make, &[]);
    let elicit = |server: &str| json!({"server": server, "tool": "elicit", "args": {}});
    let retry = |asked: &Value| {
        let mut answers = json!({});
        for key in asked["result"]["inputRequests"].as_object().unwrap().keys() {
            answers[key] = json!({"action": "accept", "content": {"name": "Ada"}});
        }
        json!({"requestState": asked["result"]["requestState"], "inputResponses": answers})
    };
    // A server of the same era carries its own state, so the retry may reach any gateway.
    let asked = stateless(&one, "mcp_call", &elicit("new"), &json!({}));
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let answer = stateless(&two, "mcp_call", &elicit("new"), &retry(&asked));
    assert!(answer["result"].to_string().contains("Ada"), "{answer}");
    // An older one waits where it was asked.
    let asked = stateless(&one, "mcp_call", &elicit("a"), &json!({}));
    let told = stateless(&two, "mcp_call", &elicit("a"), &retry(&asked));
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("waits at another gateway of this fleet"), "{told}");
    let answer = stateless(&one, "mcp_call", &elicit("a"), &retry(&asked));
    assert!(answer["result"].to_string().contains("Ada"), "{answer}");
    one.end();
    two.end();
}

#[test]
fn a_list_goes_on_where_it_stopped_at_any_gateway() {
    let make = || {
        let mut workspace = workspace();
        for name in ["b", "c", "d"] {
            workspace.server(name, chaos_server(&[]));
        }
        workspace
    };
    let [one, two] = two_of(make, &[]);
    let session = one.session(&json!({}));
    let page = |gateway: &Served, number: usize, tool: &str, arguments: &Value| {
        let found = json!({"jsonrpc": "2.0", "id": 40 + number, "method": "tools/call", "params": {
            "name": tool, "arguments": arguments}});
        let answer = session.at(gateway).post(&found).json();
        let found = answer["result"]["structuredContent"].clone();
        assert!(found.is_object(), "{tool} {arguments}: {answer}");
        found
    };
    // Both know every tool before the first page.
    for gateway in [&one, &two] {
        let complete = eventually(PATIENCE, || {
            let found = page(gateway, 1, "list_tools", &json!({"limit": 1}));
            found["pending"].as_array().is_some_and(Vec::is_empty)
        });
        assert!(complete);
    }
    for (tool, asked) in [
        ("list_tools", json!({"limit": 5})),
        ("search_tools", json!({"query": "echo a text", "limit": 3})),
        ("list_namespaces", json!({"limit": 1})),
    ] {
        let mut seen = std::collections::BTreeSet::new();
        let mut arguments = asked.clone();
        for number in 0..4 {
            let found = page(if number % 2 == 0 { &one } else { &two }, number, tool, &arguments);
            let key = if tool == "list_namespaces" { "namespaces" } else { "tools" };
            let hits = found[key].as_array().unwrap_or_else(|| panic!("{found}"));
            assert!(!hits.is_empty(), "{found}");
            for hit in hits {
                let id = hit.get("id").unwrap_or(hit).to_string();
                assert!(seen.insert(id), "{tool} shows it twice: {hit}");
            }
            arguments = asked.clone();
            let cursor = found["nextCursor"].clone();
            assert!(cursor.is_string() || number == 3, "{tool} has more pages: {found}");
            arguments["cursor"] = cursor;
        }
    }
    one.end();
    two.end();
}

#[test]
fn a_fleet_without_shared_tokens_does_not_start() {
    let start = |key: &str, flags: &[&str]| {
        let workspace = workspace();
        let file = workspace.file("cluster-key");
        fs::write(&file, KEY).unwrap();
        let key = if key.is_empty() { file.to_str().unwrap() } else { key };
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_metamcp"));
        let mut command = workspace.command(program).unwrap();
        command.args(["--transport", "http", "--port", "0", "--cluster-key", key]).args(flags);
        command.env("TEST_TOKEN", "a token").stdin(std::process::Stdio::null());
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for flags in [&[][..], &["--no-auth"]] {
        let told = start("", flags);
        assert!(told.contains("a fleet needs tokens that all of its gateways accept"), "{told}");
    }
    // The key has no business on a command line.
    let told = start(KEY, &["--token-env", "TEST_TOKEN"]);
    assert!(told.contains("the key itself") && !told.contains(&KEY[..10]), "{told}");
    let told = start("/nonexistent/key", &["--token-env", "TEST_TOKEN"]);
    assert!(told.contains("No such file"), "{told}");
}

#[test]
fn without_a_key_a_session_stays_where_it_began() {
    let (one, two) = (Served::start(&[]), Served::start(&[]));
    let session = one.session(&json!({}));
    assert_eq!(session.id.len(), 32);
    assert_eq!(session.at(&two).call(2, "echo", &json!({"text": "x"})).status, 404);
    let mut hello = Request::post(&initialize("2025-11-25", &json!({}))).send(two.address);
    assert_eq!(hello.status, 200);
    hello.text();
    one.end();
    two.end();
}
