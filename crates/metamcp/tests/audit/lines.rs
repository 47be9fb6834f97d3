//! Each call, however it ends, and each decision leaves its line; values and secrets do not unless asked for.

use std::fs;
use std::path::Path;

use metamcp_testkit::{Client, Workspace, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::Stdio;

use crate::logged::{
    METAMCP, PATIENCE, bytes, call, end, gateway, json_of, lines, of_kind, run, sha256, whole,
    workspace,
};

const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

fn every_ending(client: &Client) {
    call(client, "echo", &json!({"text": "the words"}));
    call(client, "fail", &json!({}));
    call(client, "rpc_error", &json!({}));
    call(client, "sample", &json!({}));
    call(client, "no_such_tool", &json!({}));
    call(client, "echo", &json!({"text": 7}));
    let slow = client.mcp_call("one", "slow", &json!({"ms": 60_000})).unwrap();
    client.notify("notifications/cancelled", &json!({"requestId": slow})).unwrap();
}

#[test]
fn a_call_leaves_one_line_however_it_ends() {
    let workspace = workspace(&json!({ "enabled": true }));
    let client = gateway(&workspace, &[]);
    every_ending(&client);
    assert!(eventually(PATIENCE, || of_kind(&workspace, "call").len() >= 7));
    end(client);
    let calls = of_kind(&workspace, "call");
    let mut told: Vec<String> = calls
        .iter()
        .map(|line| format!("{} {}", line["what"]["tool"], line["verdict"]).replace('"', ""))
        .collect();
    told.sort();
    assert_eq!(
        told,
        [
            "echo ok",
            "echo validation_input",
            "fail tool_error",
            "no_such_tool tool_not_found",
            "rpc_error rpc_error",
            "sample denied",
            "slow cancelled",
        ]
    );
    for line in &calls {
        assert_eq!(
            (&line["who"]["principal"], &line["who"]["client"]),
            (&json!("owner"), &json!("testkit"))
        );
        assert_eq!(
            (&line["what"]["server"], &line["what"]["by"]),
            (&json!("one"), &json!("mcp_call"))
        );
    }
    let echo = calls.iter().find(|line| line["verdict"] == "ok").unwrap();
    let sent = json!({"text": "the words"}).to_string();
    assert_eq!(echo["arguments"]["sha256"], sha256(sent.as_bytes()));
    assert_eq!(echo["arguments"]["bytes"], sent.len());
    assert_eq!(echo["result"]["sha256"].as_str().unwrap().len(), 64);
    // Nothing of what was said.
    assert!(!String::from_utf8_lossy(&bytes(&workspace)).contains("the words"));
    let gateways = of_kind(&workspace, "gateway");
    let verdicts: Vec<&Value> = gateways.iter().map(|line| &line["verdict"]).collect();
    assert_eq!(verdicts, ["started", "stopped"]);
    whole(&workspace);
}

#[test]
fn values_are_recorded_only_if_asked_for_and_never_with_a_secret() {
    let workspace = workspace(&json!({ "enabled": true, "values": true }));
    // Also where answers are not redacted.
    let client = gateway(&workspace, &["--scrub", "false"]);
    call(&client, "echo", &json!({"text": format!("the words and {SECRET}")}));
    end(client);
    let log = String::from_utf8(bytes(&workspace)).unwrap();
    assert!(!log.contains(SECRET), "{log}");
    let calls = of_kind(&workspace, "call");
    let (arguments, result) = (&calls[0]["arguments"]["value"], &calls[0]["result"]["value"]);
    assert!(arguments.as_str().unwrap().contains("the words and "), "{arguments}");
    assert!(result.as_str().unwrap().contains("the words and "), "{result}");
    whole(&workspace);
}

#[test]
fn required_calls_are_recorded_before_they_are_sent_and_again_when_they_ended() {
    let workspace = workspace(&json!({ "required": true }));
    let client = gateway(&workspace, &[]);
    every_ending(&client);
    assert!(eventually(PATIENCE, || of_kind(&workspace, "call").len() >= 7));
    end(client);
    let begun = of_kind(&workspace, "begun");
    let ended = of_kind(&workspace, "call");
    // What was refused beforehand was never about to be sent.
    assert_eq!(begun.len(), 4, "{begun:#?}");
    for line in &begun {
        let is_its = |end: &&Value| end["what"]["call"] == line["what"]["call"];
        let end = ended.iter().find(is_its).expect("its end");
        assert_eq!(end["arguments"], line["arguments"]);
        assert!(end["seq"].as_u64() > line["seq"].as_u64());
    }
    whole(&workspace);
}

#[test]
fn nothing_is_recorded_unless_it_is_switched_on() {
    let workspace = workspace(&json!({}));
    let client = gateway(&workspace, &[]);
    call(&client, "echo", &json!({"text": "x"}));
    end(client);
    assert!(!workspace.home().join(".metamcp/audit").exists());
    let output = run(&workspace, &["audit", "tail"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Nothing was recorded yet"));
}

#[test]
fn the_daemon_and_commands_write_one_log() {
    let mut workspace = workspace(&json!({ "enabled": true }));
    workspace.with_daemon();
    let client = gateway(&workspace, &[]);
    call(&client, "echo", &json!({"text": "x"}));
    let added = run(&workspace, &["add", "two", "--", "true"]);
    assert!(added.status.success(), "{added:?}");
    // The daemon hears of it, and so does its log.
    let is_there = || {
        let configs = of_kind(&workspace, "config");
        configs
            .iter()
            .any(|line| line["what"]["file"].is_null() && line["what"]["added"] == json!(["two"]))
    };
    assert!(eventually(PATIENCE, is_there), "{:#?}", lines(&workspace));
    assert!(run(&workspace, &["disable", "two"]).status.success());
    assert!(run(&workspace, &["remove", "two"]).status.success());
    let by_command: Vec<Value> = of_kind(&workspace, "config")
        .into_iter()
        .filter(|line| line["what"]["file"].is_string())
        .map(|mut line| {
            line["what"].as_object_mut().unwrap().remove("file");
            line["what"].take()
        })
        .collect();
    assert_eq!(
        by_command,
        [json!({"added": ["two"]}), json!({"changed": ["two"]}), json!({"removed": ["two"]})]
    );
    let (status, _) = json_of(&workspace, &["status", "--json"]);
    assert!(status["audit"]["lines"].as_u64() > Some(1), "{status:#}");
    assert_eq!(status["audit"]["failing"], Value::Null);
    end(client);
    assert!(run(&workspace, &["daemon", "stop"]).status.success());
    let report = whole(&workspace);
    assert_eq!(report["cuts"], json!([]));
}

#[test]
fn a_decision_on_a_projects_file_is_recorded() {
    let workspace = Workspace::new().unwrap();
    let folder = workspace.file("cloned");
    fs::create_dir(&folder).unwrap();
    let project = json!({ "mcpServers": { "helper": { "command": "true" } } }).to_string();
    fs::write(folder.join(".mcp.json"), project).unwrap();
    let own = workspace.home().join(".metamcp");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("mcp.json"), json!({ "audit": { "enabled": true } }).to_string()).unwrap();
    let run = |args: &[&str]| {
        let mut command = workspace.command_as_it_is(Path::new(METAMCP));
        command.env_remove("METAMCP_CONFIG").current_dir(&folder).args(args);
        command.output().unwrap()
    };
    let shown = run(&["trust", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let sha256 = shown["sha256"].as_str().unwrap();
    let trusted = run(&["trust", "--yes", "--sha256", sha256]);
    assert!(trusted.status.success(), "{trusted:?}");
    assert!(run(&["untrust"]).status.success());
    let decisions = of_kind(&workspace, "trust");
    let told: Vec<(&Value, &Value)> =
        decisions.iter().map(|line| (&line["verdict"], &line["what"]["sha256"])).collect();
    assert_eq!(told, [(&json!("approved"), &json!(sha256)), (&json!("forgotten"), &Value::Null)]);
    whole(&workspace);
}

#[test]
fn who_is_not_let_in_over_http_is_recorded() {
    let workspace = workspace(&json!({ "enabled": true }));
    let mut command = workspace.command(Path::new(METAMCP)).unwrap();
    command.args(["--transport", "http", "--port", "0", "--code-profile", "off"]);
    let mut served = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let address = {
        let mut stderr = std::io::BufReader::new(served.stderr.as_mut().unwrap());
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(std::io::BufRead::read_line(&mut stderr, &mut line).unwrap(), 0);
            if let Some((_, rest)) = line.split_once("http://") {
                break rest.split(['/', ' ', '\n']).next().unwrap().to_owned();
            }
        }
    };
    let ask = |host: &str, token: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nAuthorization: Bearer {token}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(ask(&address, "wrong-token-canary"), "401");
    assert_eq!(ask("rebound.example", "x"), "403");
    let refusals = || of_kind(&workspace, "refusal");
    assert!(eventually(PATIENCE, || refusals().len() >= 2));
    served.kill().unwrap();
    served.wait().unwrap();
    let reasons: Vec<String> =
        refusals().iter().map(|line| line["what"]["reason"].to_string()).collect();
    assert!(reasons[0].contains("the bearer token is not valid here"), "{reasons:?}");
    assert!(reasons[1].contains("rebound.example"), "{reasons:?}");
    assert!(!String::from_utf8_lossy(&bytes(&workspace)).contains("canary"));
}
