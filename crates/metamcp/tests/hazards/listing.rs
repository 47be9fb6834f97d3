//! Tool lists that change, and tools that come and go with them.

use metamcp_testkit::{CallOutcome, Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

#[test]
fn a_tool_that_was_added_later_can_be_found_and_called() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    assert!(!discovered(&gateway, "grown").contains("grown_1"));
    let error = gateway.refusal("a", "grown_1", &json!({}));
    assert_eq!(error.code, "tool_not_found", "{error:?}");
    assert_eq!(gateway.call("a", "grow", &json!({})).text(), Some("grown"));
    // The server notifies that its list changed; the gateway lists it again in the background.
    assert!(eventually(HUNG, || discovered(&gateway, "grown").contains("a:grown_1")));
    assert_eq!(gateway.call("a", "grown_1", &json!({})).text(), Some("grown_1"));
    gateway.end();
}

#[test]
fn a_list_without_end_ends_and_every_page_counts() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&["looping-cursor"]));
    let gateway = Gateway::start(workspace);
    assert_eq!(gateway.call("a", "effect", &json!({"key": "k"})).text(), Some("done k"));
    let found = discovered(&gateway, "page");
    assert!(found.contains("a:from_page_two") && found.contains("a:from_page_three"), "{found}");
    gateway.end();
}

#[test]
fn a_list_that_is_too_long_is_no_missing_tool_and_says_the_limit() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&["monstrous-schema=20000000"]));
    let gateway = Gateway::start(workspace);
    assert_eq!(gateway.call("a", "effect", &json!({"key": "k"})).text(), Some("done k"));
    let ask = json!({"name": "mcp_discover", "arguments": {"server": "a"}});
    let answer = gateway.ask("tools/call", &ask, HUNG).unwrap();
    let found = answer.text().unwrap();
    assert!(found.contains("which is over the line limit"), "{found}");
    gateway.end();
}

#[test]
fn names_and_descriptions_meant_to_deceive_are_shown_as_what_they_are() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&["confusing-names"])).server("b", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    for server in ["a", "b"] {
        assert_eq!(gateway.call(server, "echo", &json!({"text": "x"})).text(), Some("x"));
    }
    let ask = json!({"name": "mcp_discover", "arguments": {"server": "a", "limit": 100}});
    let answer = gateway.ask("tools/call", &ask, HUNG).unwrap();
    let found = answer.text().unwrap();
    for hidden in ['\u{1b}', '\u{7}', '\u{200b}', '\u{202e}', '\u{e0041}', '\u{0}'] {
        assert!(!found.contains(hidden), "{hidden:?} in {found:?}");
    }
    assert_eq!(gateway.outcome("a", "echo", &json!({"text": "x"})), CallOutcome::Success);
    gateway.end();
}

fn discovered(gateway: &Gateway, query: &str) -> String {
    let params: Value = json!({"name": "mcp_discover", "arguments": {"query": query}});
    let answer = gateway.ask("tools/call", &params, HUNG).unwrap();
    answer.text().unwrap_or_else(|| panic!("{}", answer.value)).to_owned()
}
