//! The config changes while clients are connected: all of them see it, and no call is lost.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use metamcp_testkit::{Client, EventKind, Workspace, eventually};
use serde_json::{Value, json};

use crate::crowd::{HUNG, command, folder, join, process, stateful, told, variable, workspace};

/// Replaces the config as editors do: by a rename.
fn change(workspace: &Workspace, change: impl FnOnce(&mut Value)) {
    let path = workspace.project().join(".mcp.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    let beside = path.with_extension("new");
    fs::write(&beside, config.to_string()).unwrap();
    fs::rename(&beside, &path).unwrap();
}

/// Calls one after another until told to stop; returns how many there were. Each is answered with what it asked for.
fn calls(client: &Client, name: &str, over: &AtomicBool) -> usize {
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let key = format!("{name} {count}");
        let answer = client.mcp_call_now("kept", "effect", &json!({"key": key}), HUNG).unwrap();
        assert_eq!(answer.text(), Some(format!("done {key}").as_str()), "{}", answer.value);
        count += 1;
    }
    count
}

/// Runs `act` while these clients call without a pause, and checks that every call ran exactly once.
fn under_load(workspace: &Workspace, clients: &[&Client], act: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let counts: Vec<usize> = thread::scope(|scope| {
        let over = &over;
        let callers: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(at, client)| scope.spawn(move || calls(client, &format!("caller {at}"), over)))
            .collect();
        act();
        over.store(true, Ordering::Relaxed);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    let ran = workspace.journal("kept").of(EventKind::Execute).unwrap();
    let ran: Vec<String> = ran.into_iter().filter_map(|record| record.key).collect();
    for (at, count) in counts.iter().enumerate() {
        let own = ran.iter().filter(|key| key.starts_with(&format!("caller {at} "))).count();
        assert_eq!(own, *count, "caller {at}");
    }
}

fn servers(client: &Client) -> String {
    let id = client.call_tool("mcp_discover", &json!({})).unwrap();
    client.wait(id, HUNG).unwrap().value.to_string()
}

#[test]
fn every_session_sees_a_change_and_no_call_is_lost() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    // Two of one context, one of another with the same file.
    let elsewhere = {
        let mut command = command(&workspace);
        command.current_dir(folder(&workspace, "elsewhere"));
        join(command)
    };
    let (one, two) = (join(command(&workspace)), join(command(&workspace)));
    let before: BTreeSet<u64> =
        [&one, &two, &elsewhere].map(|client| process(client, "kept")).into();
    assert_eq!(before.len(), 1);
    under_load(&workspace, &[&one, &elsewhere], || {
        change(&workspace, |config| {
            let second = config["mcpServers"]["kept"].clone();
            config["mcpServers"]["second"] = second;
        });
        for client in [&one, &two, &elsewhere] {
            let seen = eventually(HUNG, || servers(client).contains("second"));
            assert!(seen, "{}", servers(client));
            process(client, "second");
        }
    });
    // What did not change was not started again.
    let after: BTreeSet<u64> =
        [&one, &two, &elsewhere].map(|client| process(client, "kept")).into();
    assert_eq!(before, after);
    change(&workspace, |config| {
        config["mcpServers"].as_object_mut().unwrap().remove("second");
    });
    for client in [&one, &two, &elsewhere] {
        let refused = || {
            let answer = client.mcp_call_now("second", "recall", &json!({}), HUNG).unwrap().value;
            answer.to_string().contains("server_not_found")
        };
        assert!(eventually(HUNG, refused));
        assert!(client.violations().is_empty(), "{:?}", client.violations());
    }
    assert_eq!(workspace.daemons().len(), 1);
}

#[test]
fn a_variable_newly_referred_to_takes_sessions_apart() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    let of = |value: &str| {
        let mut command = command(&workspace);
        command.env("WHO", value);
        join(command)
    };
    let (one, two, three) = (of("alpha"), of("beta"), of("alpha"));
    assert_eq!(process(&one, "kept"), process(&two, "kept"));
    under_load(&workspace, &[&one, &two, &three], || {
        change(&workspace, |config| {
            config["mcpServers"]["kept"]["env"]["SEEN"] = "${WHO}".into();
        });
        let sees = |client: &Client, value: &str| {
            let pid = process(client, "kept");
            variable(&workspace, "kept", pid, "SEEN").as_deref() == Some(value)
        };
        for (client, value) in [(&one, "alpha"), (&two, "beta"), (&three, "alpha")] {
            assert!(eventually(HUNG, || sees(client, value)), "{value}");
        }
    });
    let processes = [&one, &two, &three].map(|client| process(client, "kept"));
    assert_ne!(processes[0], processes[1]);
    assert_eq!(processes[0], processes[2]);
    told(&one, "kept", "remember", &json!({"key": "of alpha"}));
    assert_eq!(told(&two, "kept", "recall", &json!({}))["kept"], "");
    assert_eq!(told(&three, "kept", "recall", &json!({}))["kept"], "of alpha");
    for client in [&one, &two, &three] {
        assert!(client.violations().is_empty(), "{:?}", client.violations());
        assert!(!client.has_ended());
    }
    assert_eq!(workspace.daemons().len(), 1);
}
