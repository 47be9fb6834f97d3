//! One set of questions, looked at once and kept as numbers.
//! Owns: which questions are looked at, what is kept of their candidates.      Never: keeps text, fits.
//! In: a folder with tools.jsonl and queries.jsonl.  Out: `Set`, and its `Measures` under given weights.
//! Tests: `metamcp-search/src/eval/tests.rs` for the reading and the measures.

use std::path::Path;

use anyhow::Result;
use metamcp_search::eval::{Corpus, Measures, Total};
use metamcp_search::search::{FEATURES, NEAR_NAMES, Seen};

use crate::fit::Weights;
use crate::reader::{Embedder, Reader};
use crate::{small, text};

/// What is kept of a candidate: what `hybrid` sees, and how near a transformer finds it, if one is asked.
pub(crate) const NUMBERS: usize = FEATURES + NEAR_NAMES.len();

/// See [`NUMBERS`].
pub(crate) type Numbers = [f32; NUMBERS];

/// See the module.
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) family: &'static str,
    pub(crate) questions: Vec<RankedQuestion>,
    /// Questions that no tool here answers.
    pub(crate) foreign: Vec<RankedQuestion>,
    /// Questions put to a few servers, one of which has the answer; and to a few that have none.
    pub(crate) small_with: Vec<RankedQuestion>,
    pub(crate) small_without: Vec<RankedQuestion>,
    corpus: Corpus,
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

/// What is kept of one candidate.
pub(crate) struct SeenNumbers {
    pub(crate) numbers: Numbers,
    pub(crate) cosine: f32,
    /// Which of the expected tools it is.
    pub(crate) which: Option<usize>,
}

/// One question and its candidates.
pub(crate) struct RankedQuestion {
    pub(crate) candidates: Vec<SeenNumbers>,
    /// Tools in the catalog it was put to.
    pub(crate) tools: usize,
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
        embedder: Option<&Embedder>,
    ) -> Result<Set> {
        let (tools, asked) = (text(folder, "tools.jsonl")?, text(folder, "queries.jsonl")?);
        let corpus = Corpus::read(&tools)?;
        let questions = corpus.questions(&asked)?;
        let reader = Reader::new(&corpus.index, embedder)?;
        let count = corpus.index.tool_count();
        let looked = chosen(&questions, most).into_iter().map(|question| {
            let seen = reader.candidates(&question.query);
            let judge = |seen: &Seen| question.answered_by(&seen.hit.server, &seen.hit.tool().name);
            RankedQuestion::new(&seen, count, question.expected, judge)
        });
        let looked = looked.collect();
        let (mut small_with, mut small_without) = (Vec::new(), Vec::new());
        // The same questions among more tools make the same small catalogs.
        if name == family || name == "mcpzero" {
            small::each(&tools, &asked, |catalog| {
                let index = &catalog.corpus.index;
                let seen = Reader::new(index, embedder)?.candidates(&catalog.query);
                let judge = |seen: &Seen| catalog.is_right(&seen.hit).then_some(0);
                let ranked = RankedQuestion::new(&seen, index.tool_count(), 1, judge);
                let own = if catalog.has_answer { &mut small_with } else { &mut small_without };
                own.push(ranked);
                Ok(())
            })?;
        }
        let texts = questions.into_iter().map(|question| question.query).collect();
        let foreign = Vec::new();
        let questions = looked;
        Ok(Set { name, family, questions, foreign, small_with, small_without, corpus, texts })
    }

    /// Some questions, to be asked of other sets.
    pub(crate) fn lent(&self) -> Vec<String> {
        chosen(&self.texts, FOREIGN).into_iter().cloned().collect()
    }

    /// Asks questions that no tool here answers.
    pub(crate) fn ask_foreign(
        &mut self,
        queries: &[String],
        embedder: Option<&Embedder>,
    ) -> Result<()> {
        let reader = Reader::new(&self.corpus.index, embedder)?;
        for query in queries {
            let seen = reader.candidates(query);
            let tools = self.corpus.index.tool_count();
            self.foreign.push(RankedQuestion::new(&seen, tools, 1, |_| None));
        }
        Ok(())
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
            let mut ranked: Vec<(f64, Option<usize>)> =
                question.candidates.iter().map(|one| (score(&one.numbers), one.which)).collect();
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
            let found = ranked.iter().map(|(_, which)| *which);
            total.add(&Measures::of(found, question.expected));
        }
        total.mean()
    }
}

impl RankedQuestion {
    fn new(
        seen: &[Seen],
        tools: usize,
        expected: usize,
        judge: impl Fn(&Seen) -> Option<usize>,
    ) -> RankedQuestion {
        let keep = |one: &Seen| {
            let mut numbers = [0.0; NUMBERS];
            let (own, of_transformer) = numbers.split_at_mut(FEATURES);
            own.copy_from_slice(&one.features);
            of_transformer.copy_from_slice(&one.near.unwrap_or_default());
            SeenNumbers { numbers, cosine: one.cosine, which: judge(one) }
        };
        RankedQuestion { candidates: seen.iter().map(keep).collect(), tools, expected }
    }
}
