//! The styles in which lists and objects stand in paths, queries, headers and cookies.

use serde_json::Value;

use super::{ArgumentError, scalar, text_or_json};
use crate::operation::{Parameter, Style};

/// Pairs that one argument may become, and levels of a deep one.
const MAX_PAIRS: usize = 2_000;
const MAX_LEVELS: usize = 12;

/// A name and a value of a query or a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) name: String,
    /// Escaped already.
    pub(crate) value: String,
}

impl Pair {
    fn new(name: &str, value: &str, allows_reserved: bool) -> Pair {
        Pair { name: name.to_owned(), value: escaped(value, allows_reserved) }
    }

    pub(crate) fn to_text(&self) -> String {
        // Brackets are read by every server, and some read nothing else.
        let name = escaped(&self.name, false).replace("%5B", "[").replace("%5D", "]");
        format!("{name}={}", self.value)
    }
}

pub(crate) fn in_query(parameter: &Parameter, value: &Value) -> Result<Vec<Pair>, ArgumentError> {
    if parameter.is_json {
        return Ok(vec![Pair::new(&parameter.name, &value.to_string(), false)]);
    }
    pairs(
        &parameter.key,
        &parameter.name,
        value,
        parameter.style,
        parameter.explode,
        parameter.allows_reserved,
    )
}

/// One value of a query or a form.
pub(crate) fn pairs(
    argument: &str,
    name: &str,
    value: &Value,
    style: Style,
    explode: bool,
    reserved: bool,
) -> Result<Vec<Pair>, ArgumentError> {
    let mut out = Vec::new();
    match (style, value) {
        (Style::Deep, Value::Array(_) | Value::Object(_)) => {
            deep(&mut out, name, value, reserved, 0);
        }
        (_, Value::Array(all)) if explode => {
            out.extend(all.iter().map(|one| Pair::new(name, &text_or_json(one), reserved)));
        }
        (_, Value::Object(all)) if explode => {
            out.extend(all.iter().map(|(key, one)| Pair::new(key, &text_or_json(one), reserved)));
        }
        (_, Value::Array(_) | Value::Object(_)) => {
            let between = match style {
                Style::Space => "%20",
                Style::Pipe => "%7C",
                _ => ",",
            };
            let parts: Vec<String> =
                flat(value).iter().map(|part| escaped(part, reserved)).collect();
            if !parts.is_empty() {
                out.push(Pair { name: name.to_owned(), value: parts.join(between) });
            }
        }
        (_, one) => out.push(Pair::new(name, &text_or_json(one), reserved)),
    }
    if out.len() > MAX_PAIRS {
        return Err(ArgumentError::new(argument, format!("has more than {MAX_PAIRS} parts")));
    }
    Ok(out)
}

/// `name[key][0]=value`, and `name[]=value` for lists of plain values, as most servers read it.
fn deep(out: &mut Vec<Pair>, name: &str, value: &Value, reserved: bool, level: usize) {
    if out.len() > MAX_PAIRS {
        return;
    }
    match value {
        Value::Object(all) if level < MAX_LEVELS => {
            for (key, one) in all {
                deep(out, &format!("{name}[{key}]"), one, reserved, level + 1);
            }
        }
        Value::Array(all) if level < MAX_LEVELS => {
            for (at, one) in all.iter().enumerate() {
                let is_plain = scalar(one).is_some();
                let inner = if is_plain { format!("{name}[]") } else { format!("{name}[{at}]") };
                deep(out, &inner, one, reserved, level + 1);
            }
        }
        other => out.push(Pair::new(name, &text_or_json(other), reserved)),
    }
}

/// The parts of a list, or keys and values of an object in turns.
fn flat(value: &Value) -> Vec<String> {
    match value {
        Value::Array(all) => all.iter().map(text_or_json).collect(),
        Value::Object(all) => {
            all.iter().flat_map(|(key, one)| [key.clone(), text_or_json(one)]).collect()
        }
        one => vec![text_or_json(one)],
    }
}

pub(crate) fn in_path(parameter: &Parameter, value: &Value) -> String {
    let Parameter { name, style, explode, .. } = parameter;
    let plain = |text: &str| escaped(text, false);
    if parameter.is_json {
        return plain(&value.to_string());
    }
    let parts: Vec<String> = flat(value).iter().map(|part| plain(part)).collect();
    let assigned = || match value {
        Value::Object(all) => all
            .iter()
            .map(|(key, one)| format!("{}={}", plain(key), plain(&text_or_json(one))))
            .collect(),
        _ => parts.clone(),
    };
    match (style, explode) {
        (Style::Label, true) => format!(".{}", assigned().join(".")),
        (Style::Label, false) => format!(".{}", parts.join(",")),
        (Style::Matrix, true) if value.is_object() => format!(";{}", assigned().join(";")),
        (Style::Matrix, true) if value.is_array() => {
            let each: Vec<String> =
                parts.iter().map(|part| format!(";{}={part}", plain(name))).collect();
            each.concat()
        }
        (Style::Matrix, _) => format!(";{}={}", plain(name), parts.join(",")),
        (_, true) => assigned().join(","),
        (_, false) => parts.join(","),
    }
}

pub(crate) fn header(parameter: &Parameter, value: &Value) -> Result<String, ArgumentError> {
    let written = match value {
        _ if parameter.is_json => value.to_string(),
        Value::Object(all) if parameter.explode => {
            let each = all.iter().map(|(key, one)| format!("{key}={}", text_or_json(one)));
            each.collect::<Vec<_>>().join(",")
        }
        other => flat(other).join(","),
    };
    if written.bytes().any(|byte| !(byte == b' ' || byte == b'\t' || byte.is_ascii_graphic())) {
        let why = "holds characters that no header has";
        return Err(ArgumentError::new(&parameter.key, why));
    }
    Ok(written.trim().to_owned())
}

pub(crate) fn cookie(parameter: &Parameter, value: &Value) -> String {
    let written = if parameter.is_json { value.to_string() } else { flat(value).join(",") };
    format!("{}={}", parameter.name, escaped(&written, false))
}

/// Percent-escaped; what is reserved may stay where the description says so, but for what would end the value.
pub fn escaped(text: &str, allows_reserved: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            b':' | b'/' | b'?' | b'@' | b'!' | b'$' | b'\'' | b'(' | b')' | b'*' | b',' | b';'
                if allows_reserved =>
            {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
