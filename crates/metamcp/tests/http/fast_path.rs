//! Ordinary POST requests take the HTTP fast path, all others go through hyper: a client must not be able to tell
//! which. Every test runs with the fast path on and off; when off, hyper handles all requests.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use metamcp_testkit::{EventKind, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::served::{Served, Session, call, initialize};
use crate::wire::{PATIENCE, Request, Response};

/// The switch, on and off.
const SWITCH: [&str; 2] = ["--http-fast-path=true", "--http-fast-path=false"];

/// Has no meaning for the gateway, and keeps a request off the fast path.
const BY_HYPER: (&str, &str) = ("TE", "trailers");

fn connect(served: &Served) -> TcpStream {
    let socket = TcpStream::connect(served.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// The next response on a connection, with sorted headers, and without the values of date and session id.
fn next(socket: &TcpStream) -> (u16, Vec<(String, String)>, String) {
    let mut response = Response::read(Box::new(ByteByByte(socket.try_clone().unwrap())));
    let mut headers = response.headers.clone();
    headers.sort();
    for (name, value) in &mut headers {
        if matches!(name.as_str(), "date" | "mcp-session-id") {
            assert!(!value.is_empty());
            value.clear();
        }
    }
    (response.status, headers, response.text())
}

/// Reads no more than requested, so that the next response stays in the socket.
struct ByteByByte(TcpStream);

impl Read for ByteByByte {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let one = buffer.len().min(1);
        self.0.read(&mut buffer[..one])
    }
}

fn ping(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

fn bytes(session: &Session<'_>, body: &Value) -> Vec<u8> {
    session.request(Request::post(body)).bytes(session.served.address)
}

/// Requests of all kinds, from a client with that session.
fn requests(session: &Session<'_>) -> Vec<Request> {
    let own = |request: Request| session.request(request);
    let echo = call(3, "echo", &json!({"text": "x".repeat(600)}));
    let long = call(3, "echo", &json!({"text": "x".repeat(20_000)}));
    let nonsense = Request::post(&json!(0)).body("{");
    vec![
        Request::post(&initialize("2025-06-18", &json!({}))),
        own(Request::post(&ping(2))),
        own(Request::post(&echo)),
        own(Request::post(&long)),
        own(Request::post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))),
        own(Request::post(&json!({"jsonrpc": "2.0", "id": 4, "method": "no/such"}))),
        own(Request::post(&json!([ping(5), ping(6)]))),
        own(nonsense),
        Request::post(&ping(7)),
        Request::post(&ping(7)).with("Mcp-Session-Id", "no such"),
        own(Request::post(&ping(7))).with("Host", "evil.example.org"),
        own(Request::post(&ping(7))).with("Origin", "http://evil.example.org"),
        own(Request::post(&ping(7))).with("Content-Encoding", "gzip"),
        own(Request::post(&ping(7))).with("Mcp-Session-Id", "twice"),
        Request { target: "/elsewhere".to_owned(), ..own(Request::post(&ping(7))) },
    ]
}

/// Compares the fast path with hyper in one gateway, and with a gateway whose fast path is off.
#[test]
fn both_paths_answer_alike() {
    let [on, off] = SWITCH.map(|switch| Served::start(&[switch]));
    let [session_on, session_off] =
        [&on, &off].map(|served| served.session_of("2025-06-18", &json!({})));
    let [fast, by_hyper, switched_off] = [&on, &on, &off].map(connect);
    for (request, same) in requests(&session_on).iter().zip(requests(&session_off)) {
        // Twice each: the second time the head equals the one before.
        for _ in 0..2 {
            (&fast).write_all(&request.bytes(on.address)).unwrap();
            let answer = next(&fast);
            let marked = request.clone().with(BY_HYPER.0, BY_HYPER.1);
            (&by_hyper).write_all(&marked.bytes(on.address)).unwrap();
            assert_eq!(answer, next(&by_hyper), "{request:?}");
            (&switched_off).write_all(&same.bytes(off.address)).unwrap();
            assert_eq!(answer, next(&switched_off), "{request:?}");
        }
    }
    on.end();
    off.end();
}

#[test]
fn a_request_in_pieces_is_the_same_request() {
    for switch in SWITCH {
        let served = Served::start(&[switch]);
        let session = served.session(&json!({}));
        let request = bytes(&session, &ping(2));
        let expected = (200, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
        for size in [1, 7, request.len() / 2, request.len() - 1] {
            let (socket, other) = (connect(&served), connect(&served));
            for _ in 0..2 {
                for piece in request.chunks(size) {
                    (&socket).write_all(piece).unwrap();
                    // Once another connection is answered, the gateway has most likely read the piece alone; the test
                    // does not depend on it.
                    (&other).write_all(&bytes(&session, &ping(3))).unwrap();
                    assert_eq!(next(&other).0, 200);
                }
                let (status, _, body) = next(&socket);
                assert_eq!((status, body.trim_end()), expected, "{size}");
            }
        }
        served.end();
    }
}

/// A late body has 30 s; a client rejected by its head gets the error before.
#[test]
fn a_refusal_does_not_wait_for_the_body() {
    for switch in SWITCH {
        let served = Served::start(&["--token-env", "TEST_TOKEN", switch]);
        let whole = Request::post(&ping(2)).bytes(served.address);
        let end = whole.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        for sent in [end, end + 1] {
            let socket = connect(&served);
            (&socket).write_all(&whole[..sent]).unwrap();
            assert_eq!(next(&socket).0, 401);
        }
        served.end();
    }
}

#[test]
fn requests_that_come_together_are_answered_in_their_order() {
    for switch in SWITCH {
        let served = Served::start(&[switch]);
        let session = served.session(&json!({}));
        let socket = connect(&served);
        let mut together = Vec::new();
        for id in 0..200 {
            let body = if id % 3 == 0 { call(id, "echo", &json!({"text": "x"})) } else { ping(id) };
            together.extend(bytes(&session, &body));
            if id == 150 {
                // Not for the fast path: from here on hyper owns the connection.
                let get = session.request(Request::new("GET", "/nowhere"));
                together.extend(get.bytes(served.address));
            }
        }
        (&socket).write_all(&together).unwrap();
        for id in 0..200 {
            let answer: Value = serde_json::from_str(&next(&socket).2).unwrap();
            assert_eq!(answer["id"], id);
            if id == 150 {
                assert_eq!(next(&socket).0, 404);
            }
        }
        served.end();
    }
}

#[test]
fn a_connection_goes_on_after_a_stream_of_events() {
    for switch in SWITCH {
        let served = Served::start(&[switch]);
        let session = served.session(&json!({}));
        let socket = connect(&served);
        for id in [2, 3] {
            (&socket).write_all(&bytes(&session, &ping(id))).unwrap();
            assert_eq!(next(&socket).0, 200);
            let progress = call(id, "progress", &json!({"count": 3}));
            (&socket).write_all(&bytes(&session, &progress)).unwrap();
            let (status, _, events) = next(&socket);
            assert_eq!((status, events.matches("data: ").count()), (200, 4), "{events}");
        }
        assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 2);
        served.end();
    }
}

#[test]
fn an_admission_is_not_reused_for_another_head() {
    for switch in SWITCH {
        let served = Served::start(&["--token-env", "TEST_TOKEN", switch]);
        let token = "Bearer the token of the environment";
        let hello = Request::post(&initialize("2025-06-18", &json!({})));
        let socket = connect(&served);
        for (token, status) in [(token, 200), (token, 200), ("Bearer another", 401), (token, 200)] {
            let request = hello.clone().with("Authorization", token);
            (&socket).write_all(&request.bytes(served.address)).unwrap();
            assert_eq!(next(&socket).0, status);
        }
        (&socket).write_all(&hello.bytes(served.address)).unwrap();
        assert_eq!(next(&socket).0, 401);
        served.end();
    }
}

#[test]
fn a_deleted_session_is_gone_for_a_head_that_was_admitted() {
    for switch in SWITCH {
        let served = Served::start(&[switch]);
        let session = served.session(&json!({}));
        let socket = connect(&served);
        let request = bytes(&session, &ping(2));
        (&socket).write_all(&request).unwrap();
        assert_eq!(next(&socket).0, 200);
        session.request(Request::new("DELETE", "/mcp")).send(served.address);
        (&socket).write_all(&request).unwrap();
        assert_eq!(next(&socket).0, 404);
        served.end();
    }
}

#[test]
fn a_disconnect_cancels_a_request_where_its_client_cannot_resume() {
    for switch in SWITCH {
        let served = Served::start(&["--stateless", switch]);
        let socket = connect(&served);
        let warm = Request::post(&call(1, "echo", &json!({"text": "warm"}))).bytes(served.address);
        for _ in 0..2 {
            (&socket).write_all(&warm).unwrap();
            assert_eq!(next(&socket).0, 200);
        }
        let slow = Request::post(&call(2, "slow", &json!({"ms": 60_000})));
        (&socket).write_all(&slow.bytes(served.address)).unwrap();
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(EventKind::Execute).unwrap() == 3));
        socket.shutdown(Shutdown::Both).unwrap();
        assert!(eventually(PATIENCE, || journal.of(EventKind::Cancelled).unwrap().len() == 1));
        served.end();
    }
}

#[test]
fn idle_connections_close_with_the_gateway_and_busy_ones_after_their_response() {
    for switch in SWITCH {
        let mut served = Served::start(&[switch]);
        let session = served.session(&json!({}));
        let (resting, working) = (connect(&served), connect(&served));
        for socket in [&resting, &working] {
            let mut socket = socket;
            socket.write_all(&bytes(&session, &ping(2))).unwrap();
            assert_eq!(next(socket).0, 200);
        }
        let slow = call(3, "slow", &json!({"ms": 500}));
        (&working).write_all(&bytes(&session, &slow)).unwrap();
        let journal = served.workspace.journal("a");
        assert!(eventually(PATIENCE, || journal.count(EventKind::Execute).unwrap() == 1));
        served.signal(Signal::SIGTERM);
        let (status, _, body) = next(&working);
        assert_eq!(status, 200, "{body}");
        for mut socket in [resting, working] {
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"");
        }
        assert_eq!(served.wait_exit().code(), Some(0));
    }
}
