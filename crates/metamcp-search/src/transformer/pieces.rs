//! The model's tokenizer: BERT's WordPiece, uncased, without accents, punctuation as separate pieces.
//! Special tokens in a text are text: no description can inject a `[SEP]`.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};

/// A longer run without a space is no word, and the model has one piece for all such.
const MAX_WORD_CHARS: usize = 100;

/// Characters of a text that are looked at for each piece that is wanted: more make no difference, however it is written.
const CHARS_A_PIECE: usize = 64;

/// The pieces by what they spell.
pub(super) struct Pieces {
    starts: HashMap<Box<str>, u32, FixedState>,
    /// Those that continue a word, without the `##` that says so.
    continues: HashMap<Box<str>, u32, FixedState>,
    unknown: u32,
    begin: u32,
    end: u32,
}

impl Pieces {
    /// From the list, one a line; nothing if it lacks what every text needs.
    pub(super) fn new(list: &str) -> Option<Pieces> {
        let mut pieces = Pieces {
            starts: HashMap::default(),
            continues: HashMap::default(),
            unknown: 0,
            begin: 0,
            end: 0,
        };
        for (number, line) in (0u32..).zip(list.lines()) {
            match line.strip_prefix("##") {
                Some(rest) => pieces.continues.insert(rest.into(), number),
                None => pieces.starts.insert(line.into(), number),
            };
        }
        let number = |name: &str| pieces.starts.get(name).copied();
        let (unknown, begin, end) = (number("[UNK]")?, number("[CLS]")?, number("[SEP]")?);
        Some(Pieces { unknown, begin, end, ..pieces })
    }

    /// The first pieces of a text with begin and end around them, `most` in all.
    pub(super) fn of(&self, text: &str, most: usize) -> Vec<u32> {
        let mut found = vec![self.begin];
        let room = most.saturating_sub(1).max(1);
        let mut word = String::new();
        for c in plain(text.chars().take(most * CHARS_A_PIECE)) {
            let alone = is_mark(c) || is_ideograph(c);
            if alone || c.is_whitespace() {
                self.cut(&word, &mut found);
                word.clear();
            }
            if alone {
                self.cut(c.encode_utf8(&mut [0; 4]), &mut found);
            } else if !c.is_whitespace() {
                word.push(c);
            }
            if found.len() >= room {
                break;
            }
        }
        self.cut(&word, &mut found);
        found.truncate(room);
        found.push(self.end);
        found
    }

    /// The longest piece that starts the word, then the longest that goes on, and so forth; one for the unknown if
    /// nothing fits at some point.
    fn cut(&self, word: &str, found: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        let before = found.len();
        let mut rest = word;
        if word.chars().count() > MAX_WORD_CHARS {
            found.push(self.unknown);
            return;
        }
        while !rest.is_empty() {
            let known = if rest.len() == word.len() { &self.starts } else { &self.continues };
            let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
            let longest = ends
                .map(|end| rest.split_at(end))
                .find_map(|(own, after)| known.get(own).map(|&number| (number, after)));
            let Some((number, after)) = longest else {
                found.truncate(before);
                found.push(self.unknown);
                return;
            };
            found.push(number);
            rest = after;
        }
    }
}

/// Without what is not seen, without accents, without capitals.
fn plain(text: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    let seen = text.filter_map(|c| match c {
        '\t' | '\n' | '\r' => Some(' '),
        '\0' | '\u{fffd}' => None,
        c if is_in(c, GeneralCategoryGroup::Other) => None,
        c if c.is_whitespace() => Some(' '),
        c => Some(c),
    });
    let taken_apart = DecomposingNormalizerBorrowed::new_nfd().normalize_iter(seen);
    taken_apart
        .filter(|&c| c.is_ascii() || category(c) != GeneralCategory::NonspacingMark)
        .flat_map(char::to_lowercase)
}

fn category(c: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(c)
}

fn is_in(c: char, group: GeneralCategoryGroup) -> bool {
    group.contains(category(c))
}

/// Every sign of ASCII is one, `$` and `+` too, because the model was trained so.
fn is_mark(c: char) -> bool {
    c.is_ascii_punctuation() || (!c.is_ascii() && is_in(c, GeneralCategoryGroup::Punctuation))
}

/// Chinese characters are words of one character to this model.
fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{2a6df}' | '\u{2a700}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}')
}
