//! Servers on every minor version of the official SDKs since 1.0: started, listed and called through one gateway with
//! an empty cache.

use std::fs;
use std::time::Duration;

use metamcp_testkit::{Client, Server, Workspace};
use serde_json::json;

use crate::installed::{Installed, sources, text};

/// Far beyond what a server here needs when all of them start on a loaded machine.
const HUNG: Duration = Duration::from_mins(4);

/// Concurrent servers: enough that slow ones do not hold up the others.
const POOL: usize = 6;

/// Starts a gateway with these servers, and calls the tool of each concurrently.
fn call_each(servers: Vec<(String, Server)>) {
    assert!(servers.len() > 30, "{} servers are not every version", servers.len());
    let mut workspace = Workspace::new().unwrap();
    // The last one waits for all the others.
    workspace.setting("pool", json!({"poolSize": POOL, "poolWaitTimeoutMs": 240_000}));
    let names: Vec<String> = servers.iter().map(|(name, _)| name.clone()).collect();
    for (name, server) in servers {
        workspace.server(&name, server);
    }
    let mut command = workspace.command(env!("CARGO_BIN_EXE_metamcp").as_ref()).unwrap();
    command.arg("--config").arg(workspace.write_config().unwrap());
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    let asked: Vec<u64> = names
        .iter()
        .map(|name| client.mcp_call(name, "echo", &json!({"message": name})).unwrap())
        .collect();
    let mut failed = Vec::new();
    for (name, id) in names.iter().zip(asked) {
        let answer = client.wait(id, HUNG).unwrap();
        if answer.text() != Some(name) {
            failed.push(format!("{name}: {}", answer.value));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The installed versions of the Python SDK, oldest first.
fn python_versions(installed: &Installed) -> Vec<(u32, u32, String)> {
    let folders = fs::read_dir(installed.sdks("sdks-python")).unwrap();
    let mut versions: Vec<(u32, u32, String)> = folders
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let mut numbers = name.split('.').map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?, name))
        })
        .collect();
    versions.sort_unstable();
    versions
}

#[test]
fn every_minor_version_of_the_python_sdk_is_understood() {
    let installed = Installed::find();
    let folder = installed.sdks("sdks-python");
    let script = text(&sources().join("sdks/server.py"));
    let mut servers = Vec::new();
    for (major, minor, version) in python_versions(&installed) {
        let environment = if major == 1 { "python-v1" } else { "python" };
        let mut levels = Vec::new();
        // The first two have only the low-level API, and those that stop responding to unknown methods are tested with
        // both.
        if major == 1 && minor <= 9 {
            levels.push("low");
        }
        if (major, minor) >= (1, 2) {
            levels.push("high");
        }
        for level in levels {
            let mut server = Server::new(installed.python(environment), &[&script, level])
                .argument(&text(&folder.join(&version)));
            if major == 1 {
                server = server.argument(&text(&folder.join("pydantic")));
            }
            servers.push((format!("python-{level}-{}", version.replace('.', "-")), server));
        }
    }
    call_each(servers);
}

#[test]
fn every_minor_version_of_the_typescript_sdk_is_understood() {
    let installed = Installed::find();
    let folder = installed.sdks("sdks-npm");
    let script = text(&sources().join("sdks/server.mjs"));
    let wished: serde_json::Value =
        serde_json::from_slice(&fs::read(sources().join("sdks/package.json")).unwrap()).unwrap();
    let aliases = wished["dependencies"].as_object().unwrap().keys();
    let servers = aliases.map(|alias| {
        let server = Server::new(installed.node(), &[&script, &text(&folder), alias]);
        (alias.replace('.', "-"), server)
    });
    call_each(servers.collect());
}
