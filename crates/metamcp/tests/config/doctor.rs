//! `metamcp doctor`, on healthy and on broken configurations.

use insta::assert_snapshot;
use serde_json::Value;

use crate::Shell;

const OWN: &str = "user/.metamcp/mcp.json";

/// A shell whose config names servers that need nothing but this program.
fn shell() -> Shell {
    let shell = Shell::new();
    let program = Value::from(env!("CARGO_BIN_EXE_metamcp"));
    shell.write(
        OWN,
        &format!(
            r#"{{
  "mcpServers": {{
    "clock": {{ "command": {program}, "args": ["__example", "clock"] }},
    "broken": {{ "command": "/bin/sh", "args": ["-c", "echo 'cannot open s3cret-value' >&2; exit 7"], "env": {{ "API_KEY": "s3cret-value" }} }},
    "missing": {{ "command": "no-such-program-anywhere" }},
    "unset": {{ "command": "x", "env": {{ "K": "${{NOT_SET_AT_ALL}}" }} }},
    "far": {{ "url": "http://127.0.0.1:1/mcp" }},
    "off": {{ "command": "x", "disabled": true }}
  }}
}}
"#
        ),
    );
    shell
}

/// Removes times, which vary, and what depends on the machine.
fn steady(text: &str) -> String {
    let of_the_machine = |line: &str| {
        ["no server needs it", "sandbox", "Landlock"].iter().any(|of| line.contains(of))
    };
    let lines = text.lines().filter(|line| !of_the_machine(line));
    let mut steady = String::new();
    for line in lines {
        let line = match (line.find(" ("), line.ends_with(" ms)")) {
            (Some(at), true) => &line[..at],
            _ => line,
        };
        let line = if line.starts_with("  ok: metamcp ") { "  ok: metamcp VERSION" } else { line };
        steady.push_str(line);
        steady.push('\n');
    }
    steady
}

#[test]
fn every_finding_has_its_fix_and_no_secret_is_shown() {
    let shell = shell();
    shell.write("user/.cursor/mcp.json", r#"{ "mcpServers": { "x": { "command": "y" } } }"#);
    shell.write("user/.kiro/settings/mcp.json", "{ broken");
    shell.write("user/.metamcp/cache/clock-1/schema.json.corrupt-1", "?");
    let told = shell.told(&["doctor"]);
    assert!(!told.contains("s3cret-value"), "{told}");
    assert_snapshot!(steady(&told));
    let json = shell.json(&["doctor", "--json"]);
    for finding in json["findings"].as_array().unwrap() {
        if finding["level"] == "problem" {
            assert!(finding["cure"].is_string(), "{finding}");
        }
    }
}

#[test]
fn the_layers_around_scripts_are_named() {
    let shell = shell();
    let of_code_mode = |arguments: &[&str]| {
        let json = shell.json(arguments);
        let findings = json["findings"].as_array().unwrap().iter();
        let mut own = findings.filter(|finding| finding["area"] == "code mode");
        let first = own.next().expect("something is said of it");
        (first["level"].clone(), first["message"].as_str().unwrap().to_owned())
    };
    let (level, message) = of_code_mode(&["doctor", "--json"]);
    assert_eq!(level, "good", "{message}");
    for words in ["profile `standard`", "seccomp", "landlock_files", "no_new_privs"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    let (level, message) = of_code_mode(&["doctor", "--json", "--code-profile", "off"]);
    assert_eq!((level, message.contains("off")), ("note".into(), true), "{message}");
    #[cfg(not(feature = "hardened"))]
    {
        let (level, message) = of_code_mode(&["doctor", "--json", "--code-profile", "wasm"]);
        assert_eq!(level, "warning", "{message}");
        assert!(message.contains("no WebAssembly engine"), "{message}");
    }
}

#[test]
fn what_can_be_fixed_is() {
    let shell = shell();
    let left = "user/.metamcp/cache/clock-1/schema.json.corrupt-1";
    shell.write(left, "?");
    shell.run(&["doctor"]);
    assert!(shell.path(left).exists(), "nothing is changed without --fix");
    let json = shell.json(&["doctor", "--fix", "--json"]);
    assert!(!shell.path(left).exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(shell.path(OWN)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "the file holds a secret");
    }
    let all = json["findings"].as_array().unwrap();
    assert!(all.iter().filter(|finding| finding["fixed"] == Value::Bool(true)).count() >= 2);
}

#[test]
fn exit_codes() {
    let shell = Shell::new();
    assert_eq!(shell.run(&["doctor"]).status.code(), Some(3), "no file");
    shell.write(OWN, "{ \"mcpServers\": { ");
    assert_eq!(shell.run(&["doctor"]).status.code(), Some(3), "a broken one");
    shell.write(OWN, "{ \"mcpServers\": {} }");
    assert_eq!(shell.run(&["doctor"]).status.code(), Some(0), "nothing wrong");
    shell
        .write(OWN, "{ \"mcpServers\": { \"a\": { \"command\": \"no-such-program-anywhere\" } } }");
    assert_eq!(shell.run(&["doctor"]).status.code(), Some(1), "a problem");
}

/// More servers than pool slots, and a short queue timeout: each is tried when a slot is free.
#[test]
fn no_server_is_reported_for_having_waited_in_line() {
    let shell = Shell::new();
    let program = Value::from(env!("CARGO_BIN_EXE_metamcp"));
    let servers: Vec<String> = (0..6)
        .map(|n| {
            format!(r#""clock-{n}": {{ "command": {program}, "args": ["__example", "clock"] }}"#)
        })
        .collect();
    let servers = servers.join(",\n");
    let pool = r#""pool": { "poolSize": 1, "resPoolSize": 0, "poolWaitTimeoutMs": 1 }"#;
    shell.write(OWN, &format!("{{ \"mcpServers\": {{ {servers} }}, {pool} }}"));
    let json = shell.json(&["doctor", "--json"]);
    let of_servers = json["findings"].as_array().unwrap().iter();
    let of_servers: Vec<&Value> =
        of_servers.filter(|finding| finding["area"] == "servers").collect();
    assert_eq!(of_servers.len(), 6, "{json:#}");
    for finding in of_servers {
        assert_eq!(finding["level"], "good", "{finding:#}");
    }
}

/// A server that exceeds every timeout does not block a search once there is something to search in.
#[test]
fn a_search_goes_on_without_a_server_that_hangs() {
    let shell = Shell::new();
    let program = Value::from(env!("CARGO_BIN_EXE_metamcp"));
    // It becomes ready in the end, so the result shows whether it was waited for.
    let late = format!("sleep 40; exec {} __example clock", env!("CARGO_BIN_EXE_metamcp"));
    let late = Value::from(late);
    shell.write(
        OWN,
        &format!(
            r#"{{ "mcpServers": {{
                "clock": {{ "command": {program}, "args": ["__example", "clock"] }},
                "late": {{ "command": "/bin/sh", "args": ["-c", {late}] }}
            }} }}"#
        ),
    );
    let json = shell.json(&["search", "what time is it", "--json"]);
    let ids: Vec<&str> =
        json["tools"].as_array().unwrap().iter().filter_map(|tool| tool["id"].as_str()).collect();
    assert!(ids.iter().any(|id| id.starts_with("clock:")), "{json:#}");
    assert!(!ids.iter().any(|id| id.starts_with("late:")), "{json:#}");
    assert_eq!(json["pending"], serde_json::json!(["late"]), "{json:#}");
}
