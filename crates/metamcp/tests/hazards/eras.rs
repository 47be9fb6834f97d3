//! Two eras of the protocol, in all four combinations: clients and servers with a handshake, and without.

use metamcp_testkit::client::{Answerer, Reply};
use metamcp_testkit::{Answer, EventKind, Server, Workspace, census, chaos_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

/// A client with every capability.
fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn child(era: &str) -> Server {
    chaos_server(&[]).argument("--era").argument(era)
}

/// A server of each kind.
fn both_kinds() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("old", child("legacy"));
    workspace.server("new", child("modern"));
    workspace
}

/// The params of an `mcp_call`.
fn calling(server: &str, tool: &str, args: &Value) -> Value {
    json!({"name": "mcp_call", "arguments": {"server": server, "tool": tool, "args": args}})
}

/// A request without a handshake, and its response.
fn ask(gateway: &Gateway, method: &str, params: &Value) -> Answer {
    gateway.answer(gateway.stateless(method, params, &able(), &json!({})).unwrap())
}

/// Calls a tool without a handshake, retrying with input responses for as long as input is required.
fn converse(gateway: &Gateway, params: &Value, reply: &dyn Fn(&Value) -> Value) -> (Answer, usize) {
    let mut answer = ask(gateway, "tools/call", params);
    let mut rounds = 0;
    while answer.value["result"]["resultType"] == "input_required" {
        rounds += 1;
        assert!(rounds < 10, "{}", answer.value);
        let result = &answer.value["result"];
        let mut retry = params.clone();
        retry["requestState"] = result["requestState"].clone();
        for (key, question) in result["inputRequests"].as_object().unwrap() {
            retry["inputResponses"][key] = reply(question);
        }
        answer = ask(gateway, "tools/call", &retry);
    }
    (answer, rounds)
}

/// The client's response, by method.
fn reply_to(method: &str) -> Value {
    match method {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
        "sampling/createMessage" => {
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hm."}})
        }
        _ => json!({"roots": [{"uri": "file:///home"}]}),
    }
}

#[test]
fn a_client_needs_no_handshake() {
    let gateway = Gateway::start_silently(both_kinds());
    let found = ask(&gateway, "server/discover", &json!({}));
    let found = found.result().unwrap();
    assert_eq!(found["supportedVersions"][0], "2026-07-28");
    assert_eq!(found["resultType"], "complete");
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "metamcp");
    assert!(found["ttlMs"].as_u64().is_some() && found["cacheScope"].is_string());
    let list = ask(&gateway, "tools/list", &json!({}));
    let list = list.result().unwrap();
    assert_eq!(list["tools"][0]["name"], "mcp_discover");
    assert_eq!((&list["cacheScope"], &list["resultType"]), (&json!("public"), &json!("complete")));
    for server in ["old", "new"] {
        let answer =
            ask(&gateway, "tools/call", &calling(server, "echo", &json!({"text": "hello"})));
        assert_eq!(answer.text(), Some("hello"), "{}", answer.value);
        assert_eq!(answer.result().unwrap()["resultType"], "complete");
    }
    let found = ask(
        &gateway,
        "tools/call",
        &json!({"name": "mcp_discover", "arguments": {"query": "echo"}}),
    );
    assert!(found.text().is_some_and(|text| text.contains("echo")), "{}", found.value);
    // The legacy server received the client's capabilities when it started.
    let hello = &gateway.workspace.journal("old").of(EventKind::Initialize).unwrap()[0].detail;
    assert_eq!(hello["capabilities"], able());
    gateway.end();
}

#[test]
fn requests_that_cannot_be_served_are_refused_by_the_book() {
    let gateway = Gateway::start_silently(both_kinds());
    let refusal = |method: &str, meta: Value| {
        let id = gateway.stateless(method, &json!({}), &able(), &meta).unwrap();
        let answer = gateway.answer(id);
        (answer.value["error"]["code"].as_i64().unwrap(), answer.value["error"]["data"].clone())
    };
    let version = "io.modelcontextprotocol/protocolVersion";
    let (code, data) = refusal("tools/list", json!({version: "1900-01-01"}));
    assert_eq!((code, &data["requested"]), (-32022, &json!("1900-01-01")));
    assert!(data["supported"].as_array().unwrap().contains(&json!("2026-07-28")));
    for method in ["ping", "initialize", "logging/setLevel", "resources/subscribe", "no/such"] {
        assert_eq!(refusal(method, json!({})).0, -32601, "{method}");
    }
    for meta in [
        json!({"io.modelcontextprotocol/clientCapabilities": null}),
        json!({"io.modelcontextprotocol/logLevel": "loud"}),
        json!({version: 7}),
    ] {
        assert_eq!(refusal("tools/list", meta).0, -32602);
    }
    // The same connection still serves the other era, without any state from before.
    gateway.ping();
    gateway.initialize(&json!({}), HUNG).unwrap();
    let answer = gateway.call("old", "echo", &json!({"text": "hello"}));
    assert_eq!(answer.result().unwrap().get("resultType"), None);
    gateway.end();
}

#[test]
fn a_client_with_a_handshake_sees_nothing_of_the_other_era() {
    let gateway = Gateway::start(both_kinds());
    let answer = gateway.call("new", "echo", &json!({"text": "hello"}));
    assert_eq!(answer.result().unwrap(), &json!({"content": [{"type": "text", "text": "hello"}]}));
    // Every other byte is the server's: only `resultType` is removed.
    let new = gateway.call("new", "exotic", &json!({}));
    let old = gateway.call("old", "exotic", &json!({}));
    let old = old.raw_result().unwrap();
    assert!(old.ends_with(r#""isError":false,"resultType":"complete"}"#), "{old}");
    assert_eq!(new.raw_result().unwrap(), old.replace(r#","resultType":"complete""#, ""));
    // The stateless server got everything it needs with the call, and no handshake.
    let journal = gateway.workspace.journal("new");
    assert!(journal.of(EventKind::Initialize).unwrap().is_empty());
    assert_eq!(journal.of(EventKind::Discover).unwrap().len(), 1);
    // Tool list changes arrive through a subscription.
    gateway.call("new", "grow", &json!({}));
    assert!(eventually(HUNG, || {
        gateway.call("new", "grown_1", &json!({})).text() == Some("grown_1")
    }));
    gateway.end();
}

#[test]
fn the_era_of_a_server_is_probed_once() {
    let mut gateway = Gateway::start(both_kinds());
    for round in 0..2 {
        for server in ["old", "new"] {
            let answer = gateway.call(server, "echo", &json!({"text": "hello"}));
            assert_eq!(answer.text(), Some("hello"));
        }
        // It is written in the background, so there is no tight deadline.
        let file = gateway.workspace.home().join(".metamcp/cache/eras.json");
        assert!(eventually(HUNG, || {
            std::fs::read_to_string(&file)
                .is_ok_and(|text| text.contains("initialize") && text.contains("stateless"))
        }));
        let discovered =
            |server: &str| gateway.workspace.journal(server).of(EventKind::Discover).unwrap().len();
        assert_eq!(discovered("old"), 1, "an old server is not asked again");
        assert_eq!(discovered("new"), round + 1, "a new one is asked who it is");
        gateway = Gateway::start(gateway.end());
    }
    gateway.end();
}

#[test]
fn a_server_that_exits_on_the_probe_gets_a_new_process() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("touchy", child("touchy"));
    workspace.server("silent", child("silent"));
    let gateway = Gateway::start(workspace);
    for server in ["touchy", "silent"] {
        let answer = gateway.call(server, "echo", &json!({"text": "hello"}));
        assert_eq!(answer.text(), Some("hello"), "{}", answer.value);
    }
    let starts =
        |server: &str| gateway.workspace.journal(server).of(EventKind::Start).unwrap().len();
    assert_eq!((starts("touchy"), starts("silent")), (2, 1));
    gateway.end();
}

#[test]
fn a_server_that_crashes_or_hangs_on_the_probe_is_initialized_in_a_new_process() {
    let kinds = ["deaf", "frail", "mute"];
    let mut workspace = Workspace::new().unwrap();
    for kind in kinds {
        workspace.server(kind, child(kind));
    }
    let mut gateway = Gateway::start(workspace);
    let starts = |gateway: &Gateway, server: &str| {
        gateway.workspace.journal(server).of(EventKind::Start).unwrap().len()
    };
    let pending = kinds.map(|kind| gateway.mcp_call(kind, "echo", &json!({"text": kind})).unwrap());
    for (kind, id) in kinds.into_iter().zip(pending) {
        let answer = gateway.answer(id);
        assert_eq!(answer.text(), Some(kind), "{kind}: {}", answer.value);
        assert_eq!(
            starts(&gateway, kind),
            2,
            "{kind}: one start that heard too much, one good one"
        );
    }
    // A gateway that remembers their era begins with the handshake.
    let file = gateway.workspace.home().join(".metamcp/cache/eras.json");
    assert!(eventually(HUNG, || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.matches("initialize").count() == kinds.len()
    }));
    gateway = Gateway::start(gateway.end());
    for kind in kinds {
        let answer = gateway.call(kind, "echo", &json!({"text": kind}));
        assert_eq!(answer.text(), Some(kind), "{kind}: {}", answer.value);
        assert_eq!(starts(&gateway, kind), 3, "{kind}");
        assert_eq!(
            gateway.workspace.journal(kind).of(EventKind::Discover).unwrap().len(),
            1,
            "{kind}"
        );
    }
    gateway.end();
}

#[test]
fn server_requests_are_answered_in_all_four_era_combinations() {
    let kinds = [
        ("elicit", "elicitation/create"),
        ("sample", "sampling/createMessage"),
        ("roots", "roots/list"),
    ];
    let check = |server: &str, method: &str, answer: &Answer| {
        let told = &answer.result().unwrap()["structuredContent"]["result"];
        assert_eq!(told, &reply_to(method), "{server}: {}", answer.value);
    };
    let answerer: Answerer = Box::new(|method, _| Reply::Result(reply_to(method)));
    let gateway = Gateway::start_answering(both_kinds(), &able(), answerer);
    for server in ["old", "new"] {
        for (tool, method) in kinds {
            check(server, method, &gateway.call(server, tool, &json!({})));
        }
    }
    gateway.end();
    let gateway = Gateway::start_silently(both_kinds());
    for server in ["old", "new"] {
        for (tool, method) in kinds {
            let params = calling(server, tool, &json!({}));
            let (answer, rounds) = converse(&gateway, &params, &|question| {
                assert_eq!(question["method"], method);
                reply_to(method)
            });
            check(server, method, &answer);
            assert_eq!((rounds, &answer.value["result"]["resultType"]), (1, &json!("complete")));
        }
    }
    gateway.end();
}

#[test]
fn a_client_without_the_capability_gets_no_server_request() {
    let gateway = Gateway::start_silently(both_kinds());
    for server in ["old", "new"] {
        let params = calling(server, "elicit", &json!({}));
        let id = gateway.stateless("tools/call", &params, &json!({}), &json!({})).unwrap();
        let answer = gateway.answer(id);
        assert_eq!(answer.value["result"]["isError"], true, "{}", answer.value);
        assert_eq!(answer.value["result"]["resultType"], "complete");
    }
    gateway.end();
}

#[test]
fn state_that_was_tampered_with_leads_nowhere() {
    let gateway = Gateway::start_silently(both_kinds());
    for server in ["old", "new"] {
        let params = calling(server, "elicit", &json!({"key": "mine"}));
        let first = ask(&gateway, "tools/call", &params);
        let result = first.result().unwrap();
        let state = result["requestState"].as_str().unwrap().to_owned();
        let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        let retry = |state: &str, args: Value| {
            let mut retry = calling(server, "elicit", &args);
            retry["requestState"] = state.into();
            retry["inputResponses"] = json!({key.as_str(): reply_to("elicitation/create")});
            ask(&gateway, "tools/call", &retry)
        };
        let flipped =
            state.replacen(&state[9..10], if &state[9..10] == "A" { "B" } else { "A" }, 1);
        for (wrong, args) in [
            (flipped.as_str(), json!({"key": "mine"})),
            ("", json!({"key": "mine"})),
            (state.as_str(), json!({"key": "other"})),
        ] {
            assert_eq!(retry(wrong, args).value["error"]["code"], -32602);
        }
        // The right state still works after all that; a suspended call accepts it only once.
        let answer = retry(&state, json!({"key": "mine"}));
        assert!(answer.text().is_some_and(|text| text.contains("Ada")), "{}", answer.value);
        let again = retry(&state, json!({"key": "mine"}));
        match server {
            "old" => assert_eq!(again.value["error"]["code"], -32602),
            _ => assert!(again.text().is_some_and(|text| text.contains("Ada"))),
        }
    }
    gateway.end();
}

#[test]
fn many_at_once_never_get_each_others_answers() {
    let gateway = Gateway::start_silently(both_kinds());
    // A legacy server may have eight server requests open at once.
    for (server, many) in [("new", 64), ("old", 8)] {
        let params: Vec<Value> = (0..many)
            .map(|number| calling(server, "elicit", &json!({"key": format!("k{number}")})))
            .collect();
        let ids: Vec<u64> = params
            .iter()
            .map(|params| gateway.stateless("tools/call", params, &able(), &json!({})).unwrap())
            .collect();
        let retries: Vec<u64> = ids
            .iter()
            .zip(&params)
            .enumerate()
            .map(|(number, (id, params))| {
                let asked = gateway.answer(*id);
                let result = asked.result().unwrap();
                assert_eq!(result["resultType"], "input_required", "{}", asked.value);
                let mut retry = params.clone();
                retry["requestState"] = result["requestState"].clone();
                for key in result["inputRequests"].as_object().unwrap().keys() {
                    retry["inputResponses"][key] =
                        json!({"action": "accept", "content": {"name": format!("n{number}")}});
                }
                gateway.stateless("tools/call", &retry, &able(), &json!({})).unwrap()
            })
            .collect();
        let mut names = std::collections::BTreeSet::new();
        for (number, id) in retries.into_iter().enumerate() {
            let answer = gateway.answer(id);
            let name = &answer.result().unwrap()["structuredContent"]["result"]["content"]["name"];
            if server == "new" {
                assert_eq!(name, &json!(format!("n{number}")), "{}", answer.value);
            }
            assert!(name.is_string(), "{server} {number}: {}", answer.value);
            names.insert(name.as_str().unwrap().to_owned());
        }
        assert_eq!(names.len(), many, "each answer reached one call");
    }
    gateway.end();
}

#[test]
fn a_call_that_is_called_off_is_called_off_at_the_server() {
    let gateway = Gateway::start_silently(both_kinds());
    for server in ["old", "new"] {
        ask(&gateway, "tools/call", &calling(server, "echo", &json!({"text": "warm"})));
        let params = calling(server, "slow", &json!({"ms": 60_000}));
        let id = gateway.stateless("tools/call", &params, &able(), &json!({})).unwrap();
        let journal = gateway.workspace.journal(server);
        assert!(eventually(HUNG, || journal.of(EventKind::Execute).unwrap().len() == 2));
        gateway.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
        assert!(eventually(HUNG, || journal.of(EventKind::Cancelled).unwrap().len() == 1));
    }
    gateway.end();
}

#[test]
fn news_of_a_request_comes_with_it_and_only_if_wanted() {
    let gateway = Gateway::start_silently(both_kinds());
    for server in ["old", "new"] {
        let logs = |meta: &Value| {
            let before = gateway.notifications("notifications/message").len();
            let params = calling(server, "log", &json!({"text": "a word"}));
            let id = gateway.stateless("tools/call", &params, &able(), meta).unwrap();
            assert_eq!(gateway.answer(id).text(), Some("logged"));
            gateway.notifications("notifications/message").len() - before
        };
        assert_eq!(logs(&json!({})), 0, "{server}");
        assert_eq!(logs(&json!({"io.modelcontextprotocol/logLevel": "debug"})), 1, "{server}");
        assert_eq!(logs(&json!({"io.modelcontextprotocol/logLevel": "error"})), 0, "{server}");
        let params = calling(server, "progress", &json!({"count": 20}));
        let meta = json!({"progressToken": format!("t-{server}")});
        let id = gateway.stateless("tools/call", &params, &able(), &meta).unwrap();
        assert_eq!(gateway.answer(id).text(), Some("20 steps"));
        let told: Vec<Value> = gateway
            .notifications("notifications/progress")
            .into_iter()
            .filter(|params| params["progressToken"] == format!("t-{server}"))
            // The gateway reports the start of a call if the server is slow to send progress itself.
            .filter(|params| params["progress"] != 0.0)
            .map(|params| params["progress"].clone())
            .collect();
        assert_eq!(told, (1..=20).map(Value::from).collect::<Vec<_>>());
    }
    gateway.end();
}

#[test]
fn a_subscription_is_acknowledged_first_and_ends_in_good_order() {
    let mut gateway = Gateway::start_silently(both_kinds());
    let params = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let id = gateway.stateless("subscriptions/listen", &params, &able(), &json!({})).unwrap();
    let method = "notifications/subscriptions/acknowledged";
    assert!(eventually(HUNG, || gateway.notifications(method).len() == 1));
    let tagged = json!({"io.modelcontextprotocol/subscriptionId": id});
    assert_eq!(
        gateway.notifications(method)[0],
        json!({"_meta": tagged, "notifications": {}}),
        "nothing of this changes here"
    );
    let refused = ask(&gateway, "subscriptions/listen", &json!({}));
    assert_eq!(refused.value["error"]["code"], -32602);
    gateway.client.close_input();
    let end = gateway.answer(id);
    assert_eq!(end.result(), Some(&json!({"resultType": "complete", "_meta": tagged})));
    gateway.client.wait_exit(HUNG).unwrap();
}

#[test]
fn a_script_is_held_while_its_client_answers() {
    let gateway = Gateway::start_silently(both_kinds());
    let code = r#"const a = await servers.old.call("elicit", {}); const b = await servers["new"].call("elicit", {});
        return [a, b].map(x => JSON.stringify(x).includes("Ada"));"#;
    let params = json!({"name": "mcp_execute", "arguments": {"code": code}});
    let (answer, rounds) = converse(&gateway, &params, &|_| reply_to("elicitation/create"));
    assert_eq!(rounds, 2, "{}", answer.value);
    assert!(answer.text().is_some_and(|text| text.contains("true") && !text.contains("false")));
    gateway.end();
}

#[test]
fn a_held_call_whose_server_dies_says_so_to_the_client_that_comes_back() {
    let gateway = Gateway::start_silently(both_kinds());
    let params = calling("old", "elicit", &json!({}));
    let first = ask(&gateway, "tools/call", &params);
    let state = first.result().unwrap()["requestState"].clone();
    census::kill_all(&[gateway.only_child()]);
    let mut retry = params.clone();
    retry["requestState"] = state;
    retry["inputResponses"] = json!({"question-1": reply_to("elicitation/create")});
    let answer = ask(&gateway, "tools/call", &retry);
    assert_eq!(answer.value["result"]["isError"], true, "{}", answer.value);
    assert_eq!(answer.value["result"]["structuredContent"]["code"], "outcome_unknown");
    gateway.end();
}
