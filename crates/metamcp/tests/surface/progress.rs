//! Progress under a client's token: begin and end where a server says nothing, its own words where it does, and the calls
//! of a script as steps.

use serde_json::{Value, json};

use crate::full::two_servers;
use crate::gateway::{Gateway, HUNG};

fn gateway() -> Gateway {
    let gateway = Gateway::start(two_servers(), &["--surface", "both"]);
    for server in ["one", "two"] {
        let warm = json!({"server": server, "tool": "echo", "args": {"text": "warm"}});
        told(&gateway, "mcp_call", &warm, "warm");
    }
    gateway
}

/// Calls with a token; what was told of it, all of it before the answer.
fn told(gateway: &Gateway, name: &str, arguments: &Value, token: &str) -> Vec<Value> {
    let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": token}});
    let answer = gateway.client.ask("tools/call", &params, HUNG).unwrap();
    assert_ne!(answer.value["result"]["isError"], true, "{}", answer.value);
    let notifications = |lines: &[metamcp_testkit::client::Line]| -> Vec<Value> {
        let values =
            lines.iter().filter_map(|line| serde_json::from_slice::<Value>(&line.bytes).ok());
        values
            .filter(|value| value["method"] == "notifications/progress")
            .map(|value| value["params"].clone())
            .filter(|params| params["progressToken"] == token)
            .collect()
    };
    let lines = gateway.client.lines();
    let before = notifications(&lines[..answer.index]);
    assert_eq!(notifications(&lines[answer.index..]), Vec::<Value>::new(), "nothing follows");
    before
}

fn values(told: &[Value]) -> Vec<f64> {
    told.iter().map(|one| one["progress"].as_f64().unwrap()).collect()
}

#[test]
fn a_silent_server_gets_begin_and_end() {
    let gateway = gateway();
    for (name, arguments) in [
        ("mcp_call", json!({"tool": "one:echo", "args": {"text": "x"}})),
        ("run_tool", json!({"tool_id": "one:echo", "args": {"text": "x"}})),
        ("mcp_call", json!({"tool": "one:slow", "args": {"ms": 600}})),
    ] {
        let told = told(&gateway, name, &arguments, &format!("{name}{arguments}"));
        assert_eq!(values(&told), [0.0, 1.0], "{name}: {told:?}");
        assert_eq!(told[1]["total"], 1.0);
        assert!(told[0]["message"].as_str().unwrap().starts_with("one:"), "{told:?}");
    }
}

#[test]
fn a_server_that_tells_its_own_is_not_talked_over() {
    let gateway = gateway();
    for (name, arguments) in [
        ("mcp_call", json!({"tool": "one:progress", "args": {"count": 3}})),
        ("run_tool", json!({"tool_id": "one:progress", "args": {"count": 3}})),
    ] {
        let mut told = told(&gateway, name, &arguments, name);
        // On a slow machine it may have been silent for so long that its begin was told.
        told.retain(|one| one["message"] != "one:progress");
        assert_eq!(values(&told), [1.0, 2.0, 3.0], "{name}: {told:?}");
        assert!(told.iter().all(|one| one["total"] == 3), "{told:?}");
    }
}

#[test]
fn the_calls_of_a_script_are_steps() {
    let gateway = gateway();
    let code = "await one.echo({text: 'a'}); await two.echo({text: 'b'}); return 3";
    for name in ["mcp_execute", "execute_code"] {
        let told = told(&gateway, name, &json!({"code": code, "language": "javascript"}), name);
        assert_eq!(values(&told), [0.0, 1.0, 2.0, 3.0], "{told:?}");
        let messages: Vec<&str> = told.iter().map(|one| one["message"].as_str().unwrap()).collect();
        let expect =
            ["the script began", "call 1: one:echo", "call 2: two:echo", "the script ended"];
        assert_eq!(messages, expect);
        assert_eq!(told[3]["total"], 3.0);
    }
    // One that tells its own progress is heard in its own numbers.
    let code = "progress(0.25, 'a quarter'); await one.echo({text: 'a'}); progress(0.75); return 1";
    let told = told(&gateway, "mcp_execute", &json!({"code": code}), "own");
    let values = values(&told);
    assert!(values.contains(&0.25) && values.contains(&0.75), "{told:?}");
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
    assert!(told.iter().any(|one| one["message"] == "call 1: one:echo"), "{told:?}");
}

#[test]
fn a_call_that_fails_has_no_end_but_its_answer() {
    let gateway = gateway();
    let params = json!({"name": "mcp_call", "arguments": {"tool": "one:echo", "args": {"text": 7}},
        "_meta": {"progressToken": "bad"}});
    let answer = gateway.client.ask("tools/call", &params, HUNG).unwrap();
    assert_eq!(answer.value["result"]["isError"], true);
    let told = gateway.client.notifications("notifications/progress");
    assert!(told.iter().all(|one| one["progressToken"] != "bad"), "{told:?}");
}
