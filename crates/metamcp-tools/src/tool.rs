//! The tools of a server, parsed from `tools/list`: bounded, sanitized, fingerprinted.
//! Owns: the limits of a tool list, what makes one tool unusable, the fingerprint.      Never: contacts a server, ranks, calls.
//! In: the raw `result` of each `tools/list` page.  Out: `ServerTools`.
//! Tests: `tool/tests.rs`.

mod definition;
mod fingerprint;
mod page;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use metamcp_types::text;

use crate::about;
use crate::arguments::Checker;
use crate::signature;

pub use fingerprint::Fingerprint;
pub use page::{Listing, Next, Page, Skipped, ToolListDefect, parse_page};

#[cfg(test)]
mod tests;

/// Most tools per server. The largest honest servers have a few hundred.
pub const MAX_TOOLS: usize = 2_000;

/// Most bytes of tool definitions per server, as JSON.
pub const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;

/// Longest tool name, in characters; the protocol advises the same.
pub const MAX_NAME_CHARS: usize = 128;

/// Longest description shown or ranked. Longer ones are cut, the tool stays.
pub const MAX_DESCRIPTION_CHARS: usize = 2 * 1024;

pub const MAX_TITLE_CHARS: usize = 128;

/// Largest JSON Schema in bytes. A tool with a larger one stays callable; its arguments go unchecked.
pub const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// Parameters of one tool that are ranked and named.
const MAX_PARAMETERS: usize = 64;

/// Longest description of one parameter that is ranked.
const MAX_PARAMETER_CHARS: usize = 160;

/// The server's annotations of a tool. Untrusted hints: they may allow a retry of a
/// call that was never answered, and nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// Changes nothing.
    pub read_only: Option<bool>,
    /// May delete or overwrite.
    pub destructive: Option<bool>,
    /// Calling twice is the same as calling once.
    pub idempotent: Option<bool>,
    /// Reaches beyond the server's own data.
    pub open_world: Option<bool>,
}

impl Hints {
    /// Whether running the tool twice is said to be no worse than once.
    pub fn may_repeat(self) -> bool {
        self.read_only == Some(true) || self.idempotent == Some(true)
    }
}

/// One tool of one server.
#[derive(Debug)]
pub struct Tool {
    /// As the server spells it; visible characters only.
    pub name: Box<str>,
    /// For people, cleaned.
    pub title: Option<Box<str>>,
    /// Cleaned and cut; empty without one.
    pub description: Box<str>,
    /// What the server says about effects.
    pub hints: Hints,
    /// Whether it is for the pages of its own server and not for a model.
    is_for_apps: bool,
    /// Covers name, title, description, both schemas and the annotations.
    pub fingerprint: Fingerprint,
    /// Names and descriptions of the top-level parameters, cleaned, a line each. Thousands of tools have them, so they
    /// are kept in one piece.
    parameters: Box<str>,
    raw: Box<str>,
    input_schema: Option<Range<usize>>,
    output_schema: Option<Range<usize>>,
    checker: OnceLock<Checker>,
    output_checker: OnceLock<Option<Box<Checker>>>,
    /// Made for the few tools that are ever shown.
    shown: OnceLock<Box<Shown>>,
}

/// What a reader of the tool gets to see beside its texts.
#[derive(Debug)]
struct Shown {
    signature: Box<str>,
    flag: Option<&'static str>,
}

impl Tool {
    /// `name(param: type, other?: type)`.
    pub fn signature(&self) -> &str {
        &self.shown().signature
    }

    /// The same with what is inside its parameters, as far as a reader who asked for this tool wants to know.
    pub fn signature_in_full(&self) -> String {
        let schema = self.input_schema().and_then(|text| serde_json::from_str::<Value>(text).ok());
        signature::within(&self.name, schema.as_ref(), signature::MAX_DETAIL_CHARS)
    }

    /// Why the texts of this tool deserve distrust, if they do.
    pub fn flag(&self) -> Option<&'static str> {
        self.shown().flag
    }

    /// Name and start of the description of each top-level parameter, cleaned, in the order of the schema.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut lines = self.parameters.lines();
        std::iter::from_fn(move || Some((lines.next()?, lines.next()?)))
    }

    fn shown(&self) -> &Shown {
        self.shown.get_or_init(|| Box::new(definition::shown(&self.raw)))
    }

    /// The whole definition as the server wrote it, but for schemas too large to keep.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Whether the server takes calls of it only as tasks, as servers of 2025-11-25 may say.
    pub fn is_task_only(&self) -> bool {
        // Few tools say anything about it.
        self.raw.contains("\"taskSupport\"")
            && serde_json::from_str::<Value>(&self.raw)
                .is_ok_and(|raw| raw["execution"]["taskSupport"] == "required")
    }

    /// The input schema as the server wrote it.
    pub fn input_schema(&self) -> Option<&str> {
        self.raw.get(self.input_schema.clone()?)
    }

    /// The output schema as the server wrote it.
    pub fn output_schema(&self) -> Option<&str> {
        self.raw.get(self.output_schema.clone()?)
    }

    /// Checks arguments against the input schema; made on first use and kept.
    pub fn checker(&self) -> &Checker {
        self.checker.get_or_init(|| {
            let schema =
                self.input_schema().and_then(|text| serde_json::from_str::<Value>(text).ok());
            Checker::new(&schema.unwrap_or(Value::Bool(true)))
        })
    }
}

impl Tool {
    /// Checks structured results against the output schema, where there is one; made on first use and kept.
    pub fn output_checker(&self) -> Option<&Checker> {
        let made = self.output_checker.get_or_init(|| {
            let schema = serde_json::from_str::<Value>(self.output_schema()?).ok()?;
            Some(Box::new(Checker::new(&schema)))
        });
        made.as_deref()
    }
}

/// All tools of one server at one moment.
#[derive(Debug, Default)]
pub struct ServerTools {
    /// Those for models, in the server's order, without duplicates.
    pub tools: Vec<Tool>,
    /// Those for the pages of the server alone: hosts that show such pages call them. They are in no index, and nothing
    /// that a model reads names them.
    pub for_apps: Vec<Tool>,
    /// Where these stand among all of them.
    places: Vec<usize>,
    /// What the server calls itself, cleaned.
    pub server_title: Option<String>,
    /// What it says it is for, in a sentence, cleaned.
    pub server_about: Option<String>,
    /// The server's own version, cleaned.
    pub server_version: Option<String>,
    /// Covers every tool's own fingerprint, whatever the order, and which of them are for pages.
    pub fingerprint: Fingerprint,
    /// Tools that were skipped, and why; the first few.
    pub skipped: Vec<Skipped>,
    /// The list of the server itself, where this one was made from it by overrides.
    made_from: Option<Arc<ServerTools>>,
}

impl ServerTools {
    /// All tools in the server's own order.
    pub fn all(&self) -> impl Iterator<Item = &Tool> {
        let (mut tools, mut for_apps) = (self.tools.iter(), self.for_apps.iter());
        let mut places = self.places.iter().copied().peekable();
        (0..self.tools.len() + self.for_apps.len()).filter_map(move |at| {
            match places.next_if_eq(&at) {
                Some(_) => for_apps.next(),
                None => tools.next(),
            }
        })
    }

    /// The tool of that exact name.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| &*tool.name == name)
    }

    /// The tools that `keep` is true of, as a list of their own.
    pub fn filtered(&self, keep: impl Fn(&Tool) -> bool) -> ServerTools {
        let made_from = self.made_from.clone();
        let kept = self.mapped(|tool| keep(tool).then(|| tool.raw().to_owned()));
        ServerTools { made_from, ..kept }
    }

    /// The same list as its server gave it.
    pub fn as_listed(self: &Arc<Self>) -> &Arc<ServerTools> {
        self.made_from.as_ref().unwrap_or(self)
    }

    /// The same list, made from this one.
    pub(crate) fn made_from(self, listed: &Arc<ServerTools>) -> ServerTools {
        ServerTools { made_from: Some(Arc::clone(listed)), ..self }
    }

    /// The definitions that `map` makes of these, as a list of their own.
    pub(crate) fn mapped(&self, map: impl FnMut(&Tool) -> Option<String>) -> ServerTools {
        let mut listing = Listing::at_most(self.all().count().max(MAX_TOOLS));
        let kept = self.all().filter_map(map).collect::<Vec<_>>().join(",");
        // The definitions were read from such a page before, so they can be read from one again.
        drop(listing.page(format!("{{\"tools\":[{kept}]}}").as_bytes()));
        let kept = listing.finish(self.server_title.as_deref(), self.server_version.as_deref());
        let server_about = self.server_about.clone();
        let mut skipped = self.skipped.clone();
        skipped.extend(kept.skipped.iter().cloned());
        ServerTools { server_about, skipped, ..kept }
    }

    /// The same list with what the server says it is for: the sentence of its description or instructions that tells.
    #[must_use]
    pub fn with_about(mut self, said: Option<&str>) -> ServerTools {
        let said = said.map(|said| text::clean(said, MAX_DESCRIPTION_CHARS));
        let sentence = said.map(|said| about::telling_sentence(&said, about::MAX_CHARS));
        self.server_about = sentence.filter(|sentence| !sentence.is_empty());
        self
    }

    /// What of the server's list is not there, in a sentence; nothing where all of it is.
    pub fn left_out(&self) -> Option<String> {
        let first = self.skipped.last()?;
        let more = match self.skipped.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!("Not all it lists can be used: {first}{more}."))
    }

    /// The same tools as one `tools/list` result, from which `Listing` makes an equal value.
    pub fn to_json(&self) -> String {
        let size = self.all().map(|tool| tool.raw.len() + 1).sum::<usize>();
        let mut json = String::with_capacity(size + 16);
        json.push_str("{\"tools\":[");
        for (index, tool) in self.all().enumerate() {
            if index > 0 {
                json.push(',');
            }
            json.push_str(&tool.raw);
        }
        json.push_str("]}");
        json
    }
}
