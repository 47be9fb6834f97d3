//! What remembering use is worth: half of the questions of a set are asked and answered, then all are asked again.
//! Owns: the replayed log and its slips.      Never: fits anything.
//! In: folders with tools.jsonl and queries.jsonl.  Out: a table.
//! Tests: `metamcp-search/tests/habits.rs` for what is measured here.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use metamcp_search::eval::{Corpus, DEPTH, Measures, Question, Total};
use metamcp_search::search::Strategy;
use metamcp_search::usage_history::UsageHistory;

use crate::set::chosen;
use crate::{QUESTIONS, SETS};

/// Hits a client sees and can call from; what is not among them cannot become a habit.
const SEEN: usize = 20;

/// One call of this many goes to a wrong tool, and works, where calls are noisy.
const WRONG_IN: usize = 5;

/// Any moment will do: all happens on one day.
const NOW: u64 = 1_700_000_000;

/// How the recorded half was answered.
#[derive(Clone, Copy)]
enum Log {
    /// The right tool each time, twice.
    Right,
    /// The right tool once, and once more with every fifth call going wrong.
    Noisy,
    /// Once, with every fifth call going wrong: the least there is to learn from.
    NoisyOnce,
}

/// Measures every set and writes one line for each strategy and log.
pub(crate) fn run(folder: &Path, out: &mut impl Write) -> Result<()> {
    writeln!(out, "hit@1 and nDCG@10, without habits > with them")?;
    writeln!(
        out,
        "{:<11}{:<8}{:<12}{:>22}{:>18}{:>24}{:>18}",
        "set", "ranking", "log", "asked before", "", "never asked", ""
    )?;
    for (name, _) in SETS {
        writeln!(io::stderr(), "habits: replaying {name}")?;
        let text = |file: &str| {
            let path = folder.join(name).join(file);
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let corpus = Corpus::read(&text("tools.jsonl")?)?;
        let all = corpus.questions(&text("queries.jsonl")?)?;
        let asked: Vec<&Question> = chosen(&all, QUESTIONS);
        let asked_before: Vec<&Question> = asked.iter().copied().step_by(2).collect();
        let never: Vec<&Question> = asked.iter().copied().skip(1).step_by(2).collect();
        for strategy in [Strategy::Bm25, Strategy::Hybrid] {
            let nothing = UsageHistory::default();
            let plain = [&asked_before, &never].map(|half| mean(&corpus, half, strategy, &nothing));
            for (log, word) in
                [(Log::Right, "right"), (Log::Noisy, "noisy"), (Log::NoisyOnce, "noisy once")]
            {
                let habits = recorded(&corpus, &asked_before, strategy, log);
                let with =
                    [&asked_before, &never].map(|half| mean(&corpus, half, strategy, &habits));
                write!(out, "{name:<11}{:<8}{word:<12}", strategy.name())?;
                for (before, after) in plain.iter().zip(&with) {
                    let ([hit, .., gain], [hit_after, .., gain_after]) =
                        (before.numbers(), after.numbers());
                    write!(out, "{}{}", change(hit, hit_after), change(gain, gain_after))?;
                }
                writeln!(out)?;
            }
        }
    }
    Ok(())
}

fn change(before: f64, after: f64) -> String {
    let [before, after] = [before, after].map(|number| number * 100.0);
    format!("  {before:5.1} > {after:5.1} {:+5.1}", after - before)
}

/// A memory of these questions, each followed by calls of the tools that answer it as far as they were shown.
fn recorded(
    corpus: &Corpus,
    questions: &[&Question],
    strategy: Strategy,
    log: Log,
) -> UsageHistory {
    let mut habits = UsageHistory::default();
    let mut calls = 0usize;
    for question in questions {
        let hits = corpus.index.search(&question.query, strategy, SEEN, None);
        let answers = |hit: &&metamcp_search::search::Hit| {
            question.answered_by(&hit.server, &hit.tool().name).is_some()
        };
        let wrong: Vec<_> = hits.iter().filter(|hit| !answers(hit)).collect();
        for right in hits.iter().filter(answers) {
            calls += 1;
            // Which of the wrong ones is called moves from call to call, without chance.
            let slip = wrong.get(calls * 7 % wrong.len().max(1)).copied();
            let slipped = slip.filter(|_| calls.is_multiple_of(WRONG_IN)).unwrap_or(right);
            let called = match log {
                Log::Right => vec![right, right],
                Log::Noisy => vec![right, slipped],
                Log::NoisyOnce => vec![slipped],
            };
            for hit in called {
                habits.record(&question.query, &hit.id(), true, NOW);
            }
        }
    }
    habits
}

fn mean(
    corpus: &Corpus,
    questions: &[&Question],
    strategy: Strategy,
    habits: &UsageHistory,
) -> Measures {
    let mut total = Total::default();
    for question in questions {
        let prior = habits.prior(&question.query, NOW);
        let found = corpus.index.page_with(&question.query, strategy, 0, DEPTH, None, Some(&prior));
        total.add(&question.measure(&found.hits));
    }
    total.mean()
}
