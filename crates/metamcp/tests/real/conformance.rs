//! The official conformance suite against direct mode, with a server made with the official SDK behind the gateway.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::http::Serving;
use crate::installed::{Start, sources, text};
use crate::world::World;

/// Runs the suite for one revision; says how many checks ended how.
fn looked_at(revision: &str, endpoint: Endpoint, era: &[&str]) -> BTreeMap<String, usize> {
    let world = World::new();
    let config = world.path().join("conformance.json");
    let mut args = vec![text(&sources().join("conformance.mjs")), text(&world.installed.npm())];
    args.extend(era.iter().map(|era| (*era).to_owned()));
    let server = json!({ "command": world.installed.node(), "args": args });
    fs::write(&config, json!({ "mcpServers": { "conformance": server } }).to_string()).unwrap();
    let mut flags = vec!["--config".to_owned(), text(&config)];
    flags.extend(["--transport", "http", "--port", "0"].map(str::to_owned));
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
    let mut args = vec![text(&world.installed.conformance()), "server".to_owned()];
    args.extend(["--url".to_owned(), url, "--suite".to_owned(), "all".to_owned()]);
    args.extend(["--spec-version".to_owned(), revision.to_owned()]);
    args.extend(["--output-dir".to_owned(), text(&results)]);
    let expected = text(&sources().join("conformance-failures.yaml"));
    args.extend(["--expected-failures".to_owned(), expected]);
    let suite = Start { command: world.installed.node(), args, env: Vec::new() };
    let output = world.command(&suite).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let mut ended = BTreeMap::new();
    let mut wrong = Vec::new();
    for scenario in fs::read_dir(&results).unwrap() {
        let checks = fs::read(scenario.unwrap().path().join("checks.json")).unwrap();
        for check in serde_json::from_slice::<Vec<Value>>(&checks).unwrap() {
            let status = check["status"].as_str().unwrap().to_owned();
            if !matches!(status.as_str(), "SUCCESS" | "INFO") {
                wrong.push(check.to_string());
            }
            *ended.entry(status).or_default() += 1;
        }
    }
    assert!(wrong.is_empty() && output.status.success(), "{}\n{said}", wrong.join("\n"));
    drop(serving);
    world.nothing_is_left();
    ended
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    /// `/mcp`, configured to show servers as they are.
    Main,
    /// `/mcp/direct`, beside the usual one.
    Direct,
}

#[test]
fn every_check_of_2025_11_25_passes() {
    let ended = looked_at("2025-11-25", Endpoint::Main, &["legacy"]);
    assert_eq!(ended["SUCCESS"], 83, "{ended:?}");
}

/// The server has no handshake, and asks by answering; the client is asked in the middle of its call all the same.
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
