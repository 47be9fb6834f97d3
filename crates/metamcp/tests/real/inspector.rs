//! The Inspector's command line as a client: each run is a fresh client and a fresh gateway.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::installed::{Start, text};
use crate::plan::parsed;
use crate::world::World;

fn inspect(world: &World, server: &Start, method: &[&str]) -> Value {
    let mut args = vec![text(&world.installed.inspector()), "--cli".to_owned()];
    args.extend(method.iter().map(ToString::to_string));
    args.extend(["--format", "json", "--quiet"].map(str::to_owned));
    for (name, value) in world.environment().into_iter().chain(server.env.iter().cloned()) {
        args.extend(["-e".to_owned(), format!("{name}={value}")]);
    }
    args.extend(["--".to_owned(), server.command.clone()]);
    args.extend(server.args.iter().cloned());
    let start = Start { command: world.installed.node(), args, env: Vec::new() };
    let output = world.command(&start).stdin(Stdio::null()).output().unwrap();
    parsed("Inspector", &output)["result"].take()
}

pub(crate) fn call(world: &World, server: &Start, tool: &str, arguments: &Value) -> Value {
    let arguments = arguments.to_string();
    inspect(
        world,
        server,
        &["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &arguments],
    )
}

#[test]
fn the_inspector_lists_exactly_our_tools() {
    let world = World::new();
    let listed = inspect(&world, &world.gateway(), &["--method", "tools/list"]);
    let mut names: Vec<&str> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["mcp_call", "mcp_discover", "mcp_execute", "mcp_provision"]);
}

#[test]
fn the_inspector_finds_no_fault_in_our_schemas() {
    let world = World::new();
    // Exits with an error if some host would reject a schema.
    inspect(&world, &world.gateway(), &["--method", "tools/list", "--strict"]);
}

#[test]
fn the_inspector_discovers() {
    let world = World::new();
    let found = call(&world, &world.gateway(), "mcp_discover", &json!({}));
    for name in world.installed.server_names() {
        assert!(found["content"][0]["text"].as_str().unwrap().contains(name), "{name} in {found}");
    }
}

fn both_paths(world: &World, server: &str, tool: &str, args: &Value) {
    let direct = call(world, &world.direct(server), tool, args);
    let through = json!({ "server": server, "tool": tool, "args": args });
    assert_eq!(call(world, &world.gateway(), "mcp_call", &through), direct, "{server}:{tool}");
}

#[test]
fn the_inspector_sees_the_same_structure_on_both_paths() {
    both_paths(
        &World::new(),
        "everything",
        "get-structured-content",
        &json!({ "location": "New York" }),
    );
}

#[test]
fn the_inspector_sees_the_same_file_on_both_paths() {
    let world = World::new();
    let path = text(&world.files().join("hello.txt"));
    both_paths(&world, "filesystem", "read_text_file", &json!({ "path": path }));
}

#[test]
fn the_inspector_sees_the_same_repository_on_both_paths() {
    let world = World::new();
    let repository = text(&world.repository());
    both_paths(&world, "git", "git_status", &json!({ "repo_path": repository }));
}
