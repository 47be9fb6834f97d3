//! Pagination while tools come and go: a page belongs to the list that was begun, or is refused.

use std::collections::BTreeSet;

use metamcp_testkit::{Workspace, chaos_server, echo_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

fn gateway() -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]));
    workspace.server("two", echo_server().argument("--tools").argument("40"));
    let gateway = Gateway::start(workspace, &["--surface", "both"]);
    for server in ["one", "two"] {
        gateway.client.mcp_call_now(server, "echo", &json!({"text": "known now"}), HUNG).unwrap();
    }
    gateway
}

fn ids(page: &Value) -> Vec<String> {
    let tools = page["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
}

/// All ids, page by page, and every cursor.
fn walk(gateway: &Gateway, tool: &str, filter: &Value, limit: usize) -> (Vec<String>, Vec<String>) {
    let (mut all, mut cursors) = (Vec::new(), Vec::new());
    let mut arguments = filter.clone();
    arguments["limit"] = limit.into();
    loop {
        let page = gateway.full(tool, &arguments);
        assert!(page["error"].is_null(), "{page:#}");
        all.extend(ids(&page));
        match page["nextCursor"].as_str() {
            Some(cursor) => {
                cursors.push(cursor.to_owned());
                arguments["cursor"] = cursor.into();
            }
            None => return (all, cursors),
        }
    }
}

#[test]
fn pages_add_up_to_the_list_whatever_their_size() {
    let gateway = gateway();
    for (tool, filter) in [
        ("list_tools", json!({})),
        ("list_tools", json!({"namespace": "two"})),
        ("search_tools", json!({"query": "answers with text"})),
    ] {
        let (whole, _) = walk(&gateway, tool, &filter, 100);
        let unique: BTreeSet<&String> = whole.iter().collect();
        assert_eq!(unique.len(), whole.len());
        for limit in [1, 7, 20] {
            assert_eq!(walk(&gateway, tool, &filter, limit).0, whole, "{tool} {filter} by {limit}");
        }
    }
}

#[test]
fn a_cursor_is_valid_only_for_its_own_query_and_list() {
    let gateway = gateway();
    let (_, cursors) = walk(&gateway, "list_tools", &json!({}), 10);
    let cursor = &cursors[0];
    let refused = |tool: &str, arguments: Value| {
        let answer = gateway.call(tool, &arguments).value;
        assert_eq!(answer["error"]["code"], -32602, "{tool} {arguments}: {answer:#}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    refused("list_tools", json!({"cursor": cursor, "namespace": "two"}));
    refused("search_tools", json!({"cursor": cursor, "query": "echo"}));
    refused("list_namespaces", json!({ "cursor": cursor }));
    refused("mcp_discover", json!({"cursor": cursor, "server": "two"}));
    let mut forged = cursor.clone();
    forged.replace_range(3..4, if &cursor[3..4] == "A" { "B" } else { "A" });
    refused("list_tools", json!({ "cursor": forged }));
    // After one more tool, cursors of the old list are invalid.
    for round in 1..=2 {
        let (before, cursors) = walk(&gateway, "list_tools", &json!({}), 9);
        gateway.client.mcp_call_now("one", "grow", &json!({}), HUNG).unwrap();
        let grown = format!("one:grown_{round}");
        assert!(eventually(HUNG, || walk(&gateway, "list_tools", &json!({}), 100)
            .0
            .contains(&grown)));
        for cursor in &cursors {
            let said = refused("list_tools", json!({"cursor": cursor, "limit": 9}));
            assert!(said.contains("stale"), "{said}");
        }
        let (after, _) = walk(&gateway, "list_tools", &json!({}), 9);
        assert_eq!(after.len(), before.len() + 1);
        assert!(before.iter().all(|id| after.contains(id)));
    }
}
