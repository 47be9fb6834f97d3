use serde_json::json;

use super::{Listed, Meant, MeantServer, built_in, same, server, tool, within};
use crate::tool::{Listing, ServerTools};

fn tools(names: &[&str]) -> ServerTools {
    let all: Vec<_> =
        names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    let mut listing = Listing::new();
    listing.page(json!({ "tools": all }).to_string().as_bytes()).unwrap();
    listing.finish(None, None)
}

/// `server:tool`, the candidates with `|` between them, or `-`.
fn shown(meant: &Meant<'_>) -> String {
    match meant {
        Meant::Tool { server, tool } => format!("{server}:{tool}"),
        Meant::Several(ids) => ids.join("|"),
        Meant::Nothing => "-".to_owned(),
    }
}

#[test]
fn every_spelling_means_the_one_tool_it_can_mean() {
    let files = tools(&["read_text_file", "list_directory", "move", "echo"]);
    let git = tools(&["git_log", "git-status", "create.issue", "a/b", "getURL", "echo"]);
    let twins = tools(&["get_it", "getIt", "c++", "Echo2"]);
    let listed = [
        Listed { server: "filesystem", tools: Some(&files) },
        Listed { server: "git", tools: Some(&git) },
        Listed { server: "my-twins", tools: Some(&twins) },
        Listed { server: "cold.start", tools: None },
        Listed { server: "a_b", tools: None },
        Listed { server: "a-b", tools: None },
        Listed { server: "mcp.git", tools: None },
    ];
    for (written, meant) in [
        // As listed.
        ("filesystem:read_text_file", "filesystem:read_text_file"),
        ("git:git-status", "git:git-status"),
        // Another spelling of the tool.
        ("filesystem:readTextFile", "filesystem:read_text_file"),
        ("filesystem:Read-Text-File", "filesystem:read_text_file"),
        ("git:get_url", "git:getURL"),
        // Another separator.
        ("filesystem.read_text_file", "filesystem:read_text_file"),
        ("filesystem.readTextFile", "filesystem:read_text_file"),
        ("filesystem__read_text_file", "filesystem:read_text_file"),
        ("filesystem/read_text_file", "filesystem:read_text_file"),
        ("git.create.issue", "git:create.issue"),
        ("git/a/b", "git:a/b"),
        // What other clients put before.
        ("mcp__filesystem__read_text_file", "filesystem:read_text_file"),
        ("mcp.filesystem:readTextFile", "filesystem:read_text_file"),
        // A server that is called so goes first.
        ("mcp.git:git_log", "mcp.git:git_log"),
        // The server repeated.
        ("filesystem:filesystem.read_text_file", "filesystem:read_text_file"),
        // Another spelling of the server.
        ("FileSystem:move", "filesystem:move"),
        ("file_system.move", "filesystem:move"),
        ("myTwins:c++", "my-twins:c++"),
        // Without a server.
        ("read_text_file", "filesystem:read_text_file"),
        ("readTextFile", "filesystem:read_text_file"),
        ("create.issue", "git:create.issue"),
        ("createIssue", "git:create.issue"),
        ("a/b", "git:a/b"),
        // Exact goes first, and several are told.
        ("my-twins:getIt", "my-twins:getIt"),
        ("my-twins:get_it", "my-twins:get_it"),
        ("my-twins:GETIT", "my-twins:getIt|my-twins:get_it"),
        ("GETIT", "my-twins:getIt|my-twins:get_it"),
        ("echo", "filesystem:echo|git:echo"),
        ("ECHO", "filesystem:echo|git:echo"),
        ("echo2", "my-twins:Echo2"),
        // Where the tools are not known the server's own list will tell.
        ("cold.start:readFile", "cold.start:readFile"),
        ("coldStart.readFile", "cold.start:readFile"),
        ("cold.start.readFile", "cold.start:readFile"),
        ("ab.x", "a-b:x|a_b:x"),
        ("a-b.x", "a-b:x"),
        // A server without such a tool is told as what it is.
        ("git.push", "git:push"),
        ("filesystem:zebra", "filesystem:zebra"),
        // Nothing like it; a sign is no separator.
        ("zebra", "-"),
        ("zebra:move", "-"),
        ("c", "-"),
        ("", "-"),
        (":", "-"),
        ("___", "-"),
    ] {
        assert_eq!(shown(&tool(written, &listed)), meant, "{written}");
    }
    let long = "x.".repeat(200);
    assert_eq!(tool(&long, &listed), Meant::Nothing);
}

#[test]
fn within_a_server_its_name_may_be_repeated() {
    let git = tools(&["git_log", "git.git_log", "status", "a:b"]);
    let own = Listed { server: "git", tools: Some(&git) };
    for (written, meant) in [
        ("git_log", "git:git_log"),
        // A tool that is called so goes before one named twice.
        ("git.git_log", "git:git.git_log"),
        ("git:status", "git:status"),
        ("git__Status", "git:status"),
        ("gitLog", "git:git_log"),
        ("a:b", "git:a:b"),
        ("other:status", "git:other:status"),
        ("push", "git:push"),
        ("git.push", "git:push"),
    ] {
        assert_eq!(shown(&within(written, own)), meant, "{written}");
    }
    let cold = Listed { server: "git", tools: None };
    assert_eq!(shown(&within("git.log", cold)), "git:log");
    assert_eq!(shown(&within("log", cold)), "git:log");
}

#[test]
fn servers_are_found_by_any_spelling_that_only_one_has() {
    let all = ["filesystem", "my-server", "my_server", "mcp.git", "git", "Weather"];
    for (written, meant) in [
        ("filesystem", MeantServer::One("filesystem")),
        ("FileSystem", MeantServer::One("filesystem")),
        ("file-system", MeantServer::One("filesystem")),
        ("mcp.filesystem", MeantServer::One("filesystem")),
        ("mcp.git", MeantServer::One("mcp.git")),
        ("mcp__git", MeantServer::One("git")),
        ("my_server", MeantServer::One("my_server")),
        ("myServer", MeantServer::Several(vec!["my-server", "my_server"])),
        ("weather", MeantServer::One("Weather")),
        ("zebra", MeantServer::Nothing),
        ("", MeantServer::Nothing),
        ("-", MeantServer::Nothing),
    ] {
        assert_eq!(server(written, all.iter().copied()), meant, "{written}");
    }
}

#[test]
fn letters_of_other_scripts_are_other_letters() {
    assert!(same("read_file", "ReadFile"));
    assert!(same("ÜBER_x", "über-X"));
    assert!(!same("read_file", "reаd_file"));
    assert!(!same("c", "c++"));
    assert!(!same("", "_"));
}

#[test]
fn built_in_servers_take_every_separator() {
    assert_eq!(built_in("@results:read"), Some(("@results", "read")));
    assert_eq!(built_in("@results.read"), Some(("@results", "read")));
    assert_eq!(built_in("@resources/list"), Some(("@resources", "list")));
    assert_eq!(built_in("@results"), None);
    assert_eq!(built_in("results:read"), None);
}
