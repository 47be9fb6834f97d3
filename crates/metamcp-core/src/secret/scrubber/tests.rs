use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn scrubber() -> Scrubber {
    Scrubber::new(&[
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
    let clean = scrubber().scrub(text.as_bytes());
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
    assert_eq!(&*scrubber().scrub(slashed).json, br#"["[secret API_KEY]"]"#);
    check(&json!("abcdefgh12345678"), &json!("[secret Authorization]"), 1);
}

#[test]
fn many_values_are_found_as_well_as_few() {
    let value = |n: usize| format!("value-{n:02}-of-many");
    let secrets: Vec<Secret> = (0..40).map(|n| Secret::new(format!("KEY_{n}"), value(n))).collect();
    for few in [1, 3, 40] {
        let scrubber = Scrubber::new(&secrets[..few]);
        for n in 0..few {
            let json = json!([value(n)]).to_string();
            let clean = scrubber.scrub(json.as_bytes());
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
fn every_beginning_is_found() {
    let plain = Beginnings::Plain(
        AhoCorasick::new(LONG.iter().map(|shape| shape.prefix).chain([SIGNED.1, KEY.1])).ok(),
    );
    let prefixes = LONG.iter().map(|shape| shape.prefix).chain([SIGNED.1, KEY.1]);
    for (place, prefix) in prefixes.enumerate() {
        assert!(prefix.len() >= 4, "{prefix} slows the search down for all");
        for before in 0..70 {
            let text = format!("{}{prefix}", "y".repeat(before));
            for search in [&*BEGINNINGS, &plain] {
                let mut told = Vec::new();
                search.each(text.as_bytes(), |number, start| told.push((number, start)));
                assert_eq!(told, [(place, before)], "{prefix}");
            }
        }
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

proptest! {
    #[test]
    fn anything_without_a_secret_stays_byte_for_byte(text in "\\PC{0,200}") {
        let json = json!({"text": text}).to_string();
        let clean = scrubber().scrub(json.as_bytes());
        prop_assume!(clean.removed == 0);
        prop_assert_eq!(&*clean.json, json.as_bytes());
    }

    #[test]
    fn what_comes_out_is_json_without_the_secret(before in "[\\PC\\n\"\\\\]{0,20}", after in "[\\PC\\n\"\\\\]{0,20}", times in 1_usize..4) {
        let secret = "s3cr3t/with\"quote";
        let text = format!("{before}{}{after}", secret.repeat(times));
        let json = json!({"text": text, "n": 1_234_567_890_u64}).to_string();
        let clean = scrubber().scrub(json.as_bytes());
        let value: Value = serde_json::from_slice(&clean.json).unwrap();
        prop_assert!(!value["text"].as_str().unwrap().contains(secret));
        prop_assert_eq!(&value["n"], "[secret PIN_TOKEN]");
    }
}
