//! Any text: our reading of it agrees with `serde_json`'s, in what is valid and in what it says.

use std::collections::BTreeSet;
use std::fmt;

use metamcp_wire::envelope::{Envelope, Id, MAX_BATCH, MAX_MEMBERS};
use metamcp_wire::scan::{self, Kind, MAX_DEPTH, MAX_RESULT_DEPTH};
use metamcp_wire::{object, write};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Checks everything this crate says about one text.
pub(crate) fn check(data: &[u8]) {
    let valid = syntax(data);
    message(data, valid);
    untrusted(data);
    if valid && scan::check(data, MAX_RESULT_DEPTH).is_ok() {
        parts(data);
        values(data);
        edits(data);
        written(data);
    }
}

/// Whether the text is JSON according to `serde_json`; our verdict must be the same apart from depth.
fn syntax(data: &[u8]) -> bool {
    let valid = std::str::from_utf8(data)
        .is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    for depth in [1, MAX_DEPTH, MAX_RESULT_DEPTH] {
        match scan::check(data, depth) {
            Ok(()) => assert!(valid && deepest(data) <= depth),
            Err(defect) if defect.kind == Kind::Depth => assert!(deepest(data) > depth),
            Err(defect) => {
                assert!(!valid, "{defect}");
                assert!(defect.kind.is_syntax());
                assert!(defect.at <= data.len());
            }
        }
    }
    valid
}

/// How deep brackets outside strings nest.
fn deepest(data: &[u8]) -> usize {
    let (mut depth, mut most, mut string, mut escaped) = (0_usize, 0, false, false);
    for &byte in data {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            b'{' | b'[' if !string => {
                depth += 1;
                most = most.max(depth);
            }
            b'}' | b']' if !string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

fn message(data: &[u8], valid: bool) {
    let parsed = Envelope::parse(data);
    if !valid {
        let kind = parsed.expect_err("not JSON").kind;
        assert!(kind.is_syntax() || kind == Kind::Depth, "{kind}");
        return;
    }
    if parsed.as_ref().is_err_and(|defect| defect.kind == Kind::Depth) {
        assert!(deepest(data) > MAX_RESULT_DEPTH);
        return;
    }
    let text = std::str::from_utf8(data).expect("valid");
    match text.trim_start_matches([' ', '\t', '\r', '\n']).as_bytes()[0] {
        b'{' => {
            // Names with lone surrogates are beyond serde_json.
            if let Ok(Pairs(pairs)) = serde_json::from_str::<Pairs<'_>>(text) {
                assert_eq!(parsed.map_err(|defect| defect.kind), naive(&pairs));
            }
        }
        b'[' => {
            let Seq(elements) = serde_json::from_str(text).expect("valid");
            match elements.len() {
                0 => assert_eq!(parsed.expect_err("empty").kind, Kind::BatchEmpty),
                1..=MAX_BATCH => assert_eq!(parsed, Ok(Envelope::Batch(elements))),
                _ => assert_eq!(parsed.expect_err("long").kind, Kind::BatchLong),
            }
        }
        _ => assert_eq!(parsed.expect_err("scalar").kind, Kind::NotMessage),
    }
}

/// What an object is as a message, decided from its members the slow way.
fn naive<'a>(pairs: &[(String, &'a [u8])]) -> Result<Envelope<'a>, Kind> {
    const KNOWN: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
    let one = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1);
    let version = one("jsonrpc").ok_or(Kind::VersionMissing)?;
    let mut seen = BTreeSet::new();
    let mut others = 0;
    for (name, _) in pairs {
        let folded: String = name
            .trim_end_matches('\0')
            .chars()
            .map(|c| match c {
                'ſ' => 's',
                'K' => 'k',
                c => c.to_ascii_lowercase(),
            })
            .collect();
        if KNOWN.contains(&&**name) {
            seen.insert(name).then_some(()).ok_or(Kind::Duplicate)?;
            continue;
        }
        if KNOWN.contains(&&*folded) {
            return Err(Kind::LookAlike);
        }
        if others == MAX_MEMBERS {
            return Err(Kind::Members);
        }
        seen.insert(name).then_some(()).ok_or(Kind::Duplicate)?;
        others += 1;
    }
    if serde_json::from_slice::<String>(version).ok().as_deref() != Some("2.0") {
        return Err(Kind::VersionWrong);
    }
    let id = |raw: &'a [u8]| Id::new(raw).ok_or(Kind::Id);
    match (one("method"), one("result"), one("error")) {
        (Some(method), None, None) => {
            let method = object::text(method).ok_or(Kind::Method)?;
            let params = match one("params") {
                None | Some(b"null") => None,
                Some(raw) if raw[0] == b'{' || raw[0] == b'[' => Some(raw),
                Some(_) => return Err(Kind::Params),
            };
            match one("id") {
                None => Ok(Envelope::Notification { method, params }),
                Some(raw) => Ok(Envelope::Request { id: id(raw)?, method, params }),
            }
        }
        (None, Some(result), None) => {
            Ok(Envelope::Result { id: id(one("id").ok_or(Kind::IdMissing)?)?, result })
        }
        (None, None, Some(error)) if error[0] == b'{' => {
            let id = match one("id") {
                None | Some(b"null") => None,
                Some(raw) => Some(id(raw)?),
            };
            Ok(Envelope::Error { id, error })
        }
        (None, None, Some(_)) => Err(Kind::Error),
        (None, None, None) => Err(Kind::Shapeless),
        _ => Err(Kind::Mixed),
    }
}

/// What takes raw JSON on trust must at least come back from any bytes.
fn untrusted(data: &[u8]) {
    assert!(object::members(data).count() + object::elements(data).count() <= data.len());
    if let Err(defect) = object::pick(data, ["id", ""]) {
        assert!(defect.at <= data.len());
    }
    drop(object::text(data));
    drop(object::strict_value(data, MAX_DEPTH));
    drop(Id::new(data).map(|id| (id.as_u64(), id.text())));
    for key in ["id", ""] {
        drop(object::set_member(data, key, b"1"));
        drop(object::replace_member(data, key, b"1"));
        drop(object::without_member(data, key));
    }
    assert!(!write::one_line(data).iter().any(|byte| b"\r\n".contains(byte)));
}

fn parts(data: &[u8]) {
    let text = std::str::from_utf8(data).expect("valid");
    if let Ok(Pairs(pairs)) = serde_json::from_str::<Pairs<'_>>(text) {
        let ours: Vec<_> = object::members(data).map(|(k, v)| (k.into_owned(), v)).collect();
        assert_eq!(ours, pairs);
        for (name, _) in &pairs {
            let all: Vec<_> = pairs.iter().filter(|pair| pair.0 == *name).collect();
            match object::pick(data, [name]) {
                Ok([found]) => assert!(all.len() == 1 && found == Some(all[0].1)),
                Err(defect) if defect.kind == Kind::Duplicate => assert!(all.len() > 1),
                Err(defect) => assert_eq!(defect.kind, Kind::LookAlike),
            }
        }
    } else if let Ok(Seq(elements)) = serde_json::from_str(text) {
        assert_eq!(object::elements(data).collect::<Vec<_>>(), elements);
    } else if let Ok(string) = serde_json::from_str::<String>(text) {
        let trimmed = text.trim_matches([' ', '\t', '\r', '\n']).as_bytes();
        assert_eq!(object::text(trimmed).as_deref(), Some(&*string));
    }
}

fn values(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    match object::strict_value(data, MAX_RESULT_DEPTH) {
        Ok(ours) => assert!(same(&ours, &value), "{ours} and {value}"),
        Err(defect) => {
            assert_eq!(defect.kind, Kind::Duplicate);
            assert!(repeats(data), "{defect}");
        }
    }
}

/// Equal, but for the last digits of fractions: `serde_json` rounds them faster than rightly.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && same(a.1, b.1))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(1.0));
            a == b || (a / b - 1.0).abs() < 1e-12 || (a - b).abs() < 1e-300
        }
        _ => a == b,
    }
}

/// Whether some object in the text has a member twice.
fn repeats(data: &[u8]) -> bool {
    if object::elements(data).any(repeats) {
        return true;
    }
    let mut seen = BTreeSet::new();
    object::members(data).any(|(name, value)| repeats(value) || !seen.insert(name.into_owned()))
}

fn edits(data: &[u8]) {
    let members: Vec<_> = object::members(data).collect();
    if !matches!(data.iter().find(|byte| !b" \t\r\n".contains(byte)), Some(b'{')) {
        assert_eq!(object::set_member(data, "k", b"1"), data);
        return;
    }
    for key in members.iter().map(|pair| &*pair.0).chain(["k", "a\"\n"]).take(8) {
        let with = object::set_member(data, key, b"[7]");
        let replaced = object::replace_member(data, key, b"[7]");
        let without = object::without_member(data, key);
        for text in [&with, &replaced, &without] {
            assert_eq!(scan::check(text, MAX_RESULT_DEPTH + 1), Ok(()));
        }
        let present = members.iter().any(|pair| pair.0 == key);
        let mut expected: Vec<_> = members.clone();
        for pair in &mut expected {
            if pair.0 == key {
                pair.1 = b"[7]";
            }
        }
        assert_eq!(object::members(&replaced).collect::<Vec<_>>(), expected);
        if present {
            assert_eq!(with, replaced);
        } else {
            assert_eq!(replaced, data);
            expected.push((key.into(), b"[7]"));
            assert_eq!(object::members(&with).collect::<Vec<_>>(), expected);
        }
        expected.retain(|pair| pair.0 != key);
        assert_eq!(object::members(&without).collect::<Vec<_>>(), expected);
        // Putting the old values back gives the old bytes.
        if let [(_, old)] = *members.iter().filter(|pair| pair.0 == key).collect::<Vec<_>>() {
            assert_eq!(object::replace_member(&replaced, key, old), data);
        }
    }
}

fn written(data: &[u8]) {
    let mut out = Vec::new();
    write::result(&mut out, b"\"x\"", data);
    let line = out.strip_suffix(b"\n").expect("a newline at the end");
    assert!(!line.iter().any(|byte| b"\r\n".contains(byte)));
    let flat = write::one_line(data);
    match Envelope::parse(line) {
        Ok(Envelope::Result { id, result }) => {
            assert_eq!(id.raw(), b"\"x\"");
            assert_eq!(result, flat.trim_ascii());
        }
        other => panic!("{other:?}"),
    }
    let text = std::str::from_utf8(data).expect("valid");
    let mut quoted = Vec::new();
    write::json_string(&mut quoted, text);
    assert_eq!(quoted, serde_json::to_vec(text).expect("a string"));
    assert_eq!(object::text(&quoted).as_deref(), Some(text));
}

/// The members of an object in order, with repetitions.
struct Pairs<'a>(Vec<(String, &'a [u8])>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Pairs<'de>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    pairs.push((name, value.get().as_bytes()));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// The elements of an array.
struct Seq<'a>(Vec<&'a [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Seq<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Seq<'de>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(value) = seq.next_element::<&'de RawValue>()? {
                    elements.push(value.get().as_bytes());
                }
                Ok(Seq(elements))
            }
        }
        deserializer.deserialize_seq(Collect)
    }
}
