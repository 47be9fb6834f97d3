//! What an API answers, as the result of a tool.
//! Owns: which answers are JSON, text, pictures or bytes, what is told beside them.      Never: reads more than it is given.
//! In: status, headers and body.  Out: a `CallToolResult` as JSON.
//! Tests: `tests/answers.rs`.

mod next_page;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use metamcp_types::text;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::operation::{Operation, is_json};

/// Marks a part of a result that is a word of ours to the reader, and no part of what the API said: scripts do not get it.
pub const NOTE: &str = "metamcp/note";
/// Longest body of an error that is passed on.
pub const MAX_ERROR: usize = 4_000;
/// Bodies up to this length are looked into for a next page.
const MAX_LOOKED_AT: usize = 4 * 1024 * 1024;

/// An answer, read to its end.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub status: u16,
    /// By their names in lower case.
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
    /// Where it is from, without the query.
    pub place: &'a str,
    /// The arguments of the call.
    pub arguments: &'a Map<String, Value>,
}

impl Answer<'_> {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn media(&self) -> String {
        let said = self.header("content-type").unwrap_or_default();
        said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
}

/// The result of a call.
pub fn result(operation: &Operation, answer: &Answer<'_>, hint: Option<&str>) -> Vec<u8> {
    if !(200..300).contains(&answer.status) {
        return failed(answer, hint);
    }
    let mut notes: Vec<String> = Vec::new();
    if let Some(place) = answer.header("location").filter(|_| matches!(answer.status, 201 | 202)) {
        notes.push(format!("It is at {}", text::clean_line(place, 500)));
    }
    if answer.status == 202 {
        notes.push("It was accepted and goes on (HTTP 202)".to_owned());
    }
    let media = answer.media();
    let mut out = Vec::with_capacity(answer.body.len() * 2 + 200);
    out.extend_from_slice(b"{\"content\":[");
    let mut structured: Option<&RawValue> = None;
    if operation.method == "HEAD" {
        let shown = headers_shown(answer);
        text_part(&mut out, &shown.to_string());
    } else if answer.body.is_empty() {
        notes.push(format!("Done: HTTP {} without a body", answer.status));
    } else if let Some(json) = json_of(&media, answer.body) {
        text_part(&mut out, json.get());
        if json.get().starts_with('{') {
            structured = Some(json);
        }
        if json.get().len() <= MAX_LOOKED_AT {
            notes.extend(next_page::hint(operation, answer, json.get()));
        }
    } else {
        other(&mut out, &media, answer);
        notes.extend(next_page::hint(operation, answer, "null"));
    }
    for note in notes {
        note_part(&mut out, &note);
    }
    out.push(b']');
    if let Some(structured) = structured {
        out.extend_from_slice(b",\"structuredContent\":");
        out.extend_from_slice(structured.get().as_bytes());
    }
    out.push(b'}');
    out
}

/// An error in place of a result, with words of ours.
pub fn refused(words: &str) -> Vec<u8> {
    json!({ "content": [{ "type": "text", "text": words }], "isError": true })
        .to_string()
        .into_bytes()
}

/// An error status: what it was, what the API said, and what may help.
fn failed(answer: &Answer<'_>, hint: Option<&str>) -> Vec<u8> {
    let name = status_name(answer.status);
    let mut words = format!("HTTP {}{name}", answer.status);
    if let Some(place) = answer.header("location").filter(|_| answer.status < 400) {
        words.push_str(&format!(" at {}", text::clean_line(place, 500)));
    }
    let media = answer.media();
    let is_page = media == "text/html";
    if is_page {
        words.push_str(": the answer is a web page");
    } else if !answer.body.is_empty() && is_text(&media, answer.body) {
        let body = String::from_utf8_lossy(answer.body);
        let body = text::clean(body.trim(), MAX_ERROR * 4);
        words.push_str(&format!(": {}", text::cut(&body, MAX_ERROR)));
    }
    if let Some(after) = answer.header("retry-after") {
        words.push_str(&format!("\n[Try again after {}", text::clean_line(after, 60)));
        if after.bytes().all(|byte| byte.is_ascii_digit()) {
            words.push_str(" seconds");
        }
        words.push(']');
    }
    let limits = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit"];
    let limits: Vec<String> = limits
        .iter()
        .filter_map(|name| Some(format!("{name}: {}", text::clean_line(answer.header(name)?, 60))))
        .collect();
    if !limits.is_empty() && matches!(answer.status, 403 | 429) {
        words.push_str(&format!("\n[Rate limit: {}]", limits.join(", ")));
    }
    if let Some(hint) = hint {
        words.push_str(&format!("\n[{hint}]"));
    }
    refused(&words)
}

/// A body that is JSON, whatever it is called: some APIs call it text.
fn json_of<'a>(media: &str, body: &'a [u8]) -> Option<&'a RawValue> {
    let may_be =
        is_json(media) || media.is_empty() || media == "text/plain" || media == "text/javascript";
    if !may_be {
        return None;
    }
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = std::str::from_utf8(body).ok()?.trim();
    // A word alone is text to a reader, although it may be JSON.
    let is_shaped = is_json(media) || text.starts_with(['{', '[']);
    if !is_shaped {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// What is not JSON: text, a picture, a sound, or bytes.
fn other(out: &mut Vec<u8>, media: &str, answer: &Answer<'_>) {
    if is_text(media, answer.body) {
        return text_part(out, &String::from_utf8_lossy(answer.body));
    }
    let data = STANDARD.encode(answer.body);
    let media = if media.is_empty() { "application/octet-stream" } else { media };
    let kind = match media {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => "image",
        _ if media.starts_with("audio/") => "audio",
        _ => {
            let resource = json!({ "uri": answer.place, "mimeType": media, "blob": data });
            return part(out, &json!({ "type": "resource", "resource": resource }));
        }
    };
    part(out, &json!({ "type": kind, "data": data, "mimeType": media }));
}

fn is_text(media: &str, body: &[u8]) -> bool {
    let said = media.starts_with("text/")
        || is_json(media)
        || [
            "xml",
            "yaml",
            "javascript",
            "csv",
            "graphql",
            "x-ndjson",
            "jsonl",
            "x-www-form-urlencoded",
        ]
        .iter()
        .any(|end| media.ends_with(end));
    let may_be = said || media.is_empty();
    may_be && std::str::from_utf8(body).is_ok() && !body.contains(&0)
}

fn headers_shown(answer: &Answer<'_>) -> Value {
    const HIDDEN: [&str; 3] = ["set-cookie", "authorization", "www-authenticate"];
    let all = answer.headers.iter().filter(|(name, _)| !HIDDEN.contains(&name.as_str())).take(60);
    Value::Object(
        all.map(|(name, value)| (name.clone(), text::clean_line(value, 500).into_owned().into()))
            .collect(),
    )
}

fn text_part(out: &mut Vec<u8>, words: &str) {
    part(out, &json!({ "type": "text", "text": words }));
}

fn note_part(out: &mut Vec<u8>, words: &str) {
    part(out, &json!({ "type": "text", "text": format!("[{words}.]"), "_meta": { NOTE: true } }));
}

fn part(out: &mut Vec<u8>, part: &Value) {
    if out.last() == Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(part.to_string().as_bytes());
}

fn status_name(status: u16) -> &'static str {
    match status {
        301 | 302 | 303 | 307 | 308 => " (it is elsewhere)",
        304 => " Not Modified",
        400 => " Bad Request",
        401 => " Unauthorized",
        402 => " Payment Required",
        403 => " Forbidden",
        404 => " Not Found",
        405 => " Method Not Allowed",
        406 => " Not Acceptable",
        409 => " Conflict",
        410 => " Gone",
        412 => " Precondition Failed",
        413 => " Content Too Large",
        415 => " Unsupported Media Type",
        422 => " Unprocessable Content",
        429 => " Too Many Requests",
        500 => " Internal Server Error",
        501 => " Not Implemented",
        502 => " Bad Gateway",
        503 => " Service Unavailable",
        504 => " Gateway Timeout",
        _ => "",
    }
}
