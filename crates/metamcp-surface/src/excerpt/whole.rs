//! Results that are too long to show: what is shown instead, and how to request a part.

use metamcp_wire::object;
use metamcp_wire::write::json_string;
use serde_json::{Value, json};

use super::shape_of;
use crate::execution;

/// Characters of a result that are shown when all of it is too long: enough to see what it is.
const SHOWN: usize = 6_000;

/// How much of a result is text: what fills a model's context, unlike a picture.
pub fn text_bytes(result: &[u8]) -> usize {
    let (mut bytes, mut structured) = (0, 0);
    for (name, value) in object::members(result) {
        match &*name {
            "content" => {
                let parts = object::elements(value).filter_map(text_of);
                bytes += parts.map(<[u8]>::len).sum::<usize>();
            }
            "structuredContent" => structured = value.len(),
            _ => {}
        }
    }
    bytes + structured
}

/// The part of a result that is meant: its structured content, else its only text, else all of it.
pub fn value_in(result: &[u8]) -> &[u8] {
    let (mut texts, mut structured) = (Vec::new(), None);
    for (name, value) in object::members(result) {
        match &*name {
            "content" => texts.extend(object::elements(value).filter_map(text_of)),
            "structuredContent" if value != b"null" => structured = Some(value),
            _ => {}
        }
    }
    match (structured, texts.as_slice()) {
        (Some(structured), _) => structured,
        (None, [one]) => one,
        _ => result,
    }
}

/// A result in place of one that is stored under a handle: both ends of its value, its size and shape, and everything
/// that is no text as it was.
pub fn shortened(result: &[u8], handle: &str) -> Vec<u8> {
    let value = value_in(result);
    let kept = about(value, result.len(), handle, "mcp_call {\"tool\"");
    let text = execution::value_text(std::str::from_utf8(value).unwrap_or("null"));
    let mut shown = execution::cut(&text, SHOWN, handle);
    shown.push_str(&format!(
        "\n[{} bytes in all; the value is {}]",
        result.len(),
        kept["shape"].as_str().unwrap_or_default()
    ));
    let mut out = b"{\"content\":[{\"type\":\"text\",\"text\":".to_vec();
    json_string(&mut out, &shown);
    out.push(b'}');
    let mut rest = Vec::new();
    for (name, value) in object::members(result) {
        match &*name {
            "content" => {
                for part in object::elements(value).filter(|part| text_of(part).is_none()) {
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
    out.extend_from_slice(b"],\"structuredContent\":");
    out.extend_from_slice(json!({ "kept": kept }).to_string().as_bytes());
    out.extend_from_slice(&rest);
    out.push(b'}');
    out
}

/// What stands for a value that is stored under a handle, where a value is expected; in the terms of the full surface,
/// which alone has such places.
pub fn preview(value: &[u8], handle: &str) -> Value {
    let text = execution::value_text(std::str::from_utf8(value).unwrap_or("null"));
    let count = text.chars().count();
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (SHOWN - SHOWN / 4, SHOWN / 4);
    let tail = if count > head { &text[at(count - tail.min(count - head))..] } else { "" };
    json!({
        "kept": about(value, value.len(), handle, "run_tool {\"tool_id\""),
        "head": &text[..at(head)],
        "tail": tail,
    })
}

fn about(value: &[u8], bytes: usize, handle: &str, call: &str) -> Value {
    let read =
        format!("{call}: \"@results:read\", \"args\": {{\"id\": \"{handle}\", \"offset\": 0}}}}");
    json!({ "id": handle, "bytes": bytes, "shape": shape_of(value), "read": read })
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
        let short: Value = serde_json::from_slice(&shortened(result.as_bytes(), "r1")).unwrap();
        assert_eq!(short["content"][1]["data"], "QUJD");
        assert_eq!((&short["_meta"]["n"], &short["isError"]), (&json!(12_345), &json!(true)));
        let kept = &short["structuredContent"]["kept"];
        assert_eq!(kept["id"], "r1");
        assert_eq!(kept["shape"], "a text of 30000 characters on 10001 lines");
        let text = short["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("ab\n") && text.contains("@results:read") && text.len() < 8_000);
    }

    #[test]
    fn the_value_that_is_meant_is_found() {
        let check = |result: &str, value: &str| {
            assert_eq!(value_in(result.as_bytes()), value.as_bytes());
        };
        check(r#"{"content":[{"type":"text","text":"x"}]}"#, r#""x""#);
        check(r#"{"content":[],"structuredContent":{"a":1}}"#, r#"{"a":1}"#);
        let two = r#"{"content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}"#;
        check(two, two);
        assert_eq!(text_bytes(two.as_bytes()), 6);
        assert_eq!(text_bytes(br#"{"content":[{"type":"image","data":"AAAA"}]}"#), 0);
    }

    #[test]
    fn a_preview_shows_both_ends_and_no_more() {
        let value = Value::from(format!("{}end", "x".repeat(100_000))).to_string();
        let shown = preview(value.as_bytes(), "r2");
        assert_eq!(shown["head"].as_str().unwrap().len(), SHOWN - SHOWN / 4);
        assert!(shown["tail"].as_str().unwrap().ends_with("end"));
        let short = preview(b"\"abc\"", "r3");
        assert_eq!((&short["head"], &short["tail"]), (&json!("abc"), &json!("")));
    }
}
