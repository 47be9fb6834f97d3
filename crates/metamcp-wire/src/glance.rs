//! A message at a glance: what it is and whom it concerns, without reading all of it.
//! Owns: where to stop looking.      Never: validates, copies.
//! In: one line.  Out: `Glance`.
//! Tests: below.
//!
//! For whoever only passes lines on between two sides that both validate. The id of a result of ten megabytes is in its
//! first fifty bytes, and nothing behind it is touched.

use std::borrow::Cow;

use crate::envelope::MAX_BATCH;
use crate::object::{decoded, elements, members};
use crate::scan::Scanner;

/// What a line seems to be. Ids and subjects are raw JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Glance<'a> {
    Request {
        id: &'a [u8],
        method: Cow<'a, str>,
        /// The `name` of a tool call, the `uri` of a subscription.
        subject: Option<&'a [u8]>,
    },
    Notification {
        method: Cow<'a, str>,
        /// The `requestId` of a cancellation.
        cancels: Option<&'a [u8]>,
    },
    Response {
        id: &'a [u8],
        is_error: bool,
    },
    Batch(Vec<Glance<'a>>),
    /// No message, or none with an id.
    Other,
}

/// Looks at a line.
pub fn glance(line: &[u8]) -> Glance<'_> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let mut scanner = Scanner::new(line);
    scanner.space();
    match scanner.peek() {
        b'{' => message(&mut scanner),
        b'[' => Glance::Batch(elements(line).take(MAX_BATCH).map(element).collect()),
        _ => Glance::Other,
    }
}

fn element(raw: &[u8]) -> Glance<'_> {
    let mut scanner = Scanner::new(raw);
    if scanner.peek() == b'{' { message(&mut scanner) } else { Glance::Other }
}

fn message<'a>(scanner: &mut Scanner<'a>) -> Glance<'a> {
    let (mut id, mut method, mut params) = (None, None, None);
    let mut answers = None;
    scanner.step();
    loop {
        scanner.space();
        if scanner.peek() == b',' {
            scanner.step();
            scanner.space();
        }
        if scanner.peek() != b'"' {
            break;
        }
        let Ok(key) = scanner.key() else { return Glance::Other };
        let start = scanner.at();
        match key.inner {
            b"result" | b"error" => {
                answers = Some(key.inner == b"error");
                if id.is_some() {
                    break;
                }
            }
            b"method" => {
                let Ok(token) = scanner.string() else { return Glance::Other };
                method = Some(match decoded(token) {
                    Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
                    Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
                });
                if id.is_some() && (params.is_some() || !has_subject(method.as_deref())) {
                    break;
                }
                continue;
            }
            _ => {}
        }
        if !scanner.skip() {
            // What is cut off here is cut off for the other side as well.
            break;
        }
        match key.inner {
            b"id" => {
                id = Some(scanner.since(start));
                if answers.is_some() || (method.is_some() && params.is_some()) {
                    break;
                }
            }
            b"params" => {
                params = Some(scanner.since(start));
                if id.is_some() && method.is_some() {
                    break;
                }
            }
            _ => {}
        }
    }
    let id = id.filter(|id| matches!(id.first(), Some(b'"' | b'-' | b'0'..=b'9')));
    match (method, id, answers) {
        (Some(method), Some(id), _) => {
            let subject = params.filter(|_| has_subject(Some(&method))).and_then(subject);
            Glance::Request { id, method, subject }
        }
        (Some(method), None, _) => {
            let is_cancellation = method == "notifications/cancelled";
            let cancels = params.filter(|_| is_cancellation).and_then(|raw| member(raw, "requestId"));
            Glance::Notification { method, cancels }
        }
        (None, Some(id), Some(is_error)) => Glance::Response { id, is_error },
        _ => Glance::Other,
    }
}

/// Whether requests of this method are told apart by their parameters.
fn has_subject(method: Option<&str>) -> bool {
    matches!(method, Some("tools/call" | "resources/subscribe" | "resources/unsubscribe"))
}

fn subject(params: &[u8]) -> Option<&[u8]> {
    members(params).find(|(name, _)| name == "name" || name == "uri").map(|(_, value)| value)
}

fn member<'a>(raw: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    members(raw).find(|(name, _)| name == wanted).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(line: &str) -> String {
        let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
        match glance(line.as_bytes()) {
            Glance::Request { id, method, subject } => {
                format!("{} {method} {}", text(id), subject.map(text).unwrap_or_default())
            }
            Glance::Notification { method, cancels } => {
                format!("{method} {}", cancels.map(text).unwrap_or_default())
            }
            Glance::Response { id, is_error } => format!("{} is_error={is_error}", text(id)),
            Glance::Batch(all) => format!("batch of {}", all.len()),
            Glance::Other => "other".to_owned(),
        }
    }

    #[test]
    fn messages_in_any_order_of_members() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "1 ping "),
            (r#"{"method":"ping","params":{"id":9},"id":"a\"b"}"#, r#""a\"b" ping "#),
            (r#" { "id" : 1 , "params":{"x":[{"name":"no"}],"name":"t","uri":"u"}, "method":"tools\/call" } "#, "1 tools/call \"t\""),
            (r#"{"id":1,"method":"tools/call","params":{"arguments":{"name":"no"},"name":"yes"}}"#, "1 tools/call \"yes\""),
            (r#"{"id":2,"method":"resources/subscribe","params":{"uri":"a:b"}}"#, "2 resources/subscribe \"a:b\""),
            (r#"{"id":2,"method":"prompts/get","params":{"name":"p"}}"#, "2 prompts/get "),
            (r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#, "notifications/cancelled 7"),
            (r#"{"method":"notifications/initialized"}"#, "notifications/initialized "),
            (r#"{"jsonrpc":"2.0","id":3,"result":{"id":4}}"#, "3 is_error=false"),
            (r#"{"error":{"code":1},"id":3}"#, "3 is_error=true"),
            (r#"{"id":null,"error":{}}"#, "other"),
            (r#"{"id":{"a":1},"method":"ping"}"#, "ping "),
            (r#"[{"id":1,"method":"ping"},{"method":"x"},3]"#, "batch of 3"),
            ("", "other"),
            ("hello", "other"),
            ("{\"id\":1", "other"),
            ("\u{feff}{\"id\":1,\"method\":\"ping\"}", "1 ping "),
        ];
        for (line, expected) in cases {
            assert_eq!(seen(line), expected, "{line}");
        }
    }

    #[test]
    fn nothing_behind_the_id_of_a_result_is_read() {
        assert_eq!(seen(r#"{"jsonrpc":"2.0","id":3,"result":{"this is cut"#), "3 is_error=false");
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\",:a-z0-9\\\\ ]{0,60}") {
            let _ = (glance(&bytes), glance(text.as_bytes()));
        }
    }
}
