//! One set of questions, looked at once and kept as numbers.
//! Owns: which questions are looked at, what is kept of their candidates.      Never: keeps text, fits.
//! In: a folder with tools.jsonl and queries.jsonl.  Out: `Set`, and its `Measures` under given weights.
//! Tests: `metamcp-core/src/eval/tests.rs` for the reading and the measures.

use std::path::Path;

use anyhow::{Context, Result};
use metamcp_core::eval::{Corpus, Measures, Total};
use metamcp_core::search::Features;

use crate::fit::Weights;

/// See the module.
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) family: &'static str,
    pub(crate) questions: Vec<Looked>,
}

/// One question: its candidates, and which expected tool each of them is.
pub(crate) struct Looked {
    pub(crate) candidates: Vec<(Features, Option<usize>)>,
    expected: usize,
}

impl Set {
    /// Reads a folder and looks at no more than `most` of its questions, evenly spread.
    pub(crate) fn read(
        folder: &Path,
        name: &'static str,
        family: &'static str,
        most: usize,
    ) -> Result<Set> {
        let text = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let corpus = Corpus::read(&text("tools.jsonl")?)?;
        let questions = corpus.questions(&text("queries.jsonl")?)?;
        let step = questions.len().div_ceil(most).max(1);
        let looked = questions.iter().step_by(step).map(|question| {
            let candidates = corpus.index.candidates(&question.query, None);
            let judged = candidates.into_iter().map(|(hit, features)| {
                (features, question.answered_by(&hit.server, &hit.tool().name))
            });
            Looked { candidates: judged.collect(), expected: question.expected }
        });
        Ok(Set { name, family, questions: looked.collect() })
    }

    /// As the first sorting has it.
    pub(crate) fn as_sorted(&self) -> Measures {
        self.mean(|_| 0.0)
    }

    /// As these weights have it.
    pub(crate) fn measured(&self, weights: &Weights) -> Measures {
        self.mean(|features| weights.score(features))
    }

    fn mean(&self, score: impl Fn(&Features) -> f64) -> Measures {
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
