//! `input_required`: the input requests in it, the responses to them, and the capabilities they need.

use serde_json::Value;

use crate::object::{members, pick, set_member, text};
use crate::write::json_string;

/// Most input requests in one result: more than any form a person would fill in.
pub const MAX_QUESTIONS: usize = 16;
/// Longest key of an input request.
const MAX_KEY: usize = 200;
/// Longest `requestState` of a server: it travels back with every retry.
pub const MAX_STATE: usize = 64 * 1024;

/// An input request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub key: String,
    pub method: String,
    /// An object.
    pub params: Option<Vec<u8>>,
}

/// An `input_required` result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Required {
    pub questions: Vec<Question>,
    /// The server's `requestState`, opaque.
    pub state: Option<String>,
}

/// What is wrong with an `input_required` result, or with the responses to one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInput {
    #[error("it has no usable {what}")]
    Shape { what: &'static str },
    #[error("it has more {what} than is taken")]
    TooMuch { what: &'static str },
    /// A method that clients do not have.
    #[error("it asks the client for {method:?}, which clients are not asked")]
    Method { method: String },
}

pub fn required(result: &[u8]) -> Result<Required, InvalidInput> {
    let [requests, state] = pick(result, ["inputRequests", "requestState"])
        .map_err(|_| InvalidInput::Shape { what: "members" })?;
    let state = match state {
        None => None,
        Some(state) => {
            Some(text(state).ok_or(InvalidInput::Shape { what: "requestState" })?.into_owned())
        }
    };
    if state.as_ref().is_some_and(|state| state.len() > MAX_STATE) {
        return Err(InvalidInput::TooMuch { what: "requestState" });
    }
    let mut questions: Vec<Question> = Vec::new();
    if let Some(requests) = requests {
        if !requests.starts_with(b"{") {
            return Err(InvalidInput::Shape { what: "inputRequests" });
        }
        for (key, raw) in members(requests) {
            if questions.len() == MAX_QUESTIONS {
                return Err(InvalidInput::TooMuch { what: "inputRequests" });
            }
            if key.len() > MAX_KEY || questions.iter().any(|known| known.key == key) {
                return Err(InvalidInput::Shape { what: "key in inputRequests" });
            }
            questions.push(question(key.into_owned(), raw)?);
        }
    }
    if questions.is_empty() && state.is_none() {
        return Err(InvalidInput::Shape { what: "inputRequests or requestState" });
    }
    Ok(Required { questions, state })
}

fn question(key: String, raw: &[u8]) -> Result<Question, InvalidInput> {
    let [method, params] = pick(raw, ["method", "params"])
        .map_err(|_| InvalidInput::Shape { what: "inputRequests" })?;
    let method =
        method.and_then(text).ok_or(InvalidInput::Shape { what: "method in inputRequests" })?;
    if ability(&method).is_none() {
        return Err(InvalidInput::Method { method: method.chars().take(100).collect() });
    }
    let params = params.filter(|params| params.starts_with(b"{")).map(<[u8]>::to_vec);
    Ok(Question { key, method: method.into_owned(), params })
}

/// The capability a client needs for this method; `None` for a method that clients do not have.
pub fn ability(method: &str) -> Option<&'static str> {
    match method {
        "elicitation/create" => Some("elicitation"),
        "sampling/createMessage" => Some("sampling"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}

/// Whether a client with these capabilities accepts this input request.
pub fn permits(capabilities: &Value, method: &str, params: Option<&[u8]>) -> bool {
    let Some(declared) = ability(method).and_then(|name| capabilities.get(name)) else {
        return false;
    };
    let Some(declared) = declared.as_object() else { return false };
    if method != "elicitation/create" {
        return true;
    }
    let mode = params.and_then(|params| pick(params, ["mode"]).ok()?[0]).and_then(text);
    match mode.as_deref() {
        // No mode declared means forms, as before there were modes.
        None | Some("form") => declared.contains_key("form") || !declared.contains_key("url"),
        Some(mode) => declared.contains_key(mode),
    }
}

/// An `input_required` result of ours.
pub fn asking<'a>(
    questions: impl IntoIterator<Item = (&'a str, &'a str, Option<&'a [u8]>)>,
    state: &str,
) -> Vec<u8> {
    let mut out = b"{\"resultType\":\"input_required\",\"inputRequests\":{".to_vec();
    for (number, (key, method, params)) in questions.into_iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        json_string(&mut out, key);
        out.extend_from_slice(b":{\"method\":");
        json_string(&mut out, method);
        if let Some(params) = params {
            out.extend_from_slice(b",\"params\":");
            out.extend_from_slice(params);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"},\"requestState\":");
    json_string(&mut out, state);
    out.push(b'}');
    out
}

/// A server's `input_required` with our state in place of its own.
pub fn restated(result: &[u8], state: &str) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(state.len() + 2);
    json_string(&mut quoted, state);
    set_member(result, "requestState", &quoted)
}

/// Responses by key, raw.
pub type Responses = Vec<(String, Vec<u8>)>;

/// The `inputResponses` of a retry. Unknown keys are allowed, to be ignored by the caller.
pub fn responses(raw: &[u8]) -> Result<Responses, InvalidInput> {
    if !raw.starts_with(b"{") {
        return Err(InvalidInput::Shape { what: "inputResponses" });
    }
    let mut found: Responses = Vec::new();
    for (key, value) in members(raw) {
        if found.len() == MAX_QUESTIONS * 2 {
            return Err(InvalidInput::TooMuch { what: "inputResponses" });
        }
        if !value.starts_with(b"{") || found.iter().any(|(known, _)| *known == key) {
            return Err(InvalidInput::Shape { what: "inputResponses" });
        }
        found.push((key.into_owned(), value.to_vec()));
    }
    Ok(found)
}

/// Writes `inputResponses`.
pub fn answering(responses: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (number, (key, value)) in responses.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        json_string(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn input_requests_are_parsed_and_written() {
        let result = br#"{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"?" }},"r":{"method":"roots/list"}},"requestState":"s\n"}"#;
        let read = required(result).unwrap();
        assert_eq!(read.state.as_deref(), Some("s\n"));
        assert_eq!(read.questions[0].params.as_deref(), Some(&br#"{"message":"?" }"#[..]));
        let written = asking(
            read.questions.iter().map(|q| (&*q.key, &*q.method, q.params.as_deref())),
            "s\n",
        );
        assert_eq!(written, result);
        assert_eq!(required(&restated(result, "new")).unwrap().state.as_deref(), Some("new"));
    }

    #[test]
    fn invalid_input_requests_are_refused() {
        for wrong in [
            r"{}",
            r#"{"inputRequests":[]}"#,
            r#"{"inputRequests":{}}"#,
            r#"{"inputRequests":{"a":7}}"#,
            r#"{"inputRequests":{"a":{"method":"tools/call"}}}"#,
            r#"{"inputRequests":{"a":{"method":"roots/list"},"a":{"method":"roots/list"}}}"#,
            r#"{"requestState":7}"#,
        ] {
            assert!(required(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(required(br#"{"requestState":"x"}"#).is_ok());
        let many: Vec<String> =
            (0..17).map(|n| format!(r#""{n}":{{"method":"roots/list"}}"#)).collect();
        assert!(
            required(format!(r#"{{"inputRequests":{{{}}}}}"#, many.join(",")).as_bytes()).is_err()
        );
    }

    #[test]
    fn answers_are_read_and_written() {
        let raw = br#"{"who":{"action":"accept","content":{"n":1.50}},"r":{"roots":[]}}"#;
        assert_eq!(answering(&responses(raw).unwrap()), raw);
        for wrong in ["7", "[]", r#"{"a":7}"#, r#"{"a":{},"a":{}}"#] {
            assert!(responses(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn input_requests_need_the_clients_capability() {
        let form = Some(&br#"{"mode":"form"}"#[..]);
        let url = Some(&br#"{"mode":"url"}"#[..]);
        let ask = |able: Value, params| permits(&able, "elicitation/create", params);
        assert!(ask(json!({"elicitation": {}}), None));
        assert!(ask(json!({"elicitation": {}}), form));
        assert!(!ask(json!({"elicitation": {}}), url));
        assert!(ask(json!({"elicitation": {"url": {}}}), url));
        assert!(!ask(json!({"elicitation": {"url": {}}}), form));
        assert!(!ask(json!({}), None));
        assert!(permits(&json!({"roots": {}}), "roots/list", None));
        assert!(!permits(&json!({"roots": null}), "roots/list", None));
        assert!(!permits(&json!({"tools": {}}), "tools/call", None));
    }
}
