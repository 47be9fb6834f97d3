//! Invalid lines from the client: answered with an error, and the next line is processed.

use std::io::Write as _;
use std::process::Stdio;

use metamcp_testkit::{Workspace, chaos_server};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG, command};

/// The smallest limit allowed.
const LIMIT: usize = 65_536;

#[test]
fn what_is_not_a_message_is_answered_with_what_is_wrong() {
    let gateway = honest();
    let cases: [(&[u8], &str, i64); 17] = [
        (b"hello", "null", -32700),
        (b"{", "null", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":71,\"method\":\"ping\"}}", "null", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":71,\"method\":\"p\xffing\"}", "null", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":71,\"method\":\"p\0ing\"}", "null", -32700),
        (b"\0\0", "null", -32700),
        (b"42", "null", -32600),
        (b"null", "null", -32600),
        (b"\"ping\"", "null", -32600),
        (b"{}", "null", -32600),
        (b"[]", "null", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":71}", "71", -32600),
        (b"{\"jsonrpc\":\"1.0\",\"id\":71,\"method\":\"ping\"}", "71", -32600),
        (b"{\"id\":71,\"method\":\"ping\"}", "71", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":71,\"method\":7}", "71", -32600),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":71,\"method\":\"ping\",\"method\":\"tools/list\"}",
            "71",
            -32600,
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":71,\"method\":\"no/such\"}", "71", -32601),
    ];
    let mut answers = std::collections::HashMap::new();
    for (line, id, code) in cases {
        let earlier = answers.entry(id).or_insert(0);
        gateway.expect(id);
        gateway.send_bytes(line).unwrap();
        gateway.send_bytes(b"\n").unwrap();
        let answer = gateway.wait_as(id, *earlier, HUNG);
        let answer = answer.unwrap_or_else(|e| panic!("{}: {e:#}", String::from_utf8_lossy(line)));
        *earlier += 1;
        assert_eq!(
            answer.value["error"]["code"],
            code,
            "{}: {}",
            String::from_utf8_lossy(line),
            answer.value
        );
        gateway.ping();
    }
    gateway.end();
}

#[test]
fn lines_that_only_look_odd_are_read() {
    let gateway = honest();
    gateway.send_bytes(b"\n\r\n   \n\t\r\n").unwrap();
    for (number, line) in [
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":70,\"method\":\"ping\"}\r\n",
        "  { \"method\" : \"ping\" , \"id\" : 71 , \"jsonrpc\" : \"2.0\" , \"unknown\" : [1] }  \n",
        "{\"jsonrpc\":\"2.0\",\"id\":72,\"method\":\"ping\",\"params\":{}}\n",
        "{\"\\u006asonrpc\":\"2.0\",\"id\":73,\"method\":\"p\\u0069ng\"}\n",
    ]
    .into_iter()
    .enumerate()
    {
        gateway.expect(&(70 + number).to_string());
        // In two halves, as a pipe may deliver it.
        let (first, second) = line.as_bytes().split_at(line.len() / 2);
        gateway.send_bytes(first).unwrap();
        gateway.send_bytes(second).unwrap();
        assert_eq!(gateway.answer(70 + number as u64).result(), Some(&json!({})), "{line:?}");
    }
    // Responses to unknown ids and unknown notifications are ignored.
    gateway.send(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#).unwrap();
    gateway.send(r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#).unwrap();
    gateway.send(r#"{"jsonrpc":"2.0","method":"notifications/unknown","params":{}}"#).unwrap();
    gateway.ping();
    gateway.end();
}

#[test]
fn every_request_of_a_batch_is_answered_where_the_revision_has_batches() {
    let gateway = honest();
    // The same as over HTTP: batches existed in one revision only.
    gateway.expect("null");
    gateway.send(r#"[{"jsonrpc":"2.0","id":80,"method":"ping"}]"#).unwrap();
    let refused = gateway.wait_as("null", 0, HUNG).unwrap();
    assert_eq!(refused.value["error"]["code"], -32600, "{}", refused.value);
    let hello = json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    gateway.ask("initialize", &hello, HUNG).unwrap();
    for id in ["81", "\"b\"", "null"] {
        gateway.expect(id);
    }
    gateway
        .send(
            r#"[{"jsonrpc":"2.0","id":81,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},7,{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"mcp_call","arguments":{"tool":"a:echo","args":{"text":"x"}}}}]"#,
        )
        .unwrap();
    assert_eq!(gateway.answer(81).result(), Some(&json!({})));
    assert_eq!(gateway.wait_as("\"b\"", 0, HUNG).unwrap().text(), Some("x"));
    assert_eq!(gateway.wait_as("null", 1, HUNG).unwrap().value["error"]["code"], -32600);
    gateway.end();
}

#[test]
fn what_stands_twice_reaches_no_server_however_long_it_is() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    let long = format!(r#","padding":"{}""#, "p".repeat(1_200_000));
    let cases = [
        (r#"{"key":"a","key":"b"}"#.to_owned(), "{}"),
        (format!(r#"{{"key":"a","key":"b"{long}}}"#), "{}"),
        (r#"{"key":"a"}"#.to_owned(), r#"{"progressToken":1,"progressToken":2}"#),
    ];
    for (earlier, (args, meta)) in cases.into_iter().enumerate() {
        gateway.expect("\"t\"");
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":"t","method":"tools/call","params":{{"name":"mcp_call","arguments":{{"tool":"a:effect","args":{args}}},"_meta":{meta}}}}}"#
        );
        gateway.send(&line).unwrap();
        let answer = gateway.wait_as("\"t\"", earlier, HUNG).unwrap();
        let refused =
            answer.value["error"]["code"] == -32602 || answer.value["result"]["isError"] == true;
        assert!(refused, "{earlier}: {}", answer.value);
    }
    let journal = gateway.workspace.journal("a");
    assert_eq!(journal.count(metamcp_testkit::EventKind::Execute).unwrap(), 0);
    gateway.end();
}

#[test]
fn a_line_that_is_too_long_is_refused_by_its_id_and_nothing_runs() {
    let gateway = honest();
    let call = |padding: usize| -> (u64, String) {
        let id = 90 + (padding as u64 % 7);
        let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "mcp_call", "arguments":
            {"tool": "a:effect", "args": {"key": id.to_string(), "padding": "p".repeat(padding)}}}});
        (id, line.to_string())
    };
    for padding in [LIMIT, 4_000_001] {
        let (id, line) = call(padding);
        gateway.expect(&id.to_string());
        gateway.send(&line).unwrap();
        let answer = gateway.answer(id);
        assert_eq!(answer.value["error"]["code"], -32600, "{}", answer.value);
        let message = answer.value["error"]["message"].as_str().unwrap();
        assert!(message.contains(&line.len().to_string()), "{message}");
    }
    // One whose id cannot even be read.
    gateway.expect("null");
    gateway.send(&"x".repeat(LIMIT * 2)).unwrap();
    assert_eq!(gateway.wait_as("null", 0, HUNG).unwrap().value["error"]["code"], -32600);
    // One that just fits.
    let (id, line) = call(LIMIT - 300);
    assert!(line.len() < LIMIT);
    gateway.expect(&id.to_string());
    gateway.send(&line).unwrap();
    assert_eq!(gateway.answer(id).text(), Some(&*format!("done {id}")));
    let workspace = gateway.end();
    let ran = workspace.journal("a").executions_by_key().unwrap();
    assert_eq!(ran.into_keys().collect::<Vec<String>>(), [id.to_string()]);
}

#[test]
fn the_last_line_counts_without_its_newline() {
    let mut gateway = honest();
    gateway.expect("99");
    gateway.send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":99,\"method\":\"ping\"}").unwrap();
    gateway.close_input();
    assert_eq!(gateway.answer(99).result(), Some(&json!({})));
    gateway.client.wait_exit(HUNG).unwrap();
    gateway.end();
}

#[test]
fn invalid_parameters_are_refused_with_a_reason() {
    let gateway = honest();
    for (params, word) in [
        (json!({}), "name"),
        (json!({"name": 7}), "name"),
        (json!({"name": "mcp_cal"}), "mcp_call"),
        (json!({"name": "mcp_call"}), "arguments"),
        (json!({"name": "mcp_call", "arguments": {"server": "a"}}), "tool"),
        (json!({"name": "mcp_call", "arguments": {"tool": 7}}), "tool"),
        (json!({"name": "mcp_call", "arguments": {"tool": "a:echo", "args": [1]}}), "args"),
        (json!({"name": "mcp_call", "arguments": {"tool": "a:echo", "args": "{"}}), "args"),
    ] {
        let answer = gateway.ask("tools/call", &params, HUNG).unwrap();
        let error: &Value = &answer.value["error"];
        assert_eq!(error["code"], -32602, "{params}: {}", answer.value);
        assert!(error["message"].as_str().unwrap().contains(word), "{params}: {error}");
    }
    gateway.end();
}

/// Models tend to use the protocol's own name, `arguments`.
#[test]
fn arguments_are_taken_by_both_their_names() {
    let gateway = honest();
    let call = |arguments: Value| {
        gateway.ask("tools/call", &json!({"name": "mcp_call", "arguments": arguments}), HUNG)
    };
    let answer = call(json!({"tool": "a:echo", "arguments": {"text": "hi"}})).unwrap();
    assert_eq!(answer.value["result"]["content"][0]["text"], "hi", "{}", answer.value);
    let both = json!({"tool": "a:echo", "args": {}, "arguments": {"text": "hi"}});
    let answer = call(both).unwrap();
    assert_eq!(answer.value["error"]["code"], -32602, "{}", answer.value);
    gateway.end();
}

/// The first thing people and scripts try.
#[test]
fn a_handshake_that_is_piped_in_is_answered() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let mut process = command(&workspace)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}}});
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let mut input = process.stdin.take().unwrap();
    input.write_all(format!("{hello}\n{list}\n").as_bytes()).unwrap();
    drop(input);
    let output = process.wait_with_output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("\"serverInfo\"") && told.contains("\"tools\""), "{told}");
    assert!(!told.contains("shutting down"), "{told}");
}

fn honest() -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace.setting("limits", json!({"maxLineBytes": LIMIT}));
    Gateway::start(workspace)
}
