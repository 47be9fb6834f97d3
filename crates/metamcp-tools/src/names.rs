//! Names of servers and tools as callers write them: `readTextFile`, `filesystem.read_text_file`, `Filesystem`.
//! Owns: which spellings mean which name, and that a guess is unique.      Never: decides whether a tool may be called; it sees only what the caller may.
//! In: what was written, and the servers with their tools as far as those are known.  Out: the real names, or the candidates.
//! Tests: `names/tests.rs`.

use crate::tool::ServerTools;

#[cfg(test)]
mod tests;

/// Longest text that is looked at: twice the longest name, and what stands between.
const MAX_WRITTEN: usize = 300;

/// Most places where a text is taken apart; a hostile one consists of separators.
const MAX_SPLITS: usize = 16;

/// Most candidates of an ambiguous name that are told.
const MAX_CANDIDATES: usize = 5;

/// What separates a server from its tool in one ecosystem or another.
const SEPARATORS: [&str; 4] = [":", ".", "/", "__"];

/// What some callers write before every server.
const PREFIXES: [&str; 4] = ["mcp.", "mcp__", "mcp/", "mcp:"];

/// A server, and its tools where they are known.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    pub server: &'a str,
    pub tools: Option<&'a ServerTools>,
}

/// The tool that was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant<'a> {
    /// This one. Its name is as written where the server's tools are unknown, or where it has none like it.
    Tool { server: &'a str, tool: &'a str },
    /// One of these, written `server:tool`.
    Several(Vec<String>),
    /// No server and no tool is called anything like it.
    Nothing,
}

impl<'a> Meant<'a> {
    /// The tool's name, where there is one answer.
    pub fn tool_or(&self, written: &'a str) -> &'a str {
        match self {
            Meant::Tool { tool, .. } => tool,
            Meant::Several(_) | Meant::Nothing => written,
        }
    }
}

/// The server that was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeantServer<'a> {
    One(&'a str),
    Several(Vec<&'a str>),
    Nothing,
}

/// How well a reading fits; the first kind that any reading is of decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// Server and tool to the letter.
    Exact,
    /// A tool's name to the letter, without its server.
    BareExact,
    /// The server to the letter, the tool in another spelling.
    Tool,
    /// The server in another spelling.
    Server,
    /// A tool's name in another spelling, without its server.
    Bare,
    /// A server to the letter, and nothing is known of such a tool.
    Unknown,
    /// The same of a server in another spelling.
    UnknownOfServer,
}

/// The tool meant by a text with or without its server: exact names first, then the only one that reads the same but
/// for case and separators.
pub fn tool<'a>(written: &'a str, listed: &[Listed<'a>]) -> Meant<'a> {
    let written = written.trim();
    if written.is_empty() || written.len() > MAX_WRITTEN {
        return Meant::Nothing;
    }
    // A server's own name before a colon is how ids are written; nothing else is thought of then.
    if let Some((server, rest)) = written.split_once(':').filter(|(_, rest)| !rest.is_empty())
        && let Some(own) = listed.iter().find(|own| own.server == server)
    {
        return within(rest, *own);
    }
    let mut readings: Vec<(Fit, &'a str, &'a str)> = Vec::new();
    for (left, right) in splits(written) {
        for own in listed {
            if let Some(is_exact) = names(left, own.server) {
                read_in(&mut readings, right, *own, is_exact);
            }
        }
    }
    for own in listed {
        for tool in own.tools.into_iter().flat_map(|tools| &tools.tools) {
            if *tool.name == *written {
                readings.push((Fit::BareExact, own.server, &tool.name));
            } else if same(&tool.name, written) {
                readings.push((Fit::Bare, own.server, &tool.name));
            }
        }
    }
    best(readings)
}

/// The tool of one server meant by a text, which may repeat the server.
pub fn within<'a>(written: &'a str, own: Listed<'a>) -> Meant<'a> {
    let written = written.trim();
    let as_written = Meant::Tool { server: own.server, tool: written };
    if written.len() > MAX_WRITTEN || own.tools.is_some_and(|tools| tools.tool(written).is_some()) {
        return as_written;
    }
    let mut readings = Vec::new();
    for (left, right) in splits(written) {
        if let Some(is_exact) = names(left, own.server) {
            read_in(&mut readings, right, own, is_exact);
        }
    }
    for tool in own.tools.into_iter().flat_map(|tools| &tools.tools) {
        if same(&tool.name, written) {
            readings.push((Fit::Tool, own.server, &tool.name));
        }
    }
    match best(readings) {
        Meant::Nothing => as_written,
        meant => meant,
    }
}

/// The server meant by a name.
pub fn server<'a>(written: &str, all: impl Iterator<Item = &'a str> + Clone) -> MeantServer<'a> {
    let written = written.trim();
    if written.is_empty() || written.len() > MAX_WRITTEN {
        return MeantServer::Nothing;
    }
    let exact = |name: &str| all.clone().find(|server| *server == name);
    if let Some(one) = exact(written).or_else(|| exact(unprefixed(written)?)) {
        return MeantServer::One(one);
    }
    let mut like: Vec<&str> = all.filter(|server| names(written, server).is_some()).collect();
    like.truncate(MAX_CANDIDATES);
    match *like {
        [] => MeantServer::Nothing,
        [one] => MeantServer::One(one),
        _ => MeantServer::Several(like),
    }
}

/// Whether two names differ in nothing but case and separators.
pub fn same(one: &str, other: &str) -> bool {
    let mut letters = folded(one);
    letters.next().is_some() && folded(one).eq(folded(other))
}

/// Server and tool of a built-in server such as `@results`, whichever separator is used.
pub fn built_in(written: &str) -> Option<(&str, &str)> {
    let written = written.trim();
    if !written.starts_with('@') {
        return None;
    }
    splits(written).into_iter().next()
}

fn folded(name: &str) -> impl Iterator<Item = char> {
    let is_separator = |c: &char| matches!(c, '_' | '-' | '.' | '/' | ':' | ' ');
    name.chars().filter(move |c| !is_separator(c)).flat_map(char::to_lowercase)
}

/// Whether a text names a server, and whether to the letter.
fn names(written: &str, server: &str) -> Option<bool> {
    let bare = unprefixed(written);
    if written == server || bare == Some(server) {
        return Some(true);
    }
    let like = same(written, server) || bare.is_some_and(|bare| same(bare, server));
    like.then_some(false)
}

fn unprefixed(written: &str) -> Option<&str> {
    let rest = PREFIXES.iter().find_map(|prefix| written.strip_prefix(prefix));
    rest.filter(|rest| !rest.is_empty())
}

/// Every way to take a text for a server and a tool, in the order of the text.
fn splits(written: &str) -> Vec<(&str, &str)> {
    let at = |(at, _): (usize, char)| {
        let rest = &written[at..];
        let separator = SEPARATORS.iter().find(|separator| rest.starts_with(**separator))?;
        let parts = (&written[..at], &rest[separator.len()..]);
        (!parts.0.is_empty() && !parts.1.is_empty()).then_some(parts)
    };
    written.char_indices().filter_map(at).take(MAX_SPLITS).collect()
}

/// What `written` may mean in a server that was named.
fn read_in<'a>(
    readings: &mut Vec<(Fit, &'a str, &'a str)>,
    written: &'a str,
    own: Listed<'a>,
    is_exact: bool,
) {
    let fit = |exactly: Fit| if is_exact { exactly } else { Fit::Server };
    if own.tools.is_some_and(|tools| tools.tool(written).is_some()) {
        return readings.push((fit(Fit::Exact), own.server, written));
    }
    let before = readings.len();
    for tool in own.tools.into_iter().flat_map(|tools| &tools.tools) {
        if same(&tool.name, written) {
            readings.push((fit(Fit::Tool), own.server, &tool.name));
        }
    }
    if readings.len() == before {
        let unknown = if is_exact { Fit::Unknown } else { Fit::UnknownOfServer };
        readings.push((unknown, own.server, written));
    }
}

fn best<'a>(mut readings: Vec<(Fit, &'a str, &'a str)>) -> Meant<'a> {
    let Some(fit) = readings.iter().map(|(fit, ..)| *fit).min() else { return Meant::Nothing };
    readings.retain(|(one, ..)| *one == fit);
    readings.sort_unstable();
    readings.dedup();
    match *readings {
        [(_, server, tool)] => Meant::Tool { server, tool },
        _ => {
            let id = |(_, server, tool): &(Fit, &str, &str)| format!("{server}:{tool}");
            Meant::Several(readings.iter().take(MAX_CANDIDATES).map(id).collect())
        }
    }
}
