use super::*;
use serde_json::json;

fn verdict(headers: &[(&str, &str)], method: &str, params: &str) -> Result<(), i64> {
    let find = |name: &str| {
        headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes())
    };
    check(find, method, Some(params.as_bytes()), "2026-07-28").map_err(|fault| {
        assert_eq!(fault.status, 400);
        fault.code
    })
}

#[test]
fn headers_must_say_what_the_body_says() {
    let base = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call")];
    let with = |name| [base[0], base[1], ("mcp-name", name)];
    let body = r#"{"name":"get_weather"}"#;
    assert_eq!(verdict(&with("get_weather"), "tools/call", body), Ok(()));
    assert_eq!(verdict(&with("=?base64?Z2V0X3dlYXRoZXI=?="), "tools/call", body), Ok(()));
    assert_eq!(verdict(&with("=?base64?Zm9v?="), "tools/call", body), Err(-32020));
    assert_eq!(verdict(&with("=?base64?Z2V0X3dlYXRoZXI?="), "tools/call", body), Err(-32020));
    assert_eq!(verdict(&with("=?BASE64?Z2V0X3dlYXRoZXI=?="), "tools/call", body), Err(-32020));
    assert_eq!(verdict(&with("Get_weather"), "tools/call", body), Err(-32020));
    assert_eq!(verdict(&with("get_weather, get_weather"), "tools/call", body), Err(-32020));
    assert_eq!(verdict(&base, "tools/call", body), Err(-32020));
    assert_eq!(verdict(&base, "tools/list", "{}"), Err(-32020));
    assert_eq!(verdict(&base[..1], "tools/call", body), Err(-32020));
    assert_eq!(verdict(&base[1..], "tools/call", body), Err(-32020));
    let list = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    assert_eq!(verdict(&list, "tools/list", "{}"), Ok(()));
    let old = [("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/list")];
    assert_eq!(verdict(&old, "tools/list", "{}"), Err(-32020));
    // What is in doubt is no reason to leave the header unread.
    for body in ["{}", r#"{"name":7}"#] {
        assert_eq!(verdict(&base, "tools/call", body), Err(-32020), "{body}");
        assert_eq!(verdict(&with("get_weather"), "tools/call", body), Err(-32020), "{body}");
    }
    for body in [r#"{"name":"get_weather","name":"x"}"#, r#"{"name":"get_weather","Name":"x"}"#] {
        assert_eq!(verdict(&base, "tools/call", body), Err(-32020), "{body}");
        assert_eq!(verdict(&with("get_weather"), "tools/call", body), Err(-32602), "{body}");
    }
    let read = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", "=?base64?ZmlsZTovLy/DqQ==?="),
    ];
    assert_eq!(verdict(&read, "resources/read", r#"{"uri":"file:///é"}"#), Ok(()));
}

#[test]
fn values_are_encoded_when_they_must_be_and_come_back() {
    for (value, header) in [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", ""),
    ] {
        assert_eq!(encoded(value), header);
        assert_eq!(decoded(header.as_bytes()).as_deref(), Some(value.as_bytes()));
    }
    assert_eq!(decoded("é".as_bytes()), None);
    assert_eq!(decoded(b"a\x01"), None);
    assert_eq!(decoded(b"=?base64?/w==?="), None, "not a text");
    for wrong in ["Zg", "Zg=", "Zh==", "Z===", "Zm9v\n", "Zm 9", "====", "Zm9v-_=="] {
        assert_eq!(decoded(format!("=?base64?{wrong}?=").as_bytes()), None, "{wrong}");
    }
}

#[test]
fn parameters_are_mirrored_from_where_the_schema_says() {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "plain": {"type": "string", "default": {"x-mcp-header": "data"}},
    }});
    let mirrors = mirrors(&schema).unwrap();
    assert_eq!(mirrors.len(), 3);
    let arguments = Some(&br#"{"region":"us-west1","deep":{"n":42},"dry":null}"#[..]);
    let sent = parameters(&mirrors, arguments);
    assert_eq!(
        sent,
        [("Region".to_owned(), "us-west1".to_owned()), ("N".to_owned(), "42".to_owned())]
    );
    let verdict = |headers: &[(&str, &str)]| {
        let find = |name: &str| {
            headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes())
        };
        check_parameters(find, &mirrors, arguments).is_ok()
    };
    let good = [("mcp-param-region", "us-west1"), ("mcp-param-n", "42.0")];
    assert!(verdict(&good));
    assert!(!verdict(&good[..1]), "a value in the body needs its header");
    assert!(!verdict(&[good[0], ("mcp-param-n", "43")]));
    assert!(!verdict(&[good[0], ("mcp-param-n", "42.5")]));
    assert!(!verdict(&[good[0], good[1], ("mcp-param-dry", "true")]));
    assert!(verdict(&[good[0], good[1], ("mcp-param-other", "anything")]), "unknown ones pass");
}

#[test]
fn annotations_in_the_wrong_place_spoil_the_tool() {
    let spoilt = |property: Value| {
        mirrors(&json!({"type": "object", "properties": {"a": property}})).unwrap_err()
    };
    for property in [
        json!({"type": "string", "x-mcp-header": ""}),
        json!({"type": "string", "x-mcp-header": "a b"}),
        json!({"type": "string", "x-mcp-header": "a\r\nb"}),
        json!({"type": "string", "x-mcp-header": 7}),
        json!({"type": "number", "x-mcp-header": "A"}),
        json!({"type": "object", "x-mcp-header": "A"}),
        json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}),
        json!({"anyOf": [{"type": "string", "x-mcp-header": "A"}]}),
        json!({"type": "object", "properties": {
            "x": {"type": "string", "x-mcp-header": "A"}, "y": {"type": "string", "x-mcp-header": "a"}}}),
    ] {
        assert!(!spoilt(property).is_empty());
    }
    assert!(mirrors(&json!({"type": "string", "x-mcp-header": "A"})).is_err());
    assert!(mirrors(&json!({"$defs": {"d": {"type": "string", "x-mcp-header": "A"}}})).is_err());
    assert_eq!(mirrors(&json!(true)), Ok(Vec::new()));
}
