//! Any request: its head is judged without a panic and never admitted for a foreign host or origin, its body is parsed the
//! same before and after it is put on one line, and ids have one spelling. A head that the fast path takes says in one way
//! only where its body ends.

use bytes::Bytes;
use metamcp_engine::serve::http::access::{Access, Principal, Token};
use metamcp_engine::serve::http::fast_path::head::{ParsedHead, parse};
use metamcp_engine::serve::http::guard::{Head, Rules};
use metamcp_engine::serve::http::post_body::{PostBody, one_line};
use metamcp_engine::serve::http::sessions::SessionId;
use metamcp_engine::serve::http::stream::{EventId, from_event_id};

/// Checks one input: the parts of a head, separated by line breaks, then the body.
pub(crate) fn check(data: &[u8]) {
    let mut parts = data.splitn(9, |byte| *byte == b'\n');
    let mut next = || std::str::from_utf8(parts.next().unwrap_or_default()).ok();
    let head = Head {
        method: next().unwrap_or("POST"),
        path: next().unwrap_or("/mcp"),
        authority: next().filter(|text| !text.is_empty()),
        host: next(),
        origin: next().filter(|text| !text.is_empty()),
        content_type: next(),
        is_encoded: false,
        accept: next(),
        doubtful: None,
    };
    check_head(&head);
    check_texts(next().unwrap_or_default());
    check_fast_path(data);
    check_fast_path(&[BEFORE, data, AFTER].concat());
    check_body(data);
    check_body(parts.next().unwrap_or_default());
}

fn check_head(head: &Head<'_>) {
    for bits in 0..8_u8 {
        let rules = Rules {
            local: true,
            hosts: vec!["ours.example.org".to_owned()],
            origins: vec!["https://app.example.org".to_owned()],
            legacy: bits & 1 > 0,
            toolsets: Vec::new(),
            restricted_to: None,
            stateless: bits & 2 > 0,
            json: bits & 4 > 0,
        };
        let Ok(admitted) = rules.admit(head) else { continue };
        if !admitted.route.is_guarded() {
            continue;
        }
        let host = head.host.expect("nobody comes in without a host").to_ascii_lowercase();
        let is_ours = ["localhost", "127.", "[", "ours.example.org"].iter();
        assert!(is_ours.clone().any(|ours| host.starts_with(ours)), "{host:?}");
        assert!(!host.contains(['@', '/', ' ', ',']), "{host:?}");
        if let Some(origin) = head.origin {
            let ours = ["http://localhost", "https://localhost", "https://app.example.org"];
            let is_address = |origin: &str| {
                origin.split_once("://").is_some_and(|(_, host)| host.starts_with(['1', '[']))
            };
            let origin = origin.to_ascii_lowercase();
            let is_ours = ours.iter().any(|ours| origin.starts_with(ours)) || is_address(&origin);
            assert!(is_ours && origin != "null", "{origin:?}");
        }
    }
}

/// A head for the fast path, but for the Content-Length between the two.
const BEFORE: &[u8] = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: ";
const AFTER: &[u8] = b"\r\nAccept: */*\r\n\r\n";

fn check_fast_path(data: &[u8]) {
    let found = match parse(data) {
        ParsedHead::Complete(head) => Some((head.size, head.length)),
        ParsedHead::Partial | ParsedHead::Unsupported => None,
    };
    if let Some((size, _)) = found {
        let head = data[..size].to_ascii_lowercase();
        assert!(head.trim_ascii_start().starts_with(b"post /"));
        assert!(head.ends_with(b"\r\n\r\n"));
        let mut lines = head.split(|byte| *byte == b'\n').rev().skip(1);
        assert!(lines.all(|line| line.ends_with(b"\r")), "a line feed alone ends no line");
        let lines = |name: &[u8]| {
            head.split(|byte| matches!(byte, b'\n' | b'\r'))
                .filter(|line| line.starts_with(name))
                .count()
        };
        assert_eq!((lines(b"content-length:"), lines(b"transfer-encoding")), (1, 0));
    }
    let ParsedHead::Complete(known) = parse(&[BEFORE, b"2", AFTER].concat()) else {
        panic!("an ordinary head is not taken");
    };
    if let Some(same) = known.fits(data) {
        assert_eq!(found, Some(same), "recognised as it is read");
    }
}

fn check_texts(text: &str) {
    if let Some(id) = SessionId::parse(text) {
        assert_eq!(id.text(), text);
    }
    if let Some(EventId { stream, position, .. }) = from_event_id(text) {
        let plain = EventId { stream, position, requests: Vec::new() };
        assert_eq!(from_event_id(&format!("{stream}-{position}")), Some(plain));
    }
    let access = Access::new([Token::named("one", "a token")], None);
    let shown = access.visitor(Some(text), 0);
    assert!(shown.is_err() || text.trim_end().ends_with("a token"), "{text:?}");
    let anybody = Access::open().visitor(Some(text), 0).map(|visitor| visitor.principal);
    assert_eq!(anybody, Ok(Principal::ANYBODY));
}

fn check_body(body: &[u8]) {
    let whole = Bytes::copy_from_slice(body);
    let Ok(line) = one_line(whole) else {
        assert!(PostBody::read(body).is_err());
        return;
    };
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
    match (PostBody::read(body), PostBody::read(&line)) {
        (Ok(before), Ok(after)) => {
            assert_eq!(before.requests().len(), after.requests().len());
            assert_eq!(before.initializes(), after.initializes());
            assert_eq!(before.batch, after.batch);
            assert!(after.requests().len() <= after.messages.len());
        }
        (Err(_), Err(_)) => {}
        (before, after) => panic!("{before:?} became {after:?}"),
    }
}
