//! Coding agents as people have them, each twice at once over one daemon. Neither needs a model here: Claude Code checks
//! the health of its servers, Codex lists what they offer to the editor it serves.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::installed::{Start, text};
use crate::together::{twice, was_shared};
use crate::world::World;

const TOOLS: [&str; 4] = ["mcp_call", "mcp_discover", "mcp_execute", "mcp_provision"];

/// An agent in this world, which would else report home and look for updates.
fn agent(world: &World, program: &[&str], args: &[&str]) -> Command {
    let start = Start {
        command: text(&world.installed.agent(program)),
        args: args.iter().map(ToString::to_string).collect(),
        env: Vec::new(),
    };
    let mut command = world.command(&start);
    command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
    command
}

fn claude(world: &World, args: &[&str]) -> String {
    let program = [
        "@anthropic-ai/claude-code-linux-x64/claude",
        "@anthropic-ai/claude-code-linux-arm64/claude",
        "@anthropic-ai/claude-code-darwin-arm64/claude",
        "@anthropic-ai/claude-code-darwin-x64/claude",
    ];
    let output = agent(world, &program, args).stdin(Stdio::null()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words}\n{}", String::from_utf8_lossy(&output.stderr));
    words
}

#[test]
fn claude_code_finds_the_gateway_healthy_twice_at_once() {
    let world = World::with_daemon();
    let gateway = world.gateway();
    let mut add = vec!["mcp", "add", "--scope", "user", "metamcp", "--", &gateway.command];
    add.extend(gateway.args.iter().map(String::as_str));
    claude(&world, &add);
    for words in twice(|_| claude(&world, &["mcp", "list"])) {
        assert!(
            words.lines().any(|line| line.contains("metamcp") && line.contains("Connected")),
            "{words}"
        );
    }
    was_shared(&world, &[]);
}

/// Codex as an editor starts it.
struct Codex {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Codex {
    fn start(world: &World) -> Codex {
        let program = [
            "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
            "@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex",
            "@openai/codex-darwin-arm64/vendor/aarch64-apple-darwin/bin/codex",
            "@openai/codex-darwin-x64/vendor/x86_64-apple-darwin/bin/codex",
        ];
        let mut command = agent(world, &program, &["app-server"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut codex = Codex { child, input, output: BufReader::new(output), last: 0 };
        codex.ask("initialize", &json!({ "clientInfo": { "name": "tests", "version": "1" } }));
        codex.say(&json!({ "method": "initialized" }));
        codex
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.say(&json!({ "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).unwrap();
            assert!(count > 0, "codex ended before its answer to {method}");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }
}

impl Drop for Codex {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn codex_lists_the_gateways_tools_twice_at_once() {
    let world = World::with_daemon();
    let gateway = world.gateway();
    let home = world.home().join(".codex");
    std::fs::create_dir(&home).unwrap();
    // Codex passes on few variables of its own.
    let variables: Vec<String> = world
        .environment()
        .iter()
        .map(|(name, value)| format!("{name} = {}", json!(value)))
        .collect();
    let config = format!(
        "[mcp_servers.metamcp]\ncommand = {}\nargs = {}\n\n[mcp_servers.metamcp.env]\n{}\n",
        json!(gateway.command),
        json!(gateway.args),
        variables.join("\n")
    );
    std::fs::write(home.join("config.toml"), config).unwrap();
    let listed = twice(|_| {
        let mut codex = Codex::start(&world);
        codex.ask("mcpServerStatus/list", &json!({}))
    });
    for answer in listed {
        let servers = answer["data"].as_array().unwrap();
        let ours = servers.iter().find(|one| one["name"] == "metamcp").expect("our server");
        let mut names: Vec<&str> =
            ours["tools"].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, TOOLS, "{ours}");
    }
    was_shared(&world, &[]);
}
