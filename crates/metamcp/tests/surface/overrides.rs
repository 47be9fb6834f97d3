//! Overrides: what clients see and what servers get, on every surface. What a server got is read from its own journal.

use std::path::Path;
use std::process::{Output, Stdio};

use metamcp_testkit::{Client, EventKind, Workspace, chaos_server, eventually, listings};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

const SECRET: &str = "s3cr3t-canary-0123456789";

/// A server with tools of bad names: `effect` becomes `note`, and has a key that the gateway fills in.
fn mended() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    let key = workspace.file("key");
    std::fs::write(&key, SECRET).unwrap();
    let overrides = json!({
        "effect": {
            "name": "note",
            "title": "Write a note",
            "description": "Writes a postcard to the archive of the museum.",
            "hidden": { "key": format!("file:{}", key.display()) },
        },
        "echo": { "defaults": { "text": "by default" } },
        "big": { "enums": { "bytes": [10, 20] } },
        "vanished": { "title": "Gone" },
    });
    workspace.server("a", chaos_server(&[]).setting("overrides", overrides));
    workspace
}

fn keys(workspace: &Workspace) -> Vec<String> {
    let executed = workspace.journal("a").of(EventKind::Execute).unwrap_or_default();
    let effects = executed.into_iter().filter(|one| one.tool.as_deref() == Some("effect"));
    effects.filter_map(|one| one.key).collect()
}

fn shell(workspace: &Workspace, args: &[&str]) -> Output {
    let mut command = workspace.command_as_it_is(Path::new(env!("CARGO_BIN_EXE_metamcp")));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn told(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn clients_see_the_override_and_the_server_gets_what_it_expects() {
    let mut workspace = mended();
    // With values, so that there is somewhere for the secret to be seen.
    let audit = json!({ "enabled": true, "required": true, "values": true });
    workspace.setting("audit", audit);
    let gateway = Gateway::start(workspace, &["--surface", "both"]);
    let call = |tool: &str, args: Value| {
        gateway.call("mcp_call", &json!({ "server": "a", "tool": tool, "args": args })).value
    };
    // Search finds it by its new words, and shows its new signature.
    gateway.call("mcp_discover", &json!({ "server": "a" }));
    let found = gateway.call("mcp_discover", &json!({ "query": "postcard museum archive" }));
    let found = found.value.to_string();
    assert!(found.contains("a:note()"), "{found}");
    let described = gateway.full("describe_tool", &json!({ "tool_id": "a:note" }));
    assert!(!described.to_string().contains("\"key\""), "{described:#}");
    // The server gets the key, under its own name for the tool; nobody else does.
    let noted = call("note", json!({}));
    assert_ne!(noted["result"]["isError"], true, "{noted:#}");
    assert!(!noted.to_string().contains(SECRET), "{noted:#}");
    gateway.full("run_tool", &json!({ "tool_id": "a:note", "args": {} }));
    let code = "await a.note({}); return (await tools.types('a')).includes('note(');";
    let script = gateway.call("mcp_execute", &json!({ "code": code })).value.to_string();
    assert!(!script.contains(SECRET), "{script}");
    assert_eq!(keys(&gateway.workspace), [SECRET, SECRET, SECRET]);
    // Defaults, narrower values, and what is not the caller's to give.
    assert!(call("echo", json!({})).to_string().contains("by default"));
    for (tool, args) in [("big", json!({ "bytes": 11 })), ("note", json!({ "key": "mine" }))] {
        let refused = call(tool, args);
        let error = &refused["result"]["structuredContent"];
        assert_eq!(error["code"], "validation_input", "{refused:#}");
    }
    assert_ne!(call("big", json!({ "bytes": 10 }))["result"]["isError"], true);
    let old = call("effect", json!({ "key": "k" }));
    assert_eq!(old["result"]["structuredContent"]["code"], "tool_not_found", "{old:#}");
    assert_eq!(keys(&gateway.workspace).len(), 3);
    // Nothing of the secret in what is kept.
    for args in [&["audit", "query", "--json"][..], &["doctor", "a", "--json"]] {
        let said = told(&shell(&gateway.workspace, args));
        assert!(!said.contains(SECRET), "{args:?}: {said}");
    }
    let audit = told(&shell(&gateway.workspace, &["audit", "query", "--json"]));
    assert!(audit.contains("\"note\""), "{audit}");
    let doctor = told(&shell(&gateway.workspace, &["doctor", "a"]));
    assert!(doctor.contains("vanished") && doctor.contains("no such tool"), "{doctor}");
    let why = told(&shell(&gateway.workspace, &["search", "postcard museum", "--why"]));
    assert!(why.contains("shown by your override of effect"), "{why}");
}

#[test]
fn direct_mode_and_approvals_follow_the_override() {
    let mut workspace = mended();
    workspace.setting("approvals", json!({ "always": ["effect"] }));
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.args(["--surface", "direct"]);
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    let call = |tool: &str, args: Value| {
        let id = client.call_tool(tool, &args).unwrap();
        client.wait(id, HUNG).unwrap().value
    };
    // The rule is about the server's own name; the person sees the arguments as they would be sent, without the secret.
    let refused = call("note", json!({}));
    assert_eq!(refused["result"]["structuredContent"]["code"], "approval_required", "{refused:#}");
    let asked = told(&shell(&workspace, &["approve"]));
    for part in ["effect", "shown as   note", "[secret key]"] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    assert!(!asked.contains(SECRET), "{asked}");
    let list = client.ask("tools/list", &json!({}), HUNG).unwrap().value;
    let tools = list["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"note") && !names.contains(&"effect"), "{names:?}");
    // Arguments are checked here too, and a name that was taken away means nothing.
    let wrong = call("big", json!({ "bytes": 11 }));
    assert_eq!(wrong["result"]["structuredContent"]["code"], "validation_input", "{wrong:#}");
    assert!(call("big", json!({ "bytes": 20 }))["result"]["content"].is_array());
    assert!(call("effect", json!({ "key": "k" }))["error"].is_object());
    assert!(keys(&workspace).is_empty());
}

#[test]
fn an_override_takes_effect_as_the_file_is_saved() {
    let mut gateway = Gateway::start(mended(), &[]);
    gateway.call("mcp_discover", &json!({ "server": "a" }));
    let overrides = json!({ "effect": { "name": "remark", "hidden": { "key": "plain" } } });
    gateway.workspace.server("a", chaos_server(&[]).setting("overrides", overrides));
    gateway.workspace.write_config().unwrap();
    assert!(eventually(HUNG, || {
        let call = json!({ "server": "a", "tool": "remark", "args": {} });
        gateway.call("mcp_call", &call).value["result"]["isError"] != true
    }));
    assert_eq!(keys(&gateway.workspace), ["plain"]);
}

/// Lists of real servers as they were recorded: names made from REST paths, hints that are wrong, arguments that are the
/// same in every call.
#[test]
fn bad_descriptions_of_real_servers_are_mended() {
    let recorded = listings::recorded().unwrap();
    let real = |name: &str| recorded.iter().find(|one| one.name == name).unwrap().replayed();
    let mut workspace = Workspace::new().unwrap();
    let notion = json!({
        "API-post-search": {
            "name": "find_pages",
            "description": "Finds pages of our wiki by their title.",
            "annotations": { "readOnlyHint": true, "destructiveHint": false },
            "hidden": { "page_size": 10 },
        },
    });
    let github = json!({
        "list_issues": {
            "description": "Lists the bugs and wishes that people reported to us.",
            "annotations": { "readOnlyHint": true },
            "hidden": { "owner": "metamcp", "repo": "metamcp" },
            "enums": { "state": ["open", "closed"] },
        },
    });
    workspace.server("notion", real("notion").setting("overrides", notion));
    workspace.server("github", real("github").setting("overrides", github));
    workspace.setting("approvals", json!({ "rule": "destructive" }));
    let gateway = Gateway::start(workspace, &[]);
    let first = |query: &str| {
        let found = gateway.call("mcp_discover", &json!({ "query": query })).value;
        let text = found["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        text.lines().find(|line| line.contains(':') && line.contains('(')).unwrap().to_owned()
    };
    let page = first("find a page of our wiki by title");
    assert!(page.contains("notion:find_pages(") && !page.contains("page_size"), "{page}");
    let issues = first("bugs that people reported to us");
    assert!(issues.contains("github:list_issues(") && !issues.contains("owner"), "{issues}");
    // What the user vouches for needs no approval, and nothing of what is filled in; a recording answers that it is one.
    let ran = |tool: &str, args: Value| {
        let answer = gateway.call("mcp_call", &json!({ "tool": tool, "args": args })).value;
        answer["result"].clone()
    };
    for (tool, args) in [
        ("notion:find_pages", json!({ "query": "roadmap" })),
        ("github:list_issues", json!({ "state": "open" })),
    ] {
        let result = ran(tool, args);
        assert!(result.to_string().contains("recording of the server"), "{tool}: {result:#}");
    }
    // Everything else keeps what its server said of it.
    let merge = json!({ "owner": "o", "repo": "metamcp", "pull_number": 1 });
    for (tool, args) in [
        ("github:merge_pull_request", merge),
        (
            "notion:API-delete-a-block",
            json!({ "block_id": "3c90c3cc-0d44-4b50-8888-8dd25736052a" }),
        ),
    ] {
        let result = ran(tool, args);
        assert_eq!(result["structuredContent"]["code"], "approval_required", "{tool}: {result:#}");
    }
    let all = ran("github:list_issues", json!({ "state": "all" }));
    assert_eq!(all["structuredContent"]["code"], "validation_input", "{all:#}");
}
