//! What is stored of a query: each of its words as 24 bits of a hash, without order.
//!
//! Similarity needs to know which words are the same, not what they are. Stems would be readable: names of people,
//! projects and customers in a file that outlives the query. Three bytes of SHA-256 stand for many words each, so that
//! what passes the filter below cannot be reversed, and two words of one person's few thousand rarely collide.

use sha2::{Digest, Sha256};

use crate::search::tokens;

/// Most words stored of one query. Of more, those with the lowest hashes stay: the same ones for the same words.
const MAX_WORDS: usize = 24;

/// Longest start of a query that is looked at, as in the search itself.
const MAX_QUERY_CHARS: usize = 2_000;

/// Longest single word that can be one of a language, or of code; longer ones are keys.
const MAX_PLAIN: usize = 24;

/// From here on letters mixed with several digits are an id or a key, not `base64` or `sha256`.
const MIXED: usize = 8;

/// This many digits are a number of something: an account, a telephone, a ticket.
const MANY_DIGITS: usize = 5;

/// Letters without a vowel in a row that no word of a language has.
const UNSPEAKABLE: usize = 6;

/// The words of a query as hashes, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryWords(Box<[u32]>);

impl QueryWords {
    /// The words of `query` that may be stored.
    pub fn of(query: &str) -> QueryWords {
        let end = query.char_indices().nth(MAX_QUERY_CHARS).map_or(query.len(), |(at, _)| at);
        let words = query[..end].split_whitespace().filter_map(harmless).flat_map(tokens);
        QueryWords::from_hashes(words.map(|word| hash(&word)).collect())
    }

    /// Whether there is nothing to go by.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn from_hashes(mut hashes: Vec<u32>) -> QueryWords {
        hashes.sort_unstable();
        hashes.dedup();
        hashes.truncate(MAX_WORDS);
        QueryWords(hashes.into())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Every word of either, and whether both have it.
    pub(super) fn compare(&self, other: &QueryWords, mut say: impl FnMut(u32, bool)) {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            match (left.peek(), right.peek()) {
                (Some(&&a), Some(&&b)) => {
                    say(a.min(b), a == b);
                    if a <= b {
                        left.next();
                    }
                    if b <= a {
                        right.next();
                    }
                }
                (Some(&&one), None) | (None, Some(&&one)) => {
                    say(one, false);
                    left.next();
                    right.next();
                }
                (None, None) => return,
            }
        }
    }
}

fn hash(word: &str) -> u32 {
    let digest = Sha256::digest(word.as_bytes());
    u32::from_be_bytes([0, digest[0], digest[1], digest[2]])
}

/// What of a piece of text between spaces may be stored: nothing of an address or of what looks like a key, and of an
/// assignment only its name.
fn harmless(piece: &str) -> Option<&str> {
    if piece.contains('@') || piece.contains("://") {
        return None;
    }
    let name = piece.split('=').next()?;
    let secret = name.split(|c: char| !is_inner(c)).any(looks_secret);
    (!name.is_empty() && !secret).then_some(name)
}

fn is_inner(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+')
}

/// Long, or letters and digits mixed, or letters as nobody would choose them.
fn looks_secret(text: &str) -> bool {
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    if digits >= MANY_DIGITS || (digits >= 2 && letters >= 2 && text.len() >= MIXED) {
        return true;
    }
    text.split(|c: char| !c.is_alphanumeric()).any(|word| {
        word.is_ascii() && (word.len() > MAX_PLAIN && !is_camel(word) || unspeakable(word))
    })
}

/// Words written together, each with a capital: an identifier.
fn is_camel(word: &str) -> bool {
    let capitals = word.bytes().filter(u8::is_ascii_uppercase).count();
    (1..=word.len() / 4).contains(&capitals)
}

/// Letters without vowels for long, in both cases: capitals alone are an abbreviation, such as `HTTPS`.
fn unspeakable(word: &str) -> bool {
    let mut longest = 0;
    let mut run = 0;
    for byte in word.bytes() {
        let vowel = b"aeiouy".contains(&byte.to_ascii_lowercase());
        run = if vowel { 0 } else { run + 1 };
        longest = longest.max(run);
    }
    longest >= UNSPEAKABLE && word.len() >= 2 * UNSPEAKABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_and_identifiers_are_kept() {
        for piece in [
            "file",
            "read_file",
            "getUserPermissionsForRepository",
            "base64",
            "sha256",
            "oauth2",
            "src/search/tokenize",
            "internationalisation",
            "搜索",
            "Größe",
            "(quoted)",
            "2024",
        ] {
            assert_eq!(harmless(piece), Some(piece));
        }
    }

    #[test]
    fn what_looks_like_a_secret_or_a_person_is_not() {
        for piece in [
            "sk-aBcD1234XyZ987",
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "AKIAIOSFODNN7EXAMPLE99",
            "d41d8cd98f00b204e9800998ecf8427e",
            "xkcdqwrtzplmnbvc",
            "4111111111111111",
            "+41791234567",
            "ticket-48213",
            "anna@example.org",
            "https://user:secret@example.org/path",
            "aaaaabbbbbcccccdddddeeeeefffff",
        ] {
            assert_eq!(harmless(piece), None, "{piece}");
        }
        assert_eq!(harmless("password=hunter"), Some("password"));
        assert_eq!(harmless("=hunter"), None);
    }

    #[test]
    fn order_repetition_and_form_do_not_matter() {
        assert_eq!(QueryWords::of("create the issues"), QueryWords::of("issue: creating an ISSUE"));
        assert_ne!(QueryWords::of("create an issue"), QueryWords::of("close an issue"));
        assert!(QueryWords::of("to the of").is_empty());
    }

    #[test]
    fn a_long_query_keeps_the_same_part_whatever_its_order() {
        let words: Vec<String> =
            ('a'..='z').flat_map(|a| ["lo", "mi"].map(|b| format!("{a}{b}"))).collect();
        let mut turned = words.clone();
        turned.reverse();
        let kept = QueryWords::of(&words.join(" "));
        assert_eq!(kept, QueryWords::of(&turned.join(" ")));
        assert_eq!(kept.iter().count(), MAX_WORDS);
    }
}
