//! A client may write its messages over any number of lines; a server receives one line per message, on every path.
//! Scripts have a separate test, `hazards/frames.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use metamcp_testkit::{Server, Workspace, programs};
use serde_json::{Value, json};

use crate::served::{Served, Session};
use crate::wire::Request;

/// What counts as a line break for one parser or another.
const ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Arguments with a mark, spread over lines, around forged messages.
fn arguments(mark: &str) -> String {
    let forged = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"secret","arguments":{}}}"#;
    let spread = forged.replace(',', "\r\n,\n").replace('{', "{\n");
    let quoted = Value::from(format!("\u{2028}\n{forged}\n\u{85}{forged}\u{2029}"));
    format!(
        "\n{{\r\n\"mark\"\n:\n\"{mark}\",\n\"a\":[\n{forged}\n,\n{spread}\n],\"b\":\n{quoted}\r}}\n"
    )
}

fn post(session: &Session<'_>, method: &str, params: &str) {
    let body = format!(
        "{{\n\"jsonrpc\":\"2.0\",\"id\":\r\n4,\n\"method\":\"{method}\",\"params\":\n{params}\n}}\n"
    );
    let request = session.request(Request::post(&json!(0)).body(&body));
    let status = request.send(session.served.address).status;
    assert_eq!(status, 200, "{method}: {body}");
}

fn call(session: &Session<'_>, tool: &str, arguments: &str) {
    let meta = "{\n\"x/y\":\n[\n1\r]\n}";
    let params = format!("{{\n\"name\":\"{tool}\",\"arguments\":{arguments},\n\"_meta\":{meta}}}");
    post(session, "tools/call", &params);
}

fn served(surface: &str) -> (Served, PathBuf) {
    let mut workspace = Workspace::new().unwrap();
    let journal = workspace.file("lines");
    let server = Server::new(programs::line_journal(), &[journal.to_str().unwrap()]);
    workspace.server("alpha", server.setting("deniedTools", json!(["secret"])));
    (Served::start_in(workspace, &["--surface", surface]), journal)
}

#[test]
fn a_call_is_one_line_whoever_makes_it() {
    let (served, journal) = served("both");
    let session = served.session(&json!({}));
    let args = arguments("call");
    call(
        &session,
        "mcp_call",
        &format!("{{\"server\":\"alpha\",\"tool\":\"echo\",\"args\":{args}}}"),
    );
    let args = arguments("run");
    call(&session, "run_tool", &format!("{{\"tool_id\":\"alpha:echo\",\"args\":{args}}}"));
    let args = arguments("chain");
    let steps = format!("[\n{{\"tool_id\":\"alpha:echo\",\"args\":{args}\n}}\n]");
    call(&session, "run_chain", &format!("{{\"steps\":{steps}}}"));
    // A denied tool stays denied, on however many lines.
    let args = arguments("denied");
    call(
        &session,
        "mcp_call",
        &format!("{{\"server\":\"alpha\",\n\"tool\":\"secret\",\"args\":{args}}}"),
    );
    assert_eq!(marks(&journal), ["call", "run", "chain"]);
    served.end();
}

#[test]
fn a_request_of_direct_mode_is_one_line() {
    let (served, journal) = served("direct");
    let session = served.session(&json!({}));
    call(&session, "echo", &arguments("direct"));
    call(&session, "secret", &arguments("denied"));
    post(&session, "resources/read", "{\n\"uri\":\"x:\\n\u{2028}y\",\n\"more\":\n[\n]\n}");
    post(&session, "prompts/get", "{\n\"name\":\"p\",\"arguments\":\n{\"a\":\n\"\u{85}\"}\n}");
    assert_eq!(marks(&journal), ["direct"]);
    served.end();
}

/// The marks of the calls that a server received. Every line must be one message of a kind that we send.
fn marks(journal: &Path) -> Vec<String> {
    let text = fs::read_to_string(journal).unwrap();
    let mut marks = Vec::new();
    for line in text.strip_suffix('\n').unwrap().split('\n') {
        assert!(!line.contains(ENDS), "more than one line to some readers: {line:?}");
        let message: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        match message["method"].as_str().unwrap_or_default() {
            "tools/call" => {
                assert_eq!(message["params"]["name"], "echo", "{line}");
                let mark = &message["params"]["arguments"]["mark"];
                marks.push(mark.as_str().unwrap_or_default().to_owned());
            }
            "initialize"
            | "notifications/initialized"
            | "tools/list"
            | "server/discover"
            | "resources/read"
            | "prompts/get"
            | "resources/list"
            | "prompts/list"
            | "resources/templates/list" => {}
            _ => panic!("nobody of ours says this: {line}"),
        }
    }
    marks
}
