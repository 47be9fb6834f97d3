//! Text as word pieces, exactly as the training cut it.

use super::{MAX_PIECES, Piece, TABLE};

/// Longest word that is cut up; longer ones are keys, hashes and other noise.
const MAX_WORD_BYTES: usize = 64;

/// The pieces of a text, in order; words that cannot be put together from pieces are left out.
pub(in crate::search) fn pieces(text: &str, found: &mut Vec<Piece>) {
    let mut word = String::new();
    let mut before = ' ';
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        if found.len() >= MAX_PIECES {
            return;
        }
        if !c.is_alphanumeric() {
            take(&mut word, found);
            before = ' ';
            continue;
        }
        let next_is_lower = letters.peek().is_some_and(char::is_ascii_lowercase);
        let lower_before = before.is_ascii_lowercase() || before.is_ascii_digit();
        if c.is_ascii_uppercase()
            && (lower_before || (before.is_ascii_uppercase() && next_is_lower))
        {
            take(&mut word, found);
        }
        word.extend(c.to_lowercase());
        before = c;
    }
    take(&mut word, found);
    found.truncate(MAX_PIECES);
}

/// Greedily the longest piece from the left, all or nothing.
fn take(word: &mut String, found: &mut Vec<Piece>) {
    if !word.is_empty() && word.len() <= MAX_WORD_BYTES {
        let start = found.len();
        if !cut(word, found) {
            found.truncate(start);
        }
    }
    word.clear();
}

fn cut(word: &str, found: &mut Vec<Piece>) -> bool {
    let mut start = 0;
    let mut candidate = Vec::with_capacity(word.len() + 2);
    while start < word.len() {
        let mut end = word.len();
        let piece = loop {
            candidate.clear();
            if start > 0 {
                candidate.extend_from_slice(b"##");
            }
            candidate.extend_from_slice(&word.as_bytes()[start..end]);
            if let Some(piece) = TABLE.find(&candidate) {
                break piece;
            }
            end -= 1;
            while end > start && !word.is_char_boundary(end) {
                end -= 1;
            }
            if end == start {
                return false;
            }
        };
        found.push(piece);
        start = end;
    }
    true
}
