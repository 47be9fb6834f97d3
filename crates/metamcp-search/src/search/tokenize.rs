//! Text as terms: identifiers split at their boundaries, and kept whole as well.

use super::stem::stem;

/// Longest word that is indexed; longer ones are keys, hashes and other noise.
const MAX_WORD: usize = 40;

/// Words too common to tell tools apart.
const COMMON: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "for", "from", "given", "has",
    "have", "how", "i", "in", "into", "is", "it", "its", "me", "my", "need", "of", "on", "or",
    "our", "please", "so", "some", "that", "the", "their", "them", "there", "these", "this", "to",
    "us", "use", "used", "using", "want", "was", "we", "what", "when", "where", "which", "will",
    "with", "would", "you", "your",
];

/// The words of `text` in order, in lower case and stemmed. `readFile` and `read_file` give `read`,
/// `file` and `readfile`; characters of scripts without spaces each stand alone.
pub fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    each_token(text, |token| found.push(token.to_owned()));
    found
}

pub(super) fn each_token(text: &str, mut emit: impl FnMut(&str)) {
    each_written(text, |word| split_word(word, &mut emit));
}

/// The words as written, identifiers whole.
pub(super) fn each_written(text: &str, mut each: impl FnMut(&str)) {
    if !text.is_ascii() {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        return text.split(|c: char| !is_part(c)).filter(|word| !word.is_empty()).for_each(each);
    }
    let is_part =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    let mut start = None;
    for (at, byte) in text.bytes().enumerate() {
        match (start, is_part(byte)) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                each(&text[from..at]);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        each(&text[from..]);
    }
}

fn split_word(word: &str, emit: &mut impl FnMut(&str)) {
    let mut whole = String::new();
    let mut part = String::new();
    let mut parts = 0;
    let mut before = ' ';
    let mut letters = word.chars().peekable();
    while let Some(c) = letters.next() {
        if is_ideograph(c) {
            parts += usize::from(flush(&mut part, emit));
            emit(c.encode_utf8(&mut [0; 4]));
            before = ' ';
            continue;
        }
        if !c.is_alphanumeric() {
            parts += usize::from(flush(&mut part, emit));
            before = ' ';
            continue;
        }
        let next_is_lower = letters.peek().is_some_and(|next| next.is_lowercase());
        let starts =
            c.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && next_is_lower));
        if starts {
            parts += usize::from(flush(&mut part, emit));
        }
        if c.is_ascii() {
            part.push(c.to_ascii_lowercase());
            whole.push(c.to_ascii_lowercase());
        } else {
            part.extend(c.to_lowercase());
            whole.extend(c.to_lowercase());
        }
        before = c;
    }
    parts += usize::from(flush(&mut part, emit));
    if parts > 1 && whole.len() <= MAX_WORD {
        emit(&whole);
    }
}

/// Emits what was gathered. `base64` counts as itself and as `base`.
fn flush(part: &mut String, emit: &mut impl FnMut(&str)) -> bool {
    if part.is_empty() {
        return false;
    }
    if part.len() <= MAX_WORD && !COMMON.contains(&part.as_str()) {
        let letters = part.trim_end_matches(|c: char| c.is_ascii_digit());
        if letters.len() >= 3 && letters.len() < part.len() {
            emit(stem(&mut letters.to_owned()));
        }
        emit(stem(part));
    }
    part.clear();
    true
}

/// Scripts written without spaces, where a character is the smallest thing to look for.
fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}')
}
