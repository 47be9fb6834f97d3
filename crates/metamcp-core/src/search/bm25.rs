//! BM25 over weighted fields. Each server keeps its own postings; rarity and average lengths are taken
//! over all of them at query time, so that a changed server never touches the others.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::tokenize::each_token;
use super::{Ranked, ServerIndex, typos};
use crate::text;
use crate::tool::{ServerTools, Tool};

/// What of a description is ranked: enough for an honest one, too little to stuff.
const MAX_RANKED_CHARS: usize = 512;

/// What of a server's own description is ranked.
const MAX_SERVER_CHARS: usize = 160;

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
const NAME: usize = 0;
const SERVER: usize = 3;
const PARAMETERS: usize = 4;

/// Weight of a word in each field, and how much a long field dilutes it: name, title, description,
/// server name, parameter names, parameter descriptions, what the server is for.
const WEIGHTS: [f32; FIELDS] = [2.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.2];
const DILUTION: [f32; FIELDS] = [0.4, 0.4, 0.6, 0.4, 0.5, 0.5, 0.5];

/// One server's words.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// Each word and where its postings start. One more entry marks the end.
    terms: Vec<Term>,
    /// All words one after the other: as strings of their own they would take several times the room.
    text: String,
    /// The words that occur in a name, among which a misspelt one is looked for.
    in_names: Vec<u32>,
    postings: Vec<Posting>,
    lengths: Vec<[u16; FIELDS]>,
    totals: [u64; FIELDS],
}

/// Where a word and its postings start.
#[derive(Debug, Clone, Copy)]
struct Term {
    text: u32,
    postings: u32,
}

/// How often one word occurs in each field of one tool.
#[derive(Debug, Clone, Copy)]
struct Posting {
    tool: u32,
    /// Four bits a field: a word that occurs more than fifteen times in one says nothing more.
    counts: u32,
}

impl Posting {
    fn count(self, field: usize) -> u32 {
        self.counts >> (4 * field) & 15
    }

    fn one_more(&mut self, field: usize) {
        if self.count(field) < 15 {
            self.counts += 1 << (4 * field);
        }
    }
}

/// What an impact of one is in whole numbers; none is larger than `SATURATION + 1`.
const IMPACT: f32 = 16_384.0;

/// What is true of all servers together: how long fields are on average, and which server knows which word.
#[derive(Debug, Default)]
pub(super) struct Overall {
    tools: usize,
    lengths: [f32; FIELDS],
    /// Where each server's tools start when all are counted through.
    starts: Vec<usize>,
    /// By digest of the word; a digest is only a shortcut, the word itself is compared.
    words: Vec<Entry>,
    /// For each server, what each of its postings adds to a score before rarity.
    impacts: Vec<Box<[u16]>>,
    /// The different words of names by first letter and length, among which a misspelt one is looked for.
    names: Vec<NameWord>,
}

/// A word that occurs in a name, and one of the places where it is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NameWord {
    first: u8,
    length: u8,
    digest: u32,
    server: u32,
    term: u32,
}

/// One word of one server.
#[derive(Debug, Clone, Copy)]
struct Entry {
    digest: u32,
    server: u32,
    term: u32,
}

impl Overall {
    pub(super) fn over(servers: &[Arc<ServerIndex>]) -> Self {
        let mut totals = [0u64; FIELDS];
        let mut overall = Self::default();
        overall.words.reserve_exact(servers.iter().map(|part| part.fields.words()).sum());
        for (server, part) in servers.iter().enumerate() {
            let fields = &part.fields;
            overall.starts.push(overall.tools);
            overall.tools += fields.lengths.len();
            totals.iter_mut().zip(fields.totals).for_each(|(sum, total)| *sum += total);
            overall.words.extend((0..fields.words()).map(|term| Entry {
                digest: digest(fields.word(term)),
                server: position(server),
                term: position(term),
            }));
        }
        // Counts are whole numbers until here, so that the order of the servers cannot change the averages.
        overall.lengths = totals.map(|total| (total as f32 / overall.tools.max(1) as f32).max(1.0));
        overall.words.sort_unstable_by_key(|entry| (entry.digest, entry.server));
        overall.names = names(servers);
        // They change with the averages, but doing them here keeps a query to one addition per posting.
        overall.impacts =
            servers.iter().map(|part| part.fields.impacts(&overall.lengths)).collect();
        overall
    }

    /// Tools in all servers together.
    pub(super) fn tools(&self) -> usize {
        self.tools
    }

    /// Where a server's tools start when all are counted through.
    pub(super) fn start(&self, server: usize) -> usize {
        self.starts[server]
    }

    fn word(&self, servers: &[Arc<ServerIndex>], text: String, sure: f32) -> Word {
        let holders: Vec<(usize, Range<usize>)> = self.holders(servers, &text).collect();
        // Rarity is a property of the whole catalog, whichever server is asked about.
        let holding = holders.iter().map(|(_, postings)| postings.len()).sum::<usize>() as f32;
        let rarity = sure * (1.0 + (self.tools as f32 - holding + 0.5) / (holding + 0.5)).ln();
        Word { text, rarity, holders }
    }

    /// The word of a name that a misspelt one most likely meant.
    fn nearest_name(&self, servers: &[Arc<ServerIndex>], word: &str) -> Option<String> {
        let allowed = typos::allowed(word)?;
        // The first letter is seldom wrong, and asking for it leaves little to compare.
        let first = *word.as_bytes().first()?;
        let shortest = (first, word.len().saturating_sub(allowed));
        let longest = (first, word.len() + allowed);
        let size = |name: &NameWord| (name.first, usize::from(name.length));
        let start = self.names.partition_point(|name| size(name) < shortest);
        let mut best: Option<(usize, &str)> = None;
        for name in self.names[start..].iter().take_while(|name| size(name) <= longest) {
            let near = servers[name.server as usize].fields.word(name.term as usize);
            let most = best.map_or(allowed, |(distance, _)| distance);
            if let Some(distance) = typos::distance(word, near, most)
                && best.is_none_or(|best| (distance, near) < best)
            {
                best = Some((distance, near));
            }
        }
        best.map(|(_, near)| near.to_owned())
    }

    /// The servers that know a word, in their order, each with where its postings lie.
    fn holders<'a>(
        &'a self,
        servers: &'a [Arc<ServerIndex>],
        word: &'a str,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + Clone {
        let digest = digest(word);
        let start = self.words.partition_point(|entry| entry.digest < digest);
        let same = self.words[start..].iter().take_while(move |entry| entry.digest == digest);
        same.filter_map(move |entry| {
            let fields = &servers[entry.server as usize].fields;
            Some((entry.server as usize, fields.postings(entry.term as usize, word)?))
        })
    }
}

impl Fields {
    pub(super) fn build(server: &str, description: Option<&str>, tools: &ServerTools) -> Self {
        let about = description.or(tools.server_title.as_deref()).unwrap_or_default();
        let about = text::cut(about, MAX_SERVER_CHARS);
        let mut words: BTreeMap<Box<str>, Vec<Posting>> = BTreeMap::new();
        let mut fields = Self::default();
        for (index, tool) in tools.tools.iter().enumerate() {
            let mut lengths = [0u16; FIELDS];
            for (field, length) in lengths.iter_mut().enumerate() {
                each_text(tool, (server, &about), field, |part| {
                    each_token(part, |token| {
                        *length = length.saturating_add(1);
                        count(&mut words, token, index, field);
                    });
                });
            }
            fields
                .totals
                .iter_mut()
                .zip(lengths)
                .for_each(|(sum, length)| *sum += u64::from(length));
            fields.lengths.push(lengths);
        }
        for (word, mut postings) in words {
            if postings.iter().any(|posting| posting.count(NAME) > 0) {
                fields.in_names.push(position(fields.terms.len()));
            }
            fields.end_term();
            fields.text.push_str(&word);
            fields.postings.append(&mut postings);
        }
        fields.end_term();
        fields.terms.shrink_to_fit();
        fields.text.shrink_to_fit();
        fields.in_names.shrink_to_fit();
        fields.lengths.shrink_to_fit();
        fields.postings.shrink_to_fit();
        fields
    }

    fn postings(&self, term: usize, word: &str) -> Option<Range<usize>> {
        let (start, end) = (self.terms.get(term)?.postings, self.terms.get(term + 1)?.postings);
        (self.word(term) == word).then_some(start as usize..end as usize)
    }

    /// How many words there are; the last entry only marks the end.
    fn words(&self) -> usize {
        self.terms.len().saturating_sub(1)
    }

    /// A word by its number.
    fn word(&self, term: usize) -> &str {
        let at =
            |term: usize| self.terms.get(term).map_or(self.text.len(), |one| one.text as usize);
        &self.text[at(term)..at(term + 1)]
    }

    /// The next word and its postings start here.
    fn end_term(&mut self) {
        let (text, postings) = (position(self.text.len()), position(self.postings.len()));
        self.terms.push(Term { text, postings });
    }

    fn impacts(&self, averages: &[f32; FIELDS]) -> Box<[u16]> {
        let impact = |posting: &Posting| {
            let weight = weight(posting, &self.lengths[posting.tool as usize], averages);
            (IMPACT * weight * (SATURATION + 1.0) / (weight + SATURATION)) as u16
        };
        self.postings.iter().map(impact).collect()
    }
}

/// A word of a query and where it occurs.
#[derive(Debug)]
pub(super) struct Word {
    /// As looked up: the query's own word, or the nearest one in a name where that was misspelt.
    pub(super) text: String,
    /// How much it tells: high where few tools have it.
    pub(super) rarity: f32,
    /// Each server that knows it and its postings there.
    holders: Vec<(usize, Range<usize>)>,
}

impl Word {
    /// Whether a tool has it, in any field.
    pub(super) fn occurs(&self, servers: &[Arc<ServerIndex>], server: usize, tool: usize) -> bool {
        let Ok(at) = self.holders.binary_search_by_key(&server, |(holder, _)| *holder) else {
            return false;
        };
        let postings = &servers[server].fields.postings[self.holders[at].1.clone()];
        postings.binary_search_by_key(&position(tool), |posting| posting.tool).is_ok()
    }
}

/// The words of a query, each once, looked up.
pub(super) fn words(servers: &[Arc<ServerIndex>], overall: &Overall, query: &str) -> Vec<Word> {
    let mut found: Vec<Word> = Vec::new();
    let mut guesses = 0;
    for text in query_words(query) {
        let mut word = overall.word(servers, text, 1.0);
        if word.holders.is_empty() && guesses < MAX_GUESSES {
            guesses += 1;
            if let Some(near) = overall.nearest_name(servers, &word.text) {
                word = overall.word(servers, near, GUESSED);
            }
        }
        found.push(word);
    }
    found
}

/// Adds up what each word says of each tool.
pub(super) fn scores(servers: &[Arc<ServerIndex>], overall: &Overall, words: &[Word]) -> Vec<f32> {
    let mut scores: Vec<f32> = vec![0.0; overall.tools];
    for word in words {
        let worth = word.rarity / IMPACT;
        for (server, range) in &word.holders {
            let scores = &mut scores[overall.starts[*server]..];
            let postings = servers[*server].fields.postings[range.clone()].iter();
            for (posting, impact) in postings.zip(&overall.impacts[*server][range.clone()]) {
                scores[posting.tool as usize] += worth * f32::from(*impact);
            }
        }
    }
    scores
}

pub(super) fn rank(
    servers: &[Arc<ServerIndex>],
    overall: &Overall,
    query: &str,
    only: Option<&str>,
) -> Vec<Ranked> {
    let scores = scores(servers, overall, &words(servers, overall, query));
    let mut ranked = Vec::new();
    for (server, part) in servers.iter().enumerate() {
        if only.is_some_and(|only| only != &*part.server) {
            continue;
        }
        let own = &scores[overall.starts[server]..][..part.fields.lengths.len()];
        let matching = own.iter().enumerate().filter(|(_, score)| **score > 0.0);
        ranked.extend(matching.map(|(tool, &score)| Ranked::new(server, tool, score)));
    }
    ranked
}

/// The different words of all names.
fn names(servers: &[Arc<ServerIndex>]) -> Vec<NameWord> {
    let mut names = Vec::new();
    for (server, part) in servers.iter().enumerate() {
        for &term in &part.fields.in_names {
            let word = part.fields.word(term as usize).as_bytes();
            let (Some(&first), Ok(length)) = (word.first(), u8::try_from(word.len())) else {
                continue;
            };
            let digest = digest(part.fields.word(term as usize));
            names.push(NameWord { first, length, digest, server: position(server), term });
        }
    }
    names.sort_unstable();
    names.dedup_by_key(|name| (name.first, name.length, name.digest));
    names.shrink_to_fit();
    names
}

fn weight(posting: &Posting, lengths: &[u16; FIELDS], averages: &[f32; FIELDS]) -> f32 {
    let mut sum = 0.0;
    for field in 0..FIELDS {
        let count = posting.count(field);
        if count > 0 {
            let relative = f32::from(lengths[field]) / averages[field];
            let norm = 1.0 - DILUTION[field] + DILUTION[field] * relative;
            sum += WEIGHTS[field] * count as f32 / norm;
        }
    }
    sum
}

/// The words of a query, each once.
fn query_words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    each_token(query, |token| {
        if words.len() < MAX_QUERY_TOKENS && !words.iter().any(|word| word == token) {
            words.push(token.to_owned());
        }
    });
    words
}

fn each_text(tool: &Tool, (server, about): (&str, &str), field: usize, mut each: impl FnMut(&str)) {
    match field {
        NAME => each(&tool.name),
        1 => each(tool.title.as_deref().unwrap_or_default()),
        2 => each(&text::cut(&tool.description, MAX_RANKED_CHARS)),
        SERVER => each(server),
        PARAMETERS => tool.parameters.iter().for_each(|parameter| each(&parameter.name)),
        5 => tool.parameters.iter().for_each(|parameter| each(&parameter.description)),
        _ => each(about),
    }
}

fn count(words: &mut BTreeMap<Box<str>, Vec<Posting>>, token: &str, tool: usize, field: usize) {
    let tool = position(tool);
    let postings = match words.get_mut(token) {
        Some(postings) => postings,
        None => words.entry(token.into()).or_default(),
    };
    if postings.last().is_none_or(|last| last.tool != tool) {
        postings.push(Posting { tool, counts: 0 });
    }
    if let Some(last) = postings.last_mut() {
        last.one_more(field);
    }
}

/// FNV-1a: the same on every machine and in every run.
fn digest(word: &str) -> u32 {
    word.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Counts here are bounded by the caps on a server's tools.
fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
