//! Pauses: the gateway stopped as by a suspended laptop or a frozen container, and servers stopped behind it.

use std::thread;
use std::time::Duration;

use metamcp_testkit::census::{self, Process};
use metamcp_testkit::{CallOutcome, Workspace, chaos_server, eventually, returned};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::world::{PATIENCE, call, start, stop};

/// The timeout of a call, and of a script.
const TIMEOUT: u64 = 2_500;
/// Longer than any of these timeouts, and long enough to distinguish a pause from a busy machine.
const PAUSE: Duration = Duration::from_secs(5);

/// A slow call made by a script.
const SLOW: &str = "await servers.one.call('slow', {ms: 1000, key: 'of-script'})";

fn workspace() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    for name in ["one", "two"] {
        workspace.server(name, chaos_server(&[]).setting("timeoutMs", json!(TIMEOUT)));
    }
    workspace
}

fn resume(processes: &[Process]) {
    for process in processes {
        kill(Pid::from_raw(i32::try_from(process.pid).unwrap()), Signal::SIGCONT).ok();
    }
}

/// Stops these processes for a while during calls and a script, all of which end as if nothing had happened.
fn stopped(of: impl Fn(&[Process], u32) -> Vec<Process>, script: &str) {
    let workspace = workspace();
    let client = start(&workspace);
    for server in ["one", "two"] {
        assert_eq!(call(&client, server, "echo", &json!({"text": "x"})), CallOutcome::Success);
    }
    let calls: Vec<u64> = (0..6)
        .map(|n| {
            let server = if n % 2 == 0 { "one" } else { "two" };
            let arguments = json!({"ms": 1_000, "key": format!("slow-{n}")});
            client.mcp_call(server, "slow", &arguments).unwrap()
        })
        .collect();
    let arguments = json!({"code": script, "timeoutMs": TIMEOUT});
    let script = client.call_tool("mcp_execute", &arguments).unwrap();
    let under_way = || {
        let ran = |n: usize| {
            let journal = workspace.journal(if n.is_multiple_of(2) { "one" } else { "two" });
            journal.executions(&format!("slow-{n}")).unwrap() == 1
        };
        (0..6).all(ran) && workspace.journal("one").executions("of-script").unwrap() == 1
    };
    assert!(eventually(PATIENCE, under_way));
    let frozen = of(&workspace.processes(), client.pid());
    assert!(!frozen.is_empty() && frozen.iter().all(census::freeze));
    // The pause is what is tested; there is no event to wait for.
    thread::sleep(PAUSE);
    resume(&frozen);
    let answer = client.wait(script, PATIENCE).unwrap().value;
    assert_eq!(CallOutcome::of(&answer), CallOutcome::Success, "{answer}");
    assert_eq!(returned(&answer["result"]), Some(json!("went on")), "{answer}");
    for id in calls {
        let outcome = CallOutcome::of(&client.wait(id, PATIENCE).unwrap().value);
        assert_eq!(outcome, CallOutcome::Success, "{}", client.stderr());
    }
    for server in ["one", "two"] {
        assert_eq!(call(&client, server, "echo", &json!({"text": "y"})), CallOutcome::Success);
    }
    stop(client, &workspace);
}

#[test]
fn a_gateway_that_was_stopped_reads_what_came_meanwhile() {
    let script = format!("{SLOW}; await sleep(100); return 'went on'");
    stopped(|all, gateway| all.iter().filter(|one| one.pid == gateway).cloned().collect(), &script);
}

#[test]
fn a_gateway_frozen_together_with_its_servers_goes_on_where_it_was() {
    // The script's own timeout is paused as well.
    let script = format!(
        "const slow = (async () => {{ {SLOW}; return 'went on' }})(); \
         return await Promise.race([slow, sleep({TIMEOUT}).then(() => 'gave up')])"
    );
    let everything = |all: &[Process], gateway: u32| {
        // Script workers have no environment to identify them by.
        let family = census::descendants(gateway);
        let others = family
            .into_iter()
            .filter(|one| one.state != 'Z' && all.iter().all(|known| known.pid != one.pid));
        all.iter().cloned().chain(others).collect()
    };
    stopped(everything, &script);
}

#[test]
fn a_stopped_server_costs_one_call_and_is_replaced() {
    let workspace = workspace();
    let client = start(&workspace);
    assert_eq!(call(&client, "one", "effect", &json!({"key": "first"})), CallOutcome::Success);
    let of_one = |process: &Process| process.command.contains("chaos-child");
    let child: Vec<Process> = workspace.processes().into_iter().filter(of_one).collect();
    assert_eq!(child.len(), 1, "{child:?}");
    assert!(census::freeze(&child[0]));
    assert_eq!(call(&client, "one", "effect", &json!({"key": "lost"})).code(), Some("timeout"));
    // Later calls wait until the server is known to be unresponsive, and get a fresh process.
    let next: Vec<u64> = (0..5)
        .map(|n| {
            let arguments = json!({"key": format!("next-{n}")});
            client.mcp_call("one", "effect", &arguments).unwrap()
        })
        .collect();
    for id in next {
        let outcome = CallOutcome::of(&client.wait(id, PATIENCE).unwrap().value);
        assert_eq!(outcome, CallOutcome::Success, "{}", client.stderr());
    }
    let journal = workspace.journal("one");
    for n in 0..5 {
        assert_eq!(journal.executions(&format!("next-{n}")).unwrap(), 1);
    }
    assert_eq!(journal.executions("lost").unwrap(), 0, "it is not sent a second time");
    stop(client, &workspace);
}
