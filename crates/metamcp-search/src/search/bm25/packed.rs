//! One server's term counts, compressed. They are only scanned from start to end, when the global dictionary is built,
//! so there is no random access.

use super::super::index_cache;
use super::FIELDS;

/// Longest word in bytes; the tokenizer makes none that is longer.
const MAX_WORD: usize = 127;

/// Marks a word that occurs in a name.
const IN_NAME: u8 = 0x80;

/// Marks a posting with a count above one.
const COUNTED: u8 = 0x80;

/// A word may count this often in one field: more says nothing more.
const MAX_COUNT: u8 = 15;

/// Words with their postings.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// All words one after the other.
    text: Box<str>,
    /// For each word: its length and whether it is in a name; how many postings; how many bytes they take; these.
    /// For each posting: how far its tool is from the one before; its fields as bits; the counts, if one is not one.
    data: Box<[u8]>,
    words: usize,
}

/// How often one word occurs in each field of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Posting {
    pub(super) tool: u32,
    pub(super) counts: [u8; FIELDS],
}

/// One word of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedWord<'a> {
    pub(super) text: &'a str,
    pub(super) in_name: bool,
    /// Tools that have it.
    pub(super) tools: u32,
    data: &'a [u8],
}

impl Packed {
    /// `occurrences` are (word, tool, field), each as often as it occurs; `text` is the word of a number.
    pub(super) fn new<'a>(
        occurrences: &mut [Occurrence],
        name: u8,
        text: impl Fn(u32) -> &'a str,
    ) -> Packed {
        occurrences.sort_unstable();
        let (mut words, mut texts, mut data) = (0, String::new(), Vec::new());
        let mut postings = Vec::new();
        for same in occurrences.chunk_by(|a, b| a.word() == b.word()) {
            let Some(first) = same.first() else { continue };
            let word = text(first.word());
            let Ok(length) = u8::try_from(word.len()) else { continue };
            if usize::from(length) > MAX_WORD {
                continue;
            }
            postings.clear();
            let (mut before, mut tools, mut in_name) = (0, 0, 0);
            for own in same.chunk_by(|a, b| a.tool() == b.tool()) {
                let Some(first) = own.first() else { continue };
                let mut counts = [0u8; FIELDS];
                for one in own {
                    let count = &mut counts[usize::from(one.field())];
                    *count = (*count + 1).min(MAX_COUNT);
                    in_name |= if one.field() == name { IN_NAME } else { 0 };
                }
                push_number(&mut postings, first.tool() - before);
                push_counts(&mut postings, counts);
                before = first.tool();
                tools += 1;
            }
            texts.push_str(word);
            data.push(length | in_name);
            push_number(&mut data, tools);
            push_number(&mut data, u32::try_from(postings.len()).unwrap_or(u32::MAX));
            data.extend_from_slice(&postings);
            words += 1;
        }
        Packed { text: texts.into(), data: data.into(), words }
    }

    /// Serializes it.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        for part in [self.text.as_bytes(), &*self.data] {
            index_cache::push(bytes, part.len());
            bytes.extend_from_slice(part);
        }
    }

    /// From what `write` wrote for a server of so many tools. Everything is looked at: later it is read without a doubt.
    pub(super) fn read(bytes: &mut &[u8], tools: usize) -> Option<Packed> {
        let mut part = || {
            let length = index_cache::take(bytes)?;
            index_cache::take_all::<1>(bytes, length).map(<[[u8; 1]]>::as_flattened)
        };
        let text = str::from_utf8(part()?).ok()?;
        let data = part()?;
        let mut packed = Packed { text: text.into(), data: data.into(), words: 0 };
        let (mut words, mut letters, mut rest) = (0, 0, data);
        while !rest.is_empty() {
            letters += usize::from(rest[0] & !IN_NAME);
            rest = whole_word(rest, tools)?;
            words += 1;
        }
        // Each word ends where a character does, and together they are the text.
        if letters != text.len() || packed.iter().count() != words {
            return None;
        }
        packed.words = words;
        Some(packed)
    }

    /// How many words there are.
    pub(super) fn len(&self) -> usize {
        self.words
    }

    /// Every word.
    pub(super) fn iter(&self) -> impl Iterator<Item = PackedWord<'_>> {
        let (mut text, mut data) = (&*self.text, &*self.data);
        std::iter::from_fn(move || {
            let (&first, rest) = data.split_first()?;
            data = rest;
            let tools = take_number(&mut data);
            let bytes = take_number(&mut data) as usize;
            let (own, rest) = data.split_at_checked(bytes)?;
            data = rest;
            let (word, rest) = text.split_at_checked(usize::from(first & !IN_NAME))?;
            text = rest;
            Some(PackedWord { text: word, in_name: first & IN_NAME != 0, tools, data: own })
        })
    }
}

impl PackedWord<'_> {
    /// Where it occurs, by tool.
    pub(super) fn postings(&self) -> impl Iterator<Item = Posting> {
        let mut data = self.data;
        let mut tool = 0;
        std::iter::from_fn(move || {
            if data.is_empty() {
                return None;
            }
            tool += take_number(&mut data);
            Some(Posting { tool, counts: take_counts(&mut data) })
        })
    }
}

/// A word in a field of a tool; sorts by word, then tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Occurrence(u64);

impl Occurrence {
    pub(super) fn new(word: u32, tool: u32, field: u8) -> Occurrence {
        // Tools of a server are counted in thousands; 29 bits hold half a billion.
        Occurrence(u64::from(word) << 32 | u64::from(tool) << 3 | u64::from(field))
    }

    fn word(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn tool(self) -> u32 {
        self.0 as u32 >> 3
    }

    fn field(self) -> u8 {
        (self.0 & 7) as u8
    }
}

/// What follows a word and its postings, if these are such as `Packed::new` makes.
fn whole_word(data: &[u8], tools: usize) -> Option<&[u8]> {
    let (&first, mut rest) = data.split_first()?;
    let (count, bytes) = (take_checked(&mut rest)?, take_checked(&mut rest)? as usize);
    let (mut own, rest) = rest.split_at_checked(bytes)?;
    let (mut found, mut next, mut in_name) = (0u32, 0, 0);
    while !own.is_empty() {
        let step = take_checked(&mut own)? as usize;
        // Every tool but the first is beyond the one before it.
        let tool = if found == 0 { step } else { step.checked_sub(1)?.checked_add(next)? };
        let &mask = own.first()?;
        let counts = take_counts(&mut own);
        let is_counted = (0..FIELDS)
            .all(|field| (mask >> field & 1 == 1) == (1..=MAX_COUNT).contains(&counts[field]));
        if tool >= tools || !is_counted {
            return None;
        }
        in_name |= if counts[0] > 0 { IN_NAME } else { 0 };
        next = tool + 1;
        found += 1;
    }
    (found == count && found > 0 && first & IN_NAME == in_name).then_some(rest)
}

/// A number that `push_number` can have written.
fn take_checked(data: &mut &[u8]) -> Option<u32> {
    /// Five times seven bits hold any.
    const MOST: usize = 5;
    let end = data.iter().take(MOST).position(|&byte| byte < 0x80)?;
    // The last of five bytes has room for four bits.
    if end + 1 == MOST && data[end] > 0x0f {
        return None;
    }
    Some(take_number(data))
}

/// Seven bits a byte, the last one without its highest bit.
fn push_number(data: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        data.push(number as u8 | 0x80);
        number >>= 7;
    }
    data.push(number as u8);
}

fn take_number(data: &mut &[u8]) -> u32 {
    let (mut number, mut shift) = (0u32, 0);
    while let Some((&byte, rest)) = data.split_first() {
        *data = rest;
        number |= u32::from(byte & 0x7f).wrapping_shl(shift);
        if byte < 0x80 {
            break;
        }
        shift += 7;
    }
    number
}

fn push_counts(data: &mut Vec<u8>, counts: [u8; FIELDS]) {
    let mask = (0..FIELDS).filter(|&field| counts[field] > 0).fold(0u8, |mask, at| mask | 1 << at);
    let counted = counts.iter().any(|&count| count > 1);
    data.push(if counted { mask | COUNTED } else { mask });
    if counted {
        data.extend(counts.iter().filter(|&&count| count > 0));
    }
}

fn take_counts(data: &mut &[u8]) -> [u8; FIELDS] {
    let mut counts = [0; FIELDS];
    let Some((&mask, rest)) = data.split_first() else { return counts };
    *data = rest;
    for (field, count) in counts.iter_mut().enumerate() {
        if mask >> field & 1 == 0 {
            continue;
        }
        *count = 1;
        if mask & COUNTED != 0
            && let Some((&counted, rest)) = data.split_first()
        {
            *count = counted;
            *data = rest;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_out_again(
            mut all in prop::collection::vec((0u32..6, 0u32..40_000, 0u8..7), 0..300),
        ) {
            let texts = ["a", "read", "übergröße", "搜", "x2", "long_long_long_long_long_long_long_long"];
            all.extend_from_within(..all.len() / 2);
            let mut occurrences: Vec<_> =
                all.iter().map(|&(word, tool, field)| Occurrence::new(word, tool, field)).collect();
            let packed = Packed::new(&mut occurrences, 0, |word| texts[word as usize]);
            let mut expected: BTreeMap<&str, BTreeMap<u32, [u8; FIELDS]>> = BTreeMap::new();
            for (word, tool, field) in all {
                let counts = expected.entry(texts[word as usize]).or_default().entry(tool).or_default();
                counts[usize::from(field)] = (counts[usize::from(field)] + 1).min(15);
            }
            prop_assert_eq!(packed.len(), expected.len());
            let mut found = BTreeMap::new();
            for word in packed.iter() {
                let postings: BTreeMap<u32, [u8; FIELDS]> =
                    word.postings().map(|one| (one.tool, one.counts)).collect();
                prop_assert_eq!(word.tools as usize, postings.len());
                prop_assert_eq!(word.in_name, postings.values().any(|counts| counts[0] > 0));
                found.insert(word.text, postings);
            }
            prop_assert_eq!(found, expected);
        }
    }
}
