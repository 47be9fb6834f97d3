//! Raw JSON in which every duplicate member is refused: checked, or built as a value for validation.
//! Owns: the one place where raw JSON becomes a tree.      Never: what is forwarded (that stays raw).
//! In: raw JSON and a depth.  Out: nothing but the defect, or `serde_json::Value`.
//! Tests: `object/tests.rs`.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::decoded;
use crate::scan::{Defect, Kind, MAX_RESULT_DEPTH, Scanner, Token};

/// Members of an object that are compared one by one; past that many a set is quicker.
const FEW: usize = 16;

/// Checks that no object in `raw`, at any depth, has a member twice, so that a parser behind us sees the same values.
/// Nothing is built.
pub fn unambiguous(raw: &[u8], depth: usize) -> Result<(), Defect> {
    let mut scanner = Scanner::new(raw);
    scanner.space();
    // The depth is bounded, so recursion is.
    walk(&mut scanner, depth.min(MAX_RESULT_DEPTH))?;
    scanner.end()
}

fn walk(scanner: &mut Scanner<'_>, depth: usize) -> Result<(), Defect> {
    let close = match scanner.peek() {
        b'{' | b'[' if depth == 0 => return Err(scanner.defect(Kind::Depth)),
        b'{' => b'}',
        b'[' => b']',
        _ => return scanner.scalar(),
    };
    scanner.step();
    scanner.space();
    let mut names = Names::default();
    while scanner.peek() != close {
        if close == b'}' {
            let at = scanner.at();
            if !names.add(decoded(scanner.key()?)) {
                return Err(Defect { kind: Kind::Duplicate, at });
            }
        }
        walk(scanner, depth - 1)?;
        scanner.space();
        if scanner.peek() == close {
            break;
        }
        scanner.expect(b',')?;
        scanner.space();
        if scanner.peek() == close {
            return Err(scanner.unexpected());
        }
    }
    scanner.step();
    Ok(())
}

/// The names of one object's members.
#[derive(Default)]
struct Names<'a> {
    few: Vec<Cow<'a, [u8]>>,
    many: HashSet<Cow<'a, [u8]>>,
}

impl<'a> Names<'a> {
    /// False if it is there already.
    fn add(&mut self, name: Cow<'a, [u8]>) -> bool {
        if self.few.len() < FEW {
            let is_new = !self.few.contains(&name);
            self.few.push(name);
            return is_new;
        }
        if self.many.is_empty() {
            self.many.extend(self.few.iter().cloned());
        }
        self.many.insert(name)
    }
}

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
