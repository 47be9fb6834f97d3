//! A light English stemmer: the endings that separate a query from a tool name, and no more.
//! `files` and `file`, `created`, `creates` and `create`, `queries` and `query` become one word each.

/// Cuts the ending off `word`, which is in lower case; other scripts are left alone.
pub(super) fn stem(word: &mut String) -> &str {
    if word.len() > 3 && word.is_ascii() {
        plural(word);
        participle(word);
        final_letters(word);
    }
    word
}

fn plural(word: &mut String) {
    if word.ends_with("sses") {
        word.truncate(word.len() - 2);
    } else if word.ends_with("ies") && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if word.ends_with('s')
        && !word.ends_with("ss")
        && !word.ends_with("us")
        && !word.ends_with("is")
    {
        word.truncate(word.len() - 1);
    }
}

fn participle(word: &mut String) {
    for ending in ["ing", "ed"] {
        let Some(rest) = word.strip_suffix(ending) else { continue };
        if rest.len() < 2 || !rest.bytes().any(is_vowel) || rest.ends_with('e') {
            continue;
        }
        let length = rest.len();
        word.truncate(length);
        let bytes = word.as_bytes();
        let doubled = length >= 3 && bytes[length - 1] == bytes[length - 2];
        if doubled && !matches!(bytes[length - 1], b'l' | b's' | b'z') {
            word.truncate(length - 1);
        }
        return;
    }
}

/// A silent e and a final y differ between forms of one word.
fn final_letters(word: &mut String) {
    if word.len() > 3 && word.ends_with('e') {
        word.truncate(word.len() - 1);
    } else if word.len() > 3 && word.ends_with('y') {
        word.truncate(word.len() - 1);
        word.push('i');
    }
}

fn is_vowel(byte: u8) -> bool {
    matches!(byte, b'a' | b'e' | b'i' | b'o' | b'u' | b'y')
}
