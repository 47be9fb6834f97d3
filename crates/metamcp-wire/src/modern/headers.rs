//! The headers that repeat parts of a request's body: validated in requests to us, added to requests of ours.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Fault;
use crate::object::{pick, text};

const SENTINEL: &[u8] = b"=?base64?";
const SENTINEL_END: &[u8] = b"?=";
/// Most parameters of a tool repeated in headers.
const MAX_MIRRORS: usize = 64;
/// The largest integer that a double represents exactly.
const SAFE: i64 = (1 << 53) - 1;

/// Checks the headers of a request of the stateless era against its body. `header` looks a header up by its name in
/// lower case; a header that occurs twice is to be given as its values joined by a comma, which matches nothing.
pub fn check<'h>(
    header: impl Fn(&str) -> Option<&'h [u8]>,
    method: &str,
    params: Option<&[u8]>,
    version: &str,
) -> Result<(), Fault> {
    same("MCP-Protocol-Version", header("mcp-protocol-version"), version.as_bytes())?;
    same("Mcp-Method", header("mcp-method"), method.as_bytes())?;
    let source = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return Ok(()),
    };
    let value = header("mcp-name").ok_or_else(|| missing("Mcp-Name"))?;
    let [named] = picked(params, [source])?;
    let named = named.and_then(text).ok_or_else(|| {
        Fault::header(format!("the request has an Mcp-Name header, but no `{source}`, a string"))
    })?;
    let value = decoded(value).ok_or_else(|| unreadable("Mcp-Name"))?;
    same("Mcp-Name", Some(&value), named.as_bytes())
}

/// A parameter of a tool that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// What follows `Mcp-Param-`.
    pub header: String,
    /// Its path in the arguments.
    pub path: Vec<String>,
}

/// The parameters that a tool's schema maps to headers. The error says why the tool cannot be used over HTTP.
pub fn mirrors(schema: &Value) -> Result<Vec<Mirror>, String> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    walk(schema, &mut Vec::new(), true, &mut found, &mut names, 0)?;
    Ok(found)
}

/// Checks `Mcp-Param-*` of a request against its arguments, an object or nothing.
pub fn check_parameters<'h>(
    header: impl Fn(&str) -> Option<&'h [u8]>,
    mirrors: &[Mirror],
    arguments: Option<&[u8]>,
) -> Result<(), Fault> {
    for mirror in mirrors {
        let name = format!("Mcp-Param-{}", mirror.header);
        let value = header(&name.to_ascii_lowercase());
        match (value, at(arguments, &mirror.path)?) {
            (None, None) => {}
            (None, Some(_)) => return Err(missing(&name)),
            (Some(_), None) => {
                return Err(Fault::header(format!("{name} is given, but its parameter is not")));
            }
            (Some(value), Some(raw)) => {
                let value = decoded(value).ok_or_else(|| unreadable(&name))?;
                let (plain, numeric) = plain(raw).ok_or_else(|| {
                    Fault::header(format!(
                        "the parameter of {name} is no string, number or boolean"
                    ))
                })?;
                let equal = value == plain.as_bytes() || (numeric && same_number(&value, &plain));
                if !equal {
                    return Err(Fault::header(format!(
                        "{name} does not match its parameter in the body"
                    )));
                }
            }
        }
    }
    Ok(())
}

/// The headers that go with a call of ours: names without `Mcp-Param-`, values encoded where they have to be.
pub fn parameters(mirrors: &[Mirror], arguments: Option<&[u8]>) -> Vec<(String, String)> {
    mirrors
        .iter()
        .filter_map(|mirror| {
            let (value, _) = plain(at(arguments, &mirror.path).ok()??)?;
            Some((mirror.header.clone(), encoded(&value)))
        })
        .collect()
}

/// A value as it is written into a header.
pub fn encoded(value: &str) -> String {
    let bytes = value.as_bytes();
    let visible = |b: &u8| matches!(b, 0x20..=0x7e | b'\t');
    let padded = bytes.first().is_some_and(u8::is_ascii_whitespace)
        || bytes.last().is_some_and(u8::is_ascii_whitespace);
    let looks_encoded = bytes.starts_with(SENTINEL) && bytes.ends_with(SENTINEL_END);
    if bytes.iter().all(visible) && !padded && !looks_encoded {
        return value.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(bytes))
}

/// The value of a header; `None` if it contains invalid characters, or its encoding is invalid.
pub fn decoded(value: &[u8]) -> Option<Vec<u8>> {
    let inner = value.strip_prefix(SENTINEL).and_then(|rest| rest.strip_suffix(SENTINEL_END));
    match inner {
        Some(inner) => {
            STANDARD.decode(inner).ok().filter(|bytes| std::str::from_utf8(bytes).is_ok())
        }
        None if value.iter().all(|b| matches!(b, 0x20..=0x7e | b'\t')) => Some(value.to_vec()),
        None => None,
    }
}

/// Members of the params, without ambiguity.
pub fn picked<'a, const N: usize>(
    params: Option<&'a [u8]>,
    wanted: [&str; N],
) -> Result<[Option<&'a [u8]>; N], Fault> {
    let Some(params) = params else { return Ok([None; N]) };
    pick(params, wanted)
        .map_err(|defect| Fault::invalid(format!("the params cannot be used: {defect}")))
}

fn same(name: &str, header: Option<&[u8]>, body: &[u8]) -> Result<(), Fault> {
    let header = header.ok_or_else(|| missing(name))?;
    if header == body {
        return Ok(());
    }
    let shown = |bytes: &[u8]| -> String {
        String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).take(100).collect()
    };
    Err(Fault::header(format!(
        "Header mismatch: {name} header value '{}' does not match body value '{}'",
        shown(header),
        shown(body)
    )))
}

fn missing(name: &str) -> Fault {
    Fault::header(format!("the request has no {name} header"))
}

fn unreadable(name: &str) -> Fault {
    Fault::header(format!("the {name} header holds characters that no header may hold"))
}

/// The value at a path; `null` counts as none, and so does everything below a value that is no object.
fn at<'a>(arguments: Option<&'a [u8]>, path: &[String]) -> Result<Option<&'a [u8]>, Fault> {
    let mut here = arguments;
    for step in path {
        [here] = picked(here.filter(|here| here.starts_with(b"{")), [step.as_str()])?;
    }
    Ok(here.filter(|here| *here != b"null"))
}

/// A primitive as text, and whether it is a number.
fn plain(raw: &[u8]) -> Option<(String, bool)> {
    match raw.first()? {
        b'"' => Some((text(raw)?.into_owned(), false)),
        b't' | b'f' => Some((String::from_utf8(raw.to_vec()).ok()?, false)),
        b'-' | b'0'..=b'9' => Some((String::from_utf8(raw.to_vec()).ok()?, true)),
        _ => None,
    }
}

fn same_number(header: &[u8], body: &str) -> bool {
    let whole = |text: &str| -> Option<i64> {
        let (digits, rest) = text.split_once('.').unwrap_or((text, ""));
        let value: i64 = digits.parse().ok()?;
        (rest.bytes().all(|b| b == b'0') && value.abs() <= SAFE).then_some(value)
    };
    let header = std::str::from_utf8(header).ok().and_then(whole);
    header.is_some() && header == whole(body)
}

/// Looks for annotations. They are allowed only below a chain of `properties`; anywhere else they make the tool invalid.
fn walk(
    schema: &Value,
    path: &mut Vec<String>,
    reachable: bool,
    found: &mut Vec<Mirror>,
    names: &mut BTreeSet<String>,
    depth: usize,
) -> Result<(), String> {
    if depth > crate::scan::MAX_DEPTH {
        return Err("its schema is too deep".to_owned());
    }
    if let Some(items) = schema.as_array() {
        for item in items {
            walk(item, path, false, found, names, depth + 1)?;
        }
    }
    let Some(object) = schema.as_object() else { return Ok(()) };
    if let Some(name) = object.get("x-mcp-header") {
        let name = name.as_str().ok_or("an x-mcp-header is no string")?;
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            return Err(format!("x-mcp-header {:?} is no header name", shorten(name)));
        }
        if !reachable || path.is_empty() {
            return Err(format!("x-mcp-header {:?} stands where no parameter is", shorten(name)));
        }
        if !matches!(
            object.get("type").and_then(Value::as_str),
            Some("string" | "integer" | "boolean")
        ) {
            return Err(format!(
                "x-mcp-header {:?} is on a parameter of another type",
                shorten(name)
            ));
        }
        if !names.insert(name.to_ascii_lowercase()) || found.len() == MAX_MIRRORS {
            return Err(format!("x-mcp-header {:?} occurs twice", shorten(name)));
        }
        found.push(Mirror { header: name.to_owned(), path: path.clone() });
    }
    for (key, value) in object {
        match (key.as_str(), value.as_object()) {
            ("properties", Some(properties)) => {
                for (name, schema) in properties {
                    path.push(name.clone());
                    walk(schema, path, reachable, found, names, depth + 1)?;
                    path.pop();
                }
            }
            // What is data rather than schema cannot contain an annotation.
            ("default" | "const" | "enum" | "examples" | "x-mcp-header", _) => {}
            _ => walk(value, path, false, found, names, depth + 1)?,
        }
    }
    Ok(())
}

fn shorten(name: &str) -> String {
    name.chars().take(60).collect()
}

#[cfg(test)]
mod tests;
