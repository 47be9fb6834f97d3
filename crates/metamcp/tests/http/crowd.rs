//! Many clients: identical request ids, abandoned sessions.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;

use metamcp_testkit::eventually;
use serde_json::json;

use crate::served::{Served, initialize};
use crate::wire::{PATIENCE, Request};

#[test]
fn sixty_four_sessions_that_all_use_the_same_ids_never_cross() {
    let served = Served::start(&[]);
    thread::scope(|scope| {
        for client in 0..64 {
            let served = &served;
            scope.spawn(move || {
                let session = served.session(&json!({}));
                for round in 0..5 {
                    let text = format!("client {client}, round {round}");
                    assert_eq!(session.text(1, "echo", &json!({"text": text})), text);
                }
            });
        }
    });
    served.end();
}

#[test]
fn excess_connections_get_an_error_and_open_ones_go_on() {
    // Half of the file descriptor limit is for clients.
    let served = Served::start_narrow(64);
    let session = served.session(&json!({}));
    assert_eq!(session.text(1, "echo", &json!({"text": "before"})), "before");
    let mut crowd: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    let healthz = || Request::new("GET", "/healthz").send(served.address);
    // The session's own connections may have had slots when the crowd came, which are free now: connect until none is.
    let mut refusal = healthz();
    let full = eventually(PATIENCE, || {
        if refusal.status != 503 {
            crowd.push(TcpStream::connect(served.address).unwrap());
            refusal = healthz();
        }
        refusal.status == 503
    });
    assert!(full);
    assert!(refusal.text().contains("too many connections"));
    crowd.clear();
    assert!(eventually(PATIENCE, || healthz().status == 200));
    assert_eq!(session.text(2, "echo", &json!({"text": "after"})), "after");
    served.end();
}

/// The limit for two hundred thousand abandoned sessions is 64 MB. That many take minutes, so the test measures the
/// share of each.
#[test]
fn abandoned_sessions_take_next_to_nothing() {
    const SESSIONS: u64 = 20_000;
    let served = Served::start(&[]);
    let hello = Request::post(&initialize("2025-11-25", &json!({"roots": {}, "elicitation": {}})));
    let hello = hello.bytes(served.address);
    let open = |count: u64| {
        let mut socket = TcpStream::connect(served.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answers = BufReader::new(socket.try_clone().unwrap());
        for _ in 0..count {
            socket.write_all(&hello).unwrap();
            skip_response(&mut answers);
        }
    };
    // The first ones warm up the allocations for active clients.
    open(2_000);
    let before = resident(served.pid());
    open(SESSIONS);
    let growth = resident(served.pid()).saturating_sub(before);
    let each = growth * 1024 / SESSIONS;
    assert!(each <= 250, "{each} bytes for each of {SESSIONS} sessions, {growth} KiB in all");
    served.end();
}

fn skip_response(answers: &mut BufReader<TcpStream>) {
    let mut length = 0;
    loop {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        if line.starts_with("HTTP/") {
            assert!(line.contains(" 200 "), "{line}");
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    std::io::copy(&mut answers.take(length), &mut std::io::sink()).unwrap();
}

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
