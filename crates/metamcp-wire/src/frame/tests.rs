use super::*;

/// What comes out of a stream that arrives in pieces of this size.
fn lines(stream: &[u8], limit: usize, size: usize) -> Vec<Line> {
    let mut lines = Lines::new(limit);
    let mut found = Vec::new();
    for piece in stream.chunks(size) {
        lines.buffer().extend_from_slice(piece);
        found.extend(std::iter::from_fn(|| lines.next_line()));
    }
    found.extend(std::iter::from_fn(|| lines.finish()));
    found
}

fn messages(stream: &[u8], size: usize) -> Vec<String> {
    let text = |line| match line {
        Line::Message(bytes) => String::from_utf8(bytes.to_vec()).expect("text"),
        Line::Oversize { .. } => panic!("{line:?}"),
    };
    lines(stream, MAX_LINE, size).into_iter().map(text).collect()
}

#[test]
fn lines_come_without_what_surrounds_them() {
    let cases: [(&str, &[&str]); 9] = [
        ("", &[]),
        ("a\nb\n", &["a", "b"]),
        ("a\r\nb\r\n", &["a", "b"]),
        ("\u{feff}a\n\u{feff}b", &["a", "b"]),
        ("\n\r\n \t\n\u{feff}\r\na\n\n", &["a"]),
        ("a\nrest", &["a", "rest"]),
        ("a\n  \r", &["a"]),
        (" a \n", &[" a "]),
        ("a\rb\n", &["a\rb"]),
    ];
    for (stream, expected) in cases {
        for size in [1, 2, 3, 100] {
            assert_eq!(messages(stream.as_bytes(), size), expected, "{stream:?} by {size}");
        }
    }
}

/// The verdict on one line over the limit, the same wherever the line was cut into pieces.
fn oversize(stream: &str) -> (Option<String>, bool) {
    let verdict = |size| match &lines(stream.as_bytes(), 8, size)[..] {
        [Line::Oversize { id, request, length }] => {
            assert_eq!(*length, stream.trim_end_matches('\n').len() as u64);
            (id.clone().map(|id| String::from_utf8(id).expect("text")), *request)
        }
        other => panic!("{other:?}"),
    };
    let whole = verdict(1000);
    for size in 1..40 {
        assert_eq!(verdict(size), whole, "{stream} in pieces of {size}");
    }
    whole
}

#[test]
fn the_id_of_a_line_too_long_is_still_known() {
    let long = format!("\"{}\"", "i".repeat(126));
    let longer = format!("\"{}\"", "i".repeat(127));
    let cases: [(&str, Option<&str>); 24] = [
        (r#"{"result":{"id":3,"x":["id",{"id":4}]},"jsonrpc":"2.0","id":7}"#, Some("7")),
        (r#"{"jsonrpc":"2.0","id":"a\"b","result":{}}"#, Some(r#""a\"b""#)),
        (r#"{ "id" : 1.5e3 , "result" : [ "\\" , "\"id\":9" ] }"#, Some("1.5e3")),
        (r#"{"\u0069\u0064":7,"result":{}}"#, Some("7")),
        (r#"{"result":"\\","id":7}"#, Some("7")),
        ("\u{feff}{\"id\":7,\"result\":{}}", Some("7")),
        // The rest of the line is missing, but the id is whole.
        (r#"{"id":7,"result":"xxxxxxxxxxxx"#, Some("7")),
        (r#"{"result":"xxxxxxxxx","id":7"#, None),
        (r#"{"result":"xxxxxxxxx","id":"a"#, None),
        (r#"{"id":null,"error":{}}"#, None),
        (r#"{"id":true,"error":{}}"#, None),
        (r#"{"id":[7],"result":{}}"#, None),
        (r#"{"id":{"id":7},"result":{}}"#, None),
        (r#"{"id":01,"result":{}}"#, None),
        (r#"{"id":1 2,"result":{}}"#, None),
        (r#"{"id":1,"id":1,"result":{}}"#, None),
        (r#"{"id":1,"\u0069d":2,"result":{}}"#, None),
        (r#"{"id":1,"id":[],"result":{}}"#, None),
        (r#"{"ID":1,"ids":2,"result":{}}"#, None),
        (r#"{"key":"id","result":{}}"#, None),
        (r#"[{"id":7,"result":{}}]"#, None),
        ("id: 7, this is not JSON at all", None),
        (r#"{"result":{}} {"id":7}"#, None),
        ("\"id\":7 {\"id\":7}", None),
    ];
    for (line, expected) in cases {
        assert_eq!(oversize(line).0.as_deref(), expected, "{line}");
        assert_eq!(oversize(&format!("{line}\n")).0.as_deref(), expected, "{line}");
    }
    let answer = |id: &str| format!(r#"{{"result":{{}},"id":{id}}}"#);
    assert_eq!(oversize(&answer(&long)).0, Some(long));
    assert_eq!(oversize(&answer(&longer)).0, None);
}

#[test]
fn an_oversized_request_is_distinguished_from_a_response() {
    assert!(oversize(r#"{"method":"sampling/createMessage","id":7}"#).1);
    assert!(oversize(r#"{"id":7,"m\u0065thod":"x"}"#).1);
    assert!(!oversize(r#"{"id":7,"result":{"method":"x"}}"#).1);
    assert!(!oversize(r#"{"id":7,"x":"method","result":{}}"#).1);
}

#[test]
fn the_limit_is_exact_and_the_stream_goes_on_after_it() {
    let stream = b"12345678\n123456789\n1234567\r\n12345678\r\nnext\n";
    let length = |line: Line| match line {
        Line::Message(bytes) => Ok(bytes.len()),
        Line::Oversize { length, .. } => Err(length),
    };
    for size in [1, 5, 1000] {
        let found: Vec<_> = lines(stream, 8, size).into_iter().map(length).collect();
        assert_eq!(found, [Ok(8), Err(9), Ok(7), Err(9), Ok(4)]);
    }
}

#[test]
fn a_line_too_long_takes_no_more_memory_than_the_limit() {
    let limit = 1 << 20;
    let mut lines = Lines::new(limit);
    let piece = vec![b'x'; 60_000];
    let mut most = 0;
    for _ in 0..1000 {
        lines.buffer().extend_from_slice(&piece);
        assert_eq!(lines.next_line(), None);
        most = most.max(lines.buffer().capacity());
    }
    assert!(most <= limit + 2 * START, "{most}");
    assert!(lines.buffer().capacity() <= 2 * START);
    lines.buffer().extend_from_slice(b"\nnext\n");
    let oversize = Line::Oversize { id: None, request: false, length: 60_000_000 };
    assert_eq!(lines.next_line(), Some(oversize));
    assert_eq!(lines.next_line(), Some(Line::Message(Bytes::from_static(b"next"))));
}

#[test]
fn a_long_line_takes_its_buffer_along() {
    let mut lines = Lines::default();
    let piece = vec![b'x'; 50_000];
    let mut length = 0;
    while length < 10_000_000 {
        lines.buffer().extend_from_slice(&piece);
        length += piece.len();
        assert_eq!(lines.next_line(), None);
        let capacity = lines.buffer().capacity();
        assert!(length > LONG || capacity <= 2 * length + 2 * START, "{capacity} for {length}");
        assert!(capacity <= MAPPED, "{capacity} for {length}");
    }
    lines.buffer().extend_from_slice(b"\nshort\npart");
    assert!(matches!(lines.next_line(), Some(Line::Message(line)) if line.len() == length));
    assert_eq!(lines.next_line(), Some(Line::Message(Bytes::from_static(b"short"))));
    assert_eq!(lines.next_line(), None);
    assert!(lines.buffer().capacity() <= 2 * START);
    assert_eq!(lines.finish(), Some(Line::Message(Bytes::from_static(b"part"))));
    assert_eq!(lines.finish(), None);
}

#[test]
fn there_is_always_room_to_read() {
    let mut lines = Lines::new(100_000);
    let mut held = Vec::new();
    for round in 0..2000 {
        assert!(lines.buffer().capacity() - lines.buffer().len() >= MIN_SPACE);
        lines.buffer().extend_from_slice(&vec![b'x'; round * 7]);
        if round % 3 == 0 {
            lines.buffer().extend_from_slice(b"\n");
        }
        held.extend(std::iter::from_fn(|| lines.next_line()));
        // Some lines stay in use, so the buffer cannot always be used again.
        if round % 50 == 0 {
            held.clear();
        }
    }
}

#[test]
fn the_buffer_of_a_long_line_serves_the_next_one() {
    let mut lines = Lines::new(MAX_LINE);
    let long = vec![b'x'; 3 * LONG];
    let mut first = None;
    for round in 0..4 {
        for piece in long.chunks(START) {
            lines.buffer().extend_from_slice(piece);
            assert_eq!(lines.next_line(), None);
        }
        lines.buffer().extend_from_slice(b"\nshort\n");
        let Some(Line::Message(line)) = lines.next_line() else {
            panic!("no line in round {round}")
        };
        assert_eq!(line.len(), long.len());
        // Its memory is the same each time, as long as nobody keeps the line.
        let place = line.as_ptr() as usize;
        assert_eq!(*first.get_or_insert(place), place, "round {round}");
        drop(line);
        assert!(matches!(lines.next_line(), Some(Line::Message(short)) if short == "short"));
        assert!(lines.has_spare());
    }
    lines.drop_spare();
    assert!(!lines.has_spare());
}

#[test]
fn a_line_that_is_kept_keeps_its_buffer() {
    let mut lines = Lines::new(MAX_LINE);
    let mut kept = Vec::new();
    for round in 0..3_u8 {
        for piece in vec![b'a' + round; 3 * LONG].chunks(START) {
            lines.buffer().extend_from_slice(piece);
            assert_eq!(lines.next_line(), None);
        }
        lines.buffer().extend_from_slice(b"\n");
        kept.extend(lines.next_line());
    }
    for (round, line) in (0..3_u8).zip(kept) {
        assert!(
            matches!(line, Line::Message(line) if line.iter().all(|&byte| byte == b'a' + round))
        );
    }
}
