//! Progress under a client's token: begin and end where a server sends none, its own notifications where it does, and
//! the calls of a script as steps.

use metamcp_testkit::eventually;
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

/// Calls with a progress token; returns its notifications, all of which must precede the response.
fn told(gateway: &Gateway, name: &str, arguments: &Value, token: &str) -> Vec<Value> {
    let (told, answer) = asked(gateway, name, arguments, token);
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    told
}

/// The same for a call that fails.
fn told_of_failure(gateway: &Gateway, name: &str, arguments: &Value, token: &str) -> Vec<Value> {
    let (told, answer) = asked(gateway, name, arguments, token);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    told
}

fn asked(gateway: &Gateway, name: &str, arguments: &Value, token: &str) -> (Vec<Value>, Value) {
    let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": token}});
    let answer = gateway.client.ask("tools/call", &params, HUNG).unwrap();
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
    (before, answer.value)
}

fn values(told: &[Value]) -> Vec<f64> {
    told.iter().map(|one| one["progress"].as_f64().unwrap()).collect()
}

fn messages(told: &[Value]) -> Vec<&str> {
    told.iter().map(|one| one["message"].as_str().unwrap_or_default()).collect()
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
        // On a slow machine it may have been silent for so long that its begin was reported.
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
        let expect =
            ["the script began", "call 1: one:echo", "call 2: two:echo", "the script ended"];
        assert_eq!(messages(&told), expect);
        assert_eq!(told[3]["total"], 3.0);
    }
}

#[test]
fn a_scripts_own_progress_is_forwarded_with_its_numbers() {
    let gateway = gateway();
    let tell =
        |code: &str, token: &str| told(&gateway, "mcp_execute", &json!({"code": code}), token);
    let code = "progress(0.25, 'a quarter'); await one.echo({text: 'a'}); progress(0.75); return 1";
    let mut told = tell(code, "own");
    // On a slow machine it may have been silent for so long that its begin was reported.
    told.retain(|one| one["message"] != "the script began");
    assert_eq!(messages(&told), ["a quarter", "call 1: one:echo", ""], "{told:?}");
    let values_told = values(&told);
    assert!(values_told[0] == 0.25 && values_told[2] == 0.75, "{told:?}");
    assert!(values_told[1] > 0.25 && values_told[1] < 0.75, "{told:?}");
    // After calls, its own numbers continue from theirs.
    let code = "await one.echo({text: 'a'}); progress(1, 2, 'half'); progress(2, 2); return 1";
    let told = tell(code, "late");
    assert_eq!(messages(&told), ["the script began", "call 1: one:echo", "half", ""], "{told:?}");
    assert_eq!(values(&told), [0.0, 1.0, 2.0, 3.0], "{told:?}");
    assert_eq!((&told[2]["total"], &told[3]["total"]), (&json!(3.0), &json!(3.0)));
}

/// A script that only seems to report progress gets begin and end like any other.
#[test]
fn a_tool_or_a_comment_of_that_name_is_no_progress_of_the_script() {
    let gateway = gateway();
    for code in [
        "await one.progress({count: 1}); return 1",
        "// progress(\nawait one.echo({text: 'a'}); return 1",
        "if (false) progress(1); await one.echo({text: 'a'}); return 1",
        "return 'progress('",
    ] {
        let told = told(&gateway, "mcp_execute", &json!({"code": code}), code);
        let messages = messages(&told);
        assert_eq!(messages.first(), Some(&"the script began"), "{code}: {told:?}");
        assert_eq!(messages.last(), Some(&"the script ended"), "{code}: {told:?}");
        assert!(values(&told).windows(2).all(|pair| pair[0] < pair[1]), "{code}: {told:?}");
    }
}

#[test]
fn what_fails_has_begin_and_end_too() {
    let gateway = gateway();
    for (name, arguments) in [
        // Rejected before it was sent, and failed at the server.
        ("mcp_call", json!({"tool": "one:echo", "args": {"text": 7}})),
        ("run_tool", json!({"tool_id": "one:echo", "args": {"text": 7}})),
        ("mcp_call", json!({"tool": "one:fail", "args": {}})),
        ("run_tool", json!({"tool_id": "one:fail", "args": {}})),
        ("mcp_call", json!({"tool": "one:rpc_error", "args": {}})),
        ("run_tool", json!({"tool_id": "one:rpc_error", "args": {}})),
    ] {
        let told = told_of_failure(&gateway, name, &arguments, &format!("{name}{arguments}"));
        assert_eq!(values(&told), [0.0, 1.0], "{name} {arguments}: {told:?}");
    }
    for name in ["mcp_execute", "execute_code"] {
        for code in ["throw new Error('no')", "await one.fail({})", "return 1 +"] {
            let arguments = json!({"code": code});
            let told = told_of_failure(&gateway, name, &arguments, &format!("{name} {code}"));
            let messages = messages(&told);
            assert_eq!(messages.first(), Some(&"the script began"), "{code}: {told:?}");
            assert_eq!(messages.last(), Some(&"the script ended"), "{code}: {told:?}");
        }
    }
    let steps = json!([{"tool_id": "one:echo", "args": {"text": "x"}},
        {"tool_id": "one:fail", "args": {}}, {"tool_id": "one:echo", "args": {"text": "y"}}]);
    let told = told_of_failure(&gateway, "run_chain", &json!({"steps": steps}), "chain");
    assert_eq!(values(&told), [0.0, 1.0, 3.0], "{told:?}");
    assert_eq!(messages(&told).last(), Some(&"ended by an error"), "{told:?}");
}

#[test]
fn what_was_called_off_has_no_end() {
    let gateway = gateway();
    let params = json!({"name": "mcp_call", "arguments": {"tool": "one:slow", "args": {"ms": 600_000}},
        "_meta": {"progressToken": "off"}});
    let id = gateway.client.request("tools/call", &params).unwrap();
    let of_it = || {
        let mut told = gateway.client.notifications("notifications/progress");
        told.retain(|one| one["progressToken"] == "off");
        told
    };
    assert!(eventually(HUNG, || of_it().len() == 1), "its begin is told");
    gateway.client.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
    // Any further notification of it would have arrived before the response to this later call.
    let echo = json!({"tool": "one:echo", "args": {"text": "after"}});
    told(&gateway, "mcp_call", &echo, "after");
    assert_eq!(values(&of_it()), [0.0]);
}
