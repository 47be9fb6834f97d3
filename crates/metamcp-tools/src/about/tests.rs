use serde_json::json;

use super::{of, telling_sentence};
use crate::tool::{Listing, ServerTools};

fn listed(title: Option<&str>, about: Option<&str>, names: &[&str]) -> ServerTools {
    let all: Vec<_> =
        names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    let mut listing = Listing::new();
    listing.page(json!({ "tools": all }).to_string().as_bytes()).unwrap();
    listing.finish(title, None).with_about(about)
}

#[test]
fn what_a_server_says_goes_before_what_its_tools_say() {
    let said = |server, title, about| of(server, &listed(title, about, &["read_thing"])).unwrap();
    assert_eq!(said("x", Some("Issues of a project"), Some("More.")), "Issues of a project");
    // A title that only names the server says nothing, and neither does a slug.
    for title in ["memory-server", "Memory MCP Server", "memory", "mcp-memory", "sqlite-explorer"] {
        assert_eq!(said("memory", Some(title), Some("Keeps a graph.")), "Keeps a graph.");
        assert_eq!(said("memory", Some(title), None), "read thing");
        // What to do is not what it is for.
        assert_eq!(said("memory", Some(title), Some("Search before adding.")), "read thing");
    }
}

#[test]
fn tools_tell_what_a_server_is_for() {
    for (server, names, told) in [
        (
            "memory",
            &[
                "create_entities",
                "create_relations",
                "add_observations",
                "delete_entities",
                "delete_observations",
                "delete_relations",
                "read_graph",
                "search_nodes",
                "open_nodes",
            ][..],
            "entities, relations, observations, nodes, graph",
        ),
        (
            "git",
            &["git_status", "git_diff_unstaged", "git_commit", "git_add", "git_log", "git_show"],
            "status, diff unstaged, commit, add, log, show",
        ),
        ("time", &["get_current_time", "convert_time"], "get current time, convert time"),
        (
            "files",
            &["read_file", "read_text_file", "writeFile", "listDirectory", "list_directories"],
            "file, directory",
        ),
        ("fetch", &["fetch"], "fetch"),
    ] {
        assert_eq!(of(server, &listed(None, None, names)).as_deref(), Some(told), "{server}");
    }
    assert_eq!(of("empty", &listed(Some("empty"), None, &[])), None);
    let long: Vec<String> = (0..50).map(|at| format!("make_{}_{at}", "thing".repeat(9))).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    assert!(of("long", &listed(None, None, &long)).unwrap().chars().count() <= 64);
}

#[test]
fn warnings_in_front_are_passed_over() {
    for (whole, told) in [
        ("WARNING: Deletes data. Runs a query.", "Runs a query."),
        ("**IMPORTANT**: Read this first! Lists all pages.", "Lists all pages."),
        ("DEPRECATED. Use read_text_file instead. Reads a file.", "Use read_text_file instead."),
        ("Note: slow. Note: costs money. Sends a mail.", "Sends a mail."),
        ("Reads a file. WARNING: all of it.", "Reads a file."),
        ("Important dates of a person.", "Important dates of a person."),
        ("Notes of a meeting.", "Notes of a meeting."),
        ("WARNING: only this.", "WARNING: only this."),
        ("", ""),
    ] {
        assert_eq!(telling_sentence(whole, 100), told, "{whole}");
    }
}
