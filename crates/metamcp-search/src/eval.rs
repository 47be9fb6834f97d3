//! Evaluation of a ranking: tools and labelled queries in, five measures out.
//! Owns: the format of such data, the measures.      Never: reads files, prints.
//! In: lines of JSON.  Out: `Corpus`, `Question`s, `Measures`.
//! Tests: `eval/tests.rs`.

mod measures;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::search::{Hit, Index, ServerIndex};
use metamcp_tools::tool::Listing;

pub use measures::{DEPTH, Measures, Total};

#[cfg(test)]
mod tests;

/// Tools of one server in such a file; a set made for measuring may hold more than a server may list.
const MAX_TOOLS: usize = 200_000;

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadData {
    /// Not what a line of this file looks like.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from one.
        line: usize,
        why: String,
    },
    /// Two tools with one id.
    #[error("line {line}: the id {id:?} is given twice")]
    Twice {
        /// Counted from one.
        line: usize,
        id: String,
    },
    /// A query whose right tool does not exist.
    #[error(
        "line {line}: the query {id:?} expects the tool {tool:?}, which is not among the tools"
    )]
    Unknown {
        /// Counted from one.
        line: usize,
        id: String,
        /// What it expects.
        tool: String,
    },
}

#[derive(Deserialize)]
struct ToolLine<'a> {
    id: String,
    #[serde(default)]
    server: Option<String>,
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    server_description: Option<String>,
    #[serde(borrow, default)]
    input_schema: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct QuestionLine {
    #[serde(default)]
    id: Option<String>,
    query: String,
    gold: Vec<String>,
    #[serde(default)]
    alt: HashMap<String, Vec<String>>,
}

/// Tools, indexed as the gateway would.
#[derive(Debug)]
pub struct Corpus {
    /// What is searched.
    pub index: Index,
    /// Each id of the file as the tool it stands for.
    tools: HashMap<String, Key>,
}

/// Server and tool.
type Key = (Arc<str>, Box<str>);

/// A query and the tools that answer it.
#[derive(Debug, Clone)]
pub struct Question {
    /// As in the file.
    pub id: String,
    /// The text of the query.
    pub query: String,
    /// How many tools are expected.
    pub expected: usize,
    /// Which tool stands for which of the expected ones.
    gold: HashMap<Key, usize>,
}

impl Corpus {
    /// Reads tools: one object a line with `id`, `server`, `name`, `description`, `server_description`, `input_schema`.
    pub fn read(text: &str) -> Result<Corpus, BadData> {
        // Texts rather than values: a catalog of a million tools is read too, and a value is many times its text.
        let mut servers: BTreeMap<Arc<str>, (Option<String>, Vec<String>)> = BTreeMap::new();
        let mut tools = HashMap::new();
        for (line, text) in lines(text) {
            let tool: ToolLine<'_> = parse(line, text)?;
            let server = tool.server.filter(|server| !server.is_empty());
            let server = server.unwrap_or_else(|| "tools".to_owned());
            let server = match servers.get_key_value(server.as_str()) {
                Some((known, _)) => Arc::clone(known),
                None => Arc::from(server),
            };
            let key = (Arc::clone(&server), tool.name.as_str().into());
            if tools.insert(tool.id.clone(), key).is_some() {
                return Err(BadData::Twice { line, id: tool.id });
            }
            let schema = tool.input_schema.map_or(r#"{"type":"object"}"#, RawValue::get);
            let (about, list) = servers.entry(server).or_default();
            *about = about.take().or(tool.server_description);
            list.push(format!(
                r#"{{"name":{},"description":{},"inputSchema":{schema}}}"#,
                Value::from(tool.name),
                Value::from(tool.description.unwrap_or_default()),
            ));
        }
        let parts = servers.into_iter().map(|(server, (about, list))| {
            let mut listing = Listing::at_most(MAX_TOOLS);
            for page in list.chunks(500) {
                // What a server may not list is skipped, here as there.
                drop(listing.page(format!(r#"{{"tools":[{}]}}"#, page.join(",")).as_bytes()));
            }
            let listed = Arc::new(listing.finish(None, None));
            Arc::new(ServerIndex::build(&server, about.as_deref(), &listed))
        });
        Ok(Corpus { index: Index::new(parts.collect()), tools })
    }

    /// Parses queries: one object per line with `query`, `gold` (ids) and optionally `id`, `alt`.
    pub fn questions(&self, text: &str) -> Result<Vec<Question>, BadData> {
        lines(text).map(|(line, text)| self.question(line, text)).collect()
    }

    fn question(&self, line: usize, text: &str) -> Result<Question, BadData> {
        let read: QuestionLine = parse(line, text)?;
        let id = read.id.unwrap_or_else(|| line.to_string());
        let mut gold = HashMap::new();
        let known = |tool: &String| {
            self.tools.get(tool).cloned().ok_or_else(|| BadData::Unknown {
                line,
                id: id.clone(),
                tool: tool.clone(),
            })
        };
        for (number, tool) in read.gold.iter().enumerate() {
            gold.insert(known(tool)?, number);
            for other in read.alt.get(tool).into_iter().flatten() {
                gold.entry(known(other)?).or_insert(number);
            }
        }
        let expected = read.gold.len();
        Ok(Question { id, query: read.query, expected, gold })
    }
}

impl Question {
    /// Which of the expected tools this one is.
    pub fn answered_by(&self, server: &Arc<str>, tool: &str) -> Option<usize> {
        self.gold.get(&(Arc::clone(server), tool.into())).copied()
    }

    /// Measures a ranking.
    pub fn measure(&self, hits: &[Hit]) -> Measures {
        let found = hits.iter().map(|hit| self.answered_by(&hit.server, &hit.tool().name));
        Measures::of(found, self.expected)
    }
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty())
}

fn parse<'a, T: Deserialize<'a>>(line: usize, text: &'a str) -> Result<T, BadData> {
    serde_json::from_str(text).map_err(|error| BadData::Line { line, why: error.to_string() })
}
