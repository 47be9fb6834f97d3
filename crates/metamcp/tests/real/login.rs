//! OAuth login with a server and an authorization server built from public packages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::installed::{Start, sources, text};
use crate::remote::{Listening, call, free_ports, gateway};
use crate::world::World;

fn script(world: &World, args: &[&str]) -> Start {
    let script = text(&sources().join("oauth.mjs"));
    let args = std::iter::once(script).chain(args.iter().map(|arg| (*arg).to_owned())).collect();
    Start { command: world.installed.node(), args, env: Vec::new() }
}

/// A plain HTTP request to the server, outside of MCP, and the response body.
fn plainly(port: u16, request: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Token grants so far, by authorization code and by refresh token.
fn grants(port: u16) -> (u64, u64) {
    let body = plainly(port, "GET /grants");
    let grants: Value =
        serde_json::from_str(body.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
    let of = |kind: &str| grants[kind].as_u64().unwrap_or(0);
    (of("authorization_code"), of("refresh_token"))
}

#[test]
fn a_person_logs_in_once_and_tokens_are_renewed_without_them() {
    let world = World::new();
    let port = free_ports(2);
    let folder = text(&world.installed.npm());
    let server = script(&world, &["serve", &folder, &port.to_string()]);
    let _listening = Listening::start(&world, &server, port);
    let mut peer = gateway(&world, &format!("http://127.0.0.1:{port}/mcp"));

    let refused = call(&mut peer, "whoami", &json!({}));
    let wrong = &refused["structuredContent"];
    assert_eq!(wrong["code"], "auth_required", "{refused}");
    let visit = script(&world, &["visit", wrong["details"]["url"].as_str().unwrap()]);
    let visited = world.command(&visit).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&visited.stderr);
    assert_eq!(String::from_utf8_lossy(&visited.stdout).trim(), "200", "{said}");

    let who = |result: &Value| result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    let first = call(&mut peer, "whoami", &json!({}));
    assert!(who(&first).contains("mcp:use"), "{first}");
    assert!(!who(&first).contains("mcp:more"), "no more than was asked for: {first}");
    assert_eq!(grants(port), (1, 0));

    // The server revokes the token: it is refreshed silently; then the refreshed one, with the next refresh token.
    for round in 1..=3 {
        plainly(port, "POST /retire");
        let later = call(&mut peer, "whoami", &json!({}));
        assert!(who(&later).contains("mcp:use"), "{later}");
        assert_eq!(grants(port), (1, round));
    }

    // Another gateway of the same user needs no login.
    drop(peer);
    let mut other = gateway(&world, &format!("http://127.0.0.1:{port}/mcp"));
    let result = call(&mut other, "whoami", &json!({}));
    assert!(who(&result).contains("mcp:use"), "{result}");
    assert_eq!(grants(port), (1, 3));
}
