//! Discovery never waits for the slowest server, and answers from the cache when no server is available.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use metamcp_testkit::census::descendants;
use metamcp_testkit::programs::echo_child;
use metamcp_testkit::{EventKind, Server, Workspace, chaos_server, eventually};
use serde_json::json;

use crate::world::{PATIENCE, discover, home, start, stop, tell, timed};

/// The number of servers that never respond.
const HUNG: usize = 8;

/// The discovery budget. A gateway that waited for a hung server instead would report it as failed after a minute, not
/// as pending.
const BUDGET: Duration = Duration::from_millis(1_500);

#[test]
fn the_first_discovery_is_bounded_by_its_budget_and_the_second_needs_no_server() {
    let count = 50;
    let (hung, honest): (Vec<String>, Vec<String>) =
        (0..count).map(|n| format!("server-{n:02}")).partition(|name| is_hung(name));
    assert_eq!(hung.len(), HUNG);
    let mut workspace = Workspace::new().unwrap();
    workspace.setting("pool", json!({"poolSize": count}));
    for name in &hung {
        workspace.server(name, chaos_server(&["never-initialize"]));
    }
    // A symlink that can be removed later.
    let program = workspace.file("echo");
    symlink(echo_child(), &program).unwrap();
    for name in &honest {
        workspace.server(name, Server::new(&program, &["--tools", "3"]));
    }
    let client = start(&workspace);
    let (text, took) = timed(|| discover(&client, &json!({"query": "echo the text"})));
    tell(format_args!(
        "first discovery over {count} servers, {HUNG} of them hung, budget {BUDGET:?}: {took:.2?}"
    ));
    let pending = pending(&text);
    for name in &hung {
        assert!(pending.contains(&name.as_str()), "{name} is not named as pending in:\n{text}");
    }
    // A retry brings those that were slow, and never those that hang.
    let all_known = eventually(PATIENCE, || {
        let text = discover(&client, &json!({"query": "echo", "limit": 100}));
        honest.iter().all(|name| text.contains(&format!("{name}:echo")))
    });
    assert!(all_known, "{}", discover(&client, &json!({"query": "echo", "limit": 100})));
    for name in &honest {
        let text = discover(&client, &json!({"server": name}));
        assert!(text.contains(&format!("{name}:synthetic_2")), "{text}");
    }
    let (text, again) = timed(|| discover(&client, &json!({"query": "echo"})));
    tell(format_args!("the same with the hung ones still starting: {again:.2?}"));
    for name in &hung {
        assert!(self::pending(&text).contains(&name.as_str()), "{name} is not pending in:\n{text}");
    }
    stop(client, &workspace);

    // Now nothing can be started any more: the cache has to do.
    std::fs::remove_file(&program).unwrap();
    for name in &hung {
        workspace.remove(name);
    }
    let client = start(&workspace);
    let (text, took) = timed(|| discover(&client, &json!({"query": "echo", "limit": 100})));
    tell(format_args!("from the cache of {} servers: {took:.2?}", honest.len()));
    for name in &honest {
        assert!(text.contains(&format!("{name}:echo")), "{name} is missing in:\n{text}");
    }
    assert_eq!(self::pending(&text), Vec::<&str>::new());
    assert_eq!(descendants(client.pid()), [], "no process was needed");
    stop(client, &workspace);
}

#[test]
fn initialize_needs_no_server_however_many_there_are() {
    let mut workspace = Workspace::new().unwrap();
    for n in 0..50 {
        workspace.server(&format!("server-{n}"), chaos_server(&["never-initialize"]));
    }
    let began = Instant::now();
    let client = start(&workspace);
    tell(format_args!("initialize with 50 servers: {:.1?} from the start", began.elapsed()));
    let tools = client.ask("tools/list", &json!({}), PATIENCE).unwrap();
    let names: Vec<&str> = tools.value["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["mcp_discover", "mcp_call", "mcp_execute", "mcp_provision"]);
    let overview = discover(&client, &json!({}));
    assert!(overview.contains("server-49"), "{overview}");
    assert_eq!(descendants(client.pid()), [], "nothing is started before something needs it");
    for n in 0..50 {
        assert_eq!(workspace.journal(&format!("server-{n}")).count(EventKind::Start).unwrap(), 0);
    }
    assert!(!home(&workspace).join("cache").exists(), "nothing was learnt, so nothing is kept");
    stop(client, &workspace);
}

fn is_hung(name: &str) -> bool {
    let number: usize = name.rsplit_once('-').unwrap().1.parse().unwrap();
    number % 3 == 1 && number < 3 * HUNG
}

/// The servers named as still starting.
fn pending(text: &str) -> Vec<&str> {
    let line = text.lines().find_map(|line| line.strip_prefix("pending: "));
    let names = line.map(|line| line.split(" (").next().unwrap_or_default());
    names.map(|names| names.split(", ").collect()).unwrap_or_default()
}
