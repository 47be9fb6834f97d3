//! What the shortlist of a search loses and saves against showing twenty hits.
//! Owns: what twenty hits cost, and what counts as lost.      Never: fits, decides the cut.
//! In: folders with tools.jsonl and queries.jsonl; a model, or none.  Out: a table on stdout.
//! Tests: below.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use metamcp_search::eval::{Corpus, DEPTH, Question};
use metamcp_search::search::{Hit, shortlist};
use metamcp_types::text;
use tiktoken_rs::CoreBPE;

use crate::reader::{Embedder, Reader};
use crate::set::chosen;
use crate::{QUESTIONS, SETS};

/// Hits that were shown once: so many in full, the others on a line.
const BEFORE: usize = 20;
const IN_FULL_BEFORE: usize = 5;

/// What is shown of a description in full and on a line, and of a signature on a line.
const FULL_SENTENCE: usize = 240;
const LINE_SENTENCE: usize = 100;
const LINE_SIGNATURE: usize = 120;

/// Sums over the questions of one set.
#[derive(Default)]
struct Sums {
    questions: f64,
    recall: f64,
    recall_cut: f64,
    recall_full: f64,
    tokens_before: usize,
    tokens: Vec<usize>,
    full: usize,
    named: usize,
}

/// Prints a line for each set.
pub(crate) fn run(
    folder: &Path,
    embedder: Option<&Embedder>,
    without: &[String],
    out: &mut dyn Write,
) -> Result<()> {
    let tokenizer = tiktoken_rs::cl100k_base()?;
    writeln!(
        out,
        "{:<12}{:>10}{:>8}{:>9}{:>9}{:>7}{:>7}{:>8}{:>8}{:>9}",
        "set", "recall@10", "lost", "in full", "tokens", "p50", "p95", "share", "full", "named"
    )?;
    for (name, _) in SETS.iter().filter(|(name, _)| without.iter().all(|set| set != name)) {
        let read = |file: &str| crate::text(&folder.join(name), file);
        let corpus = Corpus::read(&read("tools.jsonl")?)?;
        let reader = Reader::new(&corpus.index, embedder)?;
        let mut sums = Sums::default();
        for question in chosen(&corpus.questions(&read("queries.jsonl")?)?, QUESTIONS) {
            sums.add(question, &reader.hits(&question.query, BEFORE), &tokenizer);
        }
        writeln!(out, "{}", sums.line(name))?;
    }
    Ok(())
}

impl Sums {
    fn add(&mut self, question: &Question, hits: &[Hit], tokenizer: &CoreBPE) {
        let cut = shortlist(hits);
        let shown = cut.full + cut.named;
        let count = |text: &str| tokenizer.encode_ordinary(text).len();
        let costs = |hit: &Hit, how: fn(&Hit) -> String| count(&how(hit));
        let (first, later) = hits.split_at(IN_FULL_BEFORE.min(hits.len()));
        self.tokens_before += first.iter().map(|hit| costs(hit, in_full)).sum::<usize>()
            + later.iter().map(|hit| costs(hit, on_a_line)).sum::<usize>();
        let (full, others) = hits.split_at(cut.full.min(hits.len()));
        let named = others.iter().take(cut.named);
        self.tokens.push(
            full.iter().map(|hit| costs(hit, in_full)).sum::<usize>()
                + named.map(|hit| costs(hit, by_name)).sum::<usize>(),
        );
        self.questions += 1.0;
        self.recall += recall(question, hits, DEPTH);
        self.recall_cut += recall(question, hits, DEPTH.min(shown));
        self.recall_full += recall(question, hits, cut.full);
        self.full += cut.full;
        self.named += cut.named;
    }

    fn line(mut self, name: &str) -> String {
        self.tokens.sort_unstable();
        let percentile = |percent: usize| {
            let at = (self.tokens.len() * percent / 100).min(self.tokens.len().saturating_sub(1));
            self.tokens.get(at).copied().unwrap_or_default()
        };
        let total: usize = self.tokens.iter().sum();
        let mean = |sum: f64| sum / self.questions.max(1.0);
        format!(
            "{name:<12}{:10.1}{:8.2}{:9.1}{:9.0}{:7}{:7}{:8.1}{:8.1}{:9.1}",
            mean(self.recall) * 100.0,
            mean(self.recall - self.recall_cut) * 100.0,
            mean(self.recall_full) * 100.0,
            mean(self.tokens_before as f64),
            percentile(50),
            percentile(95),
            total as f64 / self.tokens_before.max(1) as f64 * 100.0,
            mean(self.full as f64),
            mean(self.named as f64),
        )
    }
}

/// Share of the expected tools among the first hits.
fn recall(question: &Question, hits: &[Hit], first: usize) -> f64 {
    let which = |hit: &Hit| question.answered_by(&hit.server, &hit.tool().name);
    let found: HashSet<usize> = hits.iter().take(first).filter_map(which).collect();
    found.len() as f64 / question.expected.max(1) as f64
}

fn in_full(hit: &Hit) -> String {
    let tool = hit.tool();
    let sentence = text::first_sentence(&tool.description, FULL_SENTENCE);
    format!("{}:{}\n  {sentence}\n", hit.server, tool.signature())
}

fn on_a_line(hit: &Hit) -> String {
    let tool = hit.tool();
    let sentence = text::first_sentence(&tool.description, LINE_SENTENCE);
    format!("{}:{} - {sentence}\n", hit.server, text::cut(tool.signature(), LINE_SIGNATURE))
}

fn by_name(hit: &Hit) -> String {
    format!("{}\n", hit.id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_lost_and_what_is_named_is_not() {
        let corpus = Corpus::read(
            r#"{"id": "1", "server": "mail", "name": "send", "description": "Send a mail."}
{"id": "2", "server": "mail", "name": "read", "description": "Read a mail."}"#,
        )
        .unwrap();
        let questions = corpus.questions(r#"{"query": "mail", "gold": ["1", "2"]}"#).unwrap();
        let part = &corpus.index.servers()[0];
        let hits = Hit::all_of(part.server(), part.tools());
        assert_eq!(recall(&questions[0], &hits, 1), 0.5);
        assert_eq!(recall(&questions[0], &hits, 10), 1.0);
        assert_eq!(in_full(&hits[0]), "mail:send()\n  Send a mail.\n");
        assert_eq!(by_name(&hits[0]), "mail:send\n");
    }
}
