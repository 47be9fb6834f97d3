//! Importing loses nothing: a server gets the same environment behind metamcp as from its client, for the syntax of
//! every client, and everything can be undone.

#![cfg(unix)]

use std::process::{Command, Stdio};

use metamcp_config::clients;
use metamcp_config::edit;
use metamcp_testkit::DAEMON;
use serde_json::Value;

use crate::Shell;

/// How much of its own environment a client passes to the processes it starts.
#[derive(Clone, Copy, PartialEq)]
enum Gives {
    All,
    /// A short allowlist, and what the entry names.
    Named,
}

/// One server of one client: its file, how much the client passes on, and the value of `SEEN` before the import.
struct Case {
    client: &'static str,
    file: &'static str,
    text: &'static str,
    gives: Gives,
    server: &'static str,
    seen: &'static str,
}

/// The variables of the user's shell.
const SHELL: &[(&str, &str)] = &[("LOCAL_TOKEN", "local-1"), ("GEM_TOKEN", "gem-1")];

const CASES: &[Case] = &[
    Case {
        client: "claude-desktop",
        file: "user/.config/Claude/claude_desktop_config.json",
        text: r#"{ "mcpServers": { "desk": { "command": "probe", "args": ["desk"], "env": { "SEEN": "${LOCAL_TOKEN} pa$$word" } } } }"#,
        gives: Gives::Named,
        server: "desk",
        seen: "${LOCAL_TOKEN} pa$$word",
    },
    Case {
        client: "claude-code",
        file: "user/.claude.json",
        text: "{\n  \"mcpServers\": {\n    \"code\": { \"type\": \"stdio\", \"command\": \"probe\", \"args\": [\"code\"], \"env\": { \"SEEN\": \"${LOCAL_TOKEN}-${NO:-none}\" } }\n  },\n  \"projects\": {\n    \"/srv/shop\": { \"allowedTools\": [], \"mcpServers\": { \"shop\": { \"type\": \"stdio\", \"command\": \"probe\", \"args\": [\"shop\"], \"env\": { \"SEEN\": \"s\" } } } }\n  }\n}\n",
        gives: Gives::All,
        server: "code",
        seen: "local-1-none",
    },
    Case {
        client: "claude-code",
        file: "",
        text: "",
        gives: Gives::All,
        server: "shop",
        seen: "s",
    },
    Case {
        client: "cursor",
        file: "user/.cursor/mcp.json",
        text: r#"{ "mcpServers": { "curs": { "command": "probe", "args": ["curs"], "env": { "SEEN": "Bearer ${env:LOCAL_TOKEN}" } } } }"#,
        gives: Gives::All,
        server: "curs",
        seen: "Bearer local-1",
    },
    Case {
        client: "vscode",
        file: "user/.config/Code/User/mcp.json",
        text: "{\n  \"inputs\": [{ \"id\": \"key-1\", \"type\": \"promptString\", \"description\": \"k\", \"password\": true }],\n  \"servers\": {\n    \"vs\": { \"type\": \"stdio\", \"command\": \"probe\", \"args\": [\"vs\"], \"env\": { \"SEEN\": \"${input:key-1} ${env:LOCAL_TOKEN}\" } }\n  }\n}\n",
        gives: Gives::All,
        server: "vs",
        seen: "typed local-1",
    },
    Case {
        client: "windsurf",
        file: "user/.codeium/windsurf/mcp_config.json",
        text: r#"{ "mcpServers": { "surf": { "command": "probe", "args": ["surf"], "env": { "SEEN": "${file:~/key}" } } } }"#,
        gives: Gives::All,
        server: "surf",
        seen: "from-a-file",
    },
    Case {
        client: "codex",
        file: "user/elsewhere/config.toml",
        text: "model = \"m\" # mine\n\n[mcp_servers.cod]\ncommand = \"probe\"\nargs = [\"cod\"]\nenv_vars = [\"LOCAL_TOKEN\"]\n\n[mcp_servers.cod.env]\nSEEN = \"${LOCAL_TOKEN}\"\n",
        gives: Gives::Named,
        server: "cod",
        seen: "${LOCAL_TOKEN}",
    },
    Case {
        client: "gemini",
        file: "user/.gemini/settings.json",
        text: r#"{ "mcpServers": { "gem": { "command": "probe", "args": ["gem"], "env": { "SEEN": "Bearer $GEM_TOKEN pa$$word" } } } }"#,
        gives: Gives::Named,
        server: "gem",
        seen: "Bearer gem-1 pa$$word",
    },
    Case {
        client: "qwen",
        file: "user/.qwen/settings.json",
        text: r#"{ "mcpServers": { "qw": { "command": "probe", "args": ["qw"], "env": { "SEEN": "${GEM_TOKEN}" } } } }"#,
        gives: Gives::Named,
        server: "qw",
        seen: "gem-1",
    },
    Case {
        client: "zed",
        file: "user/.config/zed/settings.json",
        text: "// z\n{ \"context_servers\": { \"zed\": { \"source\": \"custom\", \"command\": \"probe\", \"args\": [\"zed\"], \"env\": { \"SEEN\": \"$LOCAL_TOKEN ${x}\" } } } }",
        gives: Gives::All,
        server: "zed",
        seen: "$LOCAL_TOKEN ${x}",
    },
    Case {
        client: "opencode",
        file: "user/.config/opencode/opencode.json",
        text: r#"{ "mcp": { "open": { "type": "local", "command": ["probe", "open"], "environment": { "SEEN": "{env:LOCAL_TOKEN} ${LOCAL_TOKEN}" } } } }"#,
        gives: Gives::All,
        server: "open",
        seen: "local-1 ${LOCAL_TOKEN}",
    },
    Case {
        client: "crush",
        file: "user/.config/crush/crush.json",
        text: r#"{ "mcp": { "crush": { "type": "stdio", "command": "probe", "args": ["crush"], "env": { "SEEN": "$LOCAL_TOKEN $(printf a-b)" } } } }"#,
        gives: Gives::All,
        server: "crush",
        seen: "local-1 a-b",
    },
    Case {
        client: "goose",
        file: "user/.config/goose/config.yaml",
        text: "# g\nextensions:\n  goo:\n    type: stdio\n    cmd: probe\n    args:\n    - goo\n    envs:\n      SEEN: \"$LOCAL_TOKEN\"\n    env_keys:\n    - LOCAL_TOKEN\n    enabled: true\n",
        gives: Gives::All,
        server: "goo",
        seen: "$LOCAL_TOKEN",
    },
    Case {
        client: "continue",
        file: "user/.continue/config.yaml",
        text: "name: Mine\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: cont\n    command: probe\n    args: [\"cont\"]\n    env:\n      SEEN: ${{ secrets.LOCAL_TOKEN }}\n",
        gives: Gives::All,
        server: "cont",
        seen: "local-1",
    },
    Case {
        client: "continue",
        file: "user/.continue/mcpServers/more.yaml",
        text: "name: More\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: more\n    command: probe\n    args: [\"more\"]\n    env:\n      SEEN: m\n",
        gives: Gives::All,
        server: "more",
        seen: "m",
    },
    Case {
        client: "cline",
        file: "user/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        text: r#"{ "mcpServers": { "clin": { "command": "probe", "args": ["clin"], "env": { "SEEN": "${env:LOCAL_TOKEN}" }, "timeout": 90 } } }"#,
        gives: Gives::Named,
        server: "clin",
        seen: "local-1",
    },
    Case {
        client: "roo",
        file: "user/.config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        text: r#"{ "mcpServers": { "roo": { "command": "probe", "args": ["roo"], "env": { "SEEN": "${env:LOCAL_TOKEN}" }, "alwaysAllow": [] } } }"#,
        gives: Gives::Named,
        server: "roo",
        seen: "local-1",
    },
    Case {
        client: "amazon-q",
        file: "user/.aws/amazonq/mcp.json",
        text: r#"{ "mcpServers": { "aws": { "command": "probe", "args": ["aws"], "env": { "SEEN": "q" }, "timeout": 60000 } } }"#,
        gives: Gives::All,
        server: "aws",
        seen: "q",
    },
    Case {
        client: "warp",
        file: "user/.warp/.mcp.json",
        text: r#"{ "mcpServers": { "warp": { "command": "probe", "args": ["warp"], "env": { "SEEN": "w" }, "working_directory": "/" } } }"#,
        gives: Gives::All,
        server: "warp",
        seen: "w",
    },
    Case {
        client: "junie",
        file: "user/.junie/mcp/mcp.json",
        text: r#"{ "mcpServers": { "jun": { "command": "probe", "args": ["jun"], "env": { "SEEN": "j" } } } }"#,
        gives: Gives::All,
        server: "jun",
        seen: "j",
    },
];

/// A server that records its environment, and exits.
const PROBE: &str = "#!/bin/sh\n/usr/bin/env > \"$HOME/seen-$1\"\n";

fn home() -> Shell {
    let shell = Shell::new();
    shell.program("probe", PROBE);
    shell.write("user/key", "from-a-file\n");
    for case in CASES.iter().filter(|case| !case.file.is_empty()) {
        shell.write(case.file, case.text);
    }
    shell
}

/// The user's environment, as their shell has it.
fn surroundings(shell: &Shell) -> Vec<(String, String)> {
    let path = format!("{}:/usr/bin:/bin", shell.path("bin").display());
    let own = [("PATH", path), ("CODEX_HOME", shell.path("user/elsewhere").display().to_string())];
    let given = SHELL.iter().map(|&(name, value)| (name, value.to_owned()));
    own.into_iter().chain(given).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn run(shell: &Shell, arguments: &[&str]) -> String {
    let variables = surroundings(shell);
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let output = shell.run_with(arguments, &variables);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    format!("{}{}", text(output.stdout), text(output.stderr))
}

/// A value of the gateway's own entry as its client expands it.
fn filled_in(value: &str) -> String {
    let mut value = value.replace("${input:key-1}", "typed");
    for (name, of_it) in SHELL {
        value = value.replace(&format!("${{env:{name}}}"), of_it);
        value = value.replace(&format!("${name}"), of_it);
    }
    value
}

/// Starts a server as its client does now: through the entry that init wrote, with the variables that client passes.
fn started(shell: &Shell, case: &Case) -> String {
    let client = clients::named(case.client).unwrap();
    let first = CASES.iter().find(|one| one.client == case.client).unwrap();
    let text = shell.read(first.file);
    let at = [client.key, &["metamcp"]].concat();
    let entry = edit::read(client.format, &text, &at).unwrap().expect("metamcp is there");
    let words = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut line = match &entry["command"] {
        Value::Array(_) => words(&entry["command"]),
        Value::String(command) => vec![command.clone()],
        _ => vec![entry["cmd"].as_str().unwrap().to_owned()],
    };
    line.extend(words(&entry["args"]));
    assert!(line[0].starts_with('/'), "{}: {} is no whole path", case.client, line[0]);
    let mut variables = surroundings(shell);
    if case.gives == Gives::Named {
        let named = words(&entry["env_vars"]);
        variables.retain(|(name, _)| name == "PATH" || named.contains(name));
    }
    for (name, value) in entry["env"].as_object().into_iter().flatten() {
        variables.push((name.clone(), filled_in(value.as_str().unwrap())));
    }
    Command::new(&line[0])
        .args(&line[1..])
        .args(["list", case.server])
        .env_clear()
        .env("HOME", shell.path("user"))
        .env(DAEMON.0, DAEMON.1)
        .envs(variables)
        .current_dir(shell.path("project"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let seen = shell.path(&format!("user/seen-{}", case.server));
    std::fs::read_to_string(seen).unwrap_or_else(|_| panic!("{} was not started", case.server))
}

#[test]
fn what_every_client_gave_its_servers_they_get_behind_metamcp() {
    let shell = home();
    let told = run(&shell, &["init", "--yes"]);
    assert!(!told.contains("stays in the client"), "{told}");
    for case in CASES {
        let seen = started(&shell, case);
        let line = format!("SEEN={}", case.seen);
        assert!(seen.lines().any(|one| one == line), "{}: no {line} in\n{seen}", case.client);
    }
    // By its name, as Codex passes it.
    let seen = shell.read("user/seen-cod");
    assert!(seen.lines().any(|line| line == "LOCAL_TOKEN=local-1"), "{seen}");
    let claude = shell.read("user/.claude.json");
    assert!(claude.contains("/srv/shop") && !claude.contains("\"shop\""), "{claude}");
    let undone = run(&shell, &["init", "--undo"]);
    for case in CASES.iter().filter(|case| !case.file.is_empty()) {
        assert_eq!(shell.read(case.file), case.text, "{}: {undone}", case.file);
    }
    assert!(!shell.path("user/.metamcp/mcp.json").exists(), "{undone}");
}

/// A second init finds what is new, updates what the clients pass on, and one undo reverts all of it.
#[test]
fn undo_goes_back_to_before_the_first_init() {
    let shell = home();
    run(&shell, &["init", "--yes", "--client", "codex"]);
    let codex = "user/elsewhere/config.toml";
    let first = shell.read(codex);
    assert!(first.contains("env_vars = [\"LOCAL_TOKEN\"]"), "{first}");
    let told = run(&shell, &["init", "--yes", "--client", "gemini", "--client", "codex"]);
    assert!(told.contains("Codex passes on to metamcp"), "{told}");
    assert!(shell.read(codex).contains("GEM_TOKEN"), "{}", shell.read(codex));
    let told = run(&shell, &["init", "--yes", "--client", "gemini", "--client", "codex"]);
    assert!(told.contains("Nothing to change."), "{told}");
    let dry = run(&shell, &["init", "--undo", "--dry-run"]);
    assert_eq!(dry.matches("restored").count(), 2, "{dry}");
    run(&shell, &["init", "--undo", "--last"]);
    assert_eq!(shell.read(codex), first);
    run(&shell, &["init", "--yes", "--client", "gemini"]);
    let undone = run(&shell, &["init", "--undo"]);
    for case in CASES.iter().filter(|case| !case.file.is_empty()) {
        assert_eq!(shell.read(case.file), case.text, "{}: {undone}", case.file);
    }
    assert!(!shell.path("user/.metamcp/mcp.json").exists(), "{undone}");
    assert!(run(&shell, &["init", "--undo"]).contains("nothing to undo"));
}

#[test]
fn servers_that_would_not_start_are_reported_and_not_imported() {
    let shell = Shell::new();
    shell.program("probe", PROBE);
    let path = "user/.cursor/mcp.json";
    let text = r#"{ "mcpServers": {
  "good": { "command": "probe" },
  "variable": { "command": "probe", "env": { "A": "${env:NOT_SET}" } },
  "program": { "command": "no-such-program" },
  "folder": { "command": "probe", "cwd": "/no/such/folder" },
  "secret": { "command": "probe", "env": { "A": "${file:/no/such/key}" } },
  "off": { "command": "other-program", "disabled": true }
} }"#;
    shell.write(path, text);
    let told = run(&shell, &["init", "--yes"]);
    for (server, why) in [
        ("variable", "environment variable NOT_SET is not set"),
        ("program", "its program `no-such-program` is not found"),
        ("folder", "its folder /no/such/folder does not exist"),
        ("secret", "no file /no/such/key"),
    ] {
        let line = told.lines().find(|line| line.contains(&format!("= {server} will not start")));
        assert!(line.is_some_and(|line| line.contains(why)), "{server}: {told}");
        assert!(shell.read(path).contains(&format!("\"{server}\"")), "{server}");
    }
    assert!(told.contains("4 servers would not start"), "{told}");
    let asked = told.find("will not start").unwrap();
    assert!(asked < told.find("Done.").unwrap(), "{told}");
    assert!(!shell.read(path).contains("\"good\"") && !shell.read(path).contains("\"off\""));
    let told = run(&shell, &["init", "--yes", "--server", "program"]);
    assert!(!shell.read(path).contains("\"program\""), "{told}");
    assert!(shell.read(path).contains("\"variable\""), "{told}");
    assert!(run(&shell, &["init", "--server", "nobody"]).contains("no client has a server"));
    run(&shell, &["init", "--undo"]);
    assert_eq!(shell.read(path), text);
    let told = run(&shell, &["init", "--yes", "--except", "good"]);
    assert!(shell.read(path).contains("\"good\""), "{told}");
}

/// A symlink into a dotfiles folder whose target does not exist yet.
#[test]
fn a_link_that_leads_nowhere_stays_one_there_and_back() {
    let shell = Shell::new();
    for folder in ["user/dotfiles", "user/.cursor", "user/.kiro/settings"] {
        std::fs::create_dir_all(shell.path(folder)).unwrap();
    }
    let link = shell.path("user/.cursor/mcp.json");
    std::os::unix::fs::symlink("../dotfiles/cursor.json", &link).unwrap();
    let lost = shell.path("user/.kiro/settings/mcp.json");
    std::os::unix::fs::symlink("/no/such/folder/kiro.json", &lost).unwrap();
    let told = run(&shell, &["init", "--yes"]);
    assert!(told.contains("skipped") && told.contains("whose folder is not there"), "{told}");
    assert!(link.is_symlink() && lost.is_symlink());
    assert!(shell.read("user/dotfiles/cursor.json").contains("metamcp"));
    let undone = run(&shell, &["init", "--undo"]);
    assert!(link.is_symlink() && lost.is_symlink(), "{undone}");
    assert!(!shell.path("user/dotfiles/cursor.json").exists(), "{undone}");
}

#[test]
fn undo_names_no_copy_that_is_not_there_and_takes_its_servers_out() {
    let shell = Shell::new();
    shell.program("probe", PROBE);
    let path = "user/.cursor/mcp.json";
    shell.write(path, r#"{ "mcpServers": { "good": { "command": "probe" } } }"#);
    run(&shell, &["init", "--yes"]);
    run(&shell, &["add", "mine", "--scope", "user", "--", "probe"]);
    let undone = run(&shell, &["init", "--undo"]);
    assert!(!undone.contains("backups") && undone.contains("the rest stays"), "{undone}");
    let own = shell.read("user/.metamcp/mcp.json");
    assert!(own.contains("\"mine\"") && !own.contains("\"good\""), "{own}");
}

/// Thousands of servers are moved in one pass; reading everything again for each would be too slow.
#[test]
fn thousands_of_servers_are_moved_and_taken_back() {
    let shell = Shell::new();
    shell.program("probe", PROBE);
    let entries: Vec<String> = (0..1_500)
        .map(|at| format!("    \"s{at}\": {{ \"command\": \"probe\", \"args\": [\"{at}\"] }}"))
        .collect();
    let text = format!("{{\n  \"mcpServers\": {{\n{}\n  }}\n}}\n", entries.join(",\n"));
    let path = "user/.cursor/mcp.json";
    shell.write(path, &text);
    run(&shell, &["init", "--yes"]);
    let own: Value = serde_json::from_str(&shell.read("user/.metamcp/mcp.json")).unwrap();
    assert_eq!(own["mcpServers"].as_object().unwrap().len(), 1_500);
    let left: Value = serde_json::from_str(&shell.read(path)).unwrap();
    assert_eq!(left["mcpServers"].as_object().unwrap().len(), 1);
    run(&shell, &["init", "--undo"]);
    assert_eq!(shell.read(path), text);
}

#[test]
fn a_secret_file_that_is_missing_is_what_doctor_says() {
    let shell = Shell::new();
    shell.program("probe", PROBE);
    let own = r#"{ "mcpServers": { "s": { "command": "probe", "env": { "KEY": "file:/no/such/key" } } } }"#;
    shell.write("user/.metamcp/mcp.json", own);
    let told = run(&shell, &["doctor"]);
    assert!(told.contains("/no/such/key"), "{told}");
    assert!(!told.contains("check its `command`"), "{told}");
    assert!(told.contains("the file, program or keyring entry that holds the secret"), "{told}");
}

/// Doctor reports a variable that the user's shell has and a client does not pass to metamcp.
#[test]
fn doctor_says_which_client_keeps_a_variable_to_itself() {
    let shell = home();
    run(&shell, &["init", "--yes", "--client", "codex"]);
    let codex = "user/elsewhere/config.toml";
    shell.write(codex, &shell.read(codex).replace("env_vars = [\"LOCAL_TOKEN\"]", ""));
    let told = run(&shell, &["doctor"]);
    assert!(told.contains("Codex does not pass LOCAL_TOKEN on to metamcp"), "{told}");
    assert!(told.contains("every server of your file gets"), "{told}");
}

/// A client's file in another place is still parsed with that client's keys.
#[test]
fn a_client_file_is_imported_with_its_own_keys() {
    let shell = Shell::new();
    shell.program("probe", PROBE);
    let server = |value: &str| {
        format!(r#"{{ "command": "probe", "args": ["{value}"], "env": {{ "A": "{value}" }} }}"#)
    };
    for (file, key, written, ours) in [
        ("project/.gemini/settings.json", "mcpServers", "Bearer $GEM_TOKEN", "Bearer ${GEM_TOKEN}"),
        ("old/.qwen/settings.json", "mcpServers", "$GEM_TOKEN", "${GEM_TOKEN}"),
        ("project/crush.json", "mcp", "x $GEM_TOKEN", "x ${GEM_TOKEN}"),
        ("project/.vscode/mcp.json", "servers", "${env:GEM_TOKEN}.", "${GEM_TOKEN}."),
        ("old/.cursor/mcp.json", "mcpServers", "${env:GEM_TOKEN}!", "${GEM_TOKEN}!"),
        ("old/claude_desktop_config.json", "mcpServers", "${GEM_TOKEN}", "$${GEM_TOKEN}"),
        ("project/plain.json", "mcpServers", "${GEM_TOKEN}?", "${GEM_TOKEN}?"),
    ] {
        shell.write(file, &format!(r#"{{ "{key}": {{ "s": {} }} }}"#, server(written)));
        shell.write("user/.metamcp/mcp.json", "{}");
        let told = run(&shell, &["import", shell.path(file).to_str().unwrap()]);
        let own: Value = serde_json::from_str(&shell.read("user/.metamcp/mcp.json")).unwrap();
        assert_eq!(own["mcpServers"]["s"]["env"]["A"], ours, "{file}: {told}");
    }
    let projects = format!(
        r#"{{ "projects": {{ "/srv/shop": {{ "mcpServers": {{ "shop": {} }} }} }} }}"#,
        server("p")
    );
    shell.write("old/.claude.json", &projects);
    run(&shell, &["import", shell.path("old/.claude.json").to_str().unwrap()]);
    assert!(shell.read("user/.metamcp/mcp.json").contains("\"shop\""));
}

#[test]
fn doctor_knows_what_a_client_fills_in_and_what_init_leaves() {
    let shell = Shell::new();
    shell.program("probe", PROBE);
    let vscode = r#"{ "inputs": [{ "id": "k", "type": "promptString" }], "servers": { "vs": { "type": "stdio", "command": "probe", "env": { "K": "${input:k}" } } } }"#;
    shell.write("user/.config/Code/User/mcp.json", vscode);
    shell.write(
        "user/.kiro/settings/mcp.json",
        r#"{ "mcpServers": { "good": { "command": "no-such-program" } } }"#,
    );
    run(&shell, &["init", "--yes"]);
    let told = run(&shell, &["doctor"]);
    assert!(told.contains("note: vs was not tried: VSCODE_INPUT_K comes from VS Code"), "{told}");
    assert!(
        told.contains("Kiro starts metamcp, and also good, which init cannot import"),
        "{told}"
    );
    assert!(told.contains("0 problems"), "{told}");
    // No client expands it any more.
    shell.write("user/.config/Code/User/mcp.json", "{}");
    let told = run(&shell, &["doctor"]);
    assert!(told.contains("VSCODE_INPUT_K is not set") && told.contains("1 problem"), "{told}");
}

/// Variables that a client passed on implicitly are named, and their values never shown.
#[test]
fn secrets_that_servers_do_not_inherit_any_more_are_named() {
    let shell = Shell::new();
    shell.program("probe", PROBE);
    let path = "user/.cursor/mcp.json";
    shell.write(path, r#"{ "mcpServers": { "one": { "command": "probe", "env": { "A": "${env:LOCAL_TOKEN}" } } } }"#);
    let variables = [("GITHUB_TOKEN", "ghp-value"), ("LOCAL_TOKEN", "l"), ("EDITOR", "vi")];
    for line in [&["init", "--yes"][..], &["doctor"]] {
        let output = shell.run_with(line, &variables);
        let told = String::from_utf8(output.stdout).unwrap();
        let names = told.lines().find(|line| line.contains("GITHUB_TOKEN"));
        assert!(names.is_some(), "{told}");
        assert!(told.contains("passEnv") && !told.contains("ghp-value"), "{told}");
        assert!(!told.contains("EDITOR"), "{told}");
    }
    let again = shell.run_with(&["init", "--yes"], &variables);
    assert!(!String::from_utf8(again.stdout).unwrap().contains("GITHUB_TOKEN"));
}

#[test]
fn a_wrong_entry_stays_and_is_named_with_its_key_and_line() {
    let shell = Shell::new();
    let text = "{\n  \"mcpServers\": {\n    \"bad\": {\n      \"command\": \"probe\",\n      \"args\": \"x y\"\n    }\n  }\n}\n";
    shell.write("user/.cursor/mcp.json", text);
    let told = run(&shell, &["init", "--yes"]);
    assert!(told.contains("bad stays in the client: line 5: `args`: expected"), "{told}");
    assert!(shell.read("user/.cursor/mcp.json").contains("x y"), "{told}");
}
