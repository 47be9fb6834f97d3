//! Removes invisible characters from titles, descriptions and instructions of servers.

use std::borrow::Cow;

use metamcp_wire::{object, write};

use super::edits::Edits;
use metamcp_types::text;

/// Members that hold prose. The rest of a definition is for programs and stays unchanged.
const WORDS: [&str; 2] = ["description", "title"];
/// Members that hold data, even where they look like prose.
const DATA: [&str; 5] = ["default", "const", "enum", "examples", "_meta"];
/// Members that hold a list of titles: those of an enumeration's values.
const LABELS: [&str; 1] = ["enumNames"];
/// Members whose own members are called as their author likes: what is data elsewhere is a parameter there.
const NAMED: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Definitions nested deeper are not looked into; nobody shows what is down there.
const DEPTH: usize = 64;

/// Whether a text holds what cannot be seen: control characters other than white space, direction marks and the like.
pub(super) fn hides(text: &str) -> bool {
    let unseen =
        |c: char| text::is_hidden(c) || (c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    text.contains(unseen)
}

/// A definition whose descriptions and titles can be seen whole; all other bytes are as they were.
pub(super) fn cleaned_in(raw: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match cleaned(&raw) {
        Cow::Borrowed(_) => raw,
        Cow::Owned(clean) => Cow::Owned(clean),
    }
}

pub(super) fn cleaned(raw: &[u8]) -> Cow<'_, [u8]> {
    // Plain text without escapes other than the short ones hides nothing.
    if raw.is_ascii() && memchr::memmem::find(raw, b"\\u").is_none() && !raw.contains(&0x7f) {
        return Cow::Borrowed(raw);
    }
    let mut edits = Edits::new(raw);
    walk(raw, DEPTH, false, &mut edits);
    edits.done()
}

fn walk(raw: &[u8], depth: usize, are_named: bool, edits: &mut Edits<'_>) {
    if depth == 0 {
        return;
    }
    for element in object::elements(raw) {
        walk(element, depth - 1, false, edits);
    }
    for (name, value) in object::members(raw) {
        if !are_named && DATA.contains(&&*name) {
            continue;
        }
        if !are_named && LABELS.contains(&&*name) {
            object::elements(value).for_each(|label| clean_text(label, edits));
        } else if WORDS.contains(&&*name) && object::text(value).is_some() {
            clean_text(value, edits);
        } else {
            let are_named = !are_named && NAMED.contains(&&*name);
            walk(value, depth - 1, are_named, edits);
        }
    }
}

fn clean_text(value: &[u8], edits: &mut Edits<'_>) {
    if let Some(said) = object::text(value).filter(|said| hides(said)) {
        let mut quoted = Vec::with_capacity(value.len());
        write::json_string(&mut quoted, &text::clean(&said, usize::MAX));
        edits.replace(value, &quoted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lose_what_cannot_be_seen_and_nothing_else_changes() {
        let raw = "{\"name\":\"t\", \"n\": 1.50,\"description\":\"a\\u001b[31mb\u{202e}c\\n\u{e0041}d\",\"inputSchema\":{\"properties\":{\"description\":{\"description\":\"x\\u0007\",\"default\":{\"title\":\"\\u0007\"}}}},\"icons\":[{\"src\":\"\\u0007\",\"title\":\"\\u200b!\"}]}";
        let clean = cleaned(raw.as_bytes());
        assert_eq!(
            std::str::from_utf8(&clean).unwrap(),
            "{\"name\":\"t\", \"n\": 1.50,\"description\":\"abc\\nd\",\"inputSchema\":{\"properties\":{\"description\":{\"description\":\"x\",\"default\":{\"title\":\"\\u0007\"}}}},\"icons\":[{\"src\":\"\\u0007\",\"title\":\"!\"}]}"
        );
        for within in NAMED {
            for name in DATA.into_iter().chain(NAMED) {
                let schema = |said: &str| {
                    format!(
                        r#"{{"inputSchema":{{"{within}":{{"{name}":{{"title":"{said}","default":{{"title":"\u0007"}}}}}}}}}}"#
                    )
                };
                let clean = cleaned(schema("a\\u0007b").as_bytes()).into_owned();
                assert_eq!(String::from_utf8(clean).unwrap(), schema("ab"));
            }
        }
        for plain in [
            r#"{"description":"tabs\tand\r\nlines"}"#,
            "{\"description\":\"gr\u{fc}\u{df}e \\u00e9\"}",
            "{ \"description\" : 7 }",
        ] {
            assert!(matches!(cleaned(plain.as_bytes()), Cow::Borrowed(_)), "{plain}");
        }
    }
}
