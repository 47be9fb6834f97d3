//! Direct mode: servers are passed through, and whatever one of them does, the others stay reachable.

use metamcp_testkit::{Answer, Client, EventKind, Server, Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

fn offering(what: &str) -> Server {
    chaos_server(&[]).argument("--offers").argument(what)
}

/// A workspace whose gateway passes servers through.
fn shown<'a>(servers: impl IntoIterator<Item = (&'a str, Server)>) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.setting("surface", json!("direct"));
    for (name, server) in servers {
        workspace.server(name, server);
    }
    workspace
}

fn ask(gateway: &Gateway, method: &str, params: &Value) -> Answer {
    gateway.ask(method, params, HUNG).unwrap()
}

fn call(gateway: &Gateway, tool: &str, arguments: &Value) -> Answer {
    gateway.answer(gateway.call_tool(tool, arguments).unwrap())
}

/// All pages of a list, as the client sees them.
fn all(gateway: &Gateway, method: &str, member: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut params = json!({});
    for _ in 0..1000 {
        let answer = ask(gateway, method, &params);
        let result = answer.result().unwrap_or_else(|| panic!("{}", answer.value));
        found.extend(result[member].as_array().unwrap().iter().cloned());
        if result["nextCursor"].is_null() {
            return found;
        }
        params = json!({"cursor": result["nextCursor"]});
    }
    panic!("{method} has no end");
}

fn named(list: &[Value], key: &str) -> Vec<String> {
    list.iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

/// The same child without a gateway, for comparison.
fn alone(server: &str) -> Client {
    let mut command = std::process::Command::new(metamcp_testkit::programs::chaos_child());
    command.args(["--offers", server]);
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    client
}

#[test]
fn one_server_is_seen_as_if_nothing_stood_before_it() {
    let workspace = shown([("only", offering("some:only"))]);
    let gateway = Gateway::start_silently(workspace);
    let hello = gateway.initialize(&json!({}), HUNG).unwrap();
    assert_eq!(hello["instructions"], "Call echo to be answered.");
    assert_eq!(
        hello["capabilities"],
        json!({
            "tools": {"listChanged": true}, "logging": {}, "completions": {},
            "resources": {"subscribe": true, "listChanged": true}, "prompts": {"listChanged": true},
        })
    );
    let direct = alone("some:only");
    for (method, params) in [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/list", json!({"cursor": "two"})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "memo://only/1"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "greet", "arguments": {"a": "b"}})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "greet"}})),
        ("tools/call", json!({"name": "exotic", "arguments": {}})),
        ("tools/call", json!({"name": "fail"})),
    ] {
        let (through, without) =
            (ask(&gateway, method, &params), direct.ask(method, &params, HUNG).unwrap());
        assert_eq!(through.raw_result(), without.raw_result(), "{method} {params}");
        assert!(through.raw_result().is_some(), "{method}: {}", through.value);
    }
    // Errors are the server's own: code, message and data.
    for (method, params) in [
        ("resources/read", json!({"uri": "memo://nobody/1"})),
        ("tools/call", json!({"name": "rpc_error", "arguments": {"code": -32042}})),
        ("tools/call", json!({"name": "no such tool", "arguments": {}})),
    ] {
        let (through, without) =
            (ask(&gateway, method, &params), direct.ask(method, &params, HUNG).unwrap());
        assert_eq!(through.value["error"], without.value["error"], "{method} {params}");
        assert!(through.value["error"].is_object(), "{method}: {}", through.value);
    }
    assert_eq!(ask(&gateway, "no/such", &json!({})).value["error"]["code"], -32601);
    gateway.end();
}

#[test]
fn a_server_without_resources_answers_for_itself() {
    let gateway = Gateway::start_silently(shown([("only", chaos_server(&[]))]));
    let hello = gateway.initialize(&json!({}), HUNG).unwrap();
    assert_eq!(hello["capabilities"], json!({"tools": {"listChanged": true}, "logging": {}}));
    for method in ["resources/list", "prompts/list", "completion/complete"] {
        let answer = ask(&gateway, method, &json!({}));
        assert_eq!(answer.value["error"]["code"], -32601, "{method}: {}", answer.value);
    }
    gateway.end();
}

#[test]
fn several_servers_are_distinguished_by_name() {
    let workspace = shown([
        ("one", offering("some:one")),
        ("plain", chaos_server(&[])),
        ("two", offering("some:two")),
        ("odd one", chaos_server(&[])),
        ("broken", Server::new("/nowhere/at/all", &[])),
    ]);
    let gateway = Gateway::start(workspace);
    let tools = named(&all(&gateway, "tools/list", "tools"), "name");
    for name in ["one__echo", "plain__echo", "two__echo"] {
        assert_eq!(tools.iter().filter(|tool| *tool == name).count(), 1, "{name} in {tools:?}");
    }
    assert!(tools.iter().all(|tool| tool.len() <= 64));
    assert_eq!(tools, named(&all(&gateway, "tools/list", "tools"), "name"), "names are stable");
    for name in ["one__echo", "two__echo", "plain__echo"] {
        let answer = call(&gateway, name, &json!({"text": "hello"}));
        assert_eq!(answer.text(), Some("hello"), "{}", answer.value);
    }
    let odd = tools.iter().find(|tool| tool.starts_with("odd_one__echo_")).unwrap();
    assert_eq!(call(&gateway, odd, &json!({"text": "hello"})).text(), Some("hello"), "{odd}");
    for journal in ["one", "plain", "two", "odd one"] {
        let calls =
            gateway.workspace.journal(journal).of(metamcp_testkit::EventKind::Execute).unwrap();
        assert_eq!(calls.len(), 1, "{journal}");
    }
    for name in ["echo", "three__echo", "one__", "__echo", "one__nothing"] {
        let answer = call(&gateway, name, &json!({"text": "hello"}));
        assert_eq!(answer.value["error"]["code"], -32602, "{name}: {}", answer.value);
    }
    let resources = all(&gateway, "resources/list", "resources");
    assert_eq!(
        named(&resources, "uri"),
        [
            "memo://one/1",
            "memo://one/2",
            "memo://same",
            "memo://two/1",
            "memo://two/2",
            "memo://same"
        ]
    );
    assert_eq!(resources[0]["futureField"], json!([1.5, null]), "definitions are kept whole");
    let prompts = named(&all(&gateway, "prompts/list", "prompts"), "name");
    assert_eq!(prompts, ["one__greet", "two__greet"]);
    let read = |uri: &str| {
        let answer = ask(&gateway, "resources/read", &json!({"uri": uri}));
        answer.value["result"]["contents"][0]["text"].as_str().map(str::to_owned)
    };
    assert_eq!(read("memo://two/2").as_deref(), Some("two says hello"));
    assert_eq!(read("memo://two/77").as_deref(), Some("two says hello"), "nobody listed it");
    assert_eq!(read("memo://same").as_deref(), Some("one says hello"), "the first one has it");
    let missing = ask(&gateway, "resources/read", &json!({"uri": "memo://three/1"}));
    assert_eq!(missing.value["error"]["code"], -32002, "{}", missing.value);
    let prompt = ask(&gateway, "prompts/get", &json!({"name": "two__greet"}));
    let said = &prompt.value["result"]["messages"][0]["content"]["text"];
    assert_eq!(said, "two asks greet", "{}", prompt.value);
    let reference = json!({"ref": {"type": "ref/prompt", "name": "two__greet"}});
    let completed = ask(&gateway, "completion/complete", &reference);
    assert_eq!(completed.value["result"]["completion"]["values"], json!(["two", "greet"]));
    let unknown = ask(&gateway, "prompts/get", &json!({"name": "greet"}));
    assert_eq!(unknown.value["error"]["code"], -32602, "{}", unknown.value);
    gateway.end();
}

#[test]
fn lists_of_a_hostile_server_do_not_hide_those_of_others() {
    for manner in ["flood", "loop", "wrong", "nonsense"] {
        let workspace =
            shown([("bad", offering(&format!("{manner}:bad"))), ("good", offering("some:good"))]);
        let gateway = Gateway::start(workspace);
        let resources = named(&all(&gateway, "resources/list", "resources"), "uri");
        let good = resources.iter().filter(|uri| uri.starts_with("memo://good/")).count();
        assert_eq!(good, 2, "{manner}: {} resources", resources.len());
        let prompts = named(&all(&gateway, "prompts/list", "prompts"), "name");
        assert!(prompts.contains(&"good__greet".to_owned()), "{manner}: {} prompts", prompts.len());
        if manner == "wrong" {
            assert_eq!(prompts, ["bad__greet", "good__greet"], "what can be shown is");
        }
        gateway.ping();
        gateway.end();
    }
}

#[test]
fn a_tool_that_is_none_does_not_spoil_the_list() {
    for others in [&[][..], &["good"]] {
        let mut workspace = shown([("bad", offering("wrong:bad"))]);
        for other in others {
            workspace.server(other, chaos_server(&[]));
        }
        let gateway = Gateway::start(workspace);
        let prefix = if others.is_empty() { "" } else { "bad__" };
        let tools = all(&gateway, "tools/list", "tools");
        let names = named(&tools, "name");
        for tool in &tools {
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert!(tool["name"].as_str().unwrap().len() <= 64, "{tool}");
            for words in ["title", "description"] {
                assert!(tool.get(words).is_none_or(Value::is_string), "{tool}");
            }
        }
        for left_out in ["no_schema", "text_schema", "number_words"] {
            assert!(!names.contains(&format!("{prefix}{left_out}")), "{names:?}");
        }
        for kept in ["echo", "null_words"] {
            assert!(names.contains(&format!("{prefix}{kept}")), "{kept} in {names:?}");
        }
        let hidden = tools.iter().find(|tool| tool["name"] == format!("{prefix}hidden_words"));
        assert_eq!(hidden.unwrap()["description"], "abc");
        // Names that are too long for clients are shortened, and still resolve to their tools.
        let long = names.iter().find(|name| name.contains("long_")).unwrap();
        let answer = call(&gateway, long, &json!({}));
        let said = answer.value["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(said, format!("unknown tool long_{}", "x".repeat(80)), "{}", answer.value);
        let resources = named(&all(&gateway, "resources/list", "resources"), "uri");
        assert_eq!(resources, ["memo://bad/1"]);
        assert!(eventually(HUNG, || gateway.stderr().contains("no_schema")));
        all(&gateway, "tools/list", "tools");
        assert_eq!(gateway.stderr().matches("\"no_schema\"").count(), 1, "it is told once");
        gateway.end();
    }
}

#[test]
fn names_stay_what_they_are_when_a_server_is_switched_off() {
    let mut workspace = shown([("one", offering("some:one"))]);
    let off = |extra: Value| {
        let mut entry = json!({"command": metamcp_testkit::programs::chaos_child()});
        entry.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        entry
    };
    workspace.entry("off", off(json!({"disabled": true})));
    workspace.entry("unset", off(json!({"env": {"X": "${NO_SUCH_VARIABLE_HERE}"}})));
    let gateway = Gateway::start(workspace);
    let names = named(&all(&gateway, "tools/list", "tools"), "name");
    assert!(names.iter().all(|name| name.starts_with("one__")), "{names:?}");
    assert_eq!(named(&all(&gateway, "prompts/list", "prompts"), "name"), ["one__greet"]);
    for stranger in ["off__effect", "unset__effect", "effect", "two__effect"] {
        let answer = call(&gateway, stranger, &json!({"key": "secret"}));
        assert_eq!(answer.value["error"]["code"], -32602, "{stranger}: {}", answer.value);
    }
    let calls =
        || gateway.workspace.journal("one").of(metamcp_testkit::EventKind::Execute).unwrap();
    assert!(calls().is_empty(), "nobody else is told");
    call(&gateway, "one__effect", &json!({"key": "k"}));
    assert_eq!(calls().len(), 1);
    gateway.end();
}

#[test]
fn servers_that_are_switched_off_are_not_said_to_be_missing() {
    let mut workspace = shown([]);
    for name in ["one", "two"] {
        workspace.entry(name, json!({"command": "none", "disabled": true}));
    }
    for (workspace, words) in [
        (workspace, "one of the configured servers can be used"),
        (shown([]), "o server is configured"),
    ] {
        let gateway = Gateway::start_silently(workspace);
        let hello = gateway.initialize(&json!({}), HUNG).unwrap();
        let told = hello["instructions"].as_str().unwrap();
        assert_eq!(
            told.strip_prefix('N').map(|rest| rest.starts_with(words)),
            Some(true),
            "{told}"
        );
        let read = ask(&gateway, "resources/read", &json!({"uri": "memo://one/1"}));
        let told = read.value["error"]["message"].as_str().unwrap();
        assert_eq!(
            told.strip_prefix('n').map(|rest| rest.starts_with(words)),
            Some(true),
            "{told}"
        );
        gateway.end();
    }
}

/// Hosts that render a server's UI pages need these tools; models do not.
#[test]
fn tools_for_pages_are_there_for_hosts_and_not_for_models() {
    for (others, name) in [(None, "page_turn"), (Some("two"), "one__page_turn")] {
        let servers = std::iter::once("one").chain(others);
        let gateway = Gateway::start(shown(servers.map(|name| (name, offering("some:x")))));
        let tools = all(&gateway, "tools/list", "tools");
        let page = tools.iter().find(|tool| tool["name"] == name);
        let page = page.unwrap_or_else(|| panic!("{:?}", named(&tools, "name")));
        assert_eq!(page["_meta"]["ui"]["visibility"], json!(["app"]));
        assert_eq!(call(&gateway, name, &json!({})).text(), Some("turned"));
        gateway.end();
    }
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", offering("some:x"));
    let gateway = Gateway::start(workspace);
    let echoed = gateway.call("one", "echo", &json!({"text": "hello"}));
    assert_eq!(echoed.text(), Some("hello"), "{}", echoed.value);
    let called = gateway.call("one", "page_turn", &json!({}));
    assert_eq!(called.value["result"]["isError"], json!(true), "{}", called.value);
    let found = gateway.call_tool("mcp_discover", &json!({"query": "turn the page"})).unwrap();
    let found = gateway.answer(found);
    assert!(!found.text().unwrap_or_default().contains("page_turn"), "{}", found.value);
    gateway.end();
}

#[test]
fn what_can_be_read_in_two_ways_reaches_no_server() {
    let good = r#""name":"effect","arguments":{"key":"k"}"#;
    for others in [&[][..], &["other"]] {
        let mut workspace = shown([("one", offering("some:one"))]);
        for other in others {
            workspace.server(other, chaos_server(&[]));
        }
        let gateway = Gateway::start(workspace);
        let prefix = if others.is_empty() { "" } else { "one__" };
        let doubled = [
            ("tools/call", format!(r#"{{{good},"name":"echo"}}"#)),
            ("tools/call", format!(r#"{{{good},"arguments":{{"key":"other"}}}}"#)),
            ("tools/call", format!(r#"{{{good},"Arguments":{{"key":"other"}}}}"#)),
            ("tools/call", format!(r#"{{{good},"_meta":{{}},"_meta":{{}}}}"#)),
            ("tools/call", r#"{"name":"effect","arguments":{"key":"a","key":"b"}}"#.to_owned()),
            (
                "tools/call",
                r#"{"name":"effect","arguments":{"a":[{"b":1,"\u0062":2}]}}"#.to_owned(),
            ),
            ("tools/call", r#"{"name":"effect\u0000","arguments":{"key":"k"}}"#.to_owned()),
            ("tools/call", r#"{"name":"effect\u200b","arguments":{"key":"k"}}"#.to_owned()),
            ("tools/list", r#"{"cursor":"a","cursor":"b"}"#.to_owned()),
            ("tools/list", r#"{"cursor":7}"#.to_owned()),
            ("resources/read", r#"{"uri":"memo://one/1","uri":"memo://one/2"}"#.to_owned()),
            ("resources/read", r#"{"uri":"memo://one/1","URI":"memo://one/2"}"#.to_owned()),
            ("prompts/get", r#"{"name":"greet","name":"grow"}"#.to_owned()),
            (
                "completion/complete",
                r#"{"ref":{"type":"ref/prompt","name":"greet","name":"grow"}}"#.to_owned(),
            ),
        ];
        for (earlier, (method, params)) in doubled.into_iter().enumerate() {
            let params = params.replace("effect", &format!("{prefix}effect"));
            let params = params.replace("greet", &format!("{prefix}greet"));
            let id = "\"doubled\"";
            gateway.expect(id);
            let line =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
            gateway.send(&line).unwrap();
            let answer = gateway.wait_as(id, earlier, HUNG).unwrap();
            assert_eq!(answer.value["error"]["code"], -32602, "{params}: {}", answer.value);
        }
        let journal = gateway.workspace.journal("one");
        assert!(journal.of(metamcp_testkit::EventKind::Execute).unwrap().is_empty());
        gateway.end();
    }
}

#[test]
fn unknown_tools_are_not_tried_where_tools_are_filtered() {
    let server = chaos_server(&[]).setting("tools", json!({"deny": ["effect"]}));
    let gateway = Gateway::start(shown([("only", server)]));
    let denied = call(&gateway, "effect", &json!({"key": "k"}));
    assert!(denied.value.to_string().contains("does not permit"), "{}", denied.value);
    for name in ["Effect", "effect ", "effect_", "nothing"] {
        let answer = call(&gateway, name, &json!({"key": "k"}));
        assert_eq!(answer.value["error"]["code"], -32602, "{name}: {}", answer.value);
    }
    assert_eq!(call(&gateway, "echo", &json!({"text": "hello"})).text(), Some("hello"));
    let journal = gateway.workspace.journal("only");
    assert_eq!(journal.of(metamcp_testkit::EventKind::Execute).unwrap().len(), 1);
    gateway.end();
}

#[test]
fn a_server_that_cannot_start_is_no_empty_list() {
    let workspace = shown([("only", Server::new("/nowhere/at/all", &[]))]);
    let gateway = Gateway::start(workspace);
    for method in ["tools/list", "resources/list"] {
        let answer = ask(&gateway, method, &json!({}));
        let message = answer.value["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(answer.value["error"]["code"], -32000, "{method}: {}", answer.value);
        assert!(message.contains("only"), "{method}: {message}");
    }
    let answer = call(&gateway, "echo", &json!({"text": "x"}));
    assert_eq!(answer.value["result"]["isError"], true, "{}", answer.value);
    gateway.end();
}

#[test]
fn a_client_hears_once_of_a_change() {
    let gateway = Gateway::start(shown([("only", offering("some:only"))]));
    let before = all(&gateway, "tools/list", "tools").len();
    for _ in 0..3 {
        call(&gateway, "grow", &json!({}));
    }
    let method = "notifications/tools/list_changed";
    let grown = || all(&gateway, "tools/list", "tools").len() == before + 3;
    assert!(eventually(HUNG, || !gateway.notifications(method).is_empty() && grown()));
    let prompts = "notifications/prompts/list_changed";
    assert!(gateway.notifications(prompts).is_empty(), "nobody said anything of prompts");
    ask(&gateway, "prompts/get", &json!({"name": "rumour"}));
    ask(&gateway, "prompts/get", &json!({"name": "grow"}));
    assert!(eventually(HUNG, || gateway.notifications(prompts).len() == 1));
    // A subscription to a resource.
    let uri = json!({"uri": "memo://only/1"});
    assert_eq!(ask(&gateway, "resources/subscribe", &uri).result(), Some(&json!({})));
    let updated = "notifications/resources/updated";
    assert!(eventually(HUNG, || gateway.notifications(updated) == [uri.clone()]));
    assert_eq!(ask(&gateway, "resources/unsubscribe", &uri).result(), Some(&json!({})));
    gateway.end();
}

/// The tools of a server that was never started are unknown, so a client that waits for a notification would never
/// list them.
#[test]
fn a_client_hears_of_servers_that_were_added() {
    let mut gateway = Gateway::start(shown([("only", chaos_server(&[]))]));
    let before = all(&gateway, "tools/list", "tools").len();
    let method = "notifications/tools/list_changed";
    // Two, since the notification after the first may belong to the list that was just returned.
    for name in ["added", "another"] {
        let told = gateway.notifications(method).len();
        gateway.workspace.server(name, chaos_server(&[]));
        gateway.workspace.write_config().unwrap();
        assert!(eventually(HUNG, || gateway.notifications(method).len() > told), "{name}");
        let journal = gateway.workspace.journal(name);
        assert_eq!(journal.count(EventKind::Start).unwrap(), 0, "nobody asked for {name}");
    }
    assert!(eventually(HUNG, || all(&gateway, "tools/list", "tools").len() == 3 * before));
    let told = gateway.notifications(method).len();
    gateway.workspace.remove("added");
    gateway.workspace.write_config().unwrap();
    assert!(eventually(HUNG, || gateway.notifications(method).len() > told), "one is gone");
    gateway.end();
}

#[test]
fn list_changed_notifications_can_be_disabled() {
    let mut workspace = shown([("only", chaos_server(&[]))]);
    workspace.setting("notify", json!({"listChanged": false}));
    let gateway = Gateway::start_silently(workspace);
    let hello = gateway.initialize(&json!({}), HUNG).unwrap();
    assert_eq!(hello["capabilities"]["tools"], json!({"listChanged": false}));
    let before = all(&gateway, "tools/list", "tools").len();
    call(&gateway, "grow", &json!({}));
    assert!(eventually(HUNG, || all(&gateway, "tools/list", "tools").len() == before + 1));
    gateway.ping();
    assert!(gateway.notifications("notifications/tools/list_changed").is_empty());
    gateway.end();
}

#[test]
fn the_usual_surface_says_nothing_of_changes() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("only", offering("some:only"));
    let gateway = Gateway::start_silently(workspace);
    let hello = gateway.initialize(&json!({}), HUNG).unwrap();
    assert_eq!(hello["capabilities"]["tools"], json!({"listChanged": false}));
    gateway.call("only", "grow", &json!({}));
    assert!(eventually(HUNG, || {
        gateway.call("only", "grown_1", &json!({})).text() == Some("grown_1")
    }));
    gateway.ping();
    assert!(gateway.notifications("notifications/tools/list_changed").is_empty());
    assert_eq!(ask(&gateway, "resources/list", &json!({})).value["error"]["code"], -32601);
    gateway.end();
}

/// Requests without a handshake, to servers of either era.
#[test]
fn the_newest_clients_see_servers_of_both_eras() {
    for era in ["legacy", "modern"] {
        let server = offering("some:only").argument("--era").argument(era);
        let gateway = Gateway::start_silently(shown([("only", server)]));
        let able = json!({"elicitation": {}});
        let stateless = |method: &str, params: &Value| {
            gateway.answer(gateway.stateless(method, params, &able, &json!({})).unwrap())
        };
        let found = stateless("server/discover", &json!({}));
        let found = &found.value["result"];
        assert_eq!(found["capabilities"]["prompts"], json!({"listChanged": true}), "{found}");
        for (method, params) in [
            ("tools/list", json!({})),
            ("resources/list", json!({})),
            ("resources/templates/list", json!({})),
            ("resources/read", json!({"uri": "memo://only/1"})),
            ("prompts/list", json!({})),
        ] {
            let answer = stateless(method, &params);
            let result = &answer.value["result"];
            assert_eq!(result["resultType"], "complete", "{era} {method}: {}", answer.value);
            assert!(result["ttlMs"].is_u64() && result["cacheScope"].is_string(), "{era} {method}");
        }
        // The error code of older revisions does not exist in this one.
        let missing = stateless("resources/read", &json!({"uri": "memo://nobody/1"}));
        assert_eq!(missing.value["error"]["code"], -32602, "{era}: {}", missing.value);
        assert_eq!(missing.value["error"]["data"]["uri"], "memo://nobody/1", "{era}");
        let asked = stateless("tools/call", &json!({"name": "elicit", "arguments": {}}));
        let asked = &asked.value["result"];
        assert_eq!(asked["resultType"], "input_required", "{era}: {asked}");
        let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
        let answered = stateless(
            "tools/call",
            &json!({
                "name": "elicit", "arguments": {}, "requestState": asked["requestState"],
                "inputResponses": {key: {"action": "accept", "content": {"name": "Ada"}}},
            }),
        );
        assert!(answered.value.to_string().contains("Ada"), "{era}: {}", answered.value);
        let refused = stateless("resources/subscribe", &json!({"uri": "memo://only/1"}));
        assert_eq!(refused.value["error"]["code"], -32601, "{era}");
        // Changes reach the subscriber, with the subscription id.
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        let id = gateway.stateless("subscriptions/listen", &wanted, &able, &json!({})).unwrap();
        let heard = || gateway.notifications("notifications/tools/list_changed");
        let acknowledged = "notifications/subscriptions/acknowledged";
        assert!(eventually(HUNG, || !gateway.notifications(acknowledged).is_empty()));
        stateless("tools/call", &json!({"name": "grow", "arguments": {}}));
        assert!(eventually(HUNG, || !heard().is_empty()), "{era}");
        assert_eq!(heard()[0]["_meta"]["io.modelcontextprotocol/subscriptionId"], id, "{era}");
        gateway.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
        gateway.ping();
        gateway.end();
    }
}

#[test]
fn resources_and_prompts_are_reached_from_the_usual_surface_too() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", offering("some:one"));
    workspace.server("flood", offering("flood:flood"));
    workspace.server("plain", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    let text = |answer: &Answer| answer.text().unwrap_or_default().to_owned();
    let found = call(&gateway, "mcp_discover", &json!({"server": "one"}));
    assert!(text(&found).contains("\"@resources\""), "{}", text(&found));
    assert!(text(&found).contains("\"@prompts\""), "{}", text(&found));
    let found = call(&gateway, "mcp_discover", &json!({"query": "echo"}));
    assert!(!text(&found).contains("@resources"), "{}", text(&found));
    for asked_for in [json!({}), json!({"query": "read a resource"})] {
        let found = call(&gateway, "mcp_discover", &asked_for);
        assert!(text(&found).contains("Resources of one, flood: mcp_call"), "{}", text(&found));
    }
    let found = call(&gateway, "mcp_discover", &json!({"server": "plain"}));
    assert!(!text(&found).contains("@resources"), "{}", text(&found));
    let listed = gateway.call("@resources", "list", &json!({"server": "one"}));
    for line in ["one memo://one/1", "one memo://one/{id} - one", "\"cursor\": \"two\""] {
        assert!(text(&listed).contains(line), "{line} in {}", text(&listed));
    }
    let listed = gateway.call("@resources", "list", &json!({"server": "one", "cursor": "two"}));
    assert!(text(&listed).contains("memo://same"), "{}", text(&listed));
    let all = gateway.call("@resources", "list", &json!({}));
    assert!(text(&all).lines().count() < 110, "a flood is cut: {}", text(&all).len());
    assert!(text(&all).contains("19"), "what is left out is said");
    let read = gateway.call("@resources", "read", &json!({"server": "one", "uri": "memo://one/1"}));
    let resource = &read.value["result"]["content"][0]["resource"];
    assert_eq!(resource["text"], "one says hello", "{}", read.value);
    assert_eq!(resource["futureField"], 1.5);
    let missing =
        gateway.refusal("@resources", "read", &json!({"server": "one", "uri": "memo://x/1"}));
    assert_eq!(missing.code, "execution_failed");
    let prompts = gateway.call("@prompts", "list", &json!({"server": "one"}));
    assert!(text(&prompts).contains("one greet - Asks."), "{}", text(&prompts));
    let got = gateway.call("@prompts", "get", &json!({"server": "one", "name": "greet"}));
    assert_eq!(got.value["result"]["content"][1]["text"], "one asks greet", "{}", got.value);
    for (server, tool, args) in [
        ("@resources", "write", json!({"server": "one"})),
        ("@resources", "read", json!({"server": "one"})),
        ("@prompts", "get", json!({"name": "greet"})),
    ] {
        assert_eq!(gateway.refusal(server, tool, &args).code, "validation_input");
    }
    assert_eq!(
        gateway.refusal("@prompts", "get", &json!({"server": "non", "name": "x"})).code,
        "server_not_found"
    );
    gateway.end();
}

#[test]
fn a_list_says_of_each_server_why_it_is_not_in_it() {
    let mut workspace = Workspace::new().unwrap();
    workspace.setting("timeouts", json!({ "discoverBudgetMs": 200 }));
    workspace.server("slow", chaos_server(&["never-initialize"]));
    workspace.entry("gone", json!({ "command": "no-such-program-anywhere" }));
    let gateway = Gateway::start(workspace);
    let mut text = String::new();
    // On a busy machine even the failed start may take longer than the budget.
    let told = eventually(HUNG, || {
        let listed = gateway.call("@resources", "list", &json!({}));
        text = listed.text().unwrap_or_default().to_owned();
        assert!(text.contains("slow: still starting; ask again in a moment"), "{text}");
        text.contains("gone: could not be started: no such program")
    });
    assert!(told, "{text}");
    gateway.end();
}

/// Subscriptions to a resource, in all four combinations of eras.
#[test]
fn a_resource_is_listened_to_across_the_eras() {
    for era in ["legacy", "modern"] {
        let server = offering("some:only").argument("--era").argument(era);
        let gateway = Gateway::start(shown([("only", server)]));
        let updated = || gateway.notifications("notifications/resources/updated");
        let uri = json!({"uri": "memo://only/1"});
        let subscribed = ask(&gateway, "resources/subscribe", &uri);
        assert_eq!(subscribed.result(), Some(&json!({})), "{era}: {}", subscribed.value);
        assert!(eventually(HUNG, || updated() == [uri.clone()]), "{era}: {:?}", updated());
        ask(&gateway, "resources/unsubscribe", &uri);
        let wanted = json!({"notifications": {"resourceSubscriptions": ["memo://only/2"]}});
        let id =
            gateway.stateless("subscriptions/listen", &wanted, &json!({}), &json!({})).unwrap();
        assert!(eventually(HUNG, || updated().len() == 2), "{era}: {:?}", updated());
        let heard = updated().pop().unwrap();
        assert_eq!(heard["uri"], "memo://only/2", "{era}");
        assert_eq!(heard["_meta"]["io.modelcontextprotocol/subscriptionId"], id, "{era}");
        gateway.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
        gateway.ping();
        gateway.end();
    }
}
