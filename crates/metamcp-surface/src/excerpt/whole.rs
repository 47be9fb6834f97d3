//! Results that are too long to show: what is shown instead, and how to request a part.

use metamcp_wire::object;
use metamcp_wire::write::json_string;
use serde_json::{Value, json};

use super::{Gap, SHARE, excerpt, shape_of};
use crate::execution;
use metamcp_types::next::Audience;

/// How much of a result is text: what fills a model's context, unlike a picture. Clients show the text or the structured
/// content, so the longer one counts.
pub fn text_chars(result: &[u8]) -> usize {
    let (mut texts, mut structured) = (0, 0);
    for (name, value) in object::members(result) {
        match &*name {
            "content" => {
                let parts = object::elements(value).filter_map(text_of);
                texts += parts.map(chars).sum::<usize>();
            }
            "structuredContent" => structured = chars(value),
            _ => {}
        }
    }
    texts.max(structured)
}

fn chars(raw: &[u8]) -> usize {
    std::str::from_utf8(raw).map_or(raw.len(), |text| text.chars().count())
}

/// The part of a result that is meant: its structured content, else its only text, else all of it. Many servers wrap a text
/// into an object with one member; the text itself then has lines to cut and search by.
pub fn value_in(result: &[u8]) -> &[u8] {
    let (mut texts, mut structured) = (Vec::new(), None);
    for (name, value) in object::members(result) {
        match &*name {
            "content" => {
                let parts = object::elements(value).filter(|part| !is_note(part));
                texts.extend(parts.filter_map(text_of));
            }
            "structuredContent" if value != b"null" => structured = Some(value),
            _ => {}
        }
    }
    let wraps = |structured: &[u8], text: &[u8]| {
        let mut members = object::members(structured);
        let only = members.next().filter(|_| members.next().is_none());
        only.is_some_and(|(_, value)| value == text || object::text(value) == object::text(text))
    };
    match (structured, texts.as_slice()) {
        (Some(structured), [one]) if wraps(structured, one) => one,
        (Some(structured), _) => structured,
        (None, [one]) => one,
        _ => result,
    }
}

/// An excerpt of a text longer than `limit` characters that is stored under a handle, and how to read the rest.
pub fn cut(whole: &str, limit: usize, handle: &str, audience: Audience) -> String {
    let count = whole.chars().count();
    if count <= limit {
        return whole.to_owned();
    }
    let excerpt = excerpt(whole, limit / SHARE);
    format!("{}\n[{}]", excerpt.text, rest(count, &excerpt.gap, handle, audience))
}

/// How to read what an excerpt skips.
fn rest(count: usize, gap: &Gap, handle: &str, audience: Audience) -> String {
    let (call, args) = match audience {
        Audience::Full => ("run_tool {\"tool_id\"", "args"),
        Audience::Compact | Audience::Shell => ("mcp_call {\"tool\"", "args"),
    };
    let (tool, place) = match gap {
        Gap::At(offset) => ("read", format!("\"offset\": {offset}")),
        Gap::Inside { pointer, offset } => {
            ("query", format!("\"pointer\": {}, \"offset\": {offset}", json!(pointer)))
        }
    };
    format!(
        "an excerpt of {count} characters. More: {call}: \"@results:{tool}\", \"{args}\": {{\"id\": \"{handle}\", {place}}}}}, or \"grep\": word; in a script results.get(id)"
    )
}

/// A result in place of one that is stored under a handle: an excerpt of its value, its size and shape, and everything
/// that is no text as it was. It has no structured content: clients that prefer that would show a part of the answer.
pub fn shortened(result: &[u8], limit: usize, handle: &str, audience: Audience) -> Vec<u8> {
    let value = value_in(result);
    let text = execution::value_text(std::str::from_utf8(value).unwrap_or("null"));
    let shown = cut(&text, limit, handle, audience);
    let mut out = b"{\"content\":[{\"type\":\"text\",\"text\":".to_vec();
    json_string(&mut out, &shown);
    out.push(b'}');
    let mut rest = Vec::new();
    for (name, value) in object::members(result) {
        match &*name {
            "content" => {
                let is_kept = |part: &&[u8]| text_of(part).is_none() || is_note(part);
                for part in object::elements(value).filter(is_kept) {
                    out.push(b',');
                    out.extend_from_slice(part);
                }
            }
            "structuredContent" => {}
            _ => {
                rest.push(b',');
                json_string(&mut rest, &name);
                rest.push(b':');
                rest.extend_from_slice(value);
            }
        }
    }
    out.push(b']');
    out.extend_from_slice(&rest);
    out.push(b'}');
    out
}

/// Whether a part is a word of the gateway to the reader, such as that there is more, and not of the server.
fn is_note(part: &[u8]) -> bool {
    const NOTE: &[u8] = b"\"metamcp/note\"";
    memchr::memmem::find(part, NOTE).is_some()
        && object::pick(part, ["_meta"]).is_ok_and(|[meta]| {
            let note = meta.and_then(|meta| object::pick(meta, ["metamcp/note"]).ok()?[0]);
            note == Some(b"true")
        })
}

/// What stands for a value that is stored under a handle, where a value is expected; in the terms of the full surface,
/// which alone has such places.
pub fn preview(value: &[u8], limit: usize, handle: &str) -> Value {
    let text = execution::value_text(std::str::from_utf8(value).unwrap_or("null"));
    let excerpt = excerpt(&text, limit / SHARE);
    let count = text.chars().count();
    json!({
        "kept": { "id": handle, "chars": count, "shape": shape_of(value) },
        "excerpt": excerpt.text,
        "more": rest(count, &excerpt.gap, handle, Audience::Full),
    })
}

/// The text of a part, raw.
fn text_of(part: &[u8]) -> Option<&[u8]> {
    let (mut is_text, mut text) = (false, None);
    for (name, value) in object::members(part) {
        match &*name {
            "type" => is_text = value == b"\"text\"",
            "text" => text = Some(value),
            _ => {}
        }
    }
    text.filter(|_| is_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_result_keeps_pictures_meta_and_the_word_of_failure() {
        let long = "ab\n".repeat(10_000);
        let result = json!({
            "content": [
                { "type": "text", "text": long },
                { "type": "image", "data": "QUJD", "mimeType": "image/png" },
            ],
            "_meta": { "n": 12_345 },
            "isError": true,
        })
        .to_string();
        let short = shortened(result.as_bytes(), 1_000, "r1", Audience::Compact);
        let short: Value = serde_json::from_slice(&short).unwrap();
        assert_eq!(short["content"][1]["data"], "QUJD");
        assert_eq!((&short["_meta"]["n"], &short["isError"]), (&json!(12_345), &json!(true)));
        assert_eq!(short["structuredContent"], Value::Null);
        let text = short["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("ab\n") && text.len() < 600, "{text}");
        let more = r#"[an excerpt of 30000 characters. More: mcp_call {"tool": "@results:read", "args": {"id": "r1", "offset": 186}}, or "grep": word; in a script results.get(id)]"#;
        assert!(text.ends_with(more), "{text}");
    }

    #[test]
    fn the_value_that_is_meant_is_found() {
        let check = |result: &str, value: &str| {
            assert_eq!(value_in(result.as_bytes()), value.as_bytes());
        };
        check(r#"{"content":[{"type":"text","text":"x"}]}"#, r#""x""#);
        check(r#"{"content":[],"structuredContent":{"a":1}}"#, r#"{"a":1}"#);
        let wrapped = r#"{"content":[{"type":"text","text":"x\ny"}],"structuredContent":{"content":"x\u000ay"}}"#;
        check(wrapped, r#""x\ny""#);
        let more =
            r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":"x","b":1}}"#;
        check(more, r#"{"a":"x","b":1}"#);
        let two = r#"{"content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}"#;
        check(two, two);
        assert_eq!(text_chars(two.as_bytes()), 6);
        assert_eq!(text_chars(br#"{"content":[{"type":"image","data":"AAAA"}]}"#), 0);
        let both = r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}"#;
        assert_eq!(text_chars(both.as_bytes()), 7, "what is there twice counts once");
    }

    #[test]
    fn a_preview_says_how_to_go_on() {
        let value = Value::from(format!("{}end", "x".repeat(100_000))).to_string();
        let shown = preview(value.as_bytes(), 4_000, "r2");
        assert_eq!(shown["kept"]["chars"], 100_003);
        assert!(shown["excerpt"].as_str().unwrap().ends_with("end"));
        assert!(shown["excerpt"].as_str().unwrap().len() < 1_100);
        assert!(
            shown["more"].as_str().unwrap().contains("run_tool {\"tool_id\": \"@results:read\"")
        );
    }
}
