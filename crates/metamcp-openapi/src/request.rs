//! Arguments as the parts of an HTTP request: path, query, headers, cookies, body.
//! Owns: the styles of parameters, the encodings of bodies.      Never: sends anything, holds a credential.
//! In: an operation, arguments.  Out: a `Request`, or which argument cannot be sent.
//! Tests: `tests/requests.rs`.

mod body;
mod style;

use serde_json::{Map, Value};

use crate::operation::{Operation, Parameter, Place};
use style::{Pair, cookie, escaped, header, in_path, in_query};

pub use style::escaped as escape;

/// Longest path and query; what is longer no server takes.
const MAX_TARGET: usize = 8_000;

/// An argument that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{argument}: {why}")]
pub struct ArgumentError {
    /// Which, as `body.file`.
    pub argument: String,
    /// Why, as a fragment.
    pub why: String,
}

impl ArgumentError {
    pub(crate) fn new(argument: &str, why: impl Into<String>) -> ArgumentError {
        ArgumentError { argument: argument.to_owned(), why: why.into() }
    }
}

/// The parts of a request, without its credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: &'static str,
    /// Path and query, escaped.
    pub target: String,
    /// Without `Content-Type` and `Cookie`.
    pub headers: Vec<(String, String)>,
    /// As they stand in the header.
    pub cookies: Vec<String>,
    /// Its type and its bytes.
    pub body: Option<(String, Vec<u8>)>,
}

impl Operation {
    /// The request for a call.
    ///
    /// # Errors
    /// An argument is missing, unknown, or cannot be written where it belongs.
    pub fn request(&self, arguments: &Map<String, Value>) -> Result<Request, ArgumentError> {
        if let Some(unknown) = arguments.keys().find(|key| !self.keys().any(|own| own == *key)) {
            return Err(ArgumentError::new(unknown, "there is no such argument"));
        }
        let mut path = self.base.path().trim_end_matches('/').to_owned();
        path.push_str(&escaped_literal(&self.filled(arguments)?));
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        let mut query: Vec<String> = Vec::new();
        let mut headers = Vec::new();
        let mut cookies = Vec::new();
        for parameter in &self.parameters {
            let value = arguments.get(&parameter.key).filter(|value| !value.is_null());
            let Some(value) = value else {
                if parameter.is_required {
                    return Err(ArgumentError::new(&parameter.key, "is required"));
                }
                continue;
            };
            match parameter.place {
                Place::Path => {}
                Place::Query => query.extend(in_query(parameter, value)?.iter().map(Pair::to_text)),
                Place::Header => headers.push((parameter.name.clone(), header(parameter, value)?)),
                Place::Cookie => cookies.push(cookie(parameter, value)),
            }
        }
        let body = self.body_of(arguments)?;
        let mut target = path;
        if !query.is_empty() {
            target.push('?');
            target.push_str(&query.join("&"));
        }
        if target.len() > MAX_TARGET {
            let longest = self.parameters.iter().filter(|one| one.place <= Place::Query);
            let longest = longest.max_by_key(|one| {
                arguments.get(&one.key).map_or(0, |value| value.to_string().len())
            });
            let name = longest.map_or("", |one| &one.key);
            return Err(ArgumentError::new(name, "the address would be longer than servers take"));
        }
        Ok(Request { method: self.method, target, headers, cookies, body })
    }

    /// The path with its variables filled in, each already escaped.
    fn filled(&self, arguments: &Map<String, Value>) -> Result<String, ArgumentError> {
        let mut out = String::new();
        let mut rest = self.path.as_str();
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((name, tail)) = behind.split_once('}') else { break };
            out.push_str(before);
            let is_it = |one: &&Parameter| one.place == Place::Path && one.name == name;
            if let Some(parameter) = self.parameters.iter().find(is_it) {
                let value = arguments.get(&parameter.key).filter(|value| !value.is_null());
                let value =
                    value.ok_or_else(|| ArgumentError::new(&parameter.key, "is required"))?;
                let written = in_path(parameter, value);
                // Empty or of dots alone it would make another path of it.
                if written.is_empty() || matches!(written.as_str(), "." | "..") {
                    let why = "cannot be empty or a dot in a path";
                    return Err(ArgumentError::new(&parameter.key, why));
                }
                out.push_str(&written);
            }
            rest = tail;
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// What of a path stands there as written: escapes stay, all that no path has is escaped.
fn escaped_literal(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'?' | b'#' | b'\\' | b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                out.push_str(&format!("%{byte:02X}"));
            }
            b'!'..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// A value without parts as text.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null => Some(String::new()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

pub(crate) fn text_or_json(value: &Value) -> String {
    scalar(value).unwrap_or_else(|| value.to_string())
}

pub(crate) fn escape_text(text: &str) -> String {
    escaped(text, false)
}
