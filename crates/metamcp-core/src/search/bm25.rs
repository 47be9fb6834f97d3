//! BM25 over weighted fields. Each server keeps its own postings; rarity and average lengths are taken
//! over all of them at query time, so that a changed server never touches the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tokenize::each_token;
use super::{Ranked, ServerIndex};
use crate::text;
use crate::tool::{ServerTools, Tool};

/// What of a description is ranked: enough for an honest one, too little to stuff.
const MAX_RANKED_CHARS: usize = 512;

/// What of a server's own description is ranked.
const MAX_SERVER_CHARS: usize = 160;

/// Words of a query that are looked up.
const MAX_QUERY_TOKENS: usize = 64;

/// How soon repeating a word stops helping.
const SATURATION: f32 = 1.2;

const FIELDS: usize = 6;

/// Weight of a word in each field, and how much a long field dilutes it: name, title, description,
/// server, parameter names, parameter descriptions.
const WEIGHTS: [f32; FIELDS] = [2.0, 1.0, 1.0, 1.0, 0.5, 0.3];
const DILUTION: [f32; FIELDS] = [0.5, 0.5, 0.75, 0.5, 0.75, 0.75];

/// One server's words.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// By word: where its postings start. One more entry marks the end.
    terms: Vec<(Box<str>, u32)>,
    postings: Vec<Posting>,
    lengths: Vec<[u16; FIELDS]>,
    totals: [u64; FIELDS],
}

/// How often one word occurs in each field of one tool.
#[derive(Debug, Clone, Copy)]
struct Posting {
    tool: u32,
    counts: [u8; FIELDS],
}

/// Average length of each field over all tools of all servers.
#[derive(Debug, Default)]
pub(super) struct Averages {
    tools: usize,
    lengths: [f32; FIELDS],
}

impl Averages {
    pub(super) fn over<'a>(all: impl Iterator<Item = &'a Fields>) -> Self {
        let (mut tools, mut totals) = (0, [0u64; FIELDS]);
        for fields in all {
            tools += fields.lengths.len();
            totals.iter_mut().zip(fields.totals).for_each(|(sum, total)| *sum += total);
        }
        let lengths = totals.map(|total| (total as f32 / tools.max(1) as f32).max(1.0));
        Self { tools, lengths }
    }
}

impl Fields {
    pub(super) fn build(server: &str, description: Option<&str>, tools: &ServerTools) -> Self {
        let about = description.or(tools.server_title.as_deref()).unwrap_or_default();
        let server_text = format!("{server} {}", text::cut(about, MAX_SERVER_CHARS));
        let mut words: BTreeMap<Box<str>, Vec<Posting>> = BTreeMap::new();
        let mut fields = Self::default();
        for (index, tool) in tools.tools.iter().enumerate() {
            let mut lengths = [0u16; FIELDS];
            for (field, length) in lengths.iter_mut().enumerate() {
                each_text(tool, &server_text, field, |part| {
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
            fields.terms.push((word, position(fields.postings.len())));
            fields.postings.append(&mut postings);
        }
        fields.terms.push((Box::default(), position(fields.postings.len())));
        fields.terms.shrink_to_fit();
        fields.postings.shrink_to_fit();
        fields
    }

    fn postings(&self, word: &str) -> &[Posting] {
        let Some((_, terms)) = self.terms.split_last() else { return &[] };
        let Ok(at) = terms.binary_search_by(|(term, _)| (**term).cmp(word)) else { return &[] };
        &self.postings[self.terms[at].1 as usize..self.terms[at + 1].1 as usize]
    }
}

pub(super) fn rank(
    servers: &[Arc<ServerIndex>],
    averages: &Averages,
    query: &str,
    only: Option<&str>,
) -> Vec<Ranked> {
    let words = query_words(query);
    // Rarity is a property of the whole catalog, whichever server is asked about.
    let rarity: Vec<f32> = words
        .iter()
        .map(|word| {
            let holding: usize =
                servers.iter().map(|server| server.fields.postings(word).len()).sum();
            let (holding, all) = (holding as f32, averages.tools as f32);
            (1.0 + (all - holding + 0.5) / (holding + 0.5)).ln()
        })
        .collect();
    let mut ranked = Vec::new();
    let mut scores: Vec<f32> = Vec::new();
    for (server, part) in servers.iter().enumerate() {
        if only.is_some_and(|only| only != &*part.server) {
            continue;
        }
        scores.clear();
        scores.resize(part.fields.lengths.len(), 0.0);
        for (word, rarity) in words.iter().zip(&rarity) {
            for posting in part.fields.postings(word) {
                let tool = posting.tool as usize;
                let weight = weight(posting, &part.fields.lengths[tool], averages);
                scores[tool] += rarity * weight * (SATURATION + 1.0) / (weight + SATURATION);
            }
        }
        let matching = scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
        ranked.extend(matching.map(|(tool, &score)| Ranked { server, tool, score }));
    }
    ranked
}

fn weight(posting: &Posting, lengths: &[u16; FIELDS], averages: &Averages) -> f32 {
    let mut sum = 0.0;
    for field in 0..FIELDS {
        if posting.counts[field] > 0 {
            let relative = f32::from(lengths[field]) / averages.lengths[field];
            let norm = 1.0 - DILUTION[field] + DILUTION[field] * relative;
            sum += WEIGHTS[field] * f32::from(posting.counts[field]) / norm;
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

fn each_text(tool: &Tool, server: &str, field: usize, mut each: impl FnMut(&str)) {
    match field {
        0 => each(&tool.name),
        1 => each(tool.title.as_deref().unwrap_or_default()),
        2 => each(&text::cut(&tool.description, MAX_RANKED_CHARS)),
        3 => each(server),
        4 => tool.parameters.iter().for_each(|parameter| each(&parameter.name)),
        _ => tool.parameters.iter().for_each(|parameter| each(&parameter.description)),
    }
}

fn count(words: &mut BTreeMap<Box<str>, Vec<Posting>>, token: &str, tool: usize, field: usize) {
    let tool = position(tool);
    let postings = match words.get_mut(token) {
        Some(postings) => postings,
        None => words.entry(token.into()).or_default(),
    };
    if postings.last().is_none_or(|last| last.tool != tool) {
        postings.push(Posting { tool, counts: [0; FIELDS] });
    }
    if let Some(last) = postings.last_mut() {
        last.counts[field] = last.counts[field].saturating_add(1);
    }
}

/// Counts here are bounded by the caps on a server's tools.
fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
