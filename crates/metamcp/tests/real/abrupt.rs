//! Abrupt termination, with real servers behind the gateway.

use serde_json::{Value, json};

use crate::peer::Peer;
use crate::world::World;

/// A gateway with several running servers.
fn busy(world: &World) -> Peer {
    let mut gateway = Peer::connect(world, &world.gateway());
    for (server, tool, args) in [
        ("everything", "echo", json!({ "message": "hi" })),
        ("memory", "read_graph", json!({})),
        ("time", "get_current_time", json!({ "timezone": "UTC" })),
    ] {
        let call = json!({ "server": server, "tool": tool, "args": args });
        let result: Value = serde_json::from_str(&gateway.call("mcp_call", &call)).unwrap();
        assert_ne!(result["isError"], true, "{server}: {result}");
    }
    gateway
}

#[test]
fn no_server_outlives_a_killed_gateway() {
    let world = World::new();
    busy(&world).kill();
    world.nothing_is_left();
}

#[test]
fn no_server_outlives_a_client_that_goes() {
    let world = World::new();
    drop(busy(&world));
    world.nothing_is_left();
}

/// What one gateway has cached, the next one knows before it starts a server.
#[test]
fn the_next_gateway_knows_the_tools_without_starting_anything() {
    let world = World::new();
    busy(&world).kill();
    world.nothing_is_left();
    let mut gateway = Peer::connect(&world, &world.gateway());
    let found =
        gateway.call("mcp_discover", &json!({ "tool": "time:convert_time", "detail": "schema" }));
    assert!(found.contains("source_timezone"), "{found}");
}
