use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn redactor() -> Redactor {
    Redactor::new(&[
        Secret::new("API_KEY", "s3cr3t/with\"quote"),
        Secret::new("PIN_TOKEN", "1234567890"),
        Secret::new("Authorization", "Bearer abcdefgh12345678"),
        Secret::new("MODE", "read-only-mode"),
        Secret::new("AUTH_MODE", "oauth2"),
        Secret::new("Accept", "application/json"),
    ])
}

fn check(value: &Value, expected: &Value, removed: usize) {
    let text = value.to_string();
    let clean = redactor().redact(text.as_bytes());
    assert_eq!(clean.removed, removed, "{text}");
    assert_eq!(serde_json::from_slice::<Value>(&clean.json).unwrap(), *expected);
}

#[test]
fn values_of_the_configuration_are_taken_out_in_every_form() {
    let secret = "s3cr3t/with\"quote";
    check(&json!({"a": format!("x {secret} y")}), &json!({"a": "x [secret API_KEY] y"}), 1);
    let inner = json!({"k": secret}).to_string();
    check(&json!([inner]), &json!([r#"{"k":"[secret API_KEY]"}"#]), 1);
    let slashed = br#"["s3cr3t\/with\"quote"]"#;
    assert_eq!(&*redactor().redact(slashed).json, br#"["[secret API_KEY]"]"#);
    check(&json!("abcdefgh12345678"), &json!("[secret Authorization]"), 1);
}

#[test]
fn no_spelling_of_a_character_hides_a_value_or_a_token() {
    let token = format!("ghp_{}", "A1b2".repeat(9));
    for (json, expected) in [
        (r#"["s3cr3t\u002fwith\u0022quote"]"#, r#"["[secret API_KEY]"]"#),
        (r#"{"\u0073\u0033cr3t/with\"quote":1}"#, r#"{"[secret API_KEY]":1}"#),
        (
            r#"["\u00e9\n s3\u0063r3t\/with\"quote \u00E9"]"#,
            r#"["\u00e9\n [secret API_KEY] \u00E9"]"#,
        ),
        // JSON inside of a text, by its writer's own spelling.
        (r#"["{\"k\":\"s3\\u0063r3t\\/with\\\"quote\"}"]"#, r#"["{\"k\":\"[secret API_KEY]\"}"]"#),
        (
            r#"["{\"k\":\"s3\\u0063r3t/with\u005c\u0022quote\"}"]"#,
            r#"["{\"k\":\"[secret API_KEY]\"}"]"#,
        ),
        (&*format!(r#"["\u0067\u0068p_{}"]"#, &token[4..]), r#"["[secret GitHub token]"]"#),
        (&*format!(r#"["{}\u0041"]"#, &token[..39]), r#"["[secret GitHub token]"]"#),
        (
            r#"["-----BEGIN\u0020PRIVATE KEY-----\u000aMII\/\n-----END PRIVATE KEY-----\u0021"]"#,
            r#"["[secret private key]\u0021"]"#,
        ),
        (&*format!(r#"["metamcp\u005f{}"]"#, "aB1-".repeat(11)), r#"["[secret metamcp token]"]"#),
    ] {
        let clean = redactor().redact(json.as_bytes());
        assert_eq!(std::str::from_utf8(&clean.json).unwrap(), expected);
    }
    // One whose own characters read as an escape.
    let redactor = Redactor::new(&[Secret::new("API_KEY", r"ab\/cd\u0041ef")]);
    for json in [json!([r"ab\/cd\u0041ef"]), json!([json!([r"ab\/cd\u0041ef"]).to_string()])] {
        assert_eq!(redactor.redact(json.to_string().as_bytes()).removed, 1, "{json}");
    }
}

#[test]
fn many_values_are_found_as_well_as_few() {
    let value = |n: usize| format!("value-{n:02}-of-many");
    let secrets: Vec<Secret> = (0..40).map(|n| Secret::new(format!("KEY_{n}"), value(n))).collect();
    for few in [1, 3, 40] {
        let redactor = Redactor::new(&secrets[..few]);
        for n in 0..few {
            let json = json!([value(n)]).to_string();
            let clean = redactor.redact(json.as_bytes());
            assert_eq!(&*clean.json, format!("[\"[secret KEY_{n}]\"]").as_bytes());
        }
    }
}

#[test]
fn a_number_that_is_a_secret_becomes_a_text() {
    check(&json!({"n": [1, 1_234_567_890, 2]}), &json!({"n": [1, "[secret PIN_TOKEN]", 2]}), 1);
    check(&json!(-1_234_567_890.5), &json!("[secret PIN_TOKEN]"), 1);
}

#[test]
fn ordinary_words_of_a_configuration_stay() {
    let value = json!("oauth2, application/json and read-only-mode");
    check(&value, &value, 0);
}

/// With the fast search and with the plain one, wherever it stands.
#[test]
fn every_mark_is_found() {
    let plain = Search::plain();
    for mark in marks() {
        assert!(mark.len() >= 3, "{mark} slows the search down for all");
        for before in 0..70 {
            let text = format!("{}{mark}", "y".repeat(before));
            for search in [&*SEARCH, &plain] {
                let mut told = Vec::new();
                search.each(text.as_bytes(), |start, end| told.push((start, end)));
                assert_eq!(told, [(before, text.len())], "{mark}");
            }
        }
    }
}

#[test]
fn no_two_marks_are_the_same() {
    let mut all = marks();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), marks().len());
}

/// A token of each shape, as long as it has to be.
fn tokens() -> Vec<String> {
    let body = |shape: &Shape| {
        let text = "A1".repeat(shape.least);
        let mut body = text[..shape.least].to_owned();
        if shape.label == "SendGrid key" {
            body.replace_range(22..23, ".");
        }
        body
    };
    let shapes = SHAPES.iter().map(|shape| format!("{}{}", shape.prefix, body(shape)));
    let part = "A1b2".repeat(4);
    shapes.chain([format!("eyJ{part}.eyJ{part}.{part}")]).collect()
}

#[test]
fn a_token_of_every_shape_is_taken_out() {
    for token in tokens() {
        let text = json!([token, 1]).to_string();
        let clean = Redactor::new([]).redact(text.as_bytes());
        assert_eq!(clean.removed, 1, "{token}");
        assert!(clean.json.starts_with(b"[\"[secret "), "{token}");
        assert!(clean.json.ends_with(b"]\",1]"), "{token}");
    }
}

#[test]
fn tokens_of_known_shapes_are_taken_out() {
    let key = "A1b2".repeat(10);
    for (token, label) in [
        (format!("ghp_{}", &key[..36]), "GitHub token"),
        (format!("github_pat_{key}{key}"), "GitHub token"),
        (format!("sk-proj-{key}"), "API key"),
        ("AKIAIOSFODNN7EXAMPLE".to_owned(), "AWS key"),
        (format!("xoxb-{key}"), "Slack token"),
        (format!("AIza{}", &key[..35]), "Google key"),
        (format!("eyJ{key}.eyJ{key}.{key}"), "signed token"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----".to_owned(),
            "private key",
        ),
    ] {
        let clean = format!("[secret {label}]");
        for (before, after) in [("", ""), ("key=", ";"), ("line\n", "\nnext"), ("é", "é")] {
            check(
                &json!(format!("{before}{token}{after}")),
                &json!(format!("{before}{clean}{after}")),
                1,
            );
        }
    }
}

#[test]
fn what_only_looks_a_little_like_one_stays() {
    for text in [
        "a task-force-of-people-who-like-long-words-with-dashes",
        "sk-loading-spinner-component-with-a-very-long-class-name",
        "ghp_short",
        "eyJust a word",
        "AKIAs are fish; xAKIAIOSFODNN7EXAMPLE",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "SG.1 is a gene",
    ] {
        check(&json!(text), &json!(text), 0);
    }
}

#[test]
fn a_key_without_an_end_ends_with_its_text() {
    let header = "-----BEGIN RSA PRIVATE KEY-----";
    let clean = |text: &str| {
        let json = json!([text, 1]).to_string();
        let clean = redactor().redact(json.as_bytes());
        let value: Value = serde_json::from_slice(&clean.json).unwrap();
        assert_eq!((value.as_array().unwrap().len(), &value[1]), (2, &json!(1)), "{text}");
        value[0].as_str().unwrap().to_owned()
    };
    let code = format!("if (line === \"{header}\") {{\n");
    assert_eq!(clean(&code), "if (line === \"[secret private key]\") {\n");
    let inner = json!({"key": format!("{header}\nMIIB"), "n": 1}).to_string();
    assert_eq!(clean(&inner), r#"{"key":"[secret private key]","n":1}"#);
    let innermost = json!({ "text": inner }).to_string();
    assert_eq!(clean(&innermost), r#"{"text":"{\"key\":\"[secret private key]\",\"n\":1}"}"#);
    // Longer than any key, and cut in every place of an escape.
    for more in 0..8 {
        let long = format!("{header}{}{}", "y".repeat(more), "\u{1}\n".repeat(4000));
        assert!(clean(&long).starts_with("[secret private key]"), "{more}");
        assert!(clean(&format!("{header}{}", "\\".repeat(20_000 + more))).starts_with("[secret"));
        for wide in ["é", "\u{1f511}"] {
            let long = format!("{header}{}{}", "y".repeat(more), wide.repeat(10_000));
            assert!(clean(&long).ends_with(wide), "{more}");
        }
    }
    let many = clean(&format!("{header}\n").repeat(1000));
    assert!(!many.contains("BEGIN"), "{many}");
}

/// Looked at from each beginning on, such text would cost thousands of steps for each of its bytes.
#[test]
fn text_of_nothing_but_beginnings_is_gone_through_once() {
    use std::cell::Cell;
    thread_local!(static LOOKED: Cell<usize> = const { Cell::new(0) });
    fn counted(byte: u8) -> bool {
        LOOKED.set(LOOKED.get() + 1);
        word_or_dash(byte)
    }
    let counting =
        Shape { chars: counted, ..shape("pypi-", "pypi-", "x", word_or_dash, (50, ANY)) };
    let text = "pypi-".repeat(10_000);
    let mut known = 0;
    for marked in (0..text.len()).step_by(5) {
        assert!(counting.found(text.as_bytes(), marked, &mut known).is_none() || marked > 40_000);
    }
    assert!(LOOKED.get() <= text.len() + 10_000, "{} for {} bytes", LOOKED.get(), text.len());

    let headers = "-----BEGIN PRIVATE KEY-----".repeat(4_000);
    let mut found = Vec::new();
    find_shapes(headers.as_bytes(), &mut found);
    assert!(found.len() <= headers.len() / MAX_KEY_BLOCK + 1, "{} keys", found.len());
}

#[test]
fn what_begins_in_the_middle_of_an_escape_is_none() {
    let key = "A1b2".repeat(9);
    let line_break = format!("a\npm_{key}");
    check(&json!(line_break), &json!(line_break), 0);
    let redactor = Redactor::new(&[
        Secret::new("TOKEN", "nopqrstuv-1"),
        Secret::new("HEX_KEY", "00e9abcdef12"),
    ]);
    for json in [&br#"["\nopqrstuv-1"]"#[..], br#"["\u00e9abcdef12"]"#] {
        let clean = redactor.redact(json);
        assert_eq!((clean.removed, &*clean.json), (0, json));
    }
    assert_eq!(&*redactor.redact(br#"["\\nopqrstuv-1"]"#).json, br#"["\\[secret TOKEN]"]"#);
}

#[test]
fn what_begins_in_the_middle_of_an_escape_hides_no_other() {
    let secrets = [
        Secret::new("SHORT_KEY", "nabc-1234"),
        Secret::new("LONG_KEY", "c-1234-nabc-1234-5"),
        Secret::new("ROUND_KEY", "nopq7nopq7n"),
        Secret::new("FOURTH_KEY", "wxyz/4444"),
        Secret::new("FIFTH_KEY", "wxyz/5555"),
    ];
    for (json, expected) in [
        (r#"["\nabc-1234-nabc-1234-5"]"#, r#"["\nab[secret LONG_KEY]"]"#),
        (r#"["\nopq7nopq7nopq7n"]"#, r#"["\nopq7[secret ROUND_KEY]"]"#),
    ] {
        for redactor in [Redactor::new(&secrets[..3]), Redactor::new(&secrets)] {
            let clean = redactor.redact(json.as_bytes());
            assert_eq!(std::str::from_utf8(&clean.json).unwrap(), expected);
        }
    }
}

#[test]
fn a_signed_token_is_one_whatever_follows_and_however_long_it_is() {
    let part = |length: usize| "A1b2".repeat(length / 4);
    for length in [16, 4096, 100_000] {
        let token = format!("eyJ{}.eyJ{}.{}", part(16), part(length), part(400));
        for after in ["", ".", ".Then", ". Then", "…"] {
            let text = format!("It is {token}{after}");
            check(&json!(text), &json!(format!("It is [secret signed token]{after}")), 1);
        }
    }
}

#[test]
fn a_line_break_inside_of_json_inside_of_json_is_no_word() {
    let token = format!("ghp_{}", "A1b2".repeat(9));
    for between in ["\n", "\t", "é", "\u{1}", " "] {
        let inner = json!({"k": format!("line{between}{token}")}).to_string();
        for text in [inner.clone(), json!([inner]).to_string()] {
            let json = json!([text]).to_string();
            let clean = redactor().redact(json.as_bytes());
            assert_eq!(clean.removed, 1, "{text}");
            assert!(!String::from_utf8_lossy(&clean.json).contains(&token), "{text}");
        }
    }
}

/// Pieces out of which marks come to stand next to, and over, each other.
fn pieces() -> impl Strategy<Value = String> {
    let pieces: Vec<String> = tokens()
        .into_iter()
        .chain(SHAPES.iter().map(|shape| shape.prefix.to_owned()))
        .chain(
            ["g", "h", "p_", "s", "k", "-", "_", ".", " ", "\"", "x", "ho", "A", "1"]
                .map(str::to_owned),
        )
        .collect();
    proptest::collection::vec(proptest::sample::select(pieces), 0..12).prop_map(|all| all.concat())
}

/// A text as JSON, each character in one of the ways it may be written in.
fn spelled(text: &str, ways: &[u8]) -> String {
    let mut out = String::new();
    for (c, way) in text.chars().zip(ways.iter().cycle()) {
        let units = || c.encode_utf16(&mut [0; 2]).to_vec();
        match (way % 4, c) {
            (0, _) => units().iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
            (1, _) => units().iter().for_each(|unit| out.push_str(&format!("\\u{unit:04X}"))),
            (2, '/') => out.push_str("\\/"),
            _ => out.push_str(&escaped(&c.to_string())),
        }
    }
    out
}

proptest! {
    /// In a value or as a name, in JSON or in JSON inside of it.
    #[test]
    fn no_secret_comes_out_however_it_is_spelled(
        secret in "[a-zA-Z0-9/\\\\\"\\n\u{1b}é\u{1f511}_-]{8,24}",
        around in ("\\PC{0,8}", "\\PC{0,8}"),
        ways in proptest::collection::vec(0_u8..4, 1..64),
        outer in proptest::collection::vec(proptest::sample::select(vec![0_u8, 1, 2, 3, 3, 3]), 1..64),
        is_name: bool,
        is_inner: bool,
    ) {
        prop_assume!(!"[secret API_KEY]".contains(secret.trim()) && Secret::new("API_KEY", &*secret).is_redacted_in_results());
        let redactor = Redactor::new(&[Secret::new("API_KEY", &*secret)]);
        let text = format!("{}{secret}{}", around.0, around.1);
        let written = spelled(&text, &ways);
        let json = match is_name {
            true => format!(r#"{{"{written}":1}}"#),
            false => format!(r#"["{written}"]"#),
        };
        // What it is inside of is written in our way, but for its plain characters.
        let json = match is_inner {
            true => format!(r#"["{}"]"#, spelled(&json, &outer)),
            false => json,
        };
        let clean = redactor.redact(json.as_bytes());
        let mut value: Value = serde_json::from_slice(&clean.json)
            .map_err(|error| TestCaseError::fail(format!("{error}: {json}")))?;
        if is_inner {
            value = serde_json::from_str(value[0].as_str().unwrap())
                .map_err(|error| TestCaseError::fail(format!("{error}: {json}")))?;
        }
        let all = match &value {
            Value::Object(map) => map.keys().cloned().collect::<String>(),
            value => value[0].as_str().unwrap().to_owned(),
        };
        prop_assert!(!all.contains(&secret), "{json} became {value}");
    }

    #[test]
    fn any_spelling_without_a_secret_stays_byte_for_byte(
        text in "[\\PC\\n\"\\\\/]{0,100}",
        ways in proptest::collection::vec(0_u8..4, 1..64),
    ) {
        let json = format!(r#"["{}"]"#, spelled(&text, &ways));
        let clean = redactor().redact(json.as_bytes());
        prop_assume!(clean.removed == 0);
        prop_assert_eq!(&*clean.json, json.as_bytes());
    }

    #[test]
    fn it_stays_json_whatever_is_in_there(
        pieces in proptest::collection::vec(pieces(), 1..6),
        bits in proptest::collection::vec(
            proptest::sample::select(vec![
                "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "-----", "\\", "\"", "\n", "\u{1}", "é",
                "\u{1f511}", "n", "u0041", "s3cr3t/with\"quote", "1234567890", "/", "{", "}",
            ]),
            1..6,
        ),
        depth in 0_usize..3,
    ) {
        let mixed = pieces.iter().zip(bits.iter().cycle());
        let mut text: String = mixed.map(|(piece, bit)| format!("{piece}{bit}")).collect();
        text.extend(bits);
        for _ in 0..depth {
            text = json!({ "text": text, "n": [1] }).to_string();
        }
        let json = json!({ "text": text, "n": [1] }).to_string();
        let clean = redactor().redact(json.as_bytes());
        let value: Value = serde_json::from_slice(&clean.json)
            .map_err(|error| TestCaseError::fail(format!("{error}: {json}")))?;
        let keys: Vec<&String> = value.as_object().into_iter().flatten().map(|(key, _)| key).collect();
        prop_assert_eq!(keys, ["text", "n"]);
        prop_assert_eq!(&value["n"], &json!([1]));
    }

    /// What the one pass over marks finds is what looking for each beginning at each place finds.
    #[test]
    fn nothing_hides_behind_another_mark(text in pieces()) {
        let json = text.as_bytes();
        let mut found = Vec::new();
        find_shapes(json, &mut found);
        let mut expected = Vec::new();
        for at in 0..json.len() {
            expected.extend(SHAPES.iter().filter_map(|shape| {
                json[at..].starts_with(shape.mark.as_bytes()).then(|| shape.found(json, at, &mut 0))?
            }));
            if json[at..].starts_with(SIGNED.as_bytes()) {
                expected.extend(signed_token(json, at));
            }
        }
        let places = |found: &[Found<'_>]| {
            let mut places: Vec<_> = found.iter().map(|one| (one.start, one.end)).collect();
            places.sort_unstable();
            places
        };
        prop_assert_eq!(places(&found), places(&expected));
    }

    #[test]
    fn anything_without_a_secret_stays_byte_for_byte(text in "\\PC{0,200}") {
        let json = json!({"text": text}).to_string();
        let clean = redactor().redact(json.as_bytes());
        prop_assume!(clean.removed == 0);
        prop_assert_eq!(&*clean.json, json.as_bytes());
    }

    #[test]
    fn what_comes_out_is_json_without_the_secret(before in "[\\PC\\n\"\\\\]{0,20}", after in "[\\PC\\n\"\\\\]{0,20}", times in 1_usize..4) {
        let secret = "s3cr3t/with\"quote";
        let text = format!("{before}{}{after}", secret.repeat(times));
        let json = json!({"text": text, "n": 1_234_567_890_u64}).to_string();
        let clean = redactor().redact(json.as_bytes());
        let value: Value = serde_json::from_slice(&clean.json).unwrap();
        prop_assert!(!value["text"].as_str().unwrap().contains(secret));
        prop_assert_eq!(&value["n"], "[secret PIN_TOKEN]");
    }
}
