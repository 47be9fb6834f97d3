//! The official SDKs as clients of the gateway, with every server behind it.

use serde_json::{Value, json};

use crate::installed::text;
use crate::plan::{Client, Plan, Report};
use crate::world::World;

/// The clients' responses to server requests.
fn asked_back(plan: Plan) -> Plan {
    plan.answering("elicitation/create", json!({ "action": "accept", "content": { "name": "Ada", "check": true } }))
        .answering(
            "sampling/createMessage",
            json!({ "model": "none", "role": "assistant", "content": { "type": "text", "text": "sampled" } }),
        )
        .answering("roots/list", json!({ "roots": [{ "uri": "file:///somewhere", "name": "somewhere" }] }))
}

/// A call of a server's tool through the gateway.
fn through(server: &str, tool: &str, args: &Value) -> Value {
    json!({ "server": server, "tool": tool, "args": args })
}

fn find_and_call(client: Client) {
    let world = World::new();
    let files = text(&world.files());
    let entity = json!({ "name": "Ada", "entityType": "person", "observations": ["counts"] });
    let plan = Plan::new()
        .list("list")
        .call_until("find", "mcp_discover", &json!({ "query": "echo back a message" }), "everything:echo")
        .call_until("pages", "mcp_discover", &json!({ "server": "playwright" }), "playwright:browser_click")
        .call(
            "schema",
            "mcp_discover",
            &json!({ "tool": "playwright:browser_navigate", "detail": "schema" }),
        )
        .call("echo", "mcp_call", &through("everything", "echo", &json!({ "message": "hi" })))
        .call("by id", "mcp_call", &json!({ "tool": "everything:get-sum", "args": { "a": 40, "b": 2 } }))
        .call("image", "mcp_call", &through("everything", "get-tiny-image", &json!({})))
        .call("folder", "mcp_call", &through("filesystem", "list_directory", &json!({ "path": files })))
        .call("remember", "mcp_call", &through("memory", "create_entities", &json!({ "entities": [entity] })))
        .call("recall", "mcp_call", &through("memory", "read_graph", &json!({})))
        .call(
            "hour",
            "mcp_call",
            &through(
                "time",
                "convert_time",
                &json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" }),
            ),
        )
        .call(
            "status",
            "mcp_call",
            &through("git", "git_status", &json!({ "repo_path": text(&world.repository()) })),
        )
        .call("nowhere", "mcp_call", &through("everthing", "echo", &json!({})))
        .call("nothing", "mcp_call", &through("everything", "ehco", &json!({})));
    let report = plan.run(&world, client, &world.gateway());

    assert_eq!(
        sorted(report.tools("list")),
        ["mcp_call", "mcp_discover", "mcp_execute", "mcp_provision"]
    );
    assert!(report.instructions().contains("mcp_discover"), "{}", report.instructions());
    assert!(report.step("find").text().contains("everything:echo"));
    assert!(report.step("pages").text().contains("playwright:browser_click"));
    assert!(report.step("schema").text().contains("\"url\""), "{}", report.step("schema").text());
    assert_eq!(report.step("echo").text(), "Echo: hi");
    assert!(report.step("by id").text().contains("42"));
    let image = report.step("image");
    let image =
        image.value()["content"].as_array().unwrap().iter().find(|part| part["type"] == "image");
    assert_eq!(image.unwrap()["mimeType"], "image/png");
    assert!(report.step("folder").text().contains("hello.txt"));
    assert!(report.step("recall").text().contains("counts"));
    assert!(report.step("hour").text().contains("21:00"));
    assert!(report.step("status").text().contains("new.txt"));
    for (step, code, meant) in
        [("nowhere", "server_not_found", "everything"), ("nothing", "tool_not_found", "echo")]
    {
        let told = report.step(step);
        assert_eq!(told.value()["isError"], true, "{step}");
        assert_eq!(told.value()["structuredContent"]["code"], code);
        assert!(
            told.value().to_string().contains(meant),
            "{step} names the nearest: {}",
            told.value()
        );
    }
    world.nothing_is_left();
}

#[test]
fn typescript_v1_finds_and_calls() {
    find_and_call(Client::TypescriptV1);
}

#[test]
fn typescript_v2_finds_and_calls() {
    find_and_call(Client::TypescriptV2);
}

#[test]
fn python_v1_finds_and_calls() {
    find_and_call(Client::PythonV1);
}

#[test]
fn python_v2_finds_and_calls() {
    find_and_call(Client::PythonV2);
}

/// The same steps on the server itself and through the gateway must look the same to the client.
fn asks_back_and_progress(client: Client) {
    let world = World::new();
    let steps = [
        ("long", "trigger-long-running-operation", json!({ "duration": 0.4, "steps": 4 })),
        ("form", "trigger-elicitation-request", json!({})),
        ("model", "trigger-sampling-request", json!({ "prompt": "say it", "maxTokens": 7 })),
        ("roots", "get-roots-list", json!({})),
    ];
    let (mut alone, mut behind) = (asked_back(Plan::new()), asked_back(Plan::new()));
    for (name, tool, args) in &steps {
        alone = alone.call_with_progress(name, tool, args);
        behind = behind.call_with_progress(name, "mcp_call", &through("everything", tool, args));
    }
    let alone = alone.run(&world, client, &world.direct("everything"));
    let behind = behind.run(&world, client, &world.gateway());
    for (name, _, _) in &steps {
        assert_eq!(behind.step(name).raw(), alone.step(name).raw(), "{name}");
    }
    assert_eq!(alone.step("long").progress_before_response(), [1, 2, 3, 4], "the server itself");
    // If a server is silent while it starts, the gateway reports that the call has begun.
    let told = behind.step("long").progress_before_response();
    assert_eq!(told.strip_prefix(&[0]).unwrap_or(&told), [1, 2, 3, 4]);
    // An SDK may drop what arrives together with the response; it never drops the first.
    let first = told.first().map(|first| *first as f64);
    assert_eq!(behind.step("long").progress().first().copied(), first);
    let asked = asked_in_calls(&behind);
    assert_eq!(asked.len(), 2, "{asked:?}");
    // The same server requests, each prefixed with the name of the server.
    let mut expected = asked_in_calls(&alone);
    for question in &mut expected {
        if let Some(Value::String(message)) = question["params"].get_mut("message") {
            message.insert_str(0, "The server \"everything\" asks: ");
        }
    }
    assert_eq!(asked, expected);
}

#[test]
fn typescript_v1_answers_server_requests_and_sees_progress() {
    asks_back_and_progress(Client::TypescriptV1);
}

#[test]
fn typescript_v2_answers_server_requests_and_sees_progress() {
    asks_back_and_progress(Client::TypescriptV2);
}

#[test]
fn python_v1_answers_server_requests_and_sees_progress() {
    asks_back_and_progress(Client::PythonV1);
}

#[test]
fn python_v2_answers_server_requests_and_sees_progress() {
    asks_back_and_progress(Client::PythonV2);
}

/// The newest SDKs first probe the era of the gateway, and then need no handshake, whatever the servers behind it need.
fn asks_the_era(client: Client) {
    let world = World::new();
    let hour =
        json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    let report = asked_back(Plan::new().asking_the_era())
        .list("list")
        .call("echo", "mcp_call", &through("everything", "echo", &json!({ "message": "hi" })))
        .call("hour", "mcp_call", &through("time", "convert_time", &hour))
        .call("form", "mcp_call", &through("everything", "trigger-elicitation-request", &json!({})))
        .call(
            "model",
            "mcp_call",
            &through(
                "everything",
                "trigger-sampling-request",
                &json!({ "prompt": "say it", "maxTokens": 7 }),
            ),
        )
        .call_with_progress(
            "long",
            "mcp_call",
            &through(
                "everything",
                "trigger-long-running-operation",
                &json!({ "duration": 0.4, "steps": 4 }),
            ),
        )
        .run(&world, client, &world.gateway());
    let raw = report.step("hour").raw();
    assert!(raw.contains(r#""resultType":"complete""#), "{raw}");
    assert!(report.step("hour").text().contains("21:00"));
    for (step, told) in [("form", "Ada"), ("model", "sampled")] {
        let value = report.step(step).value().to_string();
        assert!(value.contains(told), "{value}");
    }
    assert_eq!(report.step("long").progress_before_response(), [1, 2, 3, 4]);
    assert_eq!(
        sorted(report.tools("list")),
        ["mcp_call", "mcp_discover", "mcp_execute", "mcp_provision"]
    );
    assert_eq!(report.step("echo").text(), "Echo: hi");
    world.nothing_is_left();
}

#[test]
fn typescript_v2_asks_the_era() {
    asks_the_era(Client::TypescriptV2);
}

#[test]
fn python_v2_asks_the_era() {
    asks_the_era(Client::PythonV2);
}

/// Concurrent calls: as many as one connection takes by default.
const AT_ONCE: usize = 64;

/// Every response reaches the call it belongs to.
fn many_at_once(client: Client) {
    let world = World::new();
    let say = |number: usize| {
        through("everything", "echo", &json!({ "message": format!("number {number}") }))
    };
    let mut calls: Vec<(&str, Value)> =
        (0..AT_ONCE).map(|number| ("mcp_call", say(number))).collect();
    calls.push(("mcp_call", through("memory", "read_graph", &json!({}))));
    calls.push(("mcp_discover", json!({})));
    let report = Plan::new().many("all", &calls).run(&world, client, &world.gateway());
    let all = report.step("all");
    for (number, result) in all.value().as_array().unwrap().iter().take(AT_ONCE).enumerate() {
        assert_eq!(result["content"][0]["text"], format!("Echo: number {number}"));
    }
    assert!(all.value()[AT_ONCE].to_string().contains("entities"), "{}", all.value()[AT_ONCE]);
    assert!(
        all.value()[AT_ONCE + 1].to_string().contains("playwright"),
        "{}",
        all.value()[AT_ONCE + 1]
    );
}

#[test]
fn typescript_v1_calls_many_at_once() {
    many_at_once(Client::TypescriptV1);
}

#[test]
fn python_v2_calls_many_at_once() {
    many_at_once(Client::PythonV2);
}

/// A cancelled call does not harm the next one.
fn cancels(client: Client) {
    let world = World::new();
    let long = through(
        "everything",
        "trigger-long-running-operation",
        &json!({ "duration": 60, "steps": 600 }),
    );
    let report = Plan::new()
        .call_and_cancel("given up", "mcp_call", &long)
        .call(
            "echo",
            "mcp_call",
            &through("everything", "echo", &json!({ "message": "still here" })),
        )
        .run(&world, client, &world.gateway());
    assert!(report.step("given up").failed());
    assert_eq!(report.step("echo").text(), "Echo: still here");
    world.nothing_is_left();
}

#[test]
fn typescript_v1_cancels() {
    cancels(Client::TypescriptV1);
}

#[test]
fn typescript_v2_cancels() {
    cancels(Client::TypescriptV2);
}

/// The server requests caused by a call. Roots may be requested at any time, so they do not count here. The gateway
/// may add to `_meta`; all else arrives unchanged.
fn asked_in_calls(report: &Report) -> Vec<Value> {
    let mut asked = report.asked().as_array().unwrap().clone();
    asked.retain(|request| request["method"] != "roots/list");
    for request in &mut asked {
        if let Some(params) = request["params"].as_object_mut() {
            params.remove("_meta");
        }
    }
    asked
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
