use super::*;
use crate::scan::MAX_DEPTH;
use serde_json::json;

#[test]
fn members_come_in_order_with_decoded_names() {
    let raw = br#" { "a" : 1 , "\u0062\n":[ {} , "}" ],"":"\"]", "c" : { "d":-1.5e3 } } "#;
    let found: Vec<_> = members(raw).collect();
    let expected: [(Cow<'_, str>, &[u8]); 4] = [
        ("a".into(), b"1"),
        ("b\n".into(), br#"[ {} , "}" ]"#),
        ("".into(), br#""\"]""#),
        ("c".into(), br#"{ "d":-1.5e3 }"#),
    ];
    assert_eq!(found, expected);
    assert_eq!(members(b"{ }").count(), 0);
    assert_eq!(members(b"[1]").count(), 0);
    assert_eq!(members(b"").count(), 0);
}

#[test]
fn elements_come_in_order() {
    let found: Vec<_> = elements(br#" [ 1,"a,b" , [2,[3]],{"k":[4]},null ]"#).collect();
    let expected: [&[u8]; 5] = [b"1", br#""a,b""#, b"[2,[3]]", br#"{"k":[4]}"#, b"null"];
    assert_eq!(found, expected);
    assert_eq!(elements(b"[]").count(), 0);
    assert_eq!(elements(b"{\"a\":1}").count(), 0);
}

#[test]
fn picks_what_is_wanted_and_refuses_what_is_ambiguous() {
    let raw = br#"{"name":"x","other":1,"arguments":{"name":2},"other":3}"#;
    let found = pick(raw, ["arguments", "missing", "name"]).expect("clear");
    assert_eq!(found, [Some(br#"{"name":2}"#.as_slice()), None, Some(br#""x""#)]);

    let cases: [(&[u8], Kind); 8] = [
        (br#"{"name":1,"name":1}"#, Kind::Duplicate),
        (br#"{"name":1,"n\u0061me":1}"#, Kind::Duplicate),
        (br#"{"name":1,"Name":1}"#, Kind::LookAlike),
        (br#"{"NAME":1}"#, Kind::LookAlike),
        (br#"{"name\u0000":1}"#, Kind::LookAlike),
        (b"[1]", Kind::NotObject),
        (b"null", Kind::NotObject),
        (br#"{"name":"#, Kind::End),
    ];
    for (raw, kind) in cases {
        let found = pick(raw, ["name", "x"]).map_err(|defect| defect.kind);
        assert_eq!(found, Err(kind), "{}", String::from_utf8_lossy(raw));
    }
    // Wanted in both spellings, both are known.
    let both = pick(br#"{"a":1,"A":2}"#, ["a", "A"]).expect("both wanted");
    assert_eq!(both, [Some(b"1".as_slice()), Some(b"2")]);
}

#[test]
fn text_is_decoded() {
    let cases = [
        (r#""plain""#, Some("plain")),
        (r#""grüße""#, Some("grüße")),
        (r#""\"\\\/\b\f\n\r\t""#, Some("\"\\/\u{8}\u{c}\n\r\t")),
        (r#""\u00e9\ud83d\ude00\u0000""#, Some("é😀\0")),
        (r#""a\ud83dz""#, Some("a\u{fffd}z")),
        (r#""\ude00\ud83d""#, Some("\u{fffd}\u{fffd}")),
        (r#""\ude00\ude00""#, Some("\u{fffd}\u{fffd}")),
        (r#""\ud83d\u0041""#, Some("\u{fffd}A")),
        (r#""""#, Some("")),
        ("7", None),
        ("null", None),
        ("\"", None),
    ];
    for (raw, expected) in cases {
        assert_eq!(text(raw.as_bytes()).as_deref(), expected, "{raw}");
    }
    assert!(matches!(text(b"\"plain\""), Some(Cow::Borrowed(_))));
}

#[test]
fn edits_leave_all_other_bytes_alone() {
    let raw = br#"{ "a":1.0e2 ,"k" : [ 1 ], "b":{"k":0},"\u006b2":12345678901234567890 }"#;
    let as_text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    assert_eq!(
        as_text(replace_member(raw, "k", b"{}")),
        r#"{ "a":1.0e2 ,"k" : {}, "b":{"k":0},"\u006b2":12345678901234567890 }"#
    );
    assert_eq!(
        as_text(set_member(raw, "k2", b"0")),
        r#"{ "a":1.0e2 ,"k" : [ 1 ], "b":{"k":0},"\u006b2":0 }"#
    );
    assert_eq!(
        as_text(set_member(raw, "new\"", b"true")),
        r#"{ "a":1.0e2 ,"k" : [ 1 ], "b":{"k":0},"\u006b2":12345678901234567890 ,"new\"":true}"#
    );
    assert_eq!(
        as_text(without_member(raw, "k")),
        r#"{ "a":1.0e2, "b":{"k":0},"\u006b2":12345678901234567890 }"#
    );
    assert_eq!(replace_member(raw, "absent", b"0"), raw);
    assert_eq!(without_member(raw, "absent"), raw);
}

#[test]
fn edits_at_the_edges() {
    let cases: [(&str, &str, &str); 10] = [
        // raw, with k set to 9, without k
        ("{}", r#"{"k":9}"#, "{}"),
        ("{ }", r#"{ "k":9}"#, "{ }"),
        (r#"{"k":1}"#, r#"{"k":9}"#, "{}"),
        (r#"{"k":1,"a":2}"#, r#"{"k":9,"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":2,"k":1}"#, r#"{"a":2,"k":9}"#, r#"{"a":2}"#),
        (r#"{"a":2,"k":1,"b":3}"#, r#"{"a":2,"k":9,"b":3}"#, r#"{"a":2,"b":3}"#),
        (r#"{"k":1,"k":2}"#, r#"{"k":9,"k":9}"#, "{}"),
        (r#"{"k":1,"a":0,"k":2}"#, r#"{"k":9,"a":0,"k":9}"#, r#"{"a":0}"#),
        (r#"{"a":0}"#, r#"{"a":0,"k":9}"#, r#"{"a":0}"#),
        ("[1]", "[1]", "[1]"),
    ];
    for (raw, with, without) in cases {
        assert_eq!(set_member(raw.as_bytes(), "k", b"9"), with.as_bytes(), "{raw}");
        assert_eq!(without_member(raw.as_bytes(), "k"), without.as_bytes(), "{raw}");
    }
}

#[test]
fn a_strict_value_has_no_member_twice() {
    let raw = br#" {"a":[1,-2,2.5,1e400,-1e400,18446744073709551615],"b":{"a":"\u00e9"},"c":[true,false,null]} "#;
    let expected = json!({
        "a": [1, -2, 2.5, f64::MAX, f64::MIN, u64::MAX],
        "b": {"a": "é"},
        "c": [true, false, null],
    });
    assert_eq!(strict_value(raw, MAX_DEPTH), Ok(expected));

    let cases: [(&[u8], Kind, usize); 7] = [
        (br#"{"a":1,"a":1}"#, Kind::Duplicate, 7),
        (br#"[{"x":{"a":1,"\u0061":1}}]"#, Kind::Duplicate, 13),
        (b"{\"a\":\"\xff\"}", Kind::Encoding, 6),
        (b"{} {}", Kind::Trailing, 3),
        (b"[1,]", Kind::Unexpected, 3),
        (b"{\"a\":1 \"b\"}", Kind::Unexpected, 7),
        (b"", Kind::End, 0),
    ];
    for (raw, kind, at) in cases {
        let shown = String::from_utf8_lossy(raw);
        assert_eq!(strict_value(raw, MAX_DEPTH), Err(Defect { kind, at }), "{shown}");
        assert_eq!(unambiguous(raw, MAX_DEPTH), Err(Defect { kind, at }), "{shown}");
    }
    assert_eq!(unambiguous(raw, MAX_DEPTH), Ok(()));
    // Past a few members they are looked up in another way.
    let many: Vec<String> = (0..40).map(|n| format!("\"k{n}\":{n}")).collect();
    let many = many.join(",");
    assert_eq!(unambiguous(format!("{{{many}}}").as_bytes(), 1), Ok(()));
    for twice in ["k3", "k39"] {
        let raw = format!("{{{many},\"{twice}\":0}}");
        let found = unambiguous(raw.as_bytes(), 1).map_err(|defect| defect.kind);
        assert_eq!(found, Err(Kind::Duplicate), "{twice}");
    }
}

#[test]
fn a_strict_value_is_bounded_in_depth() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let kind = |depth, limit| strict_value(nested(depth).as_bytes(), limit).err().map(|d| d.kind);
    assert_eq!(kind(MAX_DEPTH, MAX_DEPTH), None);
    assert_eq!(kind(MAX_DEPTH + 1, MAX_DEPTH), Some(Kind::Depth));
    assert_eq!(kind(100_000, usize::MAX), Some(Kind::Depth));
    assert_eq!(strict_value(b"1", 0), Ok(json!(1)));
    let kind = |depth, limit| unambiguous(nested(depth).as_bytes(), limit).err().map(|d| d.kind);
    assert_eq!(kind(MAX_DEPTH, MAX_DEPTH), None);
    assert_eq!(kind(100_000, usize::MAX), Some(Kind::Depth));
}
