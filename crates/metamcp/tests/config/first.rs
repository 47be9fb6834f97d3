//! `metamcp add`, `remove`, `enable`, `disable` and `import`, as a shell sees them.

use std::process::{Command, Stdio};

use insta::assert_snapshot;
use metamcp_testkit::DAEMON;
use serde_json::json;

use crate::Shell;

const OWN: &str = "user/.metamcp/mcp.json";

const COMMENTED: &str = r#"{
  // my servers
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "server-filesystem"] }, // the notes
    /* switched off while it is broken */
    "web": {
      "url": "https://mcp.example.com/mcp",
      "disabled": true
    }
  },
  "pool": { "poolSize": 5 }, // few
}
"#;

fn shell() -> Shell {
    let shell = Shell::new();
    shell.write(OWN, COMMENTED);
    shell
}

#[test]
fn what_the_commands_say() {
    let shell = shell();
    let mut all = String::new();
    for line in [
        &["add", "notes", "--", "uvx", "notes-server", "--flag"][..],
        &["add", "notes", "--", "other"],
        &["add", "notes", "--force", "--dry-run", "--", "other"],
        &["add", "-e", "API_KEY=s3cret-value", "search", "--", "npx", "-y", "search"],
        &[
            "add",
            "docs",
            "--url",
            "https://docs.example.com/mcp",
            "--header",
            "X-Key: s3cret-value",
        ],
        &["add", "--transport", "sse", "old", "https://old.example.com/sse"],
        &["add", "-e", "s3cret-value", "x", "--", "y"],
        &["add", "nothing", "--registries", "none"],
        &["add", "filesistem", "--registries", "none"],
        &["add", "nothing", "--yes", "--", "x"],
        &["add", "a:b", "--", "x"],
        &["add", "both", "--url", "https://x.example.com", "--", "y"],
        &["enable", "web"],
        &["disable", "files", "--json"],
        &["remove", "note"],
        &["remove", "notes", "--dry-run"],
        &["remove", "notes", "--json"],
        &["import", "cursor"],
        &["import", "nothing-of-the-kind"],
    ] {
        all.push_str(&format!("$ metamcp {}\n{}\n\n", line.join(" "), shell.told(line)));
    }
    assert!(
        !all.replace("$ metamcp", "")
            .lines()
            .any(|line| { line.contains("s3cret-value") && !line.starts_with(" add") })
    );
    all.push_str(&shell.read(OWN));
    assert_snapshot!(all);
}

#[test]
fn a_file_that_is_broken_is_refused_and_left() {
    let shell = shell();
    let broken = COMMENTED.replace("},\n  \"pool\"", "\n  \"pool\"");
    shell.write(OWN, &broken);
    for line in [&["add", "x", "--", "y"][..], &["remove", "files"], &["disable", "files"]] {
        assert_eq!(shell.run(line).status.code(), Some(3), "{line:?}");
        assert_eq!(shell.read(OWN), broken);
    }
}

#[test]
fn switching_off_and_on_again_leaves_the_file_as_it_was() {
    let shell = shell();
    for (first, second, name) in [("disable", "enable", "files"), ("enable", "disable", "web")] {
        shell.run(&[first, name]);
        assert_ne!(shell.read(OWN), COMMENTED, "{first} {name}");
        shell.run(&[second, name]);
        let without_space = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(without_space(&shell.read(OWN)), without_space(COMMENTED), "{second} {name}");
    }
}

#[test]
fn the_project_has_a_file_of_its_own() {
    let shell = shell();
    shell.run(&["add", "--scope", "project", "here", "--", "x"]);
    assert!(shell.read("project/.mcp.json").contains("here"));
    // It is changed only on request.
    shell.run(&["add", "also-here", "--project", "--", "x"]);
    shell.run(&["add", "there", "--", "x"]);
    assert!(shell.read("project/.mcp.json").contains("also-here"));
    assert!(shell.read(OWN).contains("there"));
}

#[test]
fn a_first_server_makes_the_file() {
    let shell = Shell::new();
    assert_eq!(shell.run(&["add", "one", "--", "x"]).status.code(), Some(0));
    let text = shell.read(OWN);
    assert_eq!(
        text,
        "{\n  \"mcpServers\": {\n    \"one\": {\n      \"command\": \"x\"\n    }\n  }\n}\n"
    );
}

#[test]
fn importing_from_files_of_every_kind() {
    let shell = Shell::new();
    shell.write(OWN, r#"{ "mcpServers": { "files": { "command": "npx", "args": ["files"] } } }"#);
    shell.write("project/codex.toml", "[mcp_servers.files]\ncommand = \"other\"\n\n[mcp_servers.docs]\nurl = \"https://d.example.com/mcp\"\nbearer_token_env_var = \"DOCS\"\n");
    shell.write("project/goose.yaml", "extensions:\n  developer:\n    type: builtin\n  files:\n    type: stdio\n    cmd: npx\n    args:\n    - files\n");
    shell.write("project/vs.json", r#"{ "servers": { "metamcp": { "type": "stdio", "command": "/bin/metamcp", "args": ["--config", "x"] }, "asks": { "type": "stdio", "command": "x", "env": { "K": "${input:k}" } } } }"#);
    let mut all = String::new();
    for line in [
        &["import", "codex.toml"][..],
        &["import", "goose.yaml", "--json"],
        &["import", "vs.json"],
        &["import", "codex.toml", "--dry-run"],
    ] {
        all.push_str(&format!("$ metamcp {}\n{}\n\n", line.join(" "), shell.told(line)));
    }
    all.push_str(&shell.read(OWN));
    assert_snapshot!(all);
}

#[test]
fn sixteen_processes_at_once_lose_nothing() {
    const PROCESSES: usize = 16;
    const EACH: usize = 4;
    let shell = shell();
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            let shell = &shell;
            scope.spawn(move || {
                for turn in 0..EACH {
                    let status = Command::new(env!("CARGO_BIN_EXE_metamcp"))
                        .args(["add", &format!("s{process}-{turn}"), "--", "x"])
                        .env_clear()
                        .env("HOME", shell.path("user"))
                        .env(DAEMON.0, DAEMON.1)
                        .current_dir(shell.path("project"))
                        .stdin(Stdio::null())
                        .status();
                    assert!(status.unwrap().success());
                }
            });
        }
    });
    let checked = shell.json(&["config", "check", "--json"]);
    let names = checked["servers"].as_array().unwrap().len();
    assert_eq!(names, 2 + PROCESSES * EACH);
    let text = shell.read(OWN);
    for comment in ["// my servers", "// the notes", "/* switched off", "// few"] {
        assert!(text.contains(comment), "{comment}");
    }
    // No leftovers beside it, neither a lock nor a partial file.
    let beside = std::fs::read_dir(shell.path("user/.metamcp")).unwrap().count();
    assert_eq!(beside, 1);
    assert_eq!(shell.json(&["remove", "s3-1", "--json"])["done"], json!("removed"));
}

#[test]
fn what_the_commands_that_use_servers_say() {
    let shell = Shell::new();
    let program = env!("CARGO_BIN_EXE_metamcp");
    let entry = json!({ "command": program, "args": ["__example", "numbers"] });
    let gone = json!({ "url": "https://gone.example.com/mcp", "disabled": true });
    shell.write(OWN, &json!({ "mcpServers": { "numbers": entry, "gone": gone } }).to_string());
    shell.write("project/sum.ts", "return await numbers.evaluate({ expression: '2 * 21' });");
    shell.write("project/wrong.ts", "const answer = 42;\nconsole.log('here');\nreturn anser;");
    shell.write("project/fetching.ts", "return await fetch('https://example.com');");
    shell.write("project/importing.ts", "import fs from 'fs';\nreturn 1;");
    shell.write(
        "project/called.ts",
        "await numbers.evaluate({ expression: '1' });\nthrow new Error('too late');",
    );
    shell.write("project/tools.jsonl", "{\"id\": \"a\", \"server\": \"s\", \"name\": \"add\", \"description\": \"Adds numbers\"}\n");
    shell.write("project/queries.jsonl", "{\"query\": \"add numbers\", \"gold\": [\"a\"]}\n");
    let mut all = String::new();
    for line in [
        // The first search waits for a server that was never listed, whatever the model's budget is.
        &["search", "arithmetic expression", "--discover-budget", "1ms"][..],
        &["list"],
        &["list", "numbers"],
        &["list", "nobody"],
        &["search", "zebra", "--server", "nobody"],
        &["call", "evaluate"],
        &["call", "numbers:evaluat"],
        &["call", "numbers:zebra"],
        &["call", "numbers:evaluate", "--args", r#"{"expression": "6 * 7"}"#],
        &["call", "numbers:evaluate", "--args", "{}"],
        &["run", "sum.ts"],
        &["run", "wrong.ts"],
        &["run", "fetching.ts"],
        &["run", "importing.ts"],
        &["run", "called.ts"],
        &["forget"],
        &["auth", "status"],
        &["auth", "logout", "gone"],
        &["approve"],
        &["approve", "000000000000"],
        &["provisioned", "list"],
        &["provisioned", "remove", "nobody"],
        &["provisioned", "accept", "nobody"],
        &["provisioned", "allow", "nobody", "."],
        &["registry", "refresh", "--registries", "none"],
        &["registry", "import", "sum.ts"],
        &["config", "path"],
    ] {
        all.push_str(&format!("$ metamcp {}\n{}\n\n", line.join(" "), shell.told(line)));
    }
    let measured = shell.told(&["eval", "--tools", "tools.jsonl", "--queries", "queries.jsonl"]);
    assert!(measured.contains("hit@1") && measured.contains("hybrid"), "{measured}");
    assert_snapshot!(all);
}

/// Nothing listens there: whoever asks a registry is refused at once.
const NOBODY: &str = "http://127.0.0.1:9";

#[test]
fn a_need_is_answered_from_the_gallery_alone() {
    let shell = shell();
    let asked = |line: &[&str]| shell.run(&[line, &["--registries", NOBODY]].concat());
    let output = asked(&["add", "what time is it in Tokyo", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["done"], &told["notes"]), (&json!("nothing"), &json!([])));
    let choices = told["choices"].as_array().unwrap();
    let clock = choices.iter().find(|one| one["package"] == "mcp-server-time").unwrap();
    assert!(clock["integrity"].as_str().unwrap().starts_with("sha256:"), "{clock:#}");
    assert!(clock["age_days"].as_u64() > Some(0) && clock["verdict"] == "needs approval");
    assert!(clock["runs"].as_str().unwrap().ends_with("/venv/bin/mcp-server-time"), "{clock:#}");
    // What one cannot do without is named before anything is fetched.
    let output = asked(&["add", "add a card to my Trello board", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["choices"][0]["variables"][0]["name"], "TRELLO_API_KEY", "{told:#}");
    assert_eq!(told["choices"][0]["variables"][0]["secret"], true);
    // Without a terminal nobody can choose, and a flag chooses nothing.
    let output = asked(&["add", "what time is it in Tokyo"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("Installing time would do this:") && said.contains("sandbox"), "{said}");
    let output = asked(&["add", "what time is it in Tokyo", "--yes"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(asked(&["add", "what time is it in Tokyo", "--dry-run"]).status.code(), Some(0));
}

#[test]
fn a_need_that_no_server_covers_gets_an_honest_no() {
    let said = shell().told(&["add", "unlock my car", "--registries", "none"]);
    assert!(said.contains("no server was found for \"unlock my car\""), "{said}");
}
