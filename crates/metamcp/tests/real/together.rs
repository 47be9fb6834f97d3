//! Each client twice at once, over one daemon: both work, and one process of each server serves both.

use std::thread;

use serde_json::{Value, json};

use crate::inspector;
use crate::installed::{Start, text};
use crate::plan::{Client, Plan};
use crate::world::World;

fn through(server: &str, tool: &str, args: &Value) -> Value {
    json!({ "server": server, "tool": tool, "args": args })
}

/// Runs the same twice at once.
pub(crate) fn twice<T: Send>(run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let both: Vec<_> = (0..2)
            .map(|at| {
                scope.spawn({
                    let run = &run;
                    move || run(at)
                })
            })
            .collect();
        both.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// What the daemon says of itself.
fn status(world: &World) -> Value {
    let args = vec!["daemon".to_owned(), "status".to_owned(), "--json".to_owned()];
    let start = Start { args, ..world.gateway() };
    let output = world.command(&start).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// One daemon, and one process of each of these servers; then it is stopped, and nothing is left.
pub(crate) fn was_shared(world: &World, servers: &[&str]) {
    let status = status(world);
    for name in servers {
        let known = status["servers"].as_array().unwrap();
        let known: Vec<&Value> = known.iter().filter(|one| one["name"] == *name).collect();
        assert_eq!(known.len(), 1, "{name} is defined once: {status:#}");
        let running = known[0]["instances"].as_array().unwrap();
        let running = running.iter().filter(|one| one["pid"].is_u64()).count();
        assert_eq!(running, 1, "{name}: {status:#}");
    }
    let daemons: Vec<String> =
        world.processes().into_iter().filter(|line| line.contains("daemon run")).collect();
    assert_eq!(daemons.len(), 1, "{daemons:#?}");
    let args = vec!["daemon".to_owned(), "stop".to_owned()];
    let stopped = world.command(&Start { args, ..world.gateway() }).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    world.nothing_is_left();
}

fn sdk_twice(client: Client) {
    let world = World::with_daemon();
    let files = text(&world.files());
    let reports = twice(|at| {
        let message = json!({ "message": format!("client {at}") });
        let long = json!({ "duration": 1, "steps": 4 });
        Plan::new()
            .list("list")
            .call("echo", "mcp_call", &through("everything", "echo", &message))
            .call_with_progress(
                "long",
                "mcp_call",
                &through("everything", "trigger-long-running-operation", &long),
            )
            .call(
                "folder",
                "mcp_call",
                &through("filesystem", "list_directory", &json!({ "path": files })),
            )
            .run(&world, client, &world.gateway())
    });
    for (at, report) in reports.iter().enumerate() {
        assert_eq!(report.tools("list").len(), 4);
        assert_eq!(report.step("echo").text(), format!("Echo: client {at}"));
        // A slow start may be reported before it.
        let progress = report.step("long").progress_before_response();
        assert!(progress.ends_with(&[1, 2, 3, 4]), "{progress:?}");
        assert!(report.step("folder").text().contains("hello.txt"));
    }
    was_shared(&world, &["everything", "filesystem"]);
}

#[test]
fn typescript_v1_twice_at_once() {
    sdk_twice(Client::TypescriptV1);
}

#[test]
fn typescript_v2_twice_at_once() {
    sdk_twice(Client::TypescriptV2);
}

#[test]
fn python_v1_twice_at_once() {
    sdk_twice(Client::PythonV1);
}

#[test]
fn python_v2_twice_at_once() {
    sdk_twice(Client::PythonV2);
}

#[test]
fn the_inspector_twice_at_once() {
    let world = World::with_daemon();
    let results = twice(|at| {
        let message = json!({ "message": format!("client {at}") });
        let call = through("everything", "echo", &message);
        inspector::call(&world, &world.gateway(), "mcp_call", &call)
    });
    for (at, result) in results.iter().enumerate() {
        assert_eq!(result["content"][0]["text"], format!("Echo: client {at}"), "{result}");
    }
    was_shared(&world, &["everything"]);
}
