//! A value built for checking, with every duplicate member refused.
//! Owns: the one place where raw JSON becomes a tree.      Never: what is forwarded (that stays raw).
//! In: raw JSON and a depth.  Out: `serde_json::Value`.
//! Tests: `object/tests.rs`.

use serde_json::{Map, Number, Value};

use super::decoded;
use crate::scan::{Defect, Kind, MAX_RESULT_DEPTH, Scanner, Token};

/// The value of `raw`, nested at most `depth` levels, no member twice in any object.
///
/// It is for checking only: a number beyond the range of `f64` becomes the largest one of its sign,
/// a lone surrogate becomes U+FFFD.
pub fn strict_value(raw: &[u8], depth: usize) -> Result<Value, Defect> {
    if let Err(error) = std::str::from_utf8(raw) {
        return Err(Defect { kind: Kind::Encoding, at: error.valid_up_to() });
    }
    let mut scanner = Scanner::new(raw);
    scanner.space();
    // The depth is bounded, so recursion is.
    let value = value(&mut scanner, depth.min(MAX_RESULT_DEPTH))?;
    scanner.end()?;
    Ok(value)
}

fn value(scanner: &mut Scanner<'_>, depth: usize) -> Result<Value, Defect> {
    let start = scanner.at();
    match scanner.peek() {
        b'{' | b'[' if depth == 0 => Err(scanner.defect(Kind::Depth)),
        b'{' => object(scanner, depth - 1),
        b'[' => array(scanner, depth - 1),
        b'"' => Ok(Value::String(string(scanner.string()?))),
        b'-' | b'0'..=b'9' => {
            scanner.number()?;
            Ok(Value::Number(number(scanner.since(start))))
        }
        first => {
            scanner.literal()?;
            Ok(if first == b'n' { Value::Null } else { Value::Bool(first == b't') })
        }
    }
}

fn object(scanner: &mut Scanner<'_>, depth: usize) -> Result<Value, Defect> {
    let mut map = Map::new();
    scanner.step();
    scanner.space();
    if scanner.peek() == b'}' {
        scanner.step();
        return Ok(Value::Object(map));
    }
    loop {
        let at = scanner.at();
        let name = string(scanner.key()?);
        if map.insert(name, value(scanner, depth)?).is_some() {
            return Err(Defect { kind: Kind::Duplicate, at });
        }
        scanner.space();
        if scanner.peek() == b'}' {
            scanner.step();
            return Ok(Value::Object(map));
        }
        scanner.expect(b',')?;
        scanner.space();
    }
}

fn array(scanner: &mut Scanner<'_>, depth: usize) -> Result<Value, Defect> {
    let mut list = Vec::new();
    scanner.step();
    scanner.space();
    if scanner.peek() == b']' {
        scanner.step();
        return Ok(Value::Array(list));
    }
    loop {
        list.push(value(scanner, depth)?);
        scanner.space();
        if scanner.peek() == b']' {
            scanner.step();
            return Ok(Value::Array(list));
        }
        scanner.expect(b',')?;
        scanner.space();
    }
}

fn string(token: Token<'_>) -> String {
    String::from_utf8_lossy(&decoded(token)).into_owned()
}

fn number(text: &[u8]) -> Number {
    let text = std::str::from_utf8(text).unwrap_or("0");
    if let Ok(whole) = text.parse::<u64>() {
        return whole.into();
    }
    // `-0` is a float to serde_json, and to us.
    if let Ok(whole) = text.parse::<i64>()
        && whole != 0
    {
        return whole.into();
    }
    let float = text.parse::<f64>().unwrap_or(0.0).clamp(f64::MIN, f64::MAX);
    Number::from_f64(float).unwrap_or_else(|| 0.into())
}
