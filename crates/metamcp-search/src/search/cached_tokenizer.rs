//! Tokenizer with a cache: texts as terms to count and word pieces to embed; each distinct word only once, because the
//! tools of one catalog share most of theirs.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;

use super::meaning::{self, Piece};
use super::tokenize::{each_token, each_written};

/// Words as written that are remembered from one server to the next. Beyond it everything is forgotten: a hostile
/// server can have as many as its list has room for.
const MAX_REMEMBERED: usize = 200_000;

/// What was taken apart so far. One for all servers that are indexed together saves most of the work.
#[derive(Debug, Default)]
pub struct CachedTokenizer {
    written: HashMap<Box<str>, Parts, RandomState>,
    numbers: HashMap<Box<str>, u32, RandomState>,
    words: Vec<Box<str>>,
    word_parts: Vec<u32>,
    piece_parts: Vec<Piece>,
}

/// Where the parts of one word as written stand.
#[derive(Debug, Clone)]
struct Parts {
    words: Range<u32>,
    pieces: Range<u32>,
}

impl CachedTokenizer {
    /// Hands out the numbers of the words and the pieces of a text, in order.
    pub(super) fn read(&mut self, text: &str, mut each: impl FnMut(&[u32], &[Piece])) {
        each_written(text, |written| {
            let parts = match self.written.get(written) {
                Some(parts) => parts.clone(),
                None => self.take_apart(written),
            };
            each(
                &self.word_parts[parts.words.start as usize..parts.words.end as usize],
                &self.piece_parts[parts.pieces.start as usize..parts.pieces.end as usize],
            );
        });
    }

    /// A word by its number.
    pub(super) fn word(&self, number: u32) -> &str {
        &self.words[number as usize]
    }

    /// Numbers handed out before this are not valid after it.
    pub(super) fn next_server(&mut self) {
        if self.written.len() > MAX_REMEMBERED {
            *self = CachedTokenizer::default();
        }
    }

    fn take_apart(&mut self, written: &str) -> Parts {
        let end = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let (words, pieces) = (end(self.word_parts.len()), end(self.piece_parts.len()));
        each_token(written, |token| {
            let number = match self.numbers.get(token) {
                Some(&number) => number,
                None => {
                    let number = end(self.words.len());
                    self.words.push(token.into());
                    self.numbers.insert(token.into(), number);
                    number
                }
            };
            self.word_parts.push(number);
        });
        let mut found = Vec::new();
        meaning::pieces(written, &mut found);
        self.piece_parts.append(&mut found);
        let parts = Parts {
            words: words..end(self.word_parts.len()),
            pieces: pieces..end(self.piece_parts.len()),
        };
        self.written.insert(written.into(), parts.clone());
        parts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tokenize::tokens;
    use super::*;

    proptest! {
        #[test]
        fn a_text_in_parts_is_the_text_as_a_whole(text: String, other in "[a-zA-Z_./ -]{0,40}") {
            let mut tokenizer = CachedTokenizer::default();
            // Twice: the second time from memory.
            for text in [&text, &other, &text, &other] {
                let (mut words, mut pieces) = (Vec::new(), Vec::new());
                tokenizer.read(text, |own, meant| {
                    words.extend_from_slice(own);
                    pieces.extend_from_slice(meant);
                });
                let words: Vec<&str> = words.iter().map(|&word| tokenizer.word(word)).collect();
                prop_assert_eq!(words, tokens(text));
                let mut whole = Vec::new();
                meaning::pieces(text, &mut whole);
                pieces.truncate(whole.len().max(meaning::MAX_PIECES));
                prop_assert_eq!(pieces, whole);
            }
        }
    }
}
