//! A server's response reaches the client byte for byte.

use std::path::Path;

use metamcp_testkit::{CallOutcome, Client, Workspace, chaos_server, programs};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

#[test]
fn results_are_the_same_bytes_as_without_a_gateway() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    // No limit: otherwise only a part of a long result would be shown.
    workspace.setting("limits", json!({"maxResultChars": 0}));
    let direct = Client::start(direct(&workspace)).unwrap();
    direct.initialize(&json!({}), HUNG).unwrap();
    let gateway = Gateway::start(workspace);
    let calls: [(&str, Value); 8] = [
        ("exotic", json!({})),
        ("fail", json!({})),
        ("echo", json!({"text": "\u{0}\u{1f600}\u{2028}\"\\/ é\r\n\t"})),
        ("echo", json!({"text": ""})),
        // On both sides of every size at which the transfer path changes.
        ("big", json!({"bytes": 4_000})),
        ("big", json!({"bytes": 9_000})),
        ("big", json!({"bytes": 70_000})),
        ("big", json!({"bytes": 3_000_000})),
    ];
    for (tool, args) in calls {
        let straight = direct.call_tool(tool, &args).unwrap();
        let straight = direct.wait(straight, HUNG).unwrap();
        let through = gateway.call("a", tool, &args);
        let (expected, got) = (straight.raw_result().unwrap(), through.raw_result().unwrap());
        assert!(expected == got, "{tool} {args}: {expected:.500} became {got:.500}");
    }
    // Otherwise it would count as a survivor.
    drop(direct);
    gateway.end();
}

#[test]
fn a_servers_error_keeps_its_own_text() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    let error = gateway.refusal("a", "rpc_error", &json!({"code": -32042}));
    assert_eq!(error.code, "execution_failed", "{error:?}");
    let theirs = &error.whole["details"]["rpc"];
    assert_eq!(theirs["code"], -32042);
    assert_eq!(theirs["message"], "refused on purpose");
    assert_eq!(theirs["data"], json!({"b": 1, "a": [null]}));
    // A tool error is a response.
    assert_eq!(gateway.outcome("a", "fail", &json!({})), CallOutcome::ToolError);
    gateway.end();
}

#[test]
fn arguments_and_meta_arrive_as_they_were_written() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    // Spaces, escapes and a number beyond any machine integer; a string that contains the same object.
    for args in [
        r#"{ "text" : "caf\u00e9 \/" , "n":12345678901234567890123 }"#,
        r#""{\"text\": \"caf\\u00e9 /\"}""#,
    ] {
        let id = 1000 + args.len();
        gateway.expect(&id.to_string());
        gateway
            .send(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"mcp_call","arguments":{{"tool":"a:echo","args":{args}}},"_meta":{{"x":1}}}}}}"#
            ))
            .unwrap();
        assert_eq!(gateway.answer(id as u64).text(), Some("café /"), "{args}");
    }
    gateway.end();
}

fn direct(workspace: &Workspace) -> std::process::Command {
    workspace.command(Path::new(&programs::chaos_child())).unwrap()
}
