//! Small scans of the source between two nodes of the tree, where only blanks, comments and punctuation can occur.
//! Owns: skipping blanks and comments.      Never: reads strings or regular expressions.
//! In: byte offsets.  Out: byte offsets.
//! Tests: the corpus in `tests/`.

use crate::edits::is_break;

/// The first byte at or after `at` that is not part of a blank or comment.
pub(crate) fn next(source: &str, at: usize) -> usize {
    let mut at = at;
    loop {
        let rest = &source[at..];
        let trimmed = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        at += rest.len() - trimmed.len();
        let skipped = if trimmed.starts_with("//") {
            trimmed.find(is_break)
        } else if let Some(comment) = trimmed.strip_prefix("/*") {
            comment.find("*/").map(|end| end + 4)
        } else {
            return at;
        };
        match skipped {
            Some(length) => at += length,
            None => return source.len(),
        }
    }
}

/// The offset of `sign`, if it is the next thing after `at`.
pub(crate) fn next_is(source: &str, at: usize, sign: &str) -> Option<usize> {
    let place = next(source, at);
    source[place..].starts_with(sign).then_some(place)
}

/// The words between two offsets, with nothing else there but blanks and comments.
pub(crate) fn words(source: &str, from: usize, to: usize) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut at = next(source, from);
    while at < to {
        let rest = &source[at..to];
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if length == 0 {
            break;
        }
        words.push((at, &rest[..length]));
        at = next(source, at + length);
    }
    words
}

pub(crate) fn has_break(text: &str) -> bool {
    text.contains(is_break)
}
