use super::*;
use bytes::BytesMut;

fn line(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn each_message_is_one_line() {
    let cases = [
        (
            line(|out| request(out, u64::MAX, "tools/call", Some(b"{\"a\":\r\n1}"))),
            "{\"jsonrpc\":\"2.0\",\"id\":18446744073709551615,\"method\":\"tools/call\",\"params\":{\"a\":  1}}\n",
        ),
        (
            line(|out| request(out, 0, "ping", None)),
            "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"ping\"}\n",
        ),
        (
            line(|out| notification(out, "a\"b", Some(b"{}"))),
            "{\"jsonrpc\":\"2.0\",\"method\":\"a\\\"b\",\"params\":{}}\n",
        ),
        (
            line(|out| result(out, b"\"x\"", b"{\"n\":12345678901234567890}")),
            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{\"n\":12345678901234567890}}\n",
        ),
        (
            line(|out| error(out, Some(b"1.0"), i64::MIN, "no\n", Some(b"[\r]"))),
            "{\"jsonrpc\":\"2.0\",\"id\":1.0,\"error\":{\"code\":-9223372036854775808,\"message\":\"no\\n\",\"data\":[ ]}}\n",
        ),
        (
            line(|out| error(out, None, -32700, "parse error", None)),
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"parse error\"}}\n",
        ),
        (
            line(|out| error_raw(out, Some(b"7"), b"{\"code\":1,\"message\":\"m\",\"x\":0}")),
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":1,\"message\":\"m\",\"x\":0}}\n",
        ),
    ];
    for (written, expected) in cases {
        assert_eq!(written, expected);
    }
}

#[test]
fn a_result_in_slices_is_the_same_line() {
    let whole = line(|out| result(out, b"7", b"{\"a\":1}"));
    let sliced = [&result_head(b"7"), b"{\"a\":1}".as_slice(), RESULT_TAIL].concat();
    assert_eq!(whole.as_bytes(), sliced);
}

#[test]
fn both_kinds_of_buffer_get_the_same_and_keep_what_they_had() {
    let mut bytes = BytesMut::from("before\n");
    notification(&mut bytes, "m", None);
    let mut list = b"before\n".to_vec();
    notification(&mut list, "m", None);
    assert_eq!(bytes, list);
    assert!(list.starts_with(b"before\n{"));
}

#[test]
fn strings_are_escaped_like_serde_json_does() {
    let all: String = (0..0x100).filter_map(char::from_u32).chain("漢😀\u{2028}".chars()).collect();
    for text in ["", "plain", &all] {
        let expected = serde_json::to_string(text).expect("a string");
        assert_eq!(line(|out| json_string(out, text)), expected);
    }
}

#[test]
fn only_line_breaks_are_replaced() {
    assert!(matches!(one_line(b"{\"a\" : 1}"), Cow::Borrowed(_)));
    assert_eq!(one_line(b"{\n\t\"a\":\r\n1}\r"), b"{ \t\"a\":  1} ".as_slice());
}
