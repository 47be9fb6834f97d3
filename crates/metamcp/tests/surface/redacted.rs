//! Secrets do not reach a model, on any path.

use std::path::Path;

use metamcp_testkit::{Workspace, chaos_server, stored_handle};
use serde_json::json;

use crate::gateway::{Gateway, HUNG};

const VALUE: &str = "hunter2-and-more/4711";

fn workspace() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]).variable("SERVICE_PASSWORD", VALUE));
    workspace
}

/// Everything the gateway wrote to its client.
fn all(gateway: &Gateway) -> String {
    let lines = gateway.client.lines();
    lines.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned()).collect()
}

#[test]
fn neither_values_of_the_configuration_nor_known_tokens_leave() {
    let gateway = Gateway::start(workspace(), &["--surface", "both"]);
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let said = format!("{VALUE} and {token}");
    gateway.call("mcp_call", &json!({"tool": "one:env"}));
    let echo = gateway.call("mcp_call", &json!({"tool": "one:echo", "args": {"text": said}}));
    assert_eq!(echo.text(), Some("[secret SERVICE_PASSWORD] and [secret GitHub token]"));
    gateway.full("run_tool", &json!({"tool_id": "one:env"}));
    let ran = gateway.full("run_tool", &json!({"tool_id": "one:echo", "args": {"text": said}}));
    assert_eq!(ran["structured"], "[secret SERVICE_PASSWORD] and [secret GitHub token]");
    gateway.full(
        "run_chain",
        &json!({"steps": [{"tool_id": "one:env"}, {"tool_id": "one:echo", "args": {"text": said}}]}),
    );
    gateway.call(
        "mcp_execute",
        &json!({"code": format!("console.log({said:?}); return await one.env({{}})")}),
    );
    gateway.full("execute_code", &json!({"code": "return await one.env({})"}));
    gateway.call("mcp_call", &json!({"tool": "one:log", "args": {"text": said}}));
    gateway.call("mcp_call", &json!({"tool": "one:ecko", "args": {"text": said}}));
    gateway.call("mcp_call", &json!({"tool": format!("one:{token}")}));
    let all = all(&gateway);
    assert!(!all.contains(VALUE) && !all.contains("hunter2"), "{all}");
    assert!(!all.contains(&token), "{all}");
    assert!(all.contains("notifications/message"), "the log message came through");
    assert_eq!(gateway.client.violations(), Vec::<String>::new());
}

#[test]
fn errors_of_a_server_that_is_shown_as_it_is_hold_none_either() {
    let gateway = Gateway::start(workspace(), &["--surface", "direct"]);
    let said = json!({"message": format!("cannot sign in with {VALUE}")});
    let params = json!({"name": "rpc_error", "arguments": said});
    let answer = gateway.client.ask("tools/call", &params, HUNG).unwrap().value;
    assert_eq!(answer["error"]["message"], "cannot sign in with [secret SERVICE_PASSWORD]");
    assert_eq!(answer["error"]["code"], -32602);
    assert!(!all(&gateway).contains(VALUE));
}

/// Every method that reaches a server, or could, with one server and with two, by requests of both eras.
#[test]
fn no_error_path_leaks_one() {
    let methods = [
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "echo", "arguments": {"text": "x"}})),
        ("tools/call", json!({"name": "one__echo", "arguments": {"text": "x"}})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "memo://nobody"})),
        ("resources/subscribe", json!({"uri": "memo://nobody"})),
        ("resources/unsubscribe", json!({"uri": "memo://nobody"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "greet"})),
        ("prompts/get", json!({"name": "one__greet"})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/resource", "uri": "memo://nobody"}, "argument": {"name": "a", "value": "b"}}),
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "one__greet"}, "argument": {"name": "a", "value": "b"}}),
        ),
        ("logging/setLevel", json!({"level": "debug"})),
    ];
    for era in ["legacy", "modern"] {
        for count in 1..=2 {
            for surface in ["direct", "compact"] {
                let mut workspace = Workspace::new().unwrap();
                for name in ["one", "two"].into_iter().take(count) {
                    let server = chaos_server(&[]).argument("--era").argument(era);
                    let server = server.argument("--offers").argument("telling:one");
                    workspace.server(name, server.variable("SERVICE_PASSWORD", VALUE));
                }
                let gateway = Gateway::start(workspace, &["--surface", surface]);
                for (method, params) in &methods {
                    gateway.client.ask(method, params, HUNG).unwrap();
                    let id = gateway.client.stateless(method, params, &json!({}), &json!({}));
                    gateway.client.wait(id.unwrap(), HUNG).unwrap();
                }
                gateway.call("mcp_call", &json!({"tool": "one:echo", "args": {"text": "x"}}));
                gateway.call("mcp_discover", &json!({"query": "echo"}));
                let all = all(&gateway);
                assert!(!all.contains("hunter2"), "{era} {count} {surface}: {all}");
                let told = all.matches("[secret SERVICE_PASSWORD]").count();
                let least = if surface == "direct" { 6 } else { 1 };
                assert!(told >= least, "{era} {count} {surface}: {told} in {all}");
            }
        }
    }
}

/// A server's description and tools are redacted on a screen, in a pipe and on disk.
#[test]
fn neither_commands_print_one_nor_caches_keep_one() {
    for manner in ["showing:one", "telling:one"] {
        for era in ["legacy", "modern"] {
            let mut workspace = Workspace::new().unwrap();
            let server = chaos_server(&[]).argument("--era").argument(era);
            let server = server.argument("--offers").argument(manner);
            workspace.server("one", server.variable("SERVICE_PASSWORD", VALUE));
            let refused = format!(r"message=refused: {VALUE}");
            for line in [
                &["list"][..],
                &["list", "one"],
                &["list", "--json"],
                &["tools"],
                &["tools", "one"],
                &["tools", "one", "--json"],
                &["search", "answers"],
                &["search", "answers", "--json"],
                &["search", "answers", "--why"],
                &["search", "answers", "--why", "--json"],
                &["call", "one:rpc_error", &refused],
                &["call", "one:rpc_error", &refused, "--json"],
                &["call", "one:echo", "wrong=1"],
                &["call", "one:nothing"],
            ] {
                let metamcp = Path::new(env!("CARGO_BIN_EXE_metamcp"));
                let output = workspace.command(metamcp).unwrap().args(line).output().unwrap();
                let told = [output.stdout, output.stderr].concat();
                let told = String::from_utf8_lossy(&told);
                assert!(!told.contains("hunter2"), "{manner} {era} {line:?}: {told}");
            }
            let kept = kept_in(&workspace.home());
            let is_listed = manner.starts_with("showing");
            assert_eq!(kept.contains("[secret SERVICE_PASSWORD]"), is_listed, "{kept}");
            assert!(!kept.contains("hunter2"), "{manner} {era}: {kept}");
        }
    }
}

/// All files under a folder as one text.
fn kept_in(folder: &Path) -> String {
    let mut kept = String::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => kept.push_str(&kept_in(&path)),
            false => kept.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap())),
        }
    }
    kept
}

#[test]
fn a_script_sees_what_the_model_would_see_and_can_pass_it_on() {
    let gateway = Gateway::start(workspace(), &[]);
    let value = |gateway: &Gateway, code: &str| {
        let answer = gateway.call("mcp_execute", &json!({ "code": code }));
        answer.returned().unwrap_or_else(|| panic!("{:#}", answer.value))
    };
    let secret = "(await one.env({})).environment.SERVICE_PASSWORD";
    // Encoded differently, it would leave unnoticed.
    for (code, expected) in [
        (format!("return atob(btoa({secret}))"), "[secret SERVICE_PASSWORD]"),
        (format!("return [...{secret}].reverse().join('')"), "]DROWSSAP_ECIVRES terces["),
        (
            format!(
                "return JSON.stringify(await one.env.raw({{}})).includes({VALUE:?}.slice(0, 7))"
            ),
            "false",
        ),
        (format!("return await one.echo({{ text: {secret} }})"), "[secret SERVICE_PASSWORD]"),
        (
            format!(
                "const kept = await results.put({{ text: {secret} }}); return (await results.get(kept)).text.length"
            ),
            "25",
        ),
    ] {
        let found = value(&gateway, &code);
        let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        assert_eq!(found, expected, "{code}");
    }
    let open = Gateway::start(workspace(), &["--scrub", "false"]);
    assert_eq!(value(&open, &format!("return {secret}")), VALUE);
}

#[test]
fn long_results_are_clean_in_every_part() {
    let gateway = Gateway::start(workspace(), &["--max-result-chars", "1000"]);
    let text = format!("{}{VALUE}{}", "x".repeat(10_000), "y".repeat(10_000));
    let short = gateway.call("mcp_call", &json!({"tool": "one:echo", "args": {"text": text}}));
    let id = stored_handle(&short.value["result"]).unwrap().to_owned();
    gateway
        .client
        .mcp_call_now("@results", "read", &json!({"id": id, "offset": 9_990}), HUNG)
        .unwrap();
    gateway
        .client
        .mcp_call_now("@results", "query", &json!({"id": id, "grep": "4711"}), HUNG)
        .unwrap();
    let all = all(&gateway);
    assert!(!all.contains(VALUE) && all.contains("[secret SERVICE_PASSWORD]"));
}

#[test]
fn it_can_be_turned_off() {
    let gateway = Gateway::start(workspace(), &["--scrub", "false"]);
    let echo = gateway.call("mcp_call", &json!({"tool": "one:echo", "args": {"text": VALUE}}));
    assert_eq!(echo.text(), Some(VALUE));
}

#[test]
fn what_holds_no_secret_passes_byte_for_byte() {
    let on = Gateway::start(workspace(), &[]);
    let off = Gateway::start(workspace(), &["--scrub", "false"]);
    let exotic = |gateway: &Gateway| {
        let answer = gateway.client.mcp_call_now("one", "exotic", &json!({}), HUNG).unwrap();
        answer.raw_result().unwrap().to_owned()
    };
    assert_eq!(exotic(&on), exotic(&off));
}
