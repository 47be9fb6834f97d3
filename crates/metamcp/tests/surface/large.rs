//! Results that are too long to show: nothing of them is lost, on any path.

use metamcp_testkit::{Workspace, chaos_server, stored_handle};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

/// Over the default limit of 24,000 characters.
const LONG: usize = 1_000_000;

fn gateway(args: &[&str]) -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]));
    Gateway::start(workspace, args)
}

fn big(gateway: &Gateway, bytes: usize) -> Value {
    let answer = gateway.client.mcp_call_now("one", "big", &json!({ "bytes": bytes }), HUNG);
    answer.unwrap().value["result"].clone()
}

fn read(gateway: &Gateway, tool: &str, args: &Value) -> Value {
    let answer = gateway.client.mcp_call_now("@results", tool, args, HUNG).unwrap();
    answer.value["result"].clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_long_result_is_shown_in_part_and_read_to_the_last_byte() {
    let gateway = gateway(&[]);
    let short = big(&gateway, LONG);
    assert!(short["structuredContent"].is_null(), "it would hold less than the text");
    assert!(text(&short).len() < 7_000 && text(&short).starts_with("xxx"));
    assert!(text(&short).contains("[an excerpt of 1000000 characters. More: mcp_call "));
    let id = stored_handle(&short).unwrap();
    let (mut whole, mut offset) = (String::new(), 0);
    while offset < LONG {
        let part = read(&gateway, "read", &json!({"id": id, "offset": offset, "length": 100_000}));
        let (part, _note) = text(&part).rsplit_once('\n').unwrap();
        offset += part.len();
        whole.push_str(part);
    }
    assert_eq!(whole, "x".repeat(LONG));
    let found = read(&gateway, "query", &json!({"id": id, "grep": "XXXX"}));
    assert!(text(&found).ends_with("[1 lines match, 1 shown]"));
    let pointed =
        read(&gateway, "query", &json!({"id": id, "pointer": "/content/0/type", "whole": true}));
    assert_eq!(text(&pointed), "text");
    // A script gets all of it, by its handle and by a call of its own.
    let code = format!(
        "const kept = await results.get({id:?}); const again = await one.big({{ bytes: {LONG} }}); return [kept.length, again.length]"
    );
    let ran = gateway.call("mcp_execute", &json!({ "code": code }));
    assert_eq!(ran.returned(), Some(json!([LONG, LONG])), "{:#}", ran.value);
}

#[test]
fn what_is_not_too_long_passes_as_it_is() {
    let gateway = gateway(&[]);
    assert_eq!(text(&big(&gateway, 24_000)).len(), 24_000);
    assert_ne!(text(&big(&gateway, 24_001)).len(), 24_001);
}

#[test]
fn the_limit_can_be_moved_and_taken_away() {
    let gateway = gateway(&["--max-result-chars", "1000"]);
    assert!(text(&big(&gateway, 2_000)).contains("@results:read"));
    drop(gateway);
    let gateway = self::gateway(&["--max-result-chars", "0"]);
    assert_eq!(text(&big(&gateway, LONG)).len(), LONG);
}

#[test]
fn the_full_surface_stores_long_values_too() {
    let gateway = gateway(&["--surface", "full"]);
    let ran = gateway.full("run_tool", &json!({"tool_id": "one:big", "args": {"bytes": LONG}}));
    let id = ran["structured"]["kept"]["id"].as_str().unwrap();
    assert!(ran["structured"]["excerpt"].as_str().unwrap().starts_with("xxx"), "{ran:#}");
    let part = gateway.full(
        "run_tool",
        &json!({"tool_id": "@results:read", "args": {"id": id, "offset": LONG - 3}}),
    );
    assert_eq!(
        part["structured"],
        format!("xxx\n[characters {} to {LONG} of {LONG}; this is the end]", LONG - 3)
    );
    // Each value alone is short enough, all together are not: the last ones are stored, and the next step gets the
    // full value.
    let step = json!({"tool_id": "one:big", "args": {"bytes": 10_000}});
    let chain = gateway.full(
        "run_chain",
        &json!({"steps": [step, step, step, {"tool_id": "one:echo", "args": {"text": {"$from": 2}}}]}),
    );
    assert_eq!(chain["results"][1]["structured"].as_str().unwrap().len(), 10_000);
    assert!(chain["results"][2]["structured"]["kept"]["id"].is_string(), "{:#}", chain["error"]);
    assert!(chain["results"][3]["structured"]["kept"]["shape"].as_str().unwrap().contains("10000"));
}

#[test]
fn a_handle_that_leads_nowhere_says_what_to_do() {
    let gateway = gateway(&[]);
    let check = |tool: &str, args: Value, code: &str| {
        let result = read(&gateway, tool, &args);
        assert_eq!(result["structuredContent"]["code"], code, "{result:#}");
    };
    check("read", json!({"id": "r0"}), "tool_not_found");
    check("read", json!({}), "validation_input");
    check("read", json!({"id": "r0", "offset": -1}), "validation_input");
    check("raed", json!({"id": "r0"}), "tool_not_found");
}
