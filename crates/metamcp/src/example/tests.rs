use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use serde_json::{Value, json};

use super::{SERVERS, run};

/// Feeds lines to a server and collects its responses until it exits at end of input.
fn lines(name: &str, arguments: &[String], input: &str) -> Vec<Value> {
    let mut output = Vec::new();
    run(name, arguments, &mut Cursor::new(input), &mut output).unwrap();
    let output = String::from_utf8(output).unwrap();
    assert!(output.is_empty() || output.ends_with('\n'));
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ask(name: &str, folder: &Path, requests: &[Value]) -> Vec<Value> {
    let input: String = requests.iter().map(|request| format!("{request}\n")).collect();
    lines(name, &started_with(name, folder), &input)
}

fn started_with(name: &str, folder: &Path) -> Vec<String> {
    match name {
        "files" => vec![folder.display().to_string()],
        "notes" => vec![folder.join("notes.jsonl").display().to_string()],
        _ => Vec::new(),
    }
}

fn request(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

#[test]
fn the_handshake_agrees_on_a_version() {
    let folder = tempfile::tempdir().unwrap();
    let answers = [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ];
    for (name, _, _) in SERVERS {
        for (asked, answered) in answers {
            let hello =
                request("initialize", &json!({ "protocolVersion": asked, "capabilities": {} }));
            let result = &ask(name, folder.path(), &[hello])[0]["result"];
            assert_eq!(result["protocolVersion"], answered);
            assert_eq!(result["serverInfo"]["name"], format!("metamcp-example-{name}"));
            assert!(result["capabilities"]["tools"].is_object());
        }
    }
}

#[test]
fn what_is_not_a_request_it_knows() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#, json!({ "id": "a", "result": {} })),
        (r#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#, json!({ "id": 1, "code": -32601 })),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{}}"#,
            json!({ "id": 2, "code": -32602 }),
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"nope"}}"#,
            json!({ "id": 3, "code": -32602 }),
        ),
        (
            r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"now","arguments":[]}}"#,
            json!({ "id": 4, "code": -32602 }),
        ),
        ("{nonsense", json!({ "id": null, "code": -32700 })),
        ("\u{1b}[2J", json!({ "id": null, "code": -32700 })),
        ("[]", json!({ "id": null, "code": -32600 })),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, Value::Null),
        (r#"{"jsonrpc":"2.0","id":5,"result":{}}"#, Value::Null),
        ("", Value::Null),
    ];
    for (line, expected) in cases {
        // The ping after it shows that the server kept running.
        let input = format!("{line}\n{{\"jsonrpc\":\"2.0\",\"id\":99,\"method\":\"ping\"}}");
        let answers = lines("clock", &[], &input);
        assert_eq!(answers.last().unwrap()["id"], 99, "{line}");
        assert_eq!(answers.len() == 1, expected.is_null(), "{line}");
        if answers.len() > 1 {
            assert_eq!(answers[0]["id"], expected["id"], "{line}");
            assert_eq!(answers[0]["error"]["code"], expected["code"], "{line}");
            assert_eq!(answers[0].get("result"), expected.get("result"), "{line}");
        }
    }
}

#[test]
fn a_line_too_long_is_refused_and_the_next_one_answered() {
    let input = format!(
        "{{\"x\":\"{}\"}}\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}\n",
        "x".repeat(9 << 20)
    );
    let answers = lines("text", &[], &input);
    assert_eq!(answers[0]["error"]["code"], -32600);
    assert_eq!(answers[1]["id"], 1);
}

#[test]
fn wrong_arguments_are_a_tool_error_the_model_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = request(
        "tools/call",
        &json!({ "name": "convert", "arguments": { "time": "noon", "offset": "Z" } }),
    );
    let missing =
        request("tools/call", &json!({ "name": "convert", "arguments": { "time": "noon" } }));
    let answers = ask("clock", folder.path(), &[wrong, missing]);
    let said: Vec<&str> = answers
        .iter()
        .map(|answer| answer["result"]["content"][0]["text"].as_str().unwrap())
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    `noon` is not an RFC 3339 time: expected the form 2025-03-01T09:30:00Z
    the arguments do not fit: offset is missing
    ");
    assert!(answers.iter().all(|answer| answer["result"]["isError"] == true));
}

/// One valid call of every tool, in an order in which each finds what it needs.
fn calls() -> Vec<(&'static str, &'static str, Value)> {
    let time = "2025-03-01T09:30:00Z";
    vec![
        ("files", "write_file", json!({ "path": "a.txt", "content": "one\ntwo\n" })),
        ("files", "list_directory", json!({})),
        ("files", "read_file", json!({ "path": "a.txt", "tail": 1 })),
        ("files", "search_files", json!({ "text": "two" })),
        ("files", "file_info", json!({ "path": "a.txt" })),
        ("notes", "add_note", json!({ "title": "t", "text": "x", "tags": ["k"] })),
        ("notes", "search_notes", json!({ "words": "x" })),
        ("notes", "list_notes", json!({ "tag": "k" })),
        ("notes", "read_note", json!({ "id": 1 })),
        ("notes", "tag_note", json!({ "id": 1, "remove": ["k"] })),
        ("notes", "delete_note", json!({ "id": 1 })),
        ("clock", "now", json!({ "offset": "+05:30" })),
        ("clock", "convert", json!({ "time": time, "offset": "-08:00" })),
        ("clock", "add_duration", json!({ "time": time, "months": 1, "hours": -3 })),
        ("clock", "days_between", json!({ "from": "2025-01-01", "to": time })),
        ("clock", "parse", json!({ "time": time })),
        ("text", "count_words", json!({ "text": "a b" })),
        ("text", "slugify", json!({ "text": "A b" })),
        ("text", "diff", json!({ "before": "a", "after": "b" })),
        ("text", "replace", json!({ "text": "a", "find": "a", "with": "b" })),
        ("text", "encode_base64", json!({ "text": "a" })),
        ("text", "decode_base64", json!({ "base64": "YQ==" })),
        ("text", "sha256", json!({ "text": "a" })),
        ("numbers", "statistics", json!({ "values": [1, 2, 4] })),
        ("numbers", "correlate", json!({ "x": [1, 2], "y": [2, 1] })),
        ("numbers", "convert_unit", json!({ "value": 1, "from": "mi", "to": "km" })),
        ("numbers", "list_units", json!({})),
        ("numbers", "evaluate", json!({ "expression": "6 * 7" })),
        ("numbers", "convert_base", json!({ "digits": "ff", "from": 16 })),
        ("numbers", "factorize", json!({ "number": 91 })),
    ]
}

#[test]
fn every_tool_is_described_and_answers_as_declared() {
    let folder = tempfile::tempdir().unwrap();
    let mut tools: BTreeMap<(&str, String), Value> = BTreeMap::new();
    for (name, _, _) in SERVERS {
        let answer = &ask(name, folder.path(), &[request("tools/list", &json!({}))])[0];
        for tool in answer["result"]["tools"].as_array().unwrap() {
            for part in ["name", "title", "description"] {
                assert!(tool[part].as_str().is_some_and(|text| !text.is_empty()), "{tool}");
            }
            assert!(tool["annotations"]["readOnlyHint"].is_boolean());
            tools.insert((name, tool["name"].as_str().unwrap().to_owned()), tool.clone());
        }
    }
    for (server, name, arguments) in calls() {
        let tool = tools.remove(&(server, name.to_owned())).unwrap();
        let input = jsonschema::validator_for(&tool["inputSchema"]).unwrap();
        input.validate(&arguments).unwrap();
        let params = json!({ "name": name, "arguments": arguments });
        let result =
            ask(server, folder.path(), &[request("tools/call", &params)])[0]["result"].clone();
        assert_eq!(result.get("isError"), None, "{name}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        match tool.get("outputSchema") {
            Some(schema) => {
                let given = &result["structuredContent"];
                jsonschema::validator_for(schema).unwrap().validate(given).unwrap();
                assert_eq!(serde_json::from_str::<Value>(text).unwrap(), *given);
            }
            None => assert_eq!(result.get("structuredContent"), None),
        }
    }
    assert!(tools.is_empty(), "tools without a call here: {:?}", tools.keys());
}

#[test]
fn a_wrong_command_line_says_what_there_is() {
    let wrong = run("file", &["x".to_owned()], &mut Cursor::new(""), &mut Vec::new()).unwrap_err();
    insta::assert_snapshot!(format!("{wrong:#}"), @"no example server is started by `file x`; use one of: files DIR, notes FILE, clock, text, numbers");
    let gone =
        run("files", &["/no/such".to_owned()], &mut Cursor::new(""), &mut Vec::new()).unwrap_err();
    assert!(
        format!("{gone:#}").starts_with("example server files cannot use the folder /no/such: ")
    );
}
