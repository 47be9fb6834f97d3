//! The token that is generated if none is configured, running without one, and tokens restricted to one toolset.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::served::{Served, call, initialize, token_file};
use crate::wire::Request;

fn metamcp(workspace: &Workspace, args: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_metamcp"));
    let mut command = workspace.command(program).unwrap();
    command.args(args).stdin(Stdio::null());
    command
}

fn at(target: &str, request: Request) -> Request {
    Request { target: target.to_owned(), ..request }
}

fn bearer(token: &str, request: Request) -> Request {
    request.with("Authorization", &format!("Bearer {token}"))
}

fn hello() -> Request {
    Request::post(&initialize("2025-06-18", &json!({})))
}

/// A request of the stateless revision.
fn stateless() -> Request {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut body = call(1, "effect", &json!({"key": "stolen"}));
    body["params"]["_meta"] = meta;
    Request::post(&body)
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", "tools/call")
        .with("Mcp-Name", "mcp_call")
}

#[test]
fn without_the_token_every_path_is_refused() {
    for transport in ["http", "sse"] {
        let served = Served::start(&["--transport", transport]);
        let token = served.token();
        let file = token_file(&served.workspace);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let session = served.session(&json!({}));
        assert_eq!(session.text(1, "echo", &json!({"text": "mine"})), "mine");

        let steal = call(2, "effect", &json!({"key": "stolen"}));
        let text = steal.to_string();
        let chunk = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
        let mut tried = vec![
            hello(),
            session.request(Request::post(&steal)),
            session.request(Request::get("/mcp")),
            session.request(Request::new("DELETE", "/mcp")),
            stateless(),
            // Through hyper, and with a chunked body.
            session.request(Request::post(&steal)).with("TE", "trailers"),
            session
                .request(Request::post(&steal).body(&chunk))
                .with("Transfer-Encoding", "chunked"),
        ];
        for target in ["/mcp/direct", "/mcp/full"] {
            tried.push(at(target, hello()));
            tried.push(at(target, stateless()));
        }
        if transport == "sse" {
            tried.push(Request::get("/sse"));
            let id = "0".repeat(32);
            tried.push(at(&format!("/messages?sessionId={id}"), Request::post(&steal)));
        }
        let in_the_address = format!("/mcp?access_token={token}");
        tried.push(at(&in_the_address, hello()));
        for request in tried {
            for (request, error) in [
                (request.clone().anonymous(), ""),
                (bearer("wrong", request.clone()), "invalid_token"),
                (bearer(&token[..token.len() - 1], request.clone()), "invalid_token"),
                (request.clone().with("Authorization", &format!("Basic {token}")), ""),
                (request.with("Authorization", &token), ""),
            ] {
                let mut response = request.send(served.address);
                assert_eq!(response.status, 401, "{request:?}");
                let how = response.header("www-authenticate").unwrap().to_owned();
                assert!(how.starts_with("Bearer resource_metadata="), "{how}");
                assert!(how.contains(error) && !how.contains(&token), "{how}");
                assert!(!response.text().contains(&token), "{request:?}");
            }
        }
        assert_eq!(session.text(3, "echo", &json!({"text": "still"})), "still");
        assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 2);
        // The public endpoints work without a token.
        for target in ["/healthz", "/readyz", "/.well-known/oauth-protected-resource/mcp"] {
            let response = Request::new("GET", target).anonymous().send(served.address);
            assert_eq!(response.status, 200, "{target}");
        }
        // It says where the token is, and never shows it.
        let said = served.said();
        assert!(said.contains(file.to_str().unwrap()), "{said}");
        assert!(said.contains("Authorization: Bearer"), "{said}");
        assert!(!said.contains(&token), "{said}");
        served.end();
    }
}

#[test]
fn names_and_pages_are_judged_before_tokens() {
    let served = Served::start(&["--allowed-origins", "https://app.example.org"]);
    for (name, value) in
        [("Host", "evil.example.org"), ("Origin", "https://evil.example.org"), ("Origin", "null")]
    {
        // With the right token and without.
        assert_eq!(hello().with(name, value).send(served.address).status, 403, "{value}");
        let anonymous = hello().anonymous().with(name, value);
        assert_eq!(anonymous.send(served.address).status, 403, "{value}");
    }
    let page = "https://app.example.org";
    let preflight = Request::new("OPTIONS", "/mcp").anonymous().with("Origin", page);
    let told = preflight.with("Access-Control-Request-Method", "POST").send(served.address);
    assert_eq!(told.status, 204);
    assert!(told.header("access-control-allow-headers").unwrap().contains("Authorization"));
    // An allowed page can read why it was refused.
    let refused = hello().anonymous().with("Origin", page).send(served.address);
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(page)));
    served.end();
}

#[test]
fn the_token_stays_until_it_is_rotated() {
    let served = Served::start(&["--session-timeout", "2000"]);
    let token = served.token();
    let print = |args: &[&str]| {
        let output = metamcp(&served.workspace, args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        (String::from_utf8(output.stdout).unwrap(), said)
    };
    assert_eq!(print(&["token"]), (format!("{token}\n"), String::new()));
    let told: Value = serde_json::from_str(&print(&["token", "--json"]).0).unwrap();
    let file = token_file(&served.workspace);
    assert_eq!(told, json!({"file": file, "token": token, "rotated": false}));
    assert_eq!(bearer(&token, hello()).send(served.address).status, 200);
    let (fresh, said) = print(&["token", "--rotate"]);
    let fresh = fresh.trim();
    assert!(fresh != token && said.contains("30 seconds"), "{said}");
    // The old token is rejected, although a request with it succeeded before.
    assert_eq!(bearer(fresh, hello()).send(served.address).status, 200);
    assert_eq!(bearer(&token, hello()).send(served.address).status, 401);
    served.end();
}

#[test]
fn a_token_others_could_read_is_not_used() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    assert!(metamcp(&workspace, &["token"]).output().unwrap().status.success());
    let file = token_file(&workspace);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let output = metamcp(&workspace, &["--transport", "http", "--port", "0"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("metamcp token --rotate"), "{said}");
    assert!(!said.contains(fs::read_to_string(&file).unwrap().trim()), "{said}");
}

#[test]
fn without_tokens_nothing_can_be_installed() {
    let served = Served::start(&["--no-auth"]);
    assert!(!token_file(&served.workspace).exists());
    let session = served.session(&json!({"elicitation": {}}));
    let params =
        json!({"name": "mcp_provision", "arguments": {"intent": "x", "autoProvision": true}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = session.post(&body).text();
    assert!(answer.contains("provisioning is switched off here"), "{answer}");
    let tells = || served.said().contains("every program and every user");
    assert!(eventually(Duration::from_mins(1), tells), "{}", served.said());
    let refused = |flags: &[&str]| {
        let args = [&["--transport", "http", "--port", "0"], flags].concat();
        let output = metamcp(&served.workspace, &args).output().unwrap();
        assert!(!output.status.success(), "{flags:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for open in ["--no-auth", "--allow-unauthenticated"] {
        let said = refused(&[open, "--provision", "true"]);
        assert!(said.contains("--provision false"), "{said}");
    }
    let said = refused(&["--no-auth", "--host", "0.0.0.0"]);
    assert!(said.contains("can be reached from other machines"), "{said}");
    let said = refused(&["--no-auth", "--token-env", "PATH"]);
    assert!(said.contains("leave one of them out"), "{said}");
    drop(session);
    served.end();
}

#[test]
fn a_token_of_a_toolset_opens_nothing_else() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[])).server("b", chaos_server(&[]));
    workspace.setting("toolsets", json!({"one": {"servers": ["a"]}, "two": {"servers": ["b"]}}));
    let file = workspace.file("tokens");
    fs::write(&file, "bound-token name=bob toolset=one\nfree-token name=ada\n").unwrap();
    let served = Served::start_in(
        workspace,
        &["--transport", "sse", "--token-file", file.to_str().unwrap()],
    );
    let one = "/mcp/toolsets/one";
    let bound = |request: Request| bearer("bound-token", request);
    for target in ["/mcp", "/mcp/full", "/mcp/direct", "/mcp/toolsets/two"] {
        for request in [at(target, hello()), at(target, stateless()), Request::get(target)] {
            let response = bound(request).send(served.address);
            assert_eq!(response.status, 403, "{target}");
            let how = response.header("www-authenticate").unwrap();
            assert!(how.contains("insufficient_scope"), "{how}");
        }
        assert_eq!(bearer("free-token", at(target, hello())).send(served.address).status, 200);
    }
    assert_eq!(bound(Request::get("/sse")).send(served.address).status, 403);
    let message = at(&format!("/messages?sessionId={}", "0".repeat(32)), hello());
    assert_eq!(bound(message).send(served.address).status, 403);

    // It may use its own toolset, and sees only that.
    let opened = bound(at(one, hello())).send(served.address);
    assert_eq!(opened.status, 200);
    let id = opened.header("mcp-session-id").unwrap().to_owned();
    let mine = |request: Request| bound(at(one, request)).with("Mcp-Session-Id", &id);
    let run = |server: &str| {
        let arguments = json!({"server": server, "tool": "echo", "args": {"text": "hi"}});
        let params = json!({"name": "mcp_call", "arguments": arguments});
        let body = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        mine(Request::post(&body)).send(served.address).text()
    };
    assert!(run("a").contains("\"hi\""));
    assert!(run("b").contains("\"isError\":true"));
    // A session of one token cannot be used with the other, at either endpoint.
    for target in [one, "/mcp"] {
        let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
        let other = bearer("free-token", at(target, Request::post(&ping)));
        let status = other.with("Mcp-Session-Id", &id).send(served.address).status;
        assert_eq!(status, 404, "{target}");
    }
    assert_eq!(served.workspace.journal("b").count(EventKind::Execute).unwrap(), 0);
    served.end();
}
