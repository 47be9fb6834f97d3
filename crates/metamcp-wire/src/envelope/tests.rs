use super::*;

fn kind(line: &str) -> Kind {
    Envelope::parse(line.as_bytes()).expect_err(line).kind
}

#[test]
fn tells_the_kinds_of_messages_apart() {
    let id = |raw| Id::new(raw).expect("an id");
    let cases: [(&str, Envelope<'_>); 9] = [
        (
            r#"{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"x"}}"#,
            Envelope::Request {
                id: id(b"0"),
                method: "tools/call".into(),
                params: Some(br#"{"name":"x"}"#),
            },
        ),
        (
            r#" { "params" : [ ] , "method" : "a\u002fb" , "id" : "x" , "jsonrpc" : "2.0" } "#,
            Envelope::Request { id: id(b"\"x\""), method: "a/b".into(), params: Some(b"[ ]") },
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            Envelope::Notification { method: "notifications/initialized".into(), params: None },
        ),
        (
            r#"{"jsonrpc":"2.0","method":"m","params":null}"#,
            Envelope::Notification { method: "m".into(), params: None },
        ),
        (
            r#"{"result":{"big":12345678901234567890123},"jsonrpc":"2.0","id":7}"#,
            Envelope::Result { id: id(b"7"), result: br#"{"big":12345678901234567890123}"# },
        ),
        (
            r#"{"jsonrpc":"2.0","\u0069d":1.0,"result":null,"extra":[]}"#,
            Envelope::Result { id: id(b"1.0"), result: b"null" },
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}"#,
            Envelope::Error { id: Some(id(b"3")), error: br#"{"code":-1,"message":"no"}"# },
        ),
        (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, Envelope::Error { id: None, error: b"{}" }),
        (
            r#"[{"jsonrpc":"2.0","method":"m"}, 7]"#,
            Envelope::Batch(vec![br#"{"jsonrpc":"2.0","method":"m"}"#, b"7"]),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(Envelope::parse(line.as_bytes()), Ok(expected), "{line}");
    }
}

#[test]
fn refuses_what_two_readers_could_read_differently() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"result":{}}"#, Kind::Duplicate),
        (r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"result":{}}"#, Kind::Duplicate),
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"result":{}}"#, Kind::Duplicate),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"x":1,"x":1}"#, Kind::Duplicate),
        (r#"{"jsonrpc":"2.0","id":1,"Result":{}}"#, Kind::LookAlike),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"METHOD":"m"}"#, Kind::LookAlike),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params\u0000":{}}"#, Kind::LookAlike),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","Params\u0000\u0000":{}}"#, Kind::LookAlike),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","param\u017f":{}}"#, Kind::LookAlike),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, Kind::Mixed),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, Kind::Mixed),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#, Kind::Mixed),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","error":{}}"#, Kind::Mixed),
    ];
    for (line, expected) in cases {
        assert_eq!(kind(line), expected, "{line}");
    }
    // These only resemble.
    for name in ["ids", "i", "_id", "xmethod", "result\u{1}", "\\u0000id"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{}},"{name}":1}}"#);
        let verdict = Envelope::parse(line.as_bytes());
        assert_eq!(verdict.is_ok(), name != "result\u{1}", "{line}");
    }
}

#[test]
fn names_what_makes_a_message_none() {
    let cases = [
        (r#"{"level":"info","msg":"started"}"#, Kind::VersionMissing),
        (r#"{"level":"info","level":"twice","ID":4}"#, Kind::VersionMissing),
        (r#"{"id":{},"method":7}"#, Kind::VersionMissing),
        ("{}", Kind::VersionMissing),
        (r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, Kind::VersionWrong),
        (r#"{"jsonrpc":2.0,"id":1,"result":{}}"#, Kind::VersionWrong),
        (r#"{"jsonrpc":"2.0","id":1}"#, Kind::Shapeless),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, Kind::Id),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, Kind::Id),
        (r#"{"jsonrpc":"2.0","id":[1],"result":{}}"#, Kind::Id),
        (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, Kind::Id),
        (r#"{"jsonrpc":"2.0","result":{}}"#, Kind::IdMissing),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, Kind::Method),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":7}"#, Kind::Params),
        (r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#, Kind::Error),
        ("[]", Kind::BatchEmpty),
        ("7", Kind::NotMessage),
        (r#""text""#, Kind::NotMessage),
        ("Listening on port 3000", Kind::Unexpected),
        ("[INFO] started", Kind::Unexpected),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}},"id":99}"#, Kind::Trailing),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}"#, Kind::End),
    ];
    for (line, expected) in cases {
        assert_eq!(kind(line), expected, "{line}");
    }
    let binary = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}";
    assert_eq!(Envelope::parse(binary).map_err(|defect| defect.kind), Err(Kind::Encoding));
}

#[test]
fn an_id_is_a_number_of_ours_only_when_written_like_one() {
    let cases: [(&str, Option<u64>); 10] = [
        ("0", Some(0)),
        ("7", Some(7)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("100000000000000000000000", None),
        ("-1", None),
        ("-0", None),
        ("1.0", None),
        ("1e0", None),
        ("\"1\"", None),
    ];
    for (raw, expected) in cases {
        assert_eq!(Id::new(raw.as_bytes()).expect(raw).as_u64(), expected, "{raw}");
    }
    for raw in ["", " 1", "1 ", "null", "true", "[1]", "01", "1x", "\"a", "\"a\"b", "\"\n\""] {
        assert_eq!(Id::new(raw.as_bytes()), None, "{raw}");
    }
    assert_eq!(Id::new(b"\"\xff\""), None);
    assert_eq!(Id::new(br#""\u0061b""#).expect("a string").text().as_deref(), Some("ab"));
    assert_eq!(Id::new(b"7").expect("a number").text(), None);
}

#[test]
fn limits_hold() {
    let deep = |depth: usize| {
        let nest = "[".repeat(depth) + &"]".repeat(depth);
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{nest}}}"#)
    };
    assert!(Envelope::parse(deep(MAX_RESULT_DEPTH).as_bytes()).is_ok());
    assert_eq!(kind(&deep(MAX_RESULT_DEPTH + 1)), Kind::Depth);
    assert_eq!(kind(&deep(100_000)), Kind::Depth);

    let batch = |length: usize| format!("[{}]", vec!["1"; length].join(","));
    assert!(Envelope::parse(batch(MAX_BATCH).as_bytes()).is_ok());
    assert_eq!(kind(&batch(MAX_BATCH + 1)), Kind::BatchLong);

    let wide = |count: usize| {
        let others: String = (0..count).map(|n| format!(r#","x{n}":0"#)).collect();
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{}}{others}}}"#)
    };
    assert!(Envelope::parse(wide(MAX_MEMBERS).as_bytes()).is_ok());
    assert_eq!(kind(&wide(MAX_MEMBERS + 1)), Kind::Members);
}
