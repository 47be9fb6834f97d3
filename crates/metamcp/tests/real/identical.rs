//! A server's result reaches the client byte for byte, on every path.

use serde_json::{Value, json};

use crate::installed::text;
use crate::peer::Peer;
use crate::world::World;

/// Calls each tool directly and through the gateway, in order, and compares the bytes of the results.
fn check(server: &str, calls: &[(&str, Value)]) {
    let world = World::new();
    let mut direct = Peer::connect(&world, &world.direct(server));
    let mut gateway = Peer::connect(&world, &world.gateway());
    for (tool, args) in calls {
        let before = direct.call(tool, args);
        let through =
            gateway.call("mcp_call", &json!({ "server": server, "tool": tool, "args": args }));
        if through != before {
            // A clock may have ticked between the two; then the next direct result is the same.
            assert_eq!(through, direct.call(tool, args), "{server}:{tool}");
        }
    }
}

#[test]
fn every_kind_of_content_of_everything() {
    check(
        "everything",
        &[
            ("echo", json!({ "message": "plain, \"quoted\", Grüße, \u{1f600}, \u{0} and \\" })),
            ("get-sum", json!({ "a": 1.5, "b": 2 })),
            ("get-tiny-image", json!({})),
            ("get-annotated-message", json!({ "messageType": "error", "includeImage": true })),
            ("get-structured-content", json!({ "location": "Chicago" })),
            ("get-resource-links", json!({ "count": 3 })),
            ("get-resource-reference", json!({ "resourceType": "Text", "resourceId": 1 })),
        ],
    );
}

#[test]
fn files_and_errors_of_filesystem() {
    let world = World::new();
    // Paths differ between worlds, so this one cannot share `check`.
    let mut direct = Peer::connect(&world, &world.direct("filesystem"));
    let mut gateway = Peer::connect(&world, &world.gateway());
    let inside = |name: &str| json!({ "path": text(&world.files().join(name)) });
    for (tool, args) in [
        ("read_text_file", inside("hello.txt")),
        ("read_text_file", inside("sub/data.json")),
        ("list_directory", inside("")),
        ("directory_tree", inside("")),
        ("list_allowed_directories", json!({})),
        ("read_text_file", inside("missing.txt")),
        ("read_text_file", json!({ "path": "/etc/passwd" })),
    ] {
        let through = gateway
            .call("mcp_call", &json!({ "server": "filesystem", "tool": tool, "args": args }));
        assert_eq!(through, direct.call(tool, &args), "{tool} {args}");
    }
}

#[test]
fn a_graph_that_grows_in_memory() {
    let ada = json!({ "name": "Ada", "entityType": "person", "observations": ["wrote the first program"] });
    let engine = json!({ "name": "Engine", "entityType": "machine", "observations": [] });
    let relation = json!({ "from": "Ada", "to": "Engine", "relationType": "programmed" });
    check(
        "memory",
        &[
            ("read_graph", json!({})),
            ("create_entities", json!({ "entities": [ada, engine] })),
            ("create_relations", json!({ "relations": [relation] })),
            ("read_graph", json!({})),
            ("search_nodes", json!({ "query": "program" })),
        ],
    );
}

#[test]
fn hours_of_time() {
    check(
        "time",
        &[
            (
                "convert_time",
                json!({ "source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Kathmandu" }),
            ),
            ("get_current_time", json!({ "timezone": "Nowhere/Never" })),
        ],
    );
}

#[test]
fn the_state_of_a_repository() {
    let world = World::new();
    let mut direct = Peer::connect(&world, &world.direct("git"));
    let mut gateway = Peer::connect(&world, &world.gateway());
    let repository = text(&world.repository());
    for (tool, args) in [
        ("git_status", json!({ "repo_path": repository })),
        ("git_diff_unstaged", json!({ "repo_path": repository })),
        ("git_log", json!({ "repo_path": repository, "max_count": 3 })),
        ("git_show", json!({ "repo_path": repository, "revision": "missing" })),
    ] {
        let through =
            gateway.call("mcp_call", &json!({ "server": "git", "tool": tool, "args": args }));
        assert_eq!(through, direct.call(tool, &args), "{tool}");
    }
}

#[test]
fn a_thought() {
    check(
        "thinking",
        &[(
            "sequentialthinking",
            json!({ "thought": "first", "nextThoughtNeeded": true, "thoughtNumber": 1, "totalThoughts": 2 }),
        )],
    );
}
