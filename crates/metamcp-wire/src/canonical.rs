//! JSON in one form whatever its writer's habits: members in order of their names, no white space. Numbers and strings stay
//! as they were written, so that two texts of one form mean the same to every parser.
//! Owns: that form, and the same over several lines for people.      Never: rounds a number, drops a member.
//! In: raw JSON that is unambiguous.  Out: bytes.
//! Tests: below.

use crate::object::{elements, members};
use crate::scan::{Defect, MAX_DEPTH};
use crate::{object, write};

/// The canonical form of arguments.
///
/// # Errors
/// Two parsers could read it differently, or it is nested too deeply.
pub fn canonical(raw: &[u8]) -> Result<Vec<u8>, Defect> {
    object::unambiguous(raw, MAX_DEPTH)?;
    let mut out = Vec::with_capacity(raw.len());
    write_value(raw.trim_ascii(), None, &mut out);
    Ok(out)
}

/// The same over several lines, for a person.
///
/// # Errors
/// Two parsers could read it differently, or it is nested too deeply.
pub fn on_lines(raw: &[u8]) -> Result<Vec<u8>, Defect> {
    object::unambiguous(raw, MAX_DEPTH)?;
    let mut out = Vec::with_capacity(raw.len() * 2);
    write_value(raw.trim_ascii(), Some(0), &mut out);
    Ok(out)
}

fn write_value(raw: &[u8], indent: Option<usize>, out: &mut Vec<u8>) {
    let inner = indent.map(|indent| indent + 2);
    match raw.first() {
        Some(b'{') => {
            let mut all: Vec<_> = members(raw).collect();
            all.sort_by(|one, other| one.0.cmp(&other.0));
            out.push(b'{');
            for (at, (name, value)) in all.iter().enumerate() {
                separate(at, inner, out);
                write::json_string(out, name);
                out.extend_from_slice(if indent.is_some() { b": " } else { b":" });
                write_value(value, inner, out);
            }
            if !all.is_empty() {
                line(indent, out);
            }
            out.push(b'}');
        }
        Some(b'[') => {
            out.push(b'[');
            let mut is_empty = true;
            for (at, value) in elements(raw).enumerate() {
                separate(at, inner, out);
                write_value(value, inner, out);
                is_empty = false;
            }
            if !is_empty {
                line(indent, out);
            }
            out.push(b']');
        }
        _ => out.extend_from_slice(raw),
    }
}

fn separate(at: usize, indent: Option<usize>, out: &mut Vec<u8>) {
    if at > 0 {
        out.push(b',');
    }
    line(indent, out);
}

fn line(indent: Option<usize>, out: &mut Vec<u8>) {
    if let Some(indent) = indent {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', indent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(raw: &str) -> String {
        String::from_utf8(canonical(raw.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn order_and_white_space_do_not_count_and_everything_else_does() {
        let expect = r#"{"a":[1,{"x":null,"y":"é"}],"b":1.50}"#;
        for raw in [
            r#"{"b":1.50,"a":[1,{"y":"é","x":null}]}"#,
            " {\n\"a\" : [ 1 , { \"x\" : null, \"y\" : \"é\" } ] ,\t\"b\": 1.50 } ",
            r#"{"\u0061":[1,{"x":null,"y":"é"}],"b":1.50}"#,
        ] {
            assert_eq!(form(raw), expect);
        }
        for other in [
            // Other numbers, also where a parser with doubles sees the same one.
            r#"{"a":[1,{"x":null,"y":"é"}],"b":1.5}"#,
            r#"{"a":[1,{"x":null,"y":"é"}],"b":1.5000000000000000000001}"#,
            r#"{"a":[{"x":null,"y":"é"},1],"b":1.50}"#,
        ] {
            assert_ne!(form(other), expect);
        }
        assert_eq!((form("{}"), form(r#"{"a":[]}"#)), ("{}".to_owned(), r#"{"a":[]}"#.to_owned()));
    }

    #[test]
    fn what_parsers_may_read_differently_has_no_form() {
        for raw in [r#"{"a":1,"a":2}"#, r#"{"a":{"b":1,"\u0062":2}}"#] {
            assert!(canonical(raw.as_bytes()).is_err(), "{raw}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(canonical(deep.as_bytes()).is_err());
    }

    #[test]
    fn for_people_it_stands_on_lines() {
        let shown = on_lines(br#"{"b":[1,{}],"a":"x"}"#).unwrap();
        let expect = "{\n  \"a\": \"x\",\n  \"b\": [\n    1,\n    {}\n  ]\n}";
        assert_eq!(String::from_utf8(shown).unwrap(), expect);
    }
}
