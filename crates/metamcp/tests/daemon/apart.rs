//! Who shares a process of a server and who never does.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use metamcp_testkit::{Client, Workspace, chaos_server, eventually, programs};
use serde_json::json;

use crate::crowd::{
    HUNG, command, folder, join, process, shell, starts, stateful, structure, told, variable,
    workspace,
};

/// Clients at once in the largest test: more than anybody has.
const SESSIONS: usize = 100;
const ROUNDS: usize = 5;

/// A workspace with one stateful server `kept`, its config written.
fn with(share: &str) -> Workspace {
    let mut workspace = workspace();
    workspace.server("kept", stateful(share));
    workspace.write_config().unwrap();
    workspace
}

fn in_folder(workspace: &Workspace, name: &str) -> Command {
    let mut command = command(workspace);
    command.current_dir(folder(workspace, name));
    command
}

fn with_variable(workspace: &Workspace, name: &str, value: &str) -> Command {
    let mut command = command(workspace);
    command.env(name, value);
    command
}

/// Every session sets its state and reads it back, all at once, over and over.
fn interleaved(workspace: &Workspace) -> Vec<(String, Client)> {
    let clients: Vec<(String, Client)> = (0..SESSIONS)
        .map(|number| (format!("session {number}"), Client::start(command(workspace)).unwrap()))
        .collect();
    for (_, client) in &clients {
        client.initialize(&json!({}), HUNG).unwrap();
    }
    let call = |tool: &str, key: &str| {
        let arguments = json!({"server": "kept", "tool": tool, "args": {"key": key}});
        json!({"name": "mcp_call", "arguments": arguments})
    };
    // Two calls that both wait for the first list of a server may leave it in either order.
    let warm: Vec<u64> = clients
        .iter()
        .map(|(_, client)| client.request("tools/call", &call("recall", "")).unwrap())
        .collect();
    for ((name, client), id) in clients.iter().zip(warm) {
        let kept = structure(&client.wait(id, HUNG).unwrap().value)["kept"].clone();
        assert_eq!(kept, "", "{name}");
    }
    for round in 0..ROUNDS {
        let mut asked = Vec::new();
        for (name, client) in &clients {
            let key = format!("{name} {round}");
            let params = [call("remember", &key), call("recall", "")];
            asked.push((key, client.request_at_once("tools/call", &params).unwrap()));
        }
        for ((name, client), (key, ids)) in clients.iter().zip(asked) {
            let [before, after] =
                [ids[0], ids[1]].map(|id| structure(&client.wait(id, HUNG).unwrap().value));
            assert_eq!(before["process"], after["process"], "{name} has one process");
            let (before, after) = (&before["before"], &after["kept"]);
            let (before, after) = (before.as_str().unwrap(), after.as_str().unwrap());
            for seen in [before, after] {
                let is_own = seen.is_empty() || seen.starts_with(&format!("{name} "));
                assert!(is_own, "{name} was told of {seen:?}");
            }
            assert_eq!(after, key);
            if round > 0 {
                assert_eq!(before, format!("{name} {}", round - 1));
            }
        }
    }
    clients
}

#[test]
fn a_hundred_sessions_never_see_each_others_state() {
    let mut workspace = workspace();
    workspace.setting("pool", json!({"poolSize": SESSIONS + 10}));
    workspace.server("kept", stateful("session"));
    workspace.write_config().unwrap();
    let mut clients = interleaved(&workspace);
    assert_eq!(workspace.daemons().len(), 1);
    assert_eq!(starts(&workspace, "kept"), SESSIONS);
    // What ended sessions had is gone, and nothing of the others'.
    let stays = clients.split_off(SESSIONS / 2);
    for (number, (_, client)) in clients.iter_mut().enumerate() {
        // Half of them by the end of their input, half of them killed.
        if number % 2 == 0 {
            client.close_input();
            assert!(client.wait_exit(HUNG).unwrap().success());
        }
    }
    drop(clients);
    let alive = || workspace.processes_of(&programs::chaos_child()).len();
    assert!(eventually(HUNG, || alive() == stays.len()), "{} servers are alive", alive());
    for (name, client) in &stays {
        let kept = told(client, "kept", "recall", &json!({}));
        assert_eq!(kept["kept"], format!("{name} {}", ROUNDS - 1));
        assert!(client.violations().is_empty());
    }
    assert_eq!(alive(), stays.len());
    assert_eq!(starts(&workspace, "kept"), SESSIONS);
}

#[test]
fn a_project_server_has_a_process_for_each_folder_and_works_in_it() {
    let workspace = with("project");
    let clients: Vec<(&str, Client)> =
        ["one", "two", "one", "two"].map(|name| (name, join(in_folder(&workspace, name)))).into();
    for (name, client) in &clients {
        let directory = told(client, "kept", "env", &json!({}))["directory"].clone();
        assert_eq!(directory, folder(&workspace, name).to_str().unwrap());
    }
    let processes: Vec<u64> = clients.iter().map(|(_, one)| process(one, "kept")).collect();
    assert_eq!((processes[0], processes[1]), (processes[2], processes[3]));
    assert_ne!(processes[0], processes[1]);
    assert_eq!(starts(&workspace, "kept"), 2);
    // Inside a folder state is shared.
    told(&clients[0].1, "kept", "remember", &json!({"key": "of one"}));
    assert_eq!(told(&clients[2].1, "kept", "recall", &json!({}))["kept"], "of one");
    assert_eq!(told(&clients[3].1, "kept", "recall", &json!({}))["kept"], "");
}

#[test]
fn a_machine_server_has_one_process_for_all() {
    let workspace = with("machine");
    let clients = ["one", "two", "three"].map(|name| join(in_folder(&workspace, name)));
    let processes: BTreeSet<u64> = clients.iter().map(|one| process(one, "kept")).collect();
    assert_eq!(processes.len(), 1);
    assert_eq!(starts(&workspace, "kept"), 1);
    assert_eq!(workspace.daemons().len(), 1);
}

#[test]
fn clients_with_different_tokens_never_share_and_with_equal_ones_do() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine").variable("SEEN", "${TOKEN}"));
    workspace.write_config().unwrap();
    let clients = ["alpha", "beta", "alpha", "beta"]
        .map(|token| (token, join(with_variable(&workspace, "TOKEN", token))));
    for (token, client) in &clients {
        let seen = told(client, "kept", "env", &json!({}))["environment"].clone();
        // Results never show a secret; that it is the right one is in what the process itself wrote down.
        assert!(!seen.to_string().contains("gamma"), "{token}: {seen}");
    }
    let processes: Vec<u64> = clients.iter().map(|(_, one)| process(one, "kept")).collect();
    assert_eq!((processes[0], processes[1]), (processes[2], processes[3]));
    assert_ne!(processes[0], processes[1]);
    for ((token, _), pid) in clients.iter().zip(&processes) {
        assert_eq!(variable(&workspace, "kept", *pid, "SEEN").as_deref(), Some(*token));
    }
    assert_eq!(starts(&workspace, "kept"), 2);
    assert_eq!(workspace.daemons().len(), 1);
}

#[test]
fn clients_with_different_profiles_of_a_cloud_do_not_share() {
    let workspace = with("machine");
    let [home, work, plain] = [Some("home"), Some("work"), None].map(|profile| {
        let mut command = command(&workspace);
        command.envs(profile.map(|profile| ("AWS_PROFILE", profile)));
        join(command)
    });
    let processes = [&home, &work, &plain].map(|client| process(client, "kept"));
    assert_eq!(BTreeSet::from(processes).len(), 3);
    assert_eq!(variable(&workspace, "kept", processes[0], "AWS_PROFILE").as_deref(), Some("home"));
    assert_eq!(variable(&workspace, "kept", processes[1], "AWS_PROFILE").as_deref(), Some("work"));
    assert_eq!(variable(&workspace, "kept", processes[2], "AWS_PROFILE"), None);
}

#[test]
fn a_path_that_leads_to_another_program_is_another_server() {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine").by("a-server-in-the-path"));
    workspace.write_config().unwrap();
    let paths = ["first", "second"].map(|name| {
        let folder = folder(&workspace, name);
        let program = folder.join("a-server-in-the-path");
        let real = programs::chaos_child();
        let script = format!("#!/bin/sh\nWHICH={name} exec '{}' \"$@\"\n", real.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        folder.display().to_string()
    });
    let usual = std::env::var("PATH").unwrap();
    let clients: Vec<Client> = [
        format!("{}:{usual}", paths[0]),
        format!("{}:{usual}", paths[1]),
        // Another way to the same program.
        format!("/nowhere:{}:{usual}", paths[0]),
    ]
    .iter()
    .map(|path| join(with_variable(&workspace, "PATH", path)))
    .collect();
    let processes: Vec<u64> = clients.iter().map(|one| process(one, "kept")).collect();
    assert_ne!(processes[0], processes[1]);
    assert_eq!(processes[0], processes[2]);
    for (process, which) in processes.iter().zip(["first", "second", "first"]) {
        let found = variable(&workspace, "kept", *process, "WHICH");
        assert_eq!(found.as_deref(), Some(which));
    }
}

#[test]
fn flags_of_one_client_are_none_of_anothers() {
    let workspace = with("machine");
    let other = workspace.file("other.json");
    let server = json!({
        "command": programs::chaos_child(),
        "args": ["--stateful", "yes", "--journal", workspace.journal("other").path()],
        "share": "machine",
        "env": {"TESTKIT_MARK": workspace.mark()},
    });
    fs::write(&other, json!({"mcpServers": {"other": server}}).to_string()).unwrap();
    let usual = join(command(&workspace));
    let flagged = {
        let mut command = command(&workspace);
        command.args(["--surface", "full", "--call-timeout", "7s"]);
        join(command)
    };
    let elsewhere = {
        let mut command = command(&workspace);
        command.arg("--config").arg(&other);
        join(command)
    };
    let names = |client: &Client| -> BTreeSet<String> {
        let listed = client.ask("tools/list", &json!({}), HUNG).unwrap().value;
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&usual).contains("mcp_call") && !names(&flagged).contains("mcp_call"));
    assert!(names(&flagged).contains("run_tool"), "{:?}", names(&flagged));
    assert_eq!(names(&usual), names(&elsewhere));
    process(&usual, "kept");
    process(&elsewhere, "other");
    for (client, missing) in [(&usual, "other"), (&elsewhere, "kept")] {
        let refused = client.mcp_call_now(missing, "recall", &json!({}), HUNG).unwrap().value;
        assert!(refused.to_string().contains("server_not_found"), "{refused}");
    }
    let found = usual.call_tool("mcp_discover", &json!({"query": "recall"})).unwrap();
    let found = usual.wait(found, HUNG).unwrap().value.to_string();
    assert!(found.contains("kept:recall") && !found.contains("other:"), "{found}");
    assert_eq!(workspace.daemons().len(), 1);
}

#[test]
fn the_approval_of_one_folder_is_none_of_anothers() {
    let workspace = workspace();
    let entry = json!({
        "command": programs::chaos_child(),
        "args": ["--stateful", "yes", "--journal", workspace.journal("kept").path()],
        "env": {"TESTKIT_MARK": workspace.mark()},
    });
    let text = json!({"mcpServers": {"kept": entry}}).to_string();
    let found = |name: &str| {
        let mut command = command(&workspace);
        // The file is found, not named.
        command.env_remove("METAMCP_CONFIG").current_dir(folder(&workspace, name));
        command
    };
    for name in ["trusted", "strange"] {
        fs::write(folder(&workspace, name).join(".mcp.json"), &text).unwrap();
    }
    let hash = found("trusted").args(["trust", "--json"]).output().unwrap();
    let hash: serde_json::Value = serde_json::from_slice(&hash.stdout).unwrap();
    let hash = hash["sha256"].as_str().unwrap();
    let approved = found("trusted").args(["trust", "--yes", "--sha256", hash]).output().unwrap();
    assert!(approved.status.success(), "{approved:?}");
    let (trusted, strange) = (join(found("trusted")), join(found("strange")));
    process(&trusted, "kept");
    let refused = strange.mcp_call_now("kept", "recall", &json!({}), HUNG).unwrap().value;
    assert!(refused.to_string().contains("server_not_found"), "{refused}");
    assert_eq!(starts(&workspace, "kept"), 1);
    assert_eq!(workspace.daemons().len(), 1);
    // An ordinary client of the same folder shares what was approved there.
    assert_eq!(process(&join(found("trusted")), "kept"), process(&trusted, "kept"));
}

#[test]
fn a_server_whose_sharing_nobody_decided_is_explained() {
    let mut workspace = workspace();
    workspace.server("plain", chaos_server(&[]));
    workspace.write_config().unwrap();
    let (here, there) = (join(in_folder(&workspace, "one")), join(in_folder(&workspace, "two")));
    for client in [&here, &there] {
        told(client, "plain", "env", &json!({}));
    }
    // A local server without a folder of its own works in its client's.
    assert_eq!(starts(&workspace, "plain"), 2);
    let why = shell(&workspace, &["list", "--why", "plain", "--json"]);
    let why: serde_json::Value = serde_json::from_slice(&why.stdout).unwrap();
    assert_eq!(why["servers"][0]["scope"], "project", "{why:#}");
}
