//! Access control: each token has its own sessions; and admission control: no more than there is room for.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use serde_json::json;

use crate::served::{Served, call, initialize};
use crate::wire::{PATIENCE, Request, Response};

fn guarded() -> Served {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let file = workspace.file("tokens");
    fs::write(&file, "# two people\nfirst token\nsecond-token\n").unwrap();
    let flags = ["--token-file", file.to_str().unwrap(), "--token-env", "TEST_TOKEN"];
    Served::start_in(workspace, &flags)
}

fn bearer(request: Request, token: &str) -> Request {
    request.with("Authorization", &format!("Bearer {token}"))
}

#[test]
fn only_those_with_a_token_come_in_and_each_to_its_own_session() {
    let served = guarded();
    let hello = || Request::post(&initialize("2025-11-25", &json!({})));
    for (request, error) in [
        (hello(), false),
        (hello().with("Authorization", "Basic Zmlyc3Q6dG9rZW4="), false),
        (bearer(hello(), "first"), true),
        (bearer(hello(), "first token "), false),
        (bearer(hello(), ""), false),
    ] {
        let mut response = request.send(served.address);
        if response.status == 200 {
            // Whitespace around a token is not part of it.
            assert!(request.headers.iter().any(|(_, value)| value.ends_with("first token ")));
            continue;
        }
        assert_eq!(response.status, 401, "{request:?}");
        let how = response.header("www-authenticate").unwrap().to_owned();
        let metadata = format!("http://{}/.well-known/oauth-protected-resource", served.address);
        assert!(how.contains(&metadata), "{how}");
        assert_eq!(how.contains("invalid_token"), error, "{how}");
        assert_eq!(response.json()["error"]["code"], -32000);
    }
    let mut metadata =
        Request::new("GET", "/.well-known/oauth-protected-resource/mcp").send(served.address);
    assert_eq!(metadata.json()["resource"], format!("http://{}/mcp", served.address));

    let opened = bearer(hello(), "first token").send(served.address);
    let id = opened.header("mcp-session-id").unwrap().to_owned();
    let echo = |token: &str, text: &str| -> Response {
        let request = Request::post(&call(2, "echo", &json!({"text": text})));
        bearer(request.with("Mcp-Session-Id", &id), token).send(served.address)
    };
    assert_eq!(echo("first token", "mine").json()["result"]["content"][0]["text"], "mine");
    assert_eq!(echo("second-token", "stolen").status, 404);
    assert_eq!(echo("the token of the environment", "stolen").status, 404);
    assert_eq!(echo("no token", "stolen").status, 401);
    assert_eq!(served.workspace.journal("a").executions("stolen").unwrap(), 0);
    // Client tokens are never passed on to servers.
    let seen = fs::read_to_string(served.workspace.journal("a").path()).unwrap();
    assert!(!seen.contains("first token") && !seen.contains("token of the environment"));
    served.end();
}

#[test]
fn ids_that_are_guessed_are_nobodys() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    let mut wrong: Vec<String> = (0..session.id.len())
        .map(|at| {
            let mut id = session.id.clone().into_bytes();
            id[at] = if id[at] == b'0' { b'1' } else { b'0' };
            String::from_utf8(id).unwrap()
        })
        .collect();
    wrong.extend(["x".to_owned(), session.id.to_uppercase() + "0", "../../etc".to_owned()]);
    for id in wrong {
        let request = Request::post(&call(2, "echo", &json!({"text": "guessed"})));
        assert_eq!(request.with("Mcp-Session-Id", &id).send(served.address).status, 404, "{id}");
    }
    // A session id made up by the client is not adopted.
    let mut fixed = Request::post(&initialize("2025-11-25", &json!({})))
        .with("Mcp-Session-Id", "00000000000000000000000000000000")
        .send(served.address);
    assert_eq!(fixed.status, 200);
    assert_eq!(fixed.json()["id"], 1);
    assert_ne!(fixed.header("mcp-session-id"), Some("00000000000000000000000000000000"));
    let without = Request::post(&call(2, "echo", &json!({"text": "guessed"})));
    assert_eq!(without.send(served.address).status, 400);
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 0);
    served.end();
}

/// A client that is cut off while it still sends sees a broken connection instead of the reason.
#[test]
fn a_large_body_gets_an_error_response_that_arrives() {
    let served = Served::start(&["--max-line-bytes", "65536", "--token-env", "TEST_TOKEN"]);
    let large = call(2, "echo", &json!({"text": "x".repeat(12 * 1024 * 1024)}));
    let mut unknown = Request::post(&large).send(served.address);
    assert_eq!(unknown.status, 401);
    assert!(unknown.json()["error"]["message"].is_string());
    let known = Request::post(&large).with("Authorization", "Bearer the token of the environment");
    let mut too_large = known.send(served.address);
    assert_eq!(too_large.status, 413);
    assert!(too_large.json()["error"]["message"].as_str().unwrap().contains("65536"));
    // A client that sends `Expect: 100-continue` gets the error at once.
    let asking = known.with("Expect", "100-continue");
    let head = asking.bytes(served.address);
    let end = head.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(raw(&served, &head[..end]).status, 413);
    served.end();
}

#[test]
fn what_is_too_large_or_no_message_is_refused_with_a_reason() {
    let served = Served::start(&["--max-line-bytes", "65536"]);
    let session = served.session(&json!({}));
    let mut large = session.call(2, "echo", &json!({"text": "x".repeat(70_000)}));
    assert_eq!(large.status, 413);
    assert!(large.text().contains("65536"));
    let mut chunked = session
        .request(Request::post(&json!({})).body(""))
        .with("Transfer-Encoding", "chunked")
        .bytes(served.address);
    for _ in 0..20 {
        chunked.extend_from_slice(format!("1000\r\n{}\r\n", " ".repeat(4096)).as_bytes());
    }
    assert_eq!(raw(&served, &chunked).status, 413);
    let many: Request = (0..200).fold(Request::post(&json!({})), |request, number| {
        request.with(&format!("X-{number}"), "y")
    });
    assert_eq!(many.send(served.address).status, 431);
    let long = Request::post(&json!({})).with("X-Long", &"y".repeat(100_000));
    assert_eq!(raw(&served, &long.bytes(served.address)).status, 431);
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"Method":"ping","method":"ping"}"#, -32600),
        ("\u{feff}{}", -32700),
    ] {
        let mut response =
            session.request(Request::post(&json!({})).body(body)).send(served.address);
        assert_eq!(response.status, 400, "{body}");
        assert_eq!(response.json()["error"]["code"], code, "{body}");
    }
    let packed = session.request(Request::post(&call(2, "echo", &json!({"text": "x"}))));
    assert_eq!(packed.with("Content-Encoding", "gzip").send(served.address).status, 415);
    let health = Request::new("HEAD", "/healthz").send(served.address);
    assert_eq!(health.status, 200);
    let version = Request::post(&call(2, "echo", &json!({"text": "x"})))
        .with("Mcp-Session-Id", &session.id)
        .with("MCP-Protocol-Version", "1999-01-01");
    assert_eq!(version.send(served.address).status, 400);
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 0);
    let mut health = Request::new("GET", "/healthz").send(served.address);
    assert_eq!(health.json(), json!({"status": "ok"}));
    served.end();
}

#[test]
fn idle_sessions_end() {
    // A request counts as use, so the timeout is shorter than the pause between two polls.
    let served = Served::start(&["--session-timeout", "1"]);
    let begun = Request::post(&initialize("2025-11-25", &json!({}))).send(served.address);
    let id = begun.header("mcp-session-id").unwrap();
    let ping = Request::post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .with("Mcp-Session-Id", id)
        .with("MCP-Protocol-Version", "2025-11-25");
    assert!(eventually(PATIENCE, || ping.send(served.address).status == 404));
    served.end();
}

fn raw(served: &Served, bytes: &[u8]) -> Response {
    let mut socket = TcpStream::connect(served.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // The response may come before everything is sent.
    socket.write_all(bytes).ok();
    Response::read(Box::new(socket))
}
