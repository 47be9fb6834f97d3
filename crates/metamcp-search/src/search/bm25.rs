//! BM25 over weighted fields.
//! Owns: one dictionary over all servers, and for each term its posting list with score contributions.      Never: looks at a schema, changes an index in use.
//! In: the term counts of each server, packed, and a query's terms.  Out: scores.
//! Tests: `search/tests.rs`.

mod packed;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::cached_tokenizer::CachedTokenizer;
use super::index_cache;
use super::tokenize::each_token;
use super::{Ranked, Ranker, Search, ServerIndex, Tuning, typos};
use packed::{Occurrence, Packed, Posting};

/// Words of a query that are looked up.
const MAX_QUERY_TOKENS: usize = 64;

/// Words of a query that are taken for misspelt ones: looking for what was meant goes through many names.
const MAX_GUESSES: usize = 3;

/// What a guessed word is worth beside one that was written so.
const GUESSED: f32 = 0.7;

/// How soon repeating a word stops helping.
const SATURATION: f32 = 1.2;

/// Parts of a tool in which words are counted apart.
const FIELDS: usize = 7;

/// Such a part.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field {
    Name,
    Title,
    Description,
    Server,
    Parameter,
    ParameterDescription,
    About,
}

/// Weight of a word in each field, and how much a long field dilutes it, in the order of `Field`.
const WEIGHTS: [f32; FIELDS] = [2.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.2];
const DILUTION: [f32; FIELDS] = [0.4, 0.4, 0.6, 0.4, 0.5, 0.5, 0.5];

/// One server's words.
#[derive(Debug, Default)]
pub(super) struct Fields {
    words: Packed,
    lengths: Box<[[u16; FIELDS]]>,
    totals: [u64; FIELDS],
}

/// The same while its tools are read.
#[derive(Debug, Default)]
pub(super) struct Counting {
    occurrences: Vec<Occurrence>,
    lengths: Vec<[u16; FIELDS]>,
}

impl Counting {
    /// What is counted from now on belongs to the next tool.
    pub(super) fn next_tool(&mut self) {
        self.lengths.push([0; FIELDS]);
    }

    /// Counts words of the current tool.
    pub(super) fn count(&mut self, field: Field, words: &[u32]) {
        let tool = position(self.lengths.len().saturating_sub(1));
        let Some(lengths) = self.lengths.last_mut() else { return };
        let length = &mut lengths[field as usize];
        *length = length.saturating_add(u16::try_from(words.len()).unwrap_or(u16::MAX));
        let occurrence = |&word: &u32| Occurrence::new(word, tool, field as u8);
        self.occurrences.extend(words.iter().map(occurrence));
    }

    pub(super) fn finish(mut self, tokenizer: &CachedTokenizer) -> Fields {
        let name = Field::Name as u8;
        let words = Packed::new(&mut self.occurrences, name, |word| tokenizer.word(word));
        Fields::new(words, self.lengths.into())
    }
}

impl Fields {
    fn new(words: Packed, lengths: Box<[[u16; FIELDS]]>) -> Fields {
        let mut totals = [0; FIELDS];
        for lengths in &lengths {
            totals.iter_mut().zip(lengths).for_each(|(sum, &length)| *sum += u64::from(length));
        }
        Fields { words, lengths, totals }
    }

    /// Serializes it.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        for length in self.lengths.iter().flatten() {
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        self.words.write(bytes);
    }

    /// Of so many tools, from what `write` wrote.
    pub(super) fn read(bytes: &mut &[u8], tools: usize) -> Option<Fields> {
        let lengths = index_cache::take_all::<{ 2 * FIELDS }>(bytes, tools)?;
        let lengths = lengths.iter().map(|own| {
            let own = own.as_chunks::<2>().0;
            std::array::from_fn(|field| u16::from_le_bytes(own[field]))
        });
        let lengths = lengths.collect();
        Some(Fields::new(Packed::read(bytes, tools)?, lengths))
    }
}

/// What an impact of one is in whole numbers; none is larger than `SATURATION + 1`.
const IMPACT: f32 = 16_384.0;

/// All servers together.
#[derive(Debug, Default)]
pub(super) struct Overall {
    tools: usize,
    /// Tools that `bm25` looks at.
    most: usize,
    /// Where each server's tools start when all are counted through.
    starts: Vec<usize>,
    /// The words by text, each with where it is written and where its postings start. One more marks the end.
    terms: Box<[Term]>,
    /// All words one after the other.
    text: Box<str>,
    /// Tools that have a word, counted through, and what it adds to each before rarity.
    holders: Box<[u32]>,
    impacts: Box<[u16]>,
    /// The words of names by first letter and length, among which a misspelt one is looked for.
    names: Box<[u32]>,
}

/// Where a word and its postings start.
#[derive(Debug, Clone, Copy, Default)]
struct Term {
    text: u32,
    postings: u32,
}

/// A word met in the parts.
struct Met<'a> {
    text: &'a str,
    tools: u32,
    in_name: bool,
}

impl Overall {
    pub(super) fn over(servers: &[Arc<ServerIndex>], tuning: &Tuning) -> Self {
        let most = if tuning.tools == 0 { usize::MAX } else { tuning.tools };
        let mut overall = Self { most, ..Self::default() };
        for part in servers {
            overall.starts.push(overall.tools);
            overall.tools += part.fields.lengths.len();
        }
        // Each word of each part in turn: which one it is.
        let mut which =
            Vec::with_capacity(servers.iter().map(|part| part.fields.words.len()).sum());
        let mut met: Vec<Met<'_>> = Vec::new();
        let mut numbers: HashMap<&str, u32, RandomState> = HashMap::default();
        for word in servers.iter().flat_map(|part| part.fields.words.iter()) {
            let number = *numbers.entry(word.text).or_insert_with(|| {
                met.push(Met { text: word.text, tools: 0, in_name: false });
                position(met.len() - 1)
            });
            let one = &mut met[number as usize];
            one.tools += word.tools;
            one.in_name |= word.in_name;
            which.push(number);
        }
        drop(numbers);
        let mut next = overall.set_terms(&met);
        overall.set_postings(servers, &which, &mut next, tuning);
        overall
    }

    /// The dictionary; says for each word met where its postings go.
    fn set_terms(&mut self, met: &[Met<'_>]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..position(met.len())).collect();
        order.sort_unstable_by_key(|&number| met[number as usize].text);
        let mut next = vec![0; met.len()];
        let (mut text, mut postings) = (String::new(), 0);
        let mut terms = Vec::with_capacity(met.len() + 1);
        let mut names = Vec::new();
        for number in order {
            let one = &met[number as usize];
            if one.in_name {
                names.push(position(terms.len()));
            }
            next[number as usize] = postings;
            terms.push(Term { text: position(text.len()), postings });
            text.push_str(one.text);
            postings += one.tools;
        }
        terms.push(Term { text: position(text.len()), postings });
        (self.terms, self.text) = (terms.into(), text.into());
        names.sort_by_key(|&term| size(self.text_of(term as usize)));
        self.names = names.into();
        next
    }

    fn set_postings(
        &mut self,
        servers: &[Arc<ServerIndex>],
        which: &[u32],
        next: &mut [u32],
        tuning: &Tuning,
    ) {
        let mut base = WEIGHTS;
        base[Field::Name as usize] *= tuning.name;
        base[Field::Server as usize] *= tuning.server;
        base[Field::Title as usize] *= tuning.tags;
        // Whole numbers until here, so that the order of the servers cannot change the averages.
        let mut totals = [0u64; FIELDS];
        for part in servers {
            totals.iter_mut().zip(part.fields.totals).for_each(|(sum, total)| *sum += total);
        }
        let averages = totals.map(|total| (total as f32 / self.tools.max(1) as f32).max(1.0));
        let count = self.terms.last().map_or(0, |end| end.postings as usize);
        let (mut holders, mut impacts) = (vec![0; count], vec![0; count]);
        let mut which = which.iter();
        for (part, start) in servers.iter().zip(&self.starts) {
            let weights: Vec<[f32; FIELDS]> = part
                .fields
                .lengths
                .iter()
                .map(|lengths| weights(base, lengths, &averages))
                .collect();
            for (word, &number) in part.fields.words.iter().zip(&mut which) {
                let place = &mut next[number as usize];
                for posting in word.postings() {
                    let tool = posting.tool as usize;
                    holders[*place as usize] = position(start + tool);
                    impacts[*place as usize] = impact(&posting, &weights[tool]);
                    *place += 1;
                }
            }
        }
        (self.holders, self.impacts) = (holders.into(), impacts.into());
    }

    /// Tools in all servers together.
    pub(super) fn tools(&self) -> usize {
        self.tools
    }

    /// A server's tools when all are counted through.
    pub(super) fn tools_of(&self, server: usize) -> Range<usize> {
        self.starts[server]..self.starts.get(server + 1).copied().unwrap_or(self.tools)
    }

    /// The server of a tool that was counted through, and which of its tools it is.
    pub(super) fn place(&self, tool: usize) -> (usize, usize) {
        let server = self.starts.partition_point(|&start| start <= tool).saturating_sub(1);
        (server, tool - self.starts[server])
    }

    /// The words of a query, each once, looked up.
    pub(super) fn words(&self, query: &str) -> Vec<Word> {
        let mut guesses = 0;
        let look_up = |text: String| {
            let term = self.term(&text);
            if term.is_none() && guesses < MAX_GUESSES {
                guesses += 1;
                if let Some(near) = self.nearest_name(&text) {
                    return self.word(self.text_of(near).to_owned(), Some(near), GUESSED);
                }
            }
            self.word(text, term, 1.0)
        };
        query_words(query).into_iter().map(look_up).collect()
    }

    /// Adds up what each word says of each tool.
    pub(super) fn scores<'a>(&self, words: impl Iterator<Item = &'a Word>) -> Vec<f32> {
        let mut scores: Vec<f32> = vec![0.0; self.tools];
        for word in words {
            let worth = word.rarity / IMPACT;
            let holders = self.holders[word.postings.clone()].iter();
            for (&tool, &impact) in holders.zip(&self.impacts[word.postings.clone()]) {
                scores[tool as usize] += worth * f32::from(impact);
            }
        }
        scores
    }

    /// Whether a tool, counted through, has a word in any field.
    pub(super) fn has(&self, tool: usize, word: &Word) -> bool {
        self.holders[word.postings.clone()].binary_search(&position(tool)).is_ok()
    }

    fn word(&self, text: String, term: Option<usize>, sure: f32) -> Word {
        let place = |term: usize| self.terms[term].postings as usize;
        let postings = term.map_or(0..0, |term| place(term)..place(term + 1));
        // Rarity is a property of the whole catalog, whichever server is asked about.
        let holding = postings.len() as f32;
        let rarity = sure * (1.0 + (self.tools as f32 - holding + 0.5) / (holding + 0.5)).ln();
        Word { text, rarity, postings }
    }

    fn term(&self, text: &str) -> Option<usize> {
        let count = self.terms.len().saturating_sub(1);
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.text_of(middle) < text { low = middle + 1 } else { high = middle }
        }
        (low < count && self.text_of(low) == text).then_some(low)
    }

    fn text_of(&self, term: usize) -> &str {
        &self.text[self.terms[term].text as usize..self.terms[term + 1].text as usize]
    }

    /// The word of a name that a misspelt one most likely meant.
    fn nearest_name(&self, word: &str) -> Option<usize> {
        let allowed = typos::allowed(word)?;
        // The first letter is seldom wrong, and asking for it leaves little to compare.
        let (first, length) = size(word);
        let shortest = (first, length.saturating_sub(allowed));
        let longest = (first, length + allowed);
        let text = |term: u32| self.text_of(term as usize);
        let start = self.names.partition_point(|&term| size(text(term)) < shortest);
        let mut best: Option<(usize, u32)> = None;
        for &term in &self.names[start..] {
            if size(text(term)) > longest {
                break;
            }
            let most = best.map_or(allowed, |(distance, _)| distance);
            // Words are numbered by their text, so that of several equally near ones the first wins.
            if let Some(distance) = typos::distance(word, text(term), most)
                && best.is_none_or(|best| (distance, term) < best)
            {
                best = Some((distance, term));
            }
        }
        best.map(|(_, term)| term as usize)
    }
}

/// A word of a query and where it occurs.
#[derive(Debug)]
pub(super) struct Word {
    /// As looked up: the query's own word, or the nearest one in a name where that was misspelt.
    pub(super) text: String,
    /// Inverse document frequency.
    pub(super) rarity: f32,
    postings: Range<usize>,
}

/// The most that usage history adds to a score, as a share of it.
const MOST_SHARE: f32 = 1.5;

/// See [`Strategy::Bm25`](super::Strategy::Bm25).
pub(super) struct Bm25;

impl Ranker for Bm25 {
    fn rank(&self, search: &Search<'_>) -> Vec<Ranked> {
        let overall = &search.index.overall;
        let scores = overall.scores(overall.words(search.query).iter());
        let Range { start, end } = search.among;
        let among = start..end.min(overall.most).max(start);
        let among = among.clone().zip(&scores[among]);
        let matching = among.filter(|(_, score)| **score > 0.0);
        matching.map(|(tool, &score)| Ranked::new(tool, score)).collect()
    }

    fn lifted(&self, score: f32, boost: f32) -> f32 {
        score * (1.0 + MOST_SHARE * boost)
    }
}

/// What one occurrence counts in each field of a tool.
fn weights(
    mut weights: [f32; FIELDS],
    lengths: &[u16; FIELDS],
    averages: &[f32; FIELDS],
) -> [f32; FIELDS] {
    for (field, weight) in weights.iter_mut().enumerate() {
        let relative = f32::from(lengths[field]) / averages[field];
        *weight /= 1.0 - DILUTION[field] + DILUTION[field] * relative;
    }
    weights
}

fn impact(posting: &Posting, weights: &[f32; FIELDS]) -> u16 {
    let counted = posting.counts.iter().zip(weights);
    let weight: f32 = counted.map(|(&count, weight)| f32::from(count) * weight).sum();
    (IMPACT * weight * (SATURATION + 1.0) / (weight + SATURATION)) as u16
}

/// First letter and length.
fn size(word: &str) -> (u8, usize) {
    (word.as_bytes().first().copied().unwrap_or_default(), word.len())
}

/// The words of a query as written, each once: those that `Overall::words` looks up, in its order.
pub(super) fn query_words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    each_token(query, |token| {
        if words.len() < MAX_QUERY_TOKENS && !words.iter().any(|word| word == token) {
            words.push(token.to_owned());
        }
    });
    words
}

/// Counts here are bounded by the caps on a server's tools.
fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
