//! The config file changes under load: every change is picked up, no call is dropped, and unchanged servers are not
//! restarted.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use metamcp_testkit::{CallOutcome, Client, EventKind, Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::world::{PATIENCE, call, discover, home, size, start, stop, tell, timed};

/// Calls in flight while the file changes: one to the unchanged server and one to the changing one.
const WINDOW: usize = 2;

/// Replaces the config as editors and our own commands do: atomically, by a rename.
fn flip(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// The round in which the server was started, read from its environment.
fn turn(client: &Client) -> Option<String> {
    let answer = client.mcp_call_now("changing", "env", &json!({}), PATIENCE).unwrap();
    let seen = answer.result()?["structuredContent"]["environment"]["TURN"].as_str()?.to_owned();
    Some(seen)
}

#[test]
fn the_file_flips_under_load() {
    let flips = size(25, 1_000, 3_000);
    let mut workspace = Workspace::new().unwrap();
    workspace.server("steady", chaos_server(&[]));
    workspace.server("changing", chaos_server(&[]).variable("TURN", "0"));
    workspace.server("coming", chaos_server(&[]));
    let client = start(&workspace);
    let path = workspace.project().join(".mcp.json");
    let config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    call(&client, "steady", "effect", &json!({"key": "first"}));

    let over = AtomicBool::new(false);
    let (ids, took) = thread::scope(|scope| {
        let calls = scope.spawn(|| under_load(&client, &over));
        let ((), took) = timed(|| {
            for number in 1..=flips {
                let mut config = config.clone();
                config["mcpServers"]["changing"]["env"]["TURN"] = number.to_string().into();
                let comes = number % 2 == 0;
                if !comes {
                    config["mcpServers"].as_object_mut().unwrap().remove("coming");
                }
                flip(&path, &config.to_string());
                let number = number.to_string();
                let seen = eventually(PATIENCE, || turn(&client).as_ref() == Some(&number));
                assert!(seen, "flip {number} was missed; stderr:\n{}", client.stderr());
                // Other changes of the same reload are in effect as well.
                let outcome = call(&client, "coming", "echo", &json!({"text": "x"}));
                match (comes, &outcome) {
                    (true, CallOutcome::Success) => {}
                    (false, CallOutcome::GatewayError(error))
                        if error.code == "server_not_found" => {}
                    _ => panic!("flip {number}: {outcome}"),
                }
            }
        });
        over.store(true, Ordering::Relaxed);
        (calls.join().unwrap(), took)
    });
    for (key, id) in &ids {
        let answer = client.wait(*id, PATIENCE).unwrap();
        let right = format!("done {key}");
        assert_eq!(answer.text(), Some(right.as_str()), "{}", answer.value);
    }
    let steady = workspace.journal("steady");
    assert_eq!(
        steady.count(EventKind::Start).unwrap(),
        1,
        "it did not change, so it was not started again"
    );
    let mut executions = steady.executions_by_key().unwrap();
    executions.extend(workspace.journal("changing").executions_by_key().unwrap());
    for (key, _) in &ids {
        assert_eq!(executions.get(key), Some(&1), "{key} is to be run once");
    }
    tell(format_args!("{flips} flips in {took:.1?}, {} calls meanwhile, all answered", ids.len()));
    stop(client, &workspace);
}

/// Calls to the unchanged and to the changing server, one of each at a time, until `over` is set.
fn under_load(client: &Client, over: &AtomicBool) -> Vec<(String, u64)> {
    let mut ids: Vec<(String, u64)> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let number = ids.len();
        if let Some(earlier) = number.checked_sub(WINDOW) {
            client.wait(ids[earlier].1, PATIENCE).unwrap();
        }
        let server = if number.is_multiple_of(2) { "steady" } else { "changing" };
        let key = format!("{server}-{number}");
        let id = client.mcp_call(server, "effect", &json!({"key": key})).unwrap();
        ids.push((key, id));
    }
    ids
}

#[test]
fn a_broken_file_keeps_the_old_configuration_and_says_so() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]));
    let client = start(&workspace);
    let path = workspace.project().join(".mcp.json");
    let sound = fs::read_to_string(&path).unwrap();
    let says = |words: &str| eventually(PATIENCE, || client.stderr().contains(words));

    flip(&path, "{ \"mcpServers\": { ");
    assert!(says("the current configuration stays in force"), "{}", client.stderr());
    let works =
        || matches!(call(&client, "one", "echo", &json!({"text": "x"})), CallOutcome::Success);
    assert!(works());
    // Not even a deleted file takes the servers away.
    fs::remove_file(&path).unwrap();
    assert!(says("cannot read the config file"), "{}", client.stderr());
    assert!(works());
    // Once fixed, it takes effect again.
    flip(&path, &sound.replace("\"one\"", "\"two\""));
    let two =
        || matches!(call(&client, "two", "echo", &json!({"text": "x"})), CallOutcome::Success);
    assert!(eventually(PATIENCE, two));
    assert!(!works(), "it is not configured any more");
    stop(client, &workspace);
}

#[test]
fn a_file_written_in_place_and_one_made_later_are_seen() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]));
    let client = start(&workspace);
    let path = workspace.project().join(".mcp.json");
    let sound = fs::read_to_string(&path).unwrap();
    fs::write(&path, sound.replace("\"one\"", "\"two\"")).unwrap();
    let there = |name: &str| {
        eventually(PATIENCE, || {
            matches!(call(&client, name, "echo", &json!({"text": "x"})), CallOutcome::Success)
        })
    };
    assert!(there("two"));
    stop(client, &workspace);
}

#[test]
fn an_added_server_is_started_by_the_first_gateway_called() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]));
    let clients = [start(&workspace), start(&workspace), start(&workspace)];
    workspace.server("new", chaos_server(&[]));
    workspace.write_config().unwrap();
    let lists = || workspace.journal("new").count(EventKind::Start).unwrap();
    let finds = |client: &Client| discover(client, &json!({"server": "new"})).contains("new:echo");
    assert!(eventually(PATIENCE, || finds(&clients[0])));
    // Its tool list is on disk soon after; the other gateways find it there.
    let cache = home(&workspace).join("cache");
    let written = || {
        let folders = std::fs::read_dir(&cache).into_iter().flatten().flatten();
        folders
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("new"))
            .any(|entry| entry.path().join("schema.json").exists())
    };
    assert!(eventually(PATIENCE, written));
    assert_eq!(lists(), 1);
    for client in &clients[1..] {
        assert!(eventually(PATIENCE, || finds(client)));
    }
    assert_eq!(lists(), 1, "nobody else had to start it");
    for mut client in clients {
        client.close_input();
        assert!(client.wait_exit(PATIENCE).unwrap().success());
    }
}
