//! The official conformance suite: against direct mode, with a server built with the official SDK behind the gateway,
//! and against the gateway as a client of the suite's own servers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::http::Serving;
use crate::installed::{Start, sources, text};
use crate::world::World;

/// Runs the suite for one revision; returns the number of checks by status.
fn looked_at(revision: &str, endpoint: Endpoint, era: &[&str]) -> BTreeMap<String, usize> {
    let world = World::new();
    let config = world.path().join("conformance.json");
    let mut args = vec![text(&sources().join("conformance.mjs")), text(&world.installed.npm())];
    args.extend(era.iter().map(|era| (*era).to_owned()));
    let server = json!({ "command": world.installed.node(), "args": args });
    fs::write(&config, json!({ "mcpServers": { "conformance": server } }).to_string()).unwrap();
    let mut flags = vec!["--config".to_owned(), text(&config)];
    // The suite cannot send a token.
    flags.extend(["--transport", "http", "--port", "0", "--no-auth"].map(str::to_owned));
    if endpoint == Endpoint::Main {
        flags.extend(["--surface", "direct"].map(str::to_owned));
    }
    let gateway =
        Start { command: env!("CARGO_BIN_EXE_metamcp").to_owned(), args: flags, env: Vec::new() };
    let serving = Serving::listening(&world, &gateway);
    let url = match endpoint {
        Endpoint::Main => serving.remote.url.clone(),
        Endpoint::Direct => format!("{}/direct", serving.remote.url),
    };
    let results = world.path().join("results");
    let output = suite(&world, "server", &["--url", &url], revision, &results);
    let (scenarios, ended) = ended(&results, &output);
    assert!(scenarios > 0, "nothing was looked at");
    drop(serving);
    world.nothing_is_left();
    ended
}

/// Runs the suite for one side of a revision.
fn suite(world: &World, side: &str, at: &[&str], revision: &str, results: &Path) -> Output {
    let mut args = vec![text(&world.installed.conformance()), side.to_owned()];
    args.extend(at.iter().map(|word| (*word).to_owned()));
    args.extend(["--suite", "all", "--spec-version", revision].map(str::to_owned));
    args.extend(["--output-dir".to_owned(), text(results)]);
    let expected = text(&sources().join("conformance-failures.yaml"));
    args.extend(["--expected-failures".to_owned(), expected]);
    let suite = Start { command: world.installed.node(), args, env: Vec::new() };
    world.command(&suite).stdin(Stdio::null()).output().unwrap()
}

/// The number of scenarios, and of their checks by status. Fails if one did not pass.
fn ended(results: &Path, output: &Output) -> (usize, BTreeMap<String, usize>) {
    let (mut scenarios, mut ended, mut wrong) = (0, BTreeMap::new(), Vec::new());
    let mut folders = vec![results.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("checks.json") {
                scenarios += 1;
                for check in
                    serde_json::from_slice::<Vec<Value>>(&fs::read(&path).unwrap()).unwrap()
                {
                    let status = check["status"].as_str().unwrap().to_owned();
                    if !matches!(status.as_str(), "SUCCESS" | "INFO" | "SKIPPED") {
                        wrong.push(format!("{}: {check}", folder.display()));
                    }
                    *ended.entry(status).or_default() += 1;
                }
            }
        }
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(wrong.is_empty() && output.status.success(), "{}\n{said}", wrong.join("\n"));
    (scenarios, ended)
}

/// The driver script that makes the gateway act out a scenario.
fn driver(world: &World) -> String {
    let script = text(&sources().join("conformance-client.mjs"));
    format!("{} {script} {}", world.installed.node(), env!("CARGO_BIN_EXE_metamcp"))
}

/// Runs the gateway as a client of the suite's servers; returns the number of scenarios.
fn as_client(revision: &str) -> usize {
    let world = World::new();
    let command = driver(&world);
    let results = world.path().join("results");
    // All scenarios run concurrently, on machines that may be small.
    let at = ["--command", command.as_str(), "--timeout", "180000"];
    let output = suite(&world, "client", &at, revision, &results);
    let (scenarios, checks) = ended(&results, &output);
    assert!(checks["SUCCESS"] > scenarios, "{checks:?}");
    world.nothing_is_left();
    scenarios
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    /// `/mcp`, configured for direct mode.
    Main,
    /// `/mcp/direct`, beside the main endpoint.
    Direct,
}

#[test]
fn every_check_of_2025_11_25_passes() {
    let ended = looked_at("2025-11-25", Endpoint::Main, &["legacy"]);
    assert_eq!(ended["SUCCESS"], 83, "{ended:?}");
}

/// The server has no handshake and sends input-required results; the client still gets server requests during its call.
#[test]
fn every_check_of_2025_11_25_passes_in_front_of_a_server_without_a_handshake() {
    let ended = looked_at("2025-11-25", Endpoint::Direct, &[]);
    assert_eq!(ended["SUCCESS"], 83, "{ended:?}");
}

#[test]
fn every_check_of_2026_07_28_passes() {
    let ended = looked_at("2026-07-28", Endpoint::Direct, &[]);
    assert_eq!(ended["SUCCESS"], 153, "{ended:?}");
}

#[test]
fn as_a_client_every_scenario_of_2025_11_25_passes() {
    assert_eq!(as_client("2025-11-25"), 19);
}

#[test]
fn as_a_client_every_scenario_of_2026_07_28_passes() {
    assert_eq!(as_client("2026-07-28"), 33);
}

/// The first revision with OAuth: all endpoints at the root of the server.
#[test]
fn as_a_client_every_scenario_of_2025_03_26_passes() {
    assert_eq!(as_client("2025-03-26"), 2);
}

/// Clients without a user: with a secret, with a key, with an enterprise identity assertion. These belong to no
/// revision.
#[test]
fn as_a_client_credentials_client_every_authentication_method_passes() {
    for scenario in [
        "auth/client-credentials-basic",
        "auth/client-credentials-jwt",
        "auth/enterprise-managed-authorization",
    ] {
        let world = World::new();
        let results = world.path().join("results");
        let mut args = vec![text(&world.installed.conformance()), "client".to_owned()];
        args.extend(["--command".to_owned(), driver(&world)]);
        args.extend(["--scenario", scenario, "--timeout", "180000"].map(str::to_owned));
        args.extend(["--output-dir".to_owned(), text(&results)]);
        let suite = Start { command: world.installed.node(), args, env: Vec::new() };
        let output = world.command(&suite).stdin(Stdio::null()).output().unwrap();
        assert_eq!(ended(&results, &output).0, 1, "{scenario}");
        world.nothing_is_left();
    }
}
