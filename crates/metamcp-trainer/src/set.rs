//! One set of questions, looked at once and kept as numbers.
//! Owns: which questions are looked at, what is kept of their candidates.      Never: keeps text, fits.
//! In: a folder with tools.jsonl and queries.jsonl.  Out: `Set`, and its `Measures` under given weights.
//! Tests: `metamcp-search/src/eval/tests.rs` for the reading and the measures.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use metamcp_search::eval::{Corpus, Measures, Total};
use metamcp_search::search::{FEATURES, Index, NEAR_NAMES, Nearness, Table};
use metamcp_search::transformer::Model;

use crate::fit::Weights;

/// What is kept of a candidate: what `hybrid` sees, and how near a transformer finds it, if one is asked.
pub(crate) const NUMBERS: usize = FEATURES + NEAR_NAMES.len();

/// See [`NUMBERS`].
pub(crate) type Numbers = [f32; NUMBERS];

/// A transformer, and what it makes of the tools of one set.
struct Reader {
    model: Arc<Model>,
    tables: Vec<Arc<Table>>,
}

/// See the module.
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) family: &'static str,
    pub(crate) questions: Vec<RankedQuestion>,
    /// Candidates for questions that no tool here answers.
    pub(crate) foreign: Vec<RankedQuestion>,
    pub(crate) tools: usize,
    corpus: Corpus,
    reader: Option<Reader>,
    texts: Vec<String>,
}

/// No more than `most` of them, in their order: scattered, since files often repeat their kinds at regular intervals.
pub(crate) fn chosen<T>(all: &[T], most: usize) -> Vec<&T> {
    let scattered = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|&at| scattered(at));
    places.truncate(most);
    places.sort_unstable();
    places.into_iter().map(|at| &all[at]).collect()
}

/// One question: its candidates, and which expected tool each of them is.
pub(crate) struct RankedQuestion {
    pub(crate) candidates: Vec<(Numbers, Option<usize>)>,
    expected: usize,
}

/// Questions of every other set that are asked here too, where no answer is right.
const FOREIGN: usize = 60;

impl Set {
    /// Reads a folder and looks at no more than `most` of its questions.
    pub(crate) fn read(
        folder: &Path,
        name: &'static str,
        family: &'static str,
        most: usize,
        model: Option<&Arc<Model>>,
    ) -> Result<Set> {
        let text = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let corpus = Corpus::read(&text("tools.jsonl")?)?;
        let questions = corpus.questions(&text("queries.jsonl")?)?;
        let reader = model.map(|model| Reader {
            model: Arc::clone(model),
            tables: model.tables(&corpus.index, &|| {}),
        });
        let looked = chosen(&questions, most).into_iter().map(|question| {
            let candidates = candidates(&corpus.index, reader.as_ref(), &question.query);
            let judged = candidates
                .into_iter()
                .map(|(server, tool, numbers)| (numbers, question.answered_by(&server, &tool)));
            RankedQuestion { candidates: judged.collect(), expected: question.expected }
        });
        let looked = looked.collect();
        let texts = questions.into_iter().map(|question| question.query).collect();
        let tools = corpus.index.tool_count();
        let foreign = Vec::new();
        Ok(Set { name, family, questions: looked, foreign, tools, corpus, reader, texts })
    }

    /// Some questions, to be asked of other sets.
    pub(crate) fn lent(&self) -> Vec<String> {
        chosen(&self.texts, FOREIGN).into_iter().cloned().collect()
    }

    /// Asks questions that no tool here answers.
    pub(crate) fn ask_foreign(&mut self, queries: &[String]) {
        for query in queries {
            let candidates = candidates(&self.corpus.index, self.reader.as_ref(), query);
            let wrong = candidates.into_iter().map(|(_, _, numbers)| (numbers, None));
            self.foreign.push(RankedQuestion { candidates: wrong.collect(), expected: 1 });
        }
    }

    /// As the first sorting has it.
    pub(crate) fn as_sorted(&self) -> Measures {
        self.mean(|_| 0.0)
    }

    /// As these weights have it.
    pub(crate) fn measured(&self, weights: &Weights) -> Measures {
        self.mean(|features| weights.score(features))
    }

    fn mean(&self, score: impl Fn(&Numbers) -> f64) -> Measures {
        let mut total = Total::default();
        for question in &self.questions {
            let mut ranked: Vec<(f64, Option<usize>)> = question
                .candidates
                .iter()
                .map(|(features, which)| (score(features), *which))
                .collect();
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
            let found = ranked.iter().map(|(_, which)| *which);
            total.add(&Measures::of(found, question.expected));
        }
        total.mean()
    }
}

/// The candidates for a query, with what is seen of them.
fn candidates(
    index: &Index,
    reader: Option<&Reader>,
    query: &str,
) -> Vec<(Arc<str>, Box<str>, Numbers)> {
    let nearness =
        reader.and_then(|reader| Nearness::new(&reader.tables, &reader.model.asked(query)));
    let looked = match &nearness {
        Some(nearness) => index.candidates_near(query, None, nearness),
        None => {
            let plain = index.candidates(query, None).into_iter();
            plain.map(|(hit, features)| (hit, features, [0.0; NEAR_NAMES.len()])).collect()
        }
    };
    let kept = looked.into_iter().map(|(hit, features, near)| {
        let mut numbers = [0.0; NUMBERS];
        let (own, of_transformer) = numbers.split_at_mut(FEATURES);
        own.copy_from_slice(&features);
        of_transformer.copy_from_slice(&near);
        (Arc::clone(&hit.server), hit.tool().name.clone(), numbers)
    });
    kept.collect()
}
