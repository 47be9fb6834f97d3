//! Secrets taken out of JSON on its way to a model: values of this configuration, and tokens of well-known shapes.
//! One pass over the bytes finds where one may begin; only there is looked closer. What holds none is not copied.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use metamcp_wire::write::json_string;

use super::{SHORTEST_HUNTED, Secret};

/// Most bytes of one private key: a longer block is none.
const MAX_KEY_BLOCK: usize = 16 * 1024;

/// What came out.
#[derive(Debug, PartialEq, Eq)]
pub struct Scrubbed<'a> {
    /// The JSON; as it came in where nothing was found.
    pub json: Cow<'a, [u8]>,
    /// How many secrets were taken out.
    pub removed: usize,
}

/// See the module.
pub struct Scrubber {
    finder: Option<AhoCorasick>,
    /// What each of the searched strings stands for, in their order.
    hunted: Vec<Hunted>,
}

enum Hunted {
    /// A value of the configuration, by its name.
    Value(String),
    /// The beginning of a token.
    Shape(&'static Shape),
}

/// Tokens that begin alike.
struct Shape {
    prefixes: &'static [&'static str],
    /// What it is called where it stood.
    label: &'static str,
    /// Characters that follow.
    chars: fn(u8) -> bool,
    least: usize,
    most: usize,
    /// Whether what follows needs a digit and a capital letter, as words do not have.
    is_mixed: bool,
}

const fn shape(
    prefixes: &'static [&'static str],
    label: &'static str,
    chars: fn(u8) -> bool,
    (least, most): (usize, usize),
) -> Shape {
    Shape { prefixes, label, chars, least, most, is_mixed: false }
}

const fn mixed(shape: Shape) -> Shape {
    Shape { is_mixed: true, ..shape }
}

const ANY: usize = 4096;

static SHAPES: [Shape; 17] = [
    shape(&["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], "GitHub token", alphanumeric, (36, 255)),
    shape(&["github_pat_"], "GitHub token", word, (36, 255)),
    shape(&["glpat-"], "GitLab token", word_or_dash, (20, 255)),
    mixed(shape(&["sk-"], "API key", word_or_dash, (32, 255))),
    shape(&["AKIA", "ASIA"], "AWS key", capital_or_digit, (16, 16)),
    shape(
        &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xapp-"],
        "Slack token",
        word_or_dash,
        (20, 255),
    ),
    shape(&["AIza"], "Google key", word_or_dash, (35, 35)),
    shape(&["ya29."], "Google token", word_or_dash, (30, ANY)),
    shape(&["npm_"], "npm token", alphanumeric, (36, 36)),
    shape(&["pypi-Ag"], "PyPI token", word_or_dash, (50, ANY)),
    mixed(shape(&["hf_"], "Hugging Face token", alphanumeric, (30, 64))),
    shape(&["sk_live_", "rk_live_", "sk_test_"], "Stripe key", alphanumeric, (16, 255)),
    shape(&["dop_v1_"], "DigitalOcean token", alphanumeric, (64, 64)),
    shape(&["shpat_"], "Shopify token", alphanumeric, (32, 64)),
    shape(&["SG."], "SendGrid key", dotted, (60, 80)),
    // Head and body of a signed token are JSON objects, which begin so in base64.
    shape(&["eyJ"], "signed token", dotted, (40, ANY)),
    shape(&["-----BEGIN "], "private key", anything, (20, MAX_KEY_BLOCK)),
];

impl Scrubber {
    /// A scrubber for the values of a configuration and for the known shapes.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Scrubber {
        let mut needles: Vec<Vec<u8>> = Vec::new();
        let mut hunted = Vec::new();
        for secret in secrets.into_iter().filter(|secret| secret.is_hunted()) {
            for needle in secret.needles().filter(|needle| needle.len() >= SHORTEST_HUNTED) {
                for form in forms(needle) {
                    if !needles.contains(&form) {
                        needles.push(form);
                        hunted.push(Hunted::Value(label(secret.name())));
                    }
                }
            }
        }
        for shape in &SHAPES {
            for prefix in shape.prefixes {
                needles.push(prefix.as_bytes().to_vec());
                hunted.push(Hunted::Shape(shape));
            }
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&needles);
        Scrubber { finder: finder.ok(), hunted }
    }

    /// One that takes nothing out.
    pub fn off() -> Scrubber {
        Scrubber { finder: None, hunted: Vec::new() }
    }

    /// JSON without secrets. It stays JSON: only text is replaced, and a number that is a secret becomes a text.
    pub fn scrub<'a>(&self, json: &'a [u8]) -> Scrubbed<'a> {
        let untouched = Scrubbed { json: Cow::Borrowed(json), removed: 0 };
        let Some(finder) = &self.finder else { return untouched };
        let mut clean: Vec<u8> = Vec::new();
        let (mut at, mut copied, mut removed) = (0, 0, 0);
        let mut place = Place { at: 0, in_text: false };
        while let Some(found) = finder.find(Input::new(json).range(at..)) {
            let judged = match &self.hunted[found.pattern().as_usize()] {
                Hunted::Value(name) => Some((found.end(), name.as_str())),
                Hunted::Shape(shape) => {
                    let starts = is_start(json, found.start());
                    let end = if starts { shape.end(json, found.end()) } else { None };
                    end.map(|end| (end, shape.label))
                }
            };
            let Some((end, name)) = judged else {
                at = found.start() + 1;
                continue;
            };
            removed += 1;
            place.go_to(json, found.start());
            if place.in_text {
                clean.extend_from_slice(&json[copied..found.start()]);
                clean.extend_from_slice(b"[secret ");
                clean.extend_from_slice(name.as_bytes());
                clean.push(b']');
                copied = end;
            } else {
                let (start, end) = token(json, found.start(), end);
                clean.extend_from_slice(&json[copied..start.max(copied)]);
                clean.extend_from_slice(b"\"[secret ");
                clean.extend_from_slice(name.as_bytes());
                clean.extend_from_slice(b"]\"");
                copied = end;
            }
            at = copied;
            place.at = place.at.max(copied);
        }
        if removed == 0 {
            return untouched;
        }
        clean.extend_from_slice(&json[copied..]);
        Scrubbed { json: Cow::Owned(clean), removed }
    }
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrubber({})", self.hunted.len())
    }
}

impl Shape {
    /// Where a token that begins before `from` ends, if it is one.
    fn end(&self, json: &[u8], from: usize) -> Option<usize> {
        let rest = &json[from..json.len().min(from + self.most + 1)];
        if self.label == "private key" {
            return key_block(json, from);
        }
        let length = rest.iter().position(|&byte| !(self.chars)(byte)).unwrap_or(rest.len());
        let body = &rest[..length];
        let is_mixed =
            || body.iter().any(u8::is_ascii_digit) && body.iter().any(u8::is_ascii_uppercase);
        let is_whole = |least: usize| {
            let parts: Vec<&[u8]> = body.split(|byte| *byte == b'.').collect();
            parts.len() == least && parts.iter().all(|part| part.len() >= 10)
        };
        let fits = match self.label {
            "signed token" => is_whole(3) && body.windows(4).any(|part| part == b".eyJ"),
            "SendGrid key" => is_whole(2),
            _ => !self.is_mixed || is_mixed(),
        };
        ((self.least..=self.most).contains(&length) && fits).then_some(from + length)
    }
}

/// A block from `-----BEGIN … PRIVATE KEY-----` to its end.
fn key_block(json: &[u8], from: usize) -> Option<usize> {
    let rest = &json[from..json.len().min(from + MAX_KEY_BLOCK)];
    let head = memchr::memmem::find(&rest[..rest.len().min(64)], b"PRIVATE KEY")?;
    // A name in between would be the end of another block.
    if rest[..head].contains(&b'"') {
        return None;
    }
    let text_end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
    let inside = &rest[..text_end];
    let marker = b"-----END ";
    match memchr::memmem::find(inside, marker) {
        Some(at) => {
            let after = at + marker.len();
            let close = memchr::memmem::find(&inside[after..], b"-----");
            Some(from + close.map_or(text_end, |close| after + close + 5))
        }
        // Without an end it is still one, up to the end of its text.
        None => Some(from + text_end),
    }
}

/// Where in JSON a position is.
struct Place {
    at: usize,
    in_text: bool,
}

impl Place {
    /// Moves on to a position that is not in the middle of an escape.
    fn go_to(&mut self, json: &[u8], to: usize) {
        while let Some(next) = memchr::memchr2(b'"', b'\\', &json[self.at.min(to)..to]) {
            let at = self.at + next;
            if json[at] == b'"' {
                self.in_text = !self.in_text;
                self.at = at + 1;
            } else {
                self.at = at + 2;
            }
        }
        self.at = self.at.max(to);
    }
}

/// The whole of a number or word that holds this range.
fn token(json: &[u8], start: usize, end: usize) -> (usize, usize) {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let before = json[..start].iter().rev().take_while(|byte| is_part(byte)).count();
    let after = json[end..].iter().take_while(|byte| is_part(byte)).count();
    (start - before, end + after)
}

/// Whether a token may begin here: not in the middle of a word. An escape before it is no word.
fn is_start(json: &[u8], at: usize) -> bool {
    let before = &json[..at];
    let Some(&last) = before.last() else { return true };
    if !word(last) {
        return true;
    }
    let is_escape = |length: usize| {
        let Some(from) = before.len().checked_sub(length) else { return false };
        let slashes = before[..=from].iter().rev().take_while(|byte| **byte == b'\\').count();
        slashes % 2 == 1
    };
    (matches!(last, b'n' | b'r' | b't' | b'b' | b'f') && is_escape(2))
        || (before.len() >= 6 && before[before.len() - 5] == b'u' && is_escape(6))
}

/// How a value may be written in JSON, and in JSON inside of JSON.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let escaped = |text: &str| {
        let mut out = Vec::new();
        json_string(&mut out, text);
        String::from_utf8_lossy(&out[1..out.len() - 1]).into_owned()
    };
    let once = escaped(value);
    let ascii: String = once
        .chars()
        .map(|c| {
            if c.is_ascii() {
                return c.to_string();
            }
            c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        })
        .collect();
    let mut forms = Vec::new();
    for form in [once.replace('/', "\\/"), escaped(&once), ascii, once] {
        if !forms.contains(&form.as_bytes().to_vec()) {
            forms.push(form.into_bytes());
        }
    }
    forms
}

/// A name that can stand inside a JSON string.
fn label(name: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.chars().filter(plain).take(64).collect()
}

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn word_or_dash(byte: u8) -> bool {
    word(byte) || byte == b'-'
}

fn dotted(byte: u8) -> bool {
    word_or_dash(byte) || byte == b'.'
}

fn capital_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn anything(_: u8) -> bool {
    true
}

#[cfg(test)]
mod tests {
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
    fn a_number_that_is_a_secret_becomes_a_text() {
        check(&json!({"n": [1, 1_234_567_890, 2]}), &json!({"n": [1, "[secret PIN_TOKEN]", 2]}), 1);
        check(&json!(-1_234_567_890.5), &json!("[secret PIN_TOKEN]"), 1);
    }

    #[test]
    fn ordinary_words_of_a_configuration_stay() {
        let value = json!("oauth2, application/json and read-only-mode");
        check(&value, &value, 0);
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
}
