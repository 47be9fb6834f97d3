//! Every real server on its own: the pinned version starts, and works in the era with `initialize`.

use crate::peer::Peer;
use crate::world::World;

fn check(name: &str) {
    let world = World::new();
    let tools = Peer::connect(&world, &world.direct(name)).tools();
    assert_eq!(tools.len(), world.installed.tools_of(name), "{tools:?}");
}

#[test]
fn everything_starts() {
    check("everything");
}

#[test]
fn filesystem_starts() {
    check("filesystem");
}

#[test]
fn memory_starts() {
    check("memory");
}

#[test]
fn thinking_starts() {
    check("thinking");
}

#[test]
fn playwright_starts() {
    check("playwright");
}

#[test]
fn time_starts() {
    check("time");
}

#[test]
fn git_starts() {
    check("git");
}

#[test]
fn fetch_starts() {
    check("fetch");
}

/// No server of the manifest lacks a test.
#[test]
fn every_server_of_the_manifest_is_started() {
    let world = World::new();
    let names: Vec<&str> = world.installed.server_names().collect();
    let here = include_str!("servers.rs");
    for name in names {
        assert!(here.contains(&format!("check(\"{name}\")")), "{name} has no test");
    }
}
