//! Servers and tools from a shell: arguments as people type them, bare tool names, a server's whole configuration,
//! completion.

use std::process::Output;

use insta::assert_snapshot;
use metamcp_testkit::DAEMON;
use serde_json::{Value, json};

use crate::Shell;

const OWN: &str = "user/.metamcp/mcp.json";

fn example(name: &str) -> Value {
    json!({ "command": env!("CARGO_BIN_EXE_metamcp"), "args": ["__example", name] })
}

fn shell() -> Shell {
    let shell = Shell::new();
    let servers = json!({ "numbers": example("numbers"), "text": example("text") });
    shell.write(OWN, &json!({ "mcpServers": servers }).to_string());
    shell
}

fn text(output: &Output) -> String {
    String::from_utf8([output.stdout.as_slice(), &output.stderr].concat()).unwrap()
}

#[test]
fn arguments_are_typed_as_people_write_them() {
    let shell = shell();
    shell.write("project/words.txt", "one two three");
    for (line, part) in [
        // A list of numbers, before and after the server's tools are cached.
        (&["call", "numbers:statistics", "values=1", "values=3"][..], "\"mean\":2"),
        (&["call", "numbers:statistics", "values=[1,3]"], "\"mean\":2"),
        (&["call", "numbers:statistics", "values:=[1, 3]"], "\"mean\":2"),
        (&["call", "numbers:convert_unit", "value=1", "from=km", "to=m"], "1000"),
        (
            &["call", "numbers:convert_unit", "value=1", "--args", r#"{"from": "km", "to": "m"}"#],
            "1000",
        ),
        // The tool name alone.
        (&["call", "factorize", "number=12"], "2"),
        (&["call", "count_words", "text=@words.txt"], "3"),
    ] {
        let output = shell.run(line);
        let told = text(&output).replace(' ', "");
        assert_eq!(output.status.code(), Some(0), "{line:?}: {told}");
        assert!(told.contains(part), "{line:?}: {told}");
    }
}

#[test]
fn what_cannot_be_called_says_what_can() {
    let shell = shell();
    shell.run(&["tools"]);
    let mut all = String::new();
    for line in [
        &["call", "numbers:statistics", "values=one"][..],
        &["call", "numbers:convert_unit", "value=1", "value=2", "from=km", "to=m"],
        &["call", "numbers:statistics", "notes.md"],
        &["call", "numbers:statistics", "values=@nowhere.txt"],
        &["call", "zebra"],
    ] {
        all.push_str(&format!("$ metamcp {}\n{}\n", line.join(" "), shell.told(line)));
    }
    // One tool name on two servers.
    let servers = json!({ "numbers": example("numbers"), "others": example("numbers") });
    shell.write(OWN, &json!({ "mcpServers": servers }).to_string());
    shell.run(&["tools"]);
    let line = &["call", "factorize", "number=12"];
    all.push_str(&format!("$ metamcp {}\n{}\n", line.join(" "), shell.told(line)));
    assert_snapshot!(all);
}

/// A server's secrets are redacted when the server repeats them.
#[test]
fn secrets_are_taken_out_of_what_is_printed() {
    let shell = shell();
    let mut server = example("text");
    server["env"] = json!({ "API_TOKEN": "s3cret-canary-value" });
    shell.write(OWN, &json!({ "mcpServers": { "text": server } }).to_string());
    shell.write(
        "project/x.ts",
        "return await text.replace({ text: 'a s3cret-canary-value', find: 'a', with: 'b' });",
    );
    let call: &[&str] = &["call", "text:decode_base64", "base64=YSBzM2NyZXQtY2FuYXJ5LXZhbHVlIGI="];
    for line in [call, &[call, &["--json"]].concat()] {
        let told = text(&shell.run(line));
        assert!(!told.contains("canary") && !told.contains("isError\": true"), "{line:?}: {told}");
    }
    let told = text(&shell.run(&[call, &["--scrub", "false"]].concat()));
    assert!(told.contains("s3cret-canary-value"), "{told}");
}

#[test]
fn one_server_as_it_is_understood() {
    let shell = Shell::new();
    let local = json!({
        "command": "some-server", "args": ["--key=${API_KEY:-hunter2-hunter2}", "a b"], "cwd": "/srv",
        "env": { "LOG": "debug", "API_KEY": "hunter2-hunter2" }, "description": "Does things",
        "allowedTools": ["read_*"], "timeoutMs": 5000,
    });
    let remote = json!({ "url": "https://me:pass@mcp.example.com/mcp", "headers": { "Authorization": "Bearer hunter2-hunter2" } });
    let off = json!({ "command": "x", "disabled": true });
    shell.write(
        OWN,
        &json!({ "mcpServers": { "local": local, "remote": remote, "off": off } }).to_string(),
    );
    let mut all = String::new();
    for line in [
        &["get", "local"][..],
        &["get", "remote"],
        &["get", "off"],
        &["get", "lokal"],
        &["get", "local", "--json"],
    ] {
        all.push_str(&format!("$ metamcp {}\n{}\n", line.join(" "), shell.told(line)));
    }
    assert!(!all.contains("hunter2") && !all.contains("pass@"), "{all}");
    assert_snapshot!(all);
}

/// The variables shown are those the server gets: by default, by its own `passEnv`, and by that of the file.
#[test]
fn the_variables_of_a_server_are_shown() {
    let shell = Shell::new();
    let (local, more) = (json!({ "command": "x" }), json!({ "command": "x", "passEnv": ["MINE"] }));
    shell.write(OWN, &json!({ "mcpServers": { "local": local, "more": more } }).to_string());
    let set = [("AWS_PROFILE", "p"), ("MINE", "m"), ("ALSO", "a"), ("GITHUB_TOKEN", "t")];
    let told = |line: &[&str]| -> Vec<String> {
        let output = shell.run_with(line, &set);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names = told["inherits"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(told(&["get", "local", "--json"]), ["AWS_PROFILE", "HOME"]);
    assert_eq!(told(&["get", "more", "--json"]), ["AWS_PROFILE", "HOME", "MINE"]);
    let all = told(&["get", "more", "--json", "--pass-env", "ALSO"]);
    assert_eq!(all, ["ALSO", "AWS_PROFILE", "HOME", "MINE"]);
}

#[test]
fn several_servers_are_all_changed_or_none() {
    let shell = shell();
    let before = shell.read(OWN);
    for command in ["remove", "enable", "disable"] {
        let output = shell.run(&[command, "numbers", "nobody"]);
        assert_eq!((output.status.code(), shell.read(OWN)), (Some(2), before.clone()), "{command}");
    }
    let told = shell.json(&["disable", "numbers", "text", "--json"]);
    assert_eq!((&told[0]["server"], &told[1]["done"]), (&json!("numbers"), &json!("disabled")));
    assert_eq!(shell.json(&["enable", "text", "--json"])["done"], "enabled");
    let told = text(&shell.run(&["remove", "text", "numbers", "text"]));
    assert_eq!(told.lines().count(), 2, "{told}");
    assert_eq!(shell.run(&["list"]).status.code(), Some(0));
    assert!(!shell.read(OWN).contains("numbers"));
}

#[test]
fn a_server_is_added_from_its_json() {
    let shell = Shell::new();
    for (name, entry) in [
        ("plain", r#"{"command": "uvx", "args": ["mcp-server-time"]}"#),
        (
            "whole",
            "{\"mcpServers\": {\"time\": {\"command\": \"uvx\", /* as in a README */ \"args\": [\"mcp-server-time\"],}}}",
        ),
        ("named", r#"{"time": {"command": "uvx", "args": ["mcp-server-time"]}}"#),
    ] {
        let told = shell.json(&["add-json", name, entry, "--json"]);
        assert_eq!((&told["server"], &told["done"]), (&json!(name), &json!("added")), "{told}");
        assert_eq!(shell.json(&["get", name, "--json"])["args"], json!(["mcp-server-time"]));
    }
    for wrong in [
        "{",
        "[]",
        "7",
        "{}",
        r#"{"args": []}"#,
        r#"{"mcpServers": {"a": {"url": "http://x"}, "b": {"url": "http://y"}}}"#,
    ] {
        let output = shell.run(&["add-json", "x", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", text(&output));
    }
    assert_eq!(shell.run(&["add-json", "plain", r#"{"command": "y"}"#]).status.code(), Some(1));
    let told = shell.json(&["add-json", "plain", r#"{"command": "y"}"#, "--force", "--json"]);
    assert_eq!(told["done"], "replaced");
}

#[test]
fn the_doctor_looks_at_one_server() {
    let shell = shell();
    let broken = json!({ "command": "no-such-program-anywhere" });
    let servers = json!({ "numbers": example("numbers"), "broken": broken });
    shell.write(OWN, &json!({ "mcpServers": servers }).to_string());
    let told = shell.json(&["doctor", "numbers", "--json"]);
    assert_eq!(told["problems"], 0, "{told:#}");
    let all = told["findings"].as_array().unwrap();
    assert!(
        all.iter().all(|finding| finding["message"].to_string().contains("numbers")),
        "{told:#}"
    );
    assert_eq!(shell.run(&["doctor", "broken"]).status.code(), Some(1));
    assert_eq!(shell.run(&["doctor", "numbers", "broken"]).status.code(), Some(1));
    assert_eq!(shell.run(&["doctor", "nobody"]).status.code(), Some(2));
}

#[test]
fn tools_of_all_servers_or_of_some() {
    let shell = shell();
    let ids = |line: &[&str]| -> Vec<String> {
        let told = shell.json(line);
        let ids = told["tools"].as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    };
    let all = ids(&["tools", "--json"]);
    assert!(all.contains(&"numbers:evaluate".to_owned()) && all.contains(&"text:diff".to_owned()));
    assert_eq!(ids(&["tools", "numbers", "text", "--json"]), all);
    assert!(ids(&["tools", "text", "--json"]).iter().all(|id| id.starts_with("text:")));
    assert_eq!(shell.run(&["tools", "nobody"]).status.code(), Some(2));
    assert_eq!(shell.run(&["tools", "numbers", "nobody"]).status.code(), Some(2));
    let plain = text(&shell.run(&["tools"]));
    assert_eq!(plain.lines().count(), all.len(), "{plain}");
}

#[test]
fn the_version_is_shown() {
    let shell = Shell::new();
    let told = text(&shell.run(&["version"]));
    assert_eq!(told, format!("metamcp {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(shell.json(&["version", "--json"])["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn quiet_and_verbose_set_the_log() {
    let shell = shell();
    let level = |line: &[&str]| {
        let told = shell.json(&[&["config", "check", "--json"], line].concat());
        let all = told["settings"].as_array().unwrap().clone();
        let of_it = all.into_iter().find(|setting| setting["flag"] == "log-level").unwrap();
        of_it["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(level(&[]), "warn");
    assert_eq!(level(&["-v"]), "info");
    assert_eq!(level(&["-vv"]), "debug");
    assert_eq!(level(&["-vvv"]), "trace");
    assert_eq!(level(&["-q"]), "error");
    assert_eq!(level(&["-v", "--log-level", "trace"]), "trace");
    assert_eq!(shell.run(&["list", "-q", "-v"]).status.code(), Some(2));
    assert!(text(&shell.run(&["call", "evaluate", "expression=1", "-v"])).contains("metamcp info"));
}

/// The completions of a line, as the shell script requests them.
fn completed(shell: &Shell, words: &[&str]) -> Vec<String> {
    let line = [&["--"], words].concat();
    let output = shell.run_with(&line, &[("_METAMCP_COMPLETE", "bash")]);
    assert_eq!(output.status.code(), Some(0), "{words:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn completion_knows_servers_tools_and_arguments_and_starts_nothing() {
    let shell = shell();
    assert_eq!(completed(&shell, &["metamcp", "get", ""]), ["numbers", "text"]);
    assert!(completed(&shell, &["metamcp", "call", "numbers:"]).is_empty());
    assert!(!shell.path("user/.metamcp/cache").exists(), "nothing was started or written");
    shell.run(&["tools"]);
    assert_eq!(completed(&shell, &["metamcp", "call", "num"]), ["numbers:"]);
    assert_eq!(completed(&shell, &["metamcp", "call", "numbers:fac"]), ["numbers:factorize"]);
    assert_eq!(completed(&shell, &["metamcp", "call", "facto"]), ["factorize"]);
    let keys = completed(&shell, &["metamcp", "call", "numbers:convert_unit", ""]);
    assert_eq!(keys, ["value=", "from=", "to="]);
    let left = completed(&shell, &["metamcp", "call", "convert_unit", "value=1", ""]);
    assert_eq!(left, ["from=", "to="]);
    assert_eq!(completed(&shell, &["metamcp", "remove", "numbers", "te"]), ["text"]);
    assert_eq!(completed(&shell, &["metamcp", "search", "x", "--server", "t"]), ["text"]);
    let other = shell.path("user/other.json").display().to_string();
    shell.write("user/other.json", r#"{ "mcpServers": { "elsewhere": { "command": "x" } } }"#);
    assert_eq!(completed(&shell, &["metamcp", "--config", &other, "list", ""]), ["elsewhere"]);
    // An unreadable config must not print errors into the line somebody types.
    shell.write(OWN, "{ broken");
    assert!(completed(&shell, &["metamcp", "get", "x"]).is_empty());
}

#[test]
fn scripts_for_shells_are_small() {
    let shell = Shell::new();
    for name in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = shell.run(&["completions", name]);
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert!((100..4096).contains(&output.stdout.len()), "{name}");
    }
}

/// The script in a real bash, which splits words at colons and equal signs.
#[test]
fn bash_completes_behind_colons_and_equal_signs() {
    let shell = shell();
    shell.run(&["tools"]);
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_metamcp")).parent().unwrap();
    let ask = |line: &str, words: &str, at: usize, current: &str| {
        let script = format!(
            "PATH='{}':/usr/bin:/bin; source <(metamcp completions bash); compopt() {{ :; }}; \
             COMP_LINE='{line}' COMP_POINT=${{#COMP_LINE}} COMP_WORDS=({words}) COMP_CWORD={at}; \
             COMP_POINT=${{#COMP_LINE}}; _metamcp metamcp '{current}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            bin.display()
        );
        let mut command = std::process::Command::new("bash");
        command.args(["--norc", "-c", &script]).env_clear();
        command.env("HOME", shell.path("user")).env(DAEMON.0, DAEMON.1);
        command.current_dir(shell.path("project"));
        let output = command.output().unwrap();
        assert!(output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(ask("metamcp li", "metamcp li", 1, "li"), "list");
    assert_eq!(
        ask("metamcp call numbers:fac", "metamcp call numbers : fac", 4, "fac"),
        "factorize"
    );
    assert_eq!(ask("metamcp call numb", "metamcp call numb", 2, "numb"), "numbers:");
    let line = "metamcp call numbers:factorize ";
    assert_eq!(ask(line, "metamcp call numbers : factorize ''", 5, ""), "number=");
}

#[test]
fn an_editor_that_fails_changes_nothing() {
    let shell = shell();
    let before = shell.read(OWN);
    for (editor, code) in [("false", 1), ("no-such-editor-anywhere", 1), ("true", 0)] {
        let output =
            shell.run_with(&["config", "edit"], &[("EDITOR", editor), ("PATH", "/usr/bin:/bin")]);
        let told = text(&output);
        assert_eq!((output.status.code(), shell.read(OWN)), (Some(code), before.clone()), "{told}");
        assert!(told.to_lowercase().contains("nothing was changed"), "{editor}: {told}");
    }
    // Without a person to confirm, a broken file is rejected.
    shell.write("user/break", "#!/bin/sh\necho '{' > \"$1\"\n");
    let editor = format!("sh '{}'", shell.path("user/break").display());
    let variables = [("VISUAL", editor.as_str()), ("EDITOR", "false"), ("PATH", "/usr/bin:/bin")];
    let output = shell.run_with(&["config", "edit"], &variables);
    assert_eq!((output.status.code(), shell.read(OWN)), (Some(3), before), "{}", text(&output));
}
