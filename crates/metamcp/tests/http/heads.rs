//! Request smuggling: heads that another parser might read differently get 400 and a closed connection, on every path.

use std::io::{Read, Write};
use std::net::TcpStream;

use metamcp_testkit::EventKind;
use serde_json::{Value, json};

use crate::served::{Served, call, initialize};
use crate::wire::{PATIENCE, Request, Response};

/// All responses of a connection, until the server closes it.
fn answers(served: &Served, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(served.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(bytes).unwrap();
    let mut all = Vec::new();
    socket.read_to_end(&mut all).unwrap();
    String::from_utf8(all).unwrap()
}

/// The request with one part of its head replaced.
fn changed(request: &str, from: &str, to: &str) -> String {
    let changed = request.replacen(from, to, 1);
    assert_ne!(changed, request, "{from}");
    changed
}

#[test]
fn ambiguous_request_heads_are_refused_on_every_path() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    let body = call(2, "effect", &json!({"key": "smuggled"}));
    let text = |request: Request| {
        String::from_utf8(session.request(request).bytes(served.address)).unwrap()
    };
    let usual = text(Request::post(&body));
    let length = format!("Content-Length: {}\r\n", body.to_string().len());
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let good = text(Request::post(&ping));
    let library = text(Request::post(&ping).with("TE", "trailers"));
    let twice = format!("{length}{length}");
    let one_more = format!("{length}Content-Length: 1\r\n");
    let both = format!("{length}Transfer-Encoding: chunked\r\n");
    let other = format!("Transfer-Encoding: identity\r\n{length}");
    let bad = [
        changed(&usual, "HTTP/1.1\r\n", "HTTP/1.1\n"),
        changed(&usual, "Accept", "X: y\nAccept"),
        changed(&usual, "\r\n\r\n", "\n\n"),
        changed(&usual, "\r\n\r\n", "\r\n\n"),
        changed(&usual, "POST", "\nPOST"),
        changed(&usual, &length, &twice),
        changed(&usual, &length, &one_more),
        changed(&usual, &length, &both),
        changed(&usual, &length, &other),
        changed(&usual, "Content-Length: ", "Content-Length: +"),
    ];
    for bad in &bad {
        // Alone, after requests on the fast path (whose head is cached by then), and after one handled by hyper.
        for (before, count) in
            [(String::new(), 0), (format!("{good}{good}"), 2), (library.clone(), 1)]
        {
            let all = answers(&served, format!("{before}{bad}{good}").as_bytes());
            let statuses: Vec<&str> = all.matches("HTTP/1.1 ").collect();
            assert_eq!(statuses.len(), count + 1, "{bad:?}\n{all}");
            assert_eq!(all.matches("HTTP/1.1 200 ").count(), count, "{bad:?}\n{all}");
            assert_eq!(all.matches("HTTP/1.1 400 ").count(), 1, "{bad:?}\n{all}");
        }
    }
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 0);
    served.end();
}

#[test]
fn a_body_in_chunks_is_taken_and_the_connection_goes_on() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    let body = call(2, "echo", &json!({"text": "in pieces"})).to_string();
    let head = session.request(Request::post(&json!({})).body(""));
    let head = head.with("Transfer-Encoding", "chunked").bytes(served.address);
    let mut chunked = head.clone();
    for piece in body.as_bytes().chunks(7) {
        chunked.extend(format!("{:x};ext=1\r\n", piece.len()).bytes());
        chunked.extend([piece, b"\r\n"].concat());
    }
    chunked.extend(b"0\r\nX-Trailer: y\r\n\r\n");
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let last = session.request(Request::post(&ping)).with("Connection", "close");
    chunked.extend(last.bytes(served.address));
    let all = answers(&served, &chunked);
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 2, "{all}");
    assert!(all.contains("in pieces"), "{all}");
    // A chunk size line that ends with a bare line feed ends the connection.
    let mut bare = head;
    bare.extend(format!("{:x}\n{body}\r\n0\r\n\r\n", body.len()).bytes());
    let all = answers(&served, &bare);
    assert!(all.starts_with("HTTP/1.1 400 ") && all.matches("HTTP/1.1").count() == 1, "{all}");
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 1);
    served.end();
}

/// Requests of one client that announce a body and never send it; others are not affected.
#[test]
fn who_announces_much_and_sends_nothing_takes_nothing() {
    let mut workspace = metamcp_testkit::Workspace::new().unwrap();
    workspace.server("a", metamcp_testkit::chaos_server(&[]));
    let file = workspace.file("tokens");
    std::fs::write(&file, "greedy\nmodest\n").unwrap();
    let served = Served::start_in(workspace, &["--token-file", file.to_str().unwrap()]);
    let as_who =
        |who: &str, request: Request| request.with("Authorization", &format!("Bearer {who}"));
    let empty = || as_who("greedy", Request::post(&json!({})).body(""));
    let chunked = empty().with("Transfer-Encoding", "chunked").bytes(served.address);
    let large = empty().with("Content-Length", "16000000").bytes(served.address);
    let idle: Vec<TcpStream> = (0..40)
        .map(|at| {
            let mut socket = TcpStream::connect(served.address).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.write_all(if at % 2 == 0 { &chunked } else { &large }).unwrap();
            socket
        })
        .collect();
    // Their heads have been read once later requests are answered; a chunked body takes the same path.
    let hello: Value = initialize("2025-06-18", &json!({}));
    for who in ["modest", "greedy"] {
        let text = hello.to_string();
        let request = as_who(who, Request::post(&json!({})).body(""));
        let mut bytes = request.with("Transfer-Encoding", "chunked").bytes(served.address);
        bytes.extend(format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len()).bytes());
        let mut socket = TcpStream::connect(served.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(&bytes).unwrap();
        assert_eq!(Response::read(Box::new(socket)).status, 200, "{who}");
    }
    drop(idle);
    served.end();
}
