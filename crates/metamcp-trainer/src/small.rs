//! Small catalogs with and without the answer to a question. A user has a few servers, not the thousands of a set.
//! Owns: which servers are drawn for which question.      Never: ranks, fits.
//! In: the tools and questions of a set.  Out: for each question two catalogs of its own set: one with a server that has the answer, one with none that has.
//! Tests: below.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::Result;
use metamcp_search::eval::Corpus;
use metamcp_search::search::Hit;
use serde_json::Value;

use crate::set::chosen;

/// Questions of one set.
const QUESTIONS: usize = 240;
/// Servers in a catalog, in turn: from somebody who begins to somebody who collects.
const SERVERS: [usize; 4] = [2, 5, 12, 30];
/// A set with fewer servers than this is drawn from tool by tool.
const FEW: usize = 60;

/// A tool's id, and its line in the file of the set.
type Line<'a> = (String, &'a str);

/// A question and a catalog it is put to.
pub(crate) struct SmallCatalog {
    pub(crate) query: String,
    pub(crate) corpus: Corpus,
    pub(crate) has_answer: bool,
    /// Server and name of the tools that answer.
    right: HashSet<(String, String)>,
}

impl SmallCatalog {
    fn new(servers: &[&Vec<Line<'_>>], query: &str, right: &BTreeSet<String>) -> Result<Self> {
        let lines: Vec<&Line<'_>> = servers.iter().flat_map(|group| group.iter()).collect();
        let text: Vec<&str> = lines.iter().map(|(_, line)| *line).collect();
        let corpus = Corpus::read(&text.join("\n"))?;
        let answers = lines.iter().filter(|(id, _)| right.contains(id));
        let named = answers.map(|(_, line)| {
            let tool: Value = serde_json::from_str(line)?;
            Ok((word(&tool, "server"), word(&tool, "name")))
        });
        let right: HashSet<(String, String)> = named.collect::<Result<_>>()?;
        Ok(SmallCatalog { query: query.to_owned(), corpus, has_answer: !right.is_empty(), right })
    }

    /// Whether a tool answers the question.
    pub(crate) fn is_right(&self, hit: &Hit) -> bool {
        self.right.contains(&(hit.server.to_string(), hit.tool().name.to_string()))
    }
}

/// Looks at both catalogs of each question. Where there are few questions, each is put to catalogs of all sizes.
pub(crate) fn each(
    tools: &str,
    questions: &str,
    mut look: impl FnMut(&SmallCatalog) -> Result<()>,
) -> Result<()> {
    let mut servers: BTreeMap<String, Vec<Line<'_>>> = BTreeMap::new();
    for line in tools.lines() {
        let tool: Value = serde_json::from_str(line)?;
        servers.entry(word(&tool, "server")).or_default().push((word(&tool, "id"), line));
    }
    let groups: Vec<Vec<Line<'_>>> = if servers.len() < FEW {
        servers.into_values().flatten().map(|tool| vec![tool]).collect()
    } else {
        servers.into_values().collect()
    };
    let lines: Vec<&str> = questions.lines().collect();
    let repeated = if lines.len() < QUESTIONS { SERVERS.len() } else { 1 };
    let asked = chosen(&lines, QUESTIONS).into_iter();
    let asked = asked.flat_map(|line| std::iter::repeat_n(line, repeated)).enumerate();
    for (number, line) in asked {
        let question: Value = serde_json::from_str(line)?;
        let query = question["query"].as_str().unwrap_or_default();
        let right = right(&question);
        let answers = |group: &&Vec<Line<'_>>| group.iter().any(|(id, _)| right.contains(id));
        let (have, have_not): (Vec<_>, Vec<_>) = groups.iter().partition(answers);
        let Some(one) = have.get(number % have.len().max(1)) else { continue };
        let without = drawn(&have_not, SERVERS[number % SERVERS.len()], number);
        let with: Vec<_> = without.iter().skip(1).copied().chain([*one]).collect();
        look(&SmallCatalog::new(&with, query, &right)?)?;
        look(&SmallCatalog::new(&without, query, &right)?)?;
    }
    Ok(())
}

fn word(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// The ids that answer a question.
fn right(question: &Value) -> BTreeSet<String> {
    let words = |list: &Value| -> Vec<String> {
        let words = list.as_array().into_iter().flatten();
        words.filter_map(|id| Some(id.as_str()?.to_owned())).collect()
    };
    let alternatives = question["alt"].as_object().into_iter().flat_map(|all| all.values());
    words(&question["gold"]).into_iter().chain(alternatives.flat_map(words)).collect()
}

/// Some of them, others for each number, the same in every run.
fn drawn<'a, T>(all: &[&'a T], count: usize, number: usize) -> Vec<&'a T> {
    let key = |at: usize| ((at + 1) * (number + 1)) as u64 * 0x9e37_79b9 % 1_000_003;
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|&at| key(at));
    places.truncate(count);
    places.into_iter().map(|at| all[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalogs_differ_by_question_and_not_by_run() {
        let all: Vec<usize> = (0..100).collect();
        let all: Vec<&usize> = all.iter().collect();
        assert_eq!(drawn(&all, 5, 3), drawn(&all, 5, 3));
        assert_ne!(drawn(&all, 5, 3), drawn(&all, 5, 4));
        assert_eq!(drawn(&all, 500, 3).len(), 100);
    }

    #[test]
    fn one_catalog_has_the_answer_and_one_has_not() {
        let tools = r#"{"id": "1", "server": "mail", "name": "send", "description": "Send a mail."}
{"id": "2", "server": "files", "name": "read", "description": "Read a file."}
{"id": "3", "server": "files", "name": "write", "description": "Write a file."}"#;
        let mut seen = Vec::new();
        each(tools, r#"{"query": "send it", "gold": ["1"]}"#, |small| {
            let hits: Vec<Hit> = small
                .corpus
                .index
                .servers()
                .iter()
                .flat_map(|part| Hit::all_of(part.server(), part.tools()))
                .collect();
            let right = hits.iter().filter(|hit| small.is_right(hit)).count();
            seen.push((small.has_answer, right));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen[..2], [(true, 1), (false, 0)]);
    }
}
