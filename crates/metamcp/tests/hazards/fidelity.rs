//! Servers that differ from what they declare, and the reports about those that fail.

use std::fs;

use metamcp_testkit::{
    Answer, CallOutcome, EventKind, Server, Workspace, chaos_server, echo_server, eventually,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::gateway::{Gateway, HUNG};

/// A server in a few lines of shell: its capabilities, and its complete result of `tools/list`.
fn scripted(capabilities: &str, list: &str) -> Server {
    const SCRIPT: &str = r#"
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([^,}]*\).*/\1/p')
  case "$line" in
    *'"server/discover"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
    *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":%s,"serverInfo":{"name":"s","version":"1"}}}\n' "$id" "$1" ;;
    *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$2" ;;
    *'"tools/call"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}\n' "$id" ;;
  esac
done
"#;
    Server::new("/bin/sh", &["-c", SCRIPT, "sh", capabilities, list])
}

const ONE_TOOL: &str = r#""result":{"tools":[{"name":"query","inputSchema":{"type":"object"},"description":"Asks."}]}"#;

fn with(servers: Vec<(&str, Server)>) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    for (name, server) in servers {
        workspace.server(name, server);
    }
    workspace
}

fn discover(gateway: &Gateway, arguments: &Value) -> Answer {
    gateway.answer(gateway.call_tool("mcp_discover", arguments).unwrap())
}

#[test]
fn unannounced_tools_are_listed() {
    let none = r#""error":{"code":-32601,"message":"Method not found"}"#;
    let gateway = Gateway::start(with(vec![
        ("shy", scripted(r#"{"experimental":{}}"#, ONE_TOOL)),
        ("empty", scripted(r#"{"experimental":{}}"#, none)),
    ]));
    let listed = discover(&gateway, &json!({"server": "shy"}));
    assert!(listed.text().is_some_and(|text| text.contains("shy:query")), "{}", listed.value);
    assert_eq!(gateway.call("shy", "query", &json!({})).text(), Some("done"));
    let listed = discover(&gateway, &json!({"server": "empty"}));
    assert!(
        listed.text().is_some_and(|text| text.contains("announces no tools")),
        "{}",
        listed.value
    );
    gateway.end();
}

/// In the first run, and in the next one with the list from disk, before and after the server is listed again.
#[test]
fn tools_beyond_a_limit_do_not_vanish_in_silence() {
    const TOLD: &str = "Not all it lists can be used";
    let mut workspace = with(vec![("many", echo_server().argument("--tools").argument("20"))]);
    workspace.setting("limits", json!({"maxToolsPerServer": 5}));
    for run in ["first", "second"] {
        let gateway = Gateway::start(workspace);
        for started in [false, true] {
            for arguments in [
                json!({"server": "many"}),
                json!({"server": "many", "tool": "synthetic_19"}),
                json!({"query": "zzyzx"}),
            ] {
                let told = discover(&gateway, &arguments).value;
                assert!(told.to_string().contains(TOLD), "{run}, {started}: {arguments}: {told}");
            }
            let error = gateway.refusal("many", "synthetic_19", &json!({}));
            assert_eq!(error.code, "tool_not_found");
            assert!(error.whole.to_string().contains(TOLD), "{run}, {started}: {}", error.whole);
            assert_eq!(
                gateway.outcome("many", "echo", &json!({"text": "x"})),
                CallOutcome::Success
            );
        }
        workspace = gateway.end();
    }
}

#[test]
fn a_tools_list_error_is_reported_with_its_code_and_message() {
    let broken = r#""error":{"code":-32603,"message":"database is locked"}"#;
    let servers = || vec![("broken", scripted(r#"{"tools":{}}"#, broken))];
    let gateway = Gateway::start(with(servers()));
    let listed = discover(&gateway, &json!({"server": "broken"}));
    let text = listed.text().unwrap_or_default();
    assert!(text.contains("answered tools/list with error -32603: database is locked"), "{text}");
    assert!(!text.contains("initialize"), "{text}");
    gateway.end();
    let mut workspace = with(servers());
    workspace.setting("surface", json!("direct"));
    let gateway = Gateway::start(workspace);
    let listed = gateway.ask("tools/list", &json!({}), HUNG).unwrap();
    let error = &listed.value["error"];
    assert_eq!((&error["code"], &error["message"]), (&json!(-32603), &json!("database is locked")));
    gateway.end();
}

#[test]
fn one_server_alone_is_promised_and_listed_as_it_is() {
    let list = r#""result":{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"inputSchema":{"type":"object"},"_meta":{"ui":{"visibility":["app"]}},"name":"b"},{"description":"c","name":"c","inputSchema":{"type":"object"}}]}"#;
    let mut workspace = with(vec![("only", scripted(r#"{"tools":{}}"#, list))]);
    workspace.setting("surface", json!("direct"));
    let gateway = Gateway::start_silently(workspace);
    let hello = gateway.initialize(&json!({}), HUNG).unwrap();
    assert_eq!(hello["capabilities"]["tools"], json!({"listChanged": false}));
    let listed = gateway.ask("tools/list", &json!({}), HUNG).unwrap();
    let own = list.strip_prefix(r#""result":"#).unwrap();
    assert_eq!(listed.raw_result(), Some(own), "byte for byte, in its own order");
    gateway.end();
}

#[test]
fn the_stderr_tail_of_a_failed_server_is_shown_everywhere() {
    const CRASH: &str = "printf \"node:internal/loader:1143\\n  throw err;\\n\\nError: Cannot find module '/srv/x.js'\\n    at Module._resolve (node:internal/loader:1140:15)\\n}\\n\\nNode.js v20.20.2\\n\" >&2; exit 1";
    let gateway = Gateway::start(with(vec![("crashing", Server::new("/bin/sh", &["-c", CRASH]))]));
    let why = "Cannot find module '/srv/x.js'";
    let called = gateway.call("crashing", "any", &json!({}));
    assert!(called.text().is_some_and(|text| text.contains(why)), "{}", called.value);
    for arguments in [json!({"server": "crashing"}), json!({}), json!({"query": "anything"})] {
        let found = discover(&gateway, &arguments);
        assert!(found.text().is_some_and(|text| text.contains(why)), "{}", found.value);
    }
    gateway.end();
}

#[test]
fn a_hanging_server_is_reported_with_its_stderr_tail() {
    const HANG: &str =
        "echo 'Open https://login.example/device'; echo 'waiting for a login' >&2; exec sleep 600";
    let mut workspace = with(vec![("hung", Server::new("/bin/sh", &["-c", HANG]))]);
    workspace.setting("timeouts", json!({"connectTimeoutMs": 2_000}));
    let gateway = Gateway::start(workspace);
    let called = gateway.call("hung", "any", &json!({}));
    let text = called.text().unwrap_or_default();
    assert!(text.contains("was not ready within"), "{text}");
    assert!(text.contains("https://login.example/device"), "{text}");
    assert!(text.contains("waiting for a login"), "{text}");
    assert!(!text.contains("downloaded so far"), "{text}");
    gateway.end();
}

#[test]
fn a_server_that_failed_before_is_not_waited_for_by_searches() {
    let mut workspace = Workspace::new().unwrap();
    // Its first start fails, with both of its processes; the next one hangs for longer than any test.
    let count = workspace.file("starts");
    let script = format!(
        "echo x >> '{0}'; [ $(wc -l < '{0}') -gt 2 ] || exit 1; exec sleep 600",
        count.display()
    );
    workspace.server("broken", Server::new("/bin/sh", &["-c", &script]));
    workspace.server("good", chaos_server(&[]));
    // Waiting for it would take ten minutes.
    workspace
        .setting("timeouts", json!({"discoverBudgetMs": 600_000, "connectTimeoutMs": 600_000}));
    let gateway = Gateway::start(workspace);
    let hangs = || {
        let found = discover(&gateway, &json!({"query": "echo"}));
        assert!(found.text().is_some_and(|text| text.contains("good:echo")), "{}", found.value);
        std::fs::read_to_string(&count).is_ok_and(|text| text.lines().count() == 3)
    };
    assert!(eventually(HUNG, hangs), "it is started again and nobody waits for it");
    let found = discover(&gateway, &json!({"query": "echo"}));
    assert!(found.text().is_some_and(|text| text.contains("good:echo")), "{}", found.value);
    gateway.end();
}

#[test]
fn refused_arguments_say_whether_the_server_was_contacted() {
    let mut gateway = Gateway::start(with(vec![("one", chaos_server(&[]))]));
    assert_eq!(gateway.call("one", "echo", &json!({"text": "x"})).text(), Some("x"));
    gateway = Gateway::start(gateway.end());
    let refused = |gateway: &Gateway| {
        let answer = gateway.call("one", "echo", &json!({"text": 7}));
        let told = &answer.value["result"]["structuredContent"];
        assert_eq!(told["code"], "validation_input", "{}", answer.value);
        told["hint"].as_str().unwrap().to_owned()
    };
    let starts =
        |gateway: &Gateway| gateway.workspace.journal("one").of(EventKind::Start).unwrap().len();
    assert_eq!(starts(&gateway), 1);
    let hint = refused(&gateway);
    assert!(hint.contains("was not contacted"), "{hint}");
    assert_eq!(starts(&gateway), 1, "what is remembered of the last hour is enough");
    // A name that is not in that list contacts the server: it may have a new tool.
    let refusal = gateway.refusal("one", "no_such_tool", &json!({}));
    assert_eq!(refusal.code, "tool_not_found");
    assert_eq!(starts(&gateway), 2);
    let workspace = gateway.end();
    // An older list may be out of date.
    make_old(&workspace);
    let gateway = Gateway::start(workspace);
    let hint = refused(&gateway);
    assert!(hint.contains("listed its tools just now"), "{hint}");
    assert_eq!(starts(&gateway), 3);
    let hint = refused(&gateway);
    assert!(hint.contains("was not contacted"), "{hint}");
    gateway.end();
}

/// Backdates the cached list of the server `one` by hours.
fn make_old(workspace: &Workspace) {
    const SEAL: &str = ",\"seal\":\"";
    let path = workspace.home().join(".metamcp/cache/one/schema.json");
    let text = fs::read_to_string(&path).unwrap();
    let (header, tools) = text.split_once('\n').unwrap();
    let (open, _) = header.rsplit_once(SEAL).unwrap();
    let (before, saved_at) = open.rsplit_once("\"savedAt\":").unwrap();
    let long_ago = saved_at.parse::<u64>().unwrap() - 3 * 60 * 60 * 1_000;
    let open = format!("{before}\"savedAt\":{long_ago}");
    let digest = Sha256::digest(open.as_bytes());
    let seal: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(&path, format!("{open}{SEAL}{seal}\"}}\n{tools}")).unwrap();
}
