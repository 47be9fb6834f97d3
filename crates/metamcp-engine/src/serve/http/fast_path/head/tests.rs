use super::*;

const ORDINARY: &str = "POST /mcp HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: application/json\r\nContent-Length: 12\r\nConnection: Keep-Alive\r\n\r\n";

fn whole(text: &str) -> Option<Box<Head>> {
    match parse(text.as_bytes()) {
        ParsedHead::Complete(head) => Some(head),
        ParsedHead::Partial | ParsedHead::Unsupported => None,
    }
}

#[test]
fn an_ordinary_head_is_complete_with_its_last_byte() {
    for end in 0..ORDINARY.len() {
        assert!(matches!(parse(&ORDINARY.as_bytes()[..end]), ParsedHead::Partial), "{end}");
    }
    let head = whole(&format!("{ORDINARY}{{\"a\":1}}")).unwrap();
    assert_eq!((head.size, head.length), (ORDINARY.len(), 12));
    assert_eq!(head.parts.uri.path(), "/mcp");
    assert_eq!(head.parts.headers["host"], "localhost:1");
    assert_eq!(head.parts.headers.len(), 3, "all but the length");
}

#[test]
fn everything_else_is_for_hyper() {
    let long = format!("{}x: y", "x: y\r\n".repeat(MAX_HEADERS));
    for (from, to) in [
        ("POST", "GET"),
        ("POST", "post"),
        ("/mcp", "*"),
        ("/mcp", "http://localhost/mcp"),
        ("/mcp", "localhost:1"),
        ("HTTP/1.1", "HTTP/1.0"),
        ("HTTP/1.1", "HTTP/2.0"),
        ("Content-Length: 12", "Transfer-Encoding: chunked"),
        ("Content-Length: 12", "Content-Length: 12\r\nTransfer-Encoding: chunked"),
        ("Content-Length: 12", "Transfer-Encoding: identity\r\nContent-Length: 12"),
        ("Content-Length: 12", "Content-Length: 12\r\nContent-Length: 12"),
        ("Content-Length: 12", "Content-Length: 12\r\ncontent-length: 13"),
        ("Content-Length: 12", "Content-Length: 12, 12"),
        ("Content-Length: 12", "Content-Length: +12"),
        ("Content-Length: 12", "Content-Length: -12"),
        ("Content-Length: 12", "Content-Length: 0x12"),
        ("Content-Length: 12", "Content-Length: "),
        ("Content-Length: 12", "Content-Length: 123456789"),
        ("Content-Length: 12", "Content-Length : 12"),
        ("Content-Length: 12", "Content-Length:\r\n 12"),
        ("Content-Length: 12\r\n", ""),
        ("HTTP/1.1\r\n", "HTTP/1.1\n"),
        ("localhost:1\r\n", "localhost:1\n"),
        ("\r\n\r\n", "\r\n\n"),
        ("\r\n\r\n", "\n\n"),
        ("POST", "\nPOST"),
        ("Keep-Alive", "close"),
        ("Keep-Alive", "keep-alive, close"),
        ("Keep-Alive", "upgrade"),
        ("Connection: Keep-Alive", "Upgrade: websocket"),
        ("Connection: Keep-Alive", "Expect: 100-continue"),
        ("Connection: Keep-Alive", "TE: trailers"),
        ("Connection: Keep-Alive", "Trailer: x"),
        ("Connection: Keep-Alive", "x\u{0}y: z"),
        ("Connection: Keep-Alive", "x y: z"),
        ("Connection: Keep-Alive", long.as_str()),
    ] {
        let text = ORDINARY.replacen(from, to, 1);
        assert!(matches!(parse(text.as_bytes()), ParsedHead::Unsupported), "{text}");
    }
}

#[test]
fn a_head_is_the_same_but_for_the_length_it_says() {
    let first = whole(ORDINARY).unwrap();
    for (said, length) in [("12", 12), ("7", 7), ("0", 0), ("12345678", 12_345_678), ("007", 7)] {
        let text = ORDINARY.replace("12", said);
        let found = first.fits(format!("{text}body").as_bytes());
        assert_eq!(found, Some((text.len(), length)), "{said}");
        let again = whole(&text).unwrap();
        assert_eq!(found, Some((again.size, again.length)), "as if it were read anew: {said}");
    }
    for said in ["", "123456789", "+1", "1 ", "1, 1", "1\r\nX: y", "1\r\nContent-Length: 2"] {
        assert_eq!(first.fits(ORDINARY.replace("12", said).as_bytes()), None, "{said:?}");
    }
    for (from, to) in [("/mcp", "/mcp/full"), (":1\r", ":2\r"), ("Keep-Alive", "close")] {
        assert_eq!(first.fits(ORDINARY.replace(from, to).as_bytes()), None, "{to}");
    }
    for end in 0..ORDINARY.len() {
        assert_eq!(first.fits(&ORDINARY.as_bytes()[..end]), None, "{end}");
    }
}
