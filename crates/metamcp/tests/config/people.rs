//! What the command line prints for people and for scripts: next steps, exit codes, JSON.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::Shell;

const OWN: &str = "user/.metamcp/mcp.json";

/// A home with one working server.
fn shell() -> Shell {
    let shell = Shell::new();
    let numbers =
        json!({ "command": env!("CARGO_BIN_EXE_metamcp"), "args": ["__example", "numbers"] });
    shell.write(OWN, &json!({ "mcpServers": { "numbers": numbers } }).to_string());
    shell
}

/// Invalid input, for every command that takes input.
const WRONG: &[&[&str]] = &[
    &["list", "nobody"],
    &["search", "x", "--server", "nobody"],
    &["search", " "],
    &["get", "nobody"],
    &["tools", "nobody"],
    &["doctor", "nobody"],
    &["call", "numbers:evaluate", "expression"],
    &["add-json", "x", "{"],
    &["call", "nobody:x"],
    &["call", "numbers:zebra"],
    &["call", "numbers:evaluate", "--args", "{not json"],
    &["call", "numbers:evaluate", "--args", "[1]"],
    &["call", "evaluate"],
    &["call", "evalute"],
    &["run", "nowhere.ts"],
    &["run", "."],
    &["run", "broken.ts"],
    &["run", "broken.ts", "--timeout-ms", "0"],
    &["eval", "--tools", "nowhere.jsonl", "--queries", "nowhere.jsonl"],
    &["eval", "--tools", "broken.ts", "--queries", "broken.ts"],
    &["eval", "--tools", "empty.jsonl", "--queries", "empty.jsonl"],
    &["eval", "--tools", "empty.jsonl", "--queries", "empty.jsonl", "--strategy", "best"],
    &["init", "--client", "nobody"],
    &["import", "nowhere.json"],
    &["approve", "nope"],
    &["approve", "nope", "--json"],
    &["import", "cursor"],
    &["add", "x", "-e", "nothing", "--", "y"],
    &["add", "a:b", "--", "x"],
    &["remove", "nobody"],
    &["enable", "nobody"],
    &["disable", "nobody"],
    &["auth", "status", "nobody"],
    &["auth", "login", "numbers"],
    &["approve", "000000000000"],
    &["provisioned", "remove", "nobody"],
    &["registry", "import", "broken.ts"],
    &["--cooldown", "soon", "list"],
];

#[test]
fn wrong_input_is_exit_code_2_everywhere() {
    let shell = shell();
    shell.write("project/broken.ts", "return (((");
    shell.write("project/empty.jsonl", "");
    for line in WRONG {
        let told = shell.told(line);
        assert!(told.starts_with("exit: 2\n"), "{line:?}: {told}");
        for of_a_model in ["mcp_discover", "mcp_call", "mcp_execute"] {
            assert!(!told.contains(of_a_model), "{line:?}: {told}");
        }
    }
}

#[test]
fn a_tool_that_is_mistyped_and_an_entry_that_is_wrong() {
    let shell = shell();
    let told = shell.told(&["call", "evalute"]);
    assert!(
        told.contains("no server has a tool `evalute`; did you mean `numbers:evaluate`?"),
        "{told}"
    );
    shell.write(OWN, r#"{ "mcpServers": { "bad": { "command": "x", "args": "y" } } }"#);
    let told = shell.told(&["get", "bad"]);
    assert!(told.contains("disabled:") && !told.contains("command  "), "{told}");
}

/// Each suggested next step is a command line that can be typed.
#[test]
fn people_are_given_command_lines() {
    let shell = shell();
    shell.write("project/zebra.ts", "return await servers.zebra.run({});");
    shell.write("project/tool.ts", "return await numbers.zebra({});");
    shell.run(&["list", "numbers"]);
    for (line, step) in [
        (&["list", "zebra"][..], "`metamcp list` lists the servers"),
        (&["call", "numbers:zebra"], "`metamcp list numbers` lists its 7 tools"),
        (&["call", "zebra"], "`metamcp search 'what it should do'` finds it"),
        (&["call", "numbers"], "`metamcp list numbers` lists its tools"),
        (&["run", "zebra.ts"], "`metamcp list` lists the servers"),
        (&["run", "zebra.ts"], "No call was made."),
        (&["run", "tool.ts"], "`metamcp list numbers` lists its 7 tools"),
        (&["run", "tool.ts"], "calls that failed: numbers:zebra\n"),
        (&["call", "@resources:nothing"], "`metamcp call @resources:read --args "),
        (&["call", "@resources:list"], "`metamcp call @resources:read --args "),
    ] {
        let told = shell.told(line);
        assert!(told.contains(step), "{line:?}: {told}");
    }
    shell.run(&["disable", "numbers"]);
    let told = shell.told(&["call", "numbers:evaluate"]);
    assert!(told.contains("`metamcp enable numbers` lets it be used again"), "{told}");
    shell.run(&["enable", "numbers"]);
    let told = shell.told(&["search", "zzzz qqqq", "--server", "numbers", "--search", "keyword"]);
    assert!(told.contains("with `metamcp list SERVER`"), "{told}");
}

/// Every command with JSON output, with only its required arguments.
const JSON: &[&[&str]] = &[
    &["init"],
    &["add", "x", "--json", "--", "y"],
    &["remove", "x"],
    &["import", "cursor"],
    &["enable", "x"],
    &["disable", "x"],
    &["doctor"],
    &["list"],
    &["tools"],
    &["get", "x"],
    &["add-json", "x", "{}"],
    &["search", "x"],
    &["search", "x", "--why"],
    &["call", "a:b"],
    &["run", "x.ts"],
    &["forget"],
    &["approve"],
    &["provisioned", "list"],
    &["provisioned", "remove", "x"],
    &["provisioned", "accept", "x"],
    &["provisioned", "allow", "x", "."],
    &["registry", "refresh"],
    &["auth", "login", "x"],
    &["auth", "logout", "x"],
    &["auth", "status"],
    &["config", "check"],
    &["config", "path"],
];

#[test]
fn json_is_json_without_a_config_that_can_be_used_too() {
    let shell = Shell::new();
    shell.write(OWN, "{ \"mcpServers\": { \"a\": ");
    for line in JSON {
        let with =
            if line.contains(&"--json") { line.to_vec() } else { [*line, &["--json"]].concat() };
        let output = shell.run(&with);
        assert_eq!(output.status.code(), Some(3), "{line:?}");
        let told: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{line:?}: {error}: {output:?}"));
        let is_told = told["errors"][0]["file"].is_string() || told["findings"].is_array();
        assert!(is_told, "{line:?}: {told:#}");
    }
    // Also without a config, and with an invalid command line.
    let shell = Shell::new();
    for line in [&["list", "--json"][..], &["search", "x", "--json"], &["call", "a:b", "--json"]] {
        assert_eq!(shell.run(line).status.code(), Some(3), "{line:?}");
        let told = shell.json(line)["errors"][0]["message"].to_string();
        assert!(told.contains("no config file was found"), "{told}");
    }
    let told = shell.json(&["remove", "nobody", "--json"]);
    assert!(told["errors"][0]["message"].to_string().contains("no server `nobody`"), "{told}");
    for line in [&["list", "--jsn", "--json"][..], &["serch", "x", "--json"], &["call", "--json"]] {
        assert_eq!(shell.run(line).status.code(), Some(2), "{line:?}");
        assert!(shell.json(line)["errors"][0]["message"].is_string(), "{line:?}");
    }
}

#[test]
fn what_a_dry_run_did_not_do_is_not_called_done() {
    let shell = shell();
    let told = shell.json(&["add", "x", "--dry-run", "--json", "--", "y"]);
    assert_eq!((&told["done"], &told["dry_run"]), (&json!("would be added"), &json!(true)));
    let told = shell.json(&["remove", "numbers", "--dry-run", "--json"]);
    assert_eq!(told["done"], "would be removed");
    assert_eq!(shell.json(&["disable", "numbers", "--json"])["done"], "disabled");
}

/// A project's file adds to the user's own, and each command says in which of the two a server is.
#[test]
fn a_server_is_looked_for_in_the_other_file_too() {
    let shell = shell();
    assert!(shell.run(&["add", "here", "--project", "--", "no-such-program"]).status.success());
    let mut all = String::new();
    for line in [
        &["list"][..],
        &["disable", "here"],
        &["remove", "numbers", "--project"],
        &["remove", "nobody"],
        &["disable", "here", "--project"],
    ] {
        all.push_str(&format!("$ metamcp {}\n{}\n\n", line.join(" "), shell.told(line)));
    }
    assert_snapshot!(all);
}

/// A broken server is one line of output, whatever the command, and nothing is logged.
#[test]
fn a_server_that_fails_is_one_line() {
    let shell = Shell::new();
    shell.write(
        OWN,
        r#"{ "mcpServers": {
            "broken": { "command": "/bin/sh", "args": ["-c", "exit 7"] },
            "missing": { "command": "no-such-program-anywhere" }
        } }"#,
    );
    let mut all = String::new();
    for line in [&["search", "read a file"][..], &["list", "broken"], &["call", "broken:x"]] {
        let told = shell.told(line);
        assert!(told.matches("broken").count() <= 2, "{told}");
        all.push_str(&format!("$ metamcp {}\n{told}\n\n", line.join(" ")));
    }
    assert_snapshot!(all);
    let loud = shell.told(&["list", "broken", "--log-level", "warn"]);
    assert!(loud.contains("server \"broken\" exited"), "who asks for a log gets one: {loud}");
}

/// A config whose script starts metamcp with the same config cannot be detected statically; the recursion still ends.
#[test]
fn gateways_do_not_start_one_another_without_end() {
    let shell = shell();
    let output = shell.run_with(&[], &[("METAMCP_GATEWAYS_ABOVE", "4")]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("4 gateways stand above this one"), "{told}");
    assert!(shell.run_with(&[], &[("METAMCP_GATEWAYS_ABOVE", "3")]).status.success());
}
