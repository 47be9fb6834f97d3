//! Parses `tools/list`: an invalid tool is skipped, an invalid page fails, a flood is cut.

use std::collections::HashSet;
use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::definition::parse_tool;
use super::{Fingerprint, MAX_LIST_BYTES, MAX_TITLE_CHARS, MAX_TOOLS, ServerTools, Tool};
use metamcp_types::text;

/// Pages in a row without a tool that was not there before. A server that has more of them is looping.
const MAX_BARREN_PAGES: usize = 20;

/// Tools of a page that are looked at, however many an operator wants to keep.
const MOST_EVER: usize = 100_000;

/// Longest cursor that is sent back to a server.
const MAX_CURSOR_BYTES: usize = 16 * 1024;

/// Skipped tools that are remembered by name.
const MAX_SKIPPED: usize = 20;

/// Why a whole page cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolListDefect {
    /// Not JSON, or not an object with an array `tools`.
    #[error("the tools/list result is not usable: {reason}")]
    Unreadable {
        /// What the parser said.
        reason: String,
    },
}

/// A tool, or several, skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name as far as it could be read, cleaned.
    pub name: Option<String>,
    /// What is wrong with it, as a fragment.
    pub reason: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// One page of a tool list.
#[derive(Debug)]
pub struct Page {
    /// The usable tools in the server's order.
    pub tools: Vec<Tool>,
    /// Where the next page starts, if there is one.
    pub next_cursor: Option<String>,
    /// The unusable ones; the first few.
    pub skipped: Vec<Skipped>,
}

/// What to do after a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Ask for the page at this cursor.
    More(String),
    /// The list is complete, or as complete as it may get.
    Done,
}

/// Collects the pages of one list under the caps for a whole server.
#[derive(Debug)]
pub struct Listing {
    /// Tools at most.
    most: usize,
    tools: Vec<Tool>,
    names: HashSet<Box<str>>,
    bytes: usize,
    cursors: HashSet<String>,
    barren: usize,
    skipped: Vec<Skipped>,
}

impl Default for Listing {
    fn default() -> Self {
        Listing::new()
    }
}

impl Listing {
    /// Before the first page.
    pub fn new() -> Self {
        Self::at_most(MAX_TOOLS)
    }

    /// The same for at most so many tools.
    pub fn at_most(most: usize) -> Self {
        Listing {
            most,
            tools: Vec::new(),
            names: HashSet::new(),
            bytes: 0,
            cursors: HashSet::new(),
            barren: 0,
            skipped: Vec::new(),
        }
    }

    /// Takes in the raw `result` of one page and says how to go on.
    pub fn page(&mut self, result: &[u8]) -> Result<Next, ToolListDefect> {
        let page = page_of(result, self.most)?;
        let before = self.tools.len();
        // Who keeps more tools than usual keeps as much more of what they are.
        let most_bytes = MAX_LIST_BYTES * self.most.div_ceil(MAX_TOOLS).max(1);
        page.skipped.into_iter().for_each(|skip| note(&mut self.skipped, skip));
        for tool in page.tools {
            if self.tools.len() == self.most {
                self.stop(format!("only the first {} tools are used", self.most));
                return Ok(Next::Done);
            }
            if self.bytes + tool.raw.len() > most_bytes {
                self.stop(format!(
                    "only the first {} tools are used, whose definitions have {most_bytes} bytes",
                    self.tools.len()
                ));
                return Ok(Next::Done);
            }
            if !self.names.insert(tool.name.clone()) {
                let reason = "a tool of this name is already in the list".to_owned();
                note(&mut self.skipped, Skipped { name: Some(tool.name.into()), reason });
                continue;
            }
            self.bytes += tool.raw.len();
            self.tools.push(tool);
        }
        let Some(cursor) = page.next_cursor else { return Ok(Next::Done) };
        if self.tools.len() == self.most {
            self.stop(format!("only the first {} tools are used", self.most));
            return Ok(Next::Done);
        }
        self.barren = if self.tools.len() == before { self.barren + 1 } else { 0 };
        if self.barren == MAX_BARREN_PAGES {
            self.stop(format!("the list was cut after {MAX_BARREN_PAGES} pages without a tool"));
            return Ok(Next::Done);
        }
        if !self.cursors.insert(cursor.clone()) {
            self.stop("the list was cut because its cursors form a loop".to_owned());
            return Ok(Next::Done);
        }
        Ok(Next::More(cursor))
    }

    /// The list so far as the server's list.
    pub fn finish(
        mut self,
        server_title: Option<&str>,
        server_version: Option<&str>,
    ) -> ServerTools {
        let of = |tools: &[Tool]| Fingerprint::of_tools(tools.iter().map(|tool| tool.fingerprint));
        let all = of(&self.tools);
        let places = self.tools.iter().enumerate().filter(|(_, tool)| tool.is_for_apps);
        let places = places.map(|(at, _)| at).collect();
        let for_apps: Vec<Tool> = self.tools.extract_if(.., |tool| tool.is_for_apps).collect();
        let fingerprint = match &*for_apps {
            [] => all,
            some => Fingerprint::of_tools([all, of(some)].into_iter()),
        };
        // It lives as long as the server is known, and grew by doubling.
        self.tools.shrink_to_fit();
        let shown = |text: &str| {
            let line = text::clean_line(text, MAX_TITLE_CHARS).into_owned();
            (!line.is_empty()).then_some(line)
        };
        ServerTools {
            fingerprint,
            tools: self.tools,
            for_apps,
            places,
            server_title: server_title.and_then(shown),
            server_about: None,
            server_version: server_version.and_then(shown),
            skipped: self.skipped,
            made_from: None,
        }
    }

    fn stop(&mut self, reason: String) {
        self.skipped.truncate(MAX_SKIPPED - 1);
        self.skipped.push(Skipped { name: None, reason });
    }
}

/// Reads one page of a server of which no more than usual is kept.
pub fn parse_page(result: &[u8]) -> Result<Page, ToolListDefect> {
    page_of(result, MAX_TOOLS)
}

/// Reads one page. Tools beyond the cap of a whole server are not even looked at.
fn page_of(result: &[u8], most: usize) -> Result<Page, ToolListDefect> {
    let mut raw: RawPage<'_> = object_from(result).map_err(|error| ToolListDefect::Unreadable {
        reason: text::clean_line(&error.to_string(), 200).into_owned(),
    })?;
    raw.tools.beyond += raw.tools.kept.len().saturating_sub(most);
    raw.tools.kept.truncate(most);
    let mut page = Page { tools: Vec::new(), next_cursor: None, skipped: Vec::new() };
    for definition in raw.tools.kept {
        match parse_tool(definition.get()) {
            Ok(tool) => page.tools.push(tool),
            Err(skipped) => note(&mut page.skipped, skipped),
        }
    }
    if raw.tools.beyond > 0 {
        let reason =
            format!("{} tools beyond the first {most} of a page are skipped", raw.tools.beyond);
        page.skipped.truncate(MAX_SKIPPED - 1);
        page.skipped.push(Skipped { name: None, reason });
    }
    let cursor =
        raw.next_cursor.and_then(|cursor| serde_json::from_str::<String>(cursor.get()).ok());
    page.next_cursor = cursor.filter(|cursor| cursor.len() <= MAX_CURSOR_BYTES);
    Ok(page)
}

#[derive(Deserialize)]
#[serde(expecting = "an object with an array of tools")]
struct RawPage<'a> {
    #[serde(borrow)]
    tools: RawTools<'a>,
    #[serde(borrow, default, rename = "nextCursor")]
    next_cursor: Option<&'a RawValue>,
}

/// The elements of `tools`, unparsed, as many as may be kept.
struct RawTools<'a> {
    kept: Vec<&'a RawValue>,
    beyond: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawTools<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = RawTools<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of tools")
            }
            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut elements: A,
            ) -> Result<Self::Value, A::Error> {
                let mut tools = RawTools { kept: Vec::new(), beyond: 0 };
                while tools.kept.len() < MOST_EVER {
                    let Some(element) = elements.next_element()? else { return Ok(tools) };
                    tools.kept.push(element);
                }
                while elements.next_element::<IgnoredAny>()?.is_some() {
                    tools.beyond += 1;
                }
                Ok(tools)
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

/// Only an object will do, although the deserializer would take an array of the fields as well.
pub(super) fn object_from<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    let starts = json.iter().find(|byte| !byte.is_ascii_whitespace());
    if starts == Some(&b'[') {
        return Err(serde::de::Error::custom("expected an object, found an array"));
    }
    serde_json::from_slice(json)
}

fn note(list: &mut Vec<Skipped>, skip: Skipped) {
    if list.len() < MAX_SKIPPED {
        list.push(skip);
    }
}
