//! Whether there is more: by a `Link` header, or by a member that APIs have for it; told as the arguments of the next call.

use metamcp_types::text;
use serde_json::{Map, Value};

use super::Answer;
use crate::operation::Operation;
use crate::request::text_or_json;

/// Longest cursor that is repeated.
const MAX_VALUE: usize = 1_000;

/// Where an answer says what comes next, and the parameters that may take it.
const MEMBERS: [(&str, &[&str]); 22] = [
    ("/nextPageToken", &["pageToken", "page_token"]),
    ("/next_page_token", &["page_token", "pageToken"]),
    ("/nextToken", &["nextToken", "next_token"]),
    ("/next_token", &["next_token", "pagination_token", "nextToken"]),
    ("/nextCursor", &["cursor", "nextCursor"]),
    ("/next_cursor", &["cursor", "start_cursor", "next_cursor", "after"]),
    ("/response_metadata/next_cursor", &["cursor"]),
    ("/meta/next_cursor", &["cursor", "next_cursor"]),
    ("/meta/next_token", &["pagination_token", "next_token"]),
    ("/metadata/continue", &["continue"]),
    ("/paging/next/after", &["after"]),
    ("/paging/cursors/after", &["after"]),
    ("/pagination/next_cursor", &["cursor", "next_cursor"]),
    ("/cursor/next", &["cursor"]),
    ("/next_page", &["page", "cursor", "after"]),
    ("/nextPage", &["page", "cursor"]),
    ("/meta/next_page", &["page"]),
    ("/next/$url", &[]),
    ("/links/next/$url", &[]),
    ("/_links/next/href/$url", &[]),
    ("/@odata.nextLink/$url", &[]),
    ("/nextLink/$url", &[]),
];

/// What to call for the next page, if there is one.
pub(super) fn hint(operation: &Operation, answer: &Answer<'_>, body: &str) -> Option<String> {
    if let Some(next) = answer.header("link").and_then(next_link) {
        return by_address(operation, answer.arguments, next);
    }
    if !body.starts_with('{') {
        return None;
    }
    let body: Value = serde_json::from_str(body).ok()?;
    for (pointer, parameters) in MEMBERS {
        if let Some(pointer) = pointer.strip_suffix("/$url") {
            let next = body.pointer(pointer).map(|next| next.get("href").unwrap_or(next));
            let next = next
                .and_then(Value::as_str)
                .filter(|next| next.contains('?') && next.len() < 8_000);
            if let Some(told) = next.and_then(|next| by_address(operation, answer.arguments, next))
            {
                return Some(told);
            }
            continue;
        }
        let value = match body.pointer(pointer) {
            Some(value @ Value::Number(_)) => value.clone(),
            Some(Value::String(cursor)) if !cursor.is_empty() && cursor.len() <= MAX_VALUE => {
                if cursor.contains("://") {
                    if let Some(told) = by_address(operation, answer.arguments, cursor) {
                        return Some(told);
                    }
                    continue;
                }
                cursor.as_str().into()
            }
            _ => continue,
        };
        let key = parameters.iter().find_map(|name| operation.key_of_query(name));
        if let Some(key) = key {
            return Some(told(&Map::from_iter([(key.to_owned(), value)])));
        }
        // It may be a member of the body.
        if operation.body.is_some() {
            let name = pointer.rsplit('/').next().unwrap_or_default();
            return Some(format!("There is more: the answer's `{name}` goes into the next call"));
        }
    }
    // Stripe, OpenAI and others name the last one that was seen.
    let is_more = body.get("has_more") == Some(&Value::Bool(true));
    let last = || body.get("data")?.as_array()?.last()?.get("id")?.as_str();
    let last = body.get("last_id").and_then(Value::as_str).or_else(last);
    let key = ["starting_after", "after"].into_iter().find_map(|name| operation.key_of_query(name));
    match (is_more, last, key) {
        (true, Some(last), Some(key)) => {
            Some(told(&Map::from_iter([(key.to_owned(), last.into())])))
        }
        _ => None,
    }
}

/// The address marked `rel="next"` in a `Link` header.
fn next_link(header: &str) -> Option<&str> {
    for part in header.split(',').take(50) {
        let Some((address, rest)) =
            part.trim().strip_prefix('<').and_then(|part| part.split_once('>'))
        else {
            continue;
        };
        let is_next = rest.split(';').any(|one| {
            let one: String = one.chars().filter(|c| !c.is_whitespace() && *c != '"').collect();
            one.eq_ignore_ascii_case("rel=next")
        });
        if is_next {
            return Some(address);
        }
    }
    None
}

/// What of the query of an address differs from this call, as arguments.
fn by_address(operation: &Operation, before: &Map<String, Value>, next: &str) -> Option<String> {
    let query = next.split_once('?')?.1.split('#').next()?;
    let mut changed = Map::new();
    for pair in query.split('&').take(50) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (unescaped(name), unescaped(value)) else { continue };
        let Some(key) = operation.key_of_query(&name) else { continue };
        let is_known = match before.get(key) {
            // Each of a list stands in the query of its own.
            Some(Value::Array(all)) => all.iter().any(|one| text_or_json(one) == value),
            Some(one) => text_or_json(one) == value,
            None => false,
        };
        if !is_known && value.len() <= MAX_VALUE {
            let as_number = value.parse::<i64>().ok().filter(|number| number.to_string() == value);
            changed.insert(key.to_owned(), as_number.map_or_else(|| value.into(), Value::from));
        }
    }
    (!changed.is_empty()).then(|| told(&changed))
}

fn told(arguments: &Map<String, Value>) -> String {
    let arguments = Value::Object(arguments.clone()).to_string();
    format!("There is more: call it again with {}", text::clean_line(&arguments, MAX_VALUE * 2))
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let pair = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}
