//! Text as word pieces, exactly as the training cut it; `training/README.md` has the rules.

use super::{MAX_PIECES, Piece, TABLE};

/// Longest word that is cut up; longer ones are keys, hashes and other noise.
const MAX_WORD_BYTES: usize = 64;

/// Adds the pieces of a text, in order; words that cannot be composed of pieces are skipped.
pub(in crate::search) fn pieces(text: &str, found: &mut Vec<Piece>) {
    let mut word = String::new();
    for run in text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty()) {
        if found.len() >= MAX_PIECES {
            break;
        }
        lower(run, &mut word);
        match TABLE.find(word.as_bytes()) {
            Some(piece) => found.push(piece),
            None => each_part(run, |part| {
                lower(part, &mut word);
                take(&word, found);
            }),
        }
    }
    found.truncate(MAX_PIECES);
}

fn lower(text: &str, word: &mut String) {
    word.clear();
    if text.is_ascii() {
        word.push_str(text);
        word.make_ascii_lowercase();
    } else {
        word.extend(text.chars().flat_map(char::to_lowercase));
    }
}

/// The parts of an identifier: `readFile` has two, `HTTPServer` has two, `URLs` has one.
fn each_part(run: &str, mut each: impl FnMut(&str)) {
    let bytes = run.as_bytes();
    let mut start = 0;
    for at in 1..bytes.len() {
        let (before, this, next) = (bytes[at - 1], bytes[at], bytes.get(at + 1).copied());
        let after_word = before.is_ascii_lowercase() || before.is_ascii_digit();
        let plural = next == Some(b's') && !bytes.get(at + 2).is_some_and(u8::is_ascii_lowercase);
        let starts_word = before.is_ascii_uppercase()
            && next.is_some_and(|next| next.is_ascii_lowercase())
            && !plural;
        if this.is_ascii_uppercase() && (after_word || starts_word) {
            each(&run[start..at]);
            start = at;
        }
    }
    each(&run[start..]);
}

/// All of a word or nothing.
fn take(word: &str, found: &mut Vec<Piece>) {
    if word.len() <= MAX_WORD_BYTES {
        let start = found.len();
        if !cut(word, found) {
            found.truncate(start);
        }
    }
}

/// Greedily the longest piece from the left.
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
