//! Rules for server names.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use jsonc_parser::common::Range;

use super::report::Report;
use crate::settings::shown;

/// Longest server name: it stands before every tool in ids, and hosts cap names at 64.
pub const LONGEST_NAME: usize = 64;

/// Names that mean something else: the gateway's own tools, and what JavaScript objects already have.
const RESERVED_NAMES: &[&str] = &[
    "__proto__",
    "constructor",
    "prototype",
    "mcp_discover",
    "mcp_provision",
    "mcp_call",
    "mcp_execute",
];

/// The names seen so far, over `mcpServers` and `servers`.
#[derive(Default)]
pub(super) struct Names {
    /// Every name in the file, also those that are not read yet.
    pub(super) written: HashSet<String>,
    exact: HashSet<String>,
    folded: HashMap<String, String>,
}

impl Names {
    pub(super) fn add(&mut self, report: &mut Report<'_>, name: &str, range: Range, path: &str) {
        if !self.exact.insert(name.to_owned()) {
            let hint = "give one of the two another name".to_owned();
            report.problem_with(range, path, "is in both `mcpServers` and `servers`", hint);
            return;
        }
        if let Some(other) = self.folded.insert(name.to_lowercase(), name.to_owned()) {
            let message =
                format!("differs from `{}` only in case; they are easily mixed up", shown(&other));
            report.warn(range, path, message, "give one of the two another name".to_owned());
        }
    }
}

impl Names {
    /// A name under which an entry can be shown whose own may be no name: as near to it as can be, and nobody else's.
    pub(super) fn usable(&mut self, name: &str) -> String {
        if name_fault(name).is_none() {
            return name.to_owned();
        }
        let plain = |c: char| if c == ':' || is_invisible(c) { '_' } else { c };
        let near: String = name.chars().map(plain).take(LONGEST_NAME - SUFFIX).collect();
        let near = near.trim().trim_start_matches('@').trim();
        let near = if near.is_empty() { "unnamed" } else { near };
        // Nothing that begins like this is reserved.
        let near = if name_fault(near).is_some() { format!("_{near}") } else { near.to_owned() };
        let mut wanted = near.clone();
        let mut number = 1;
        while self.written.contains(&wanted) || !self.exact.insert(wanted.clone()) {
            number += 1;
            wanted = format!("{near}_{number}");
        }
        wanted
    }
}

/// Room for a number behind a name.
const SUFFIX: usize = 8;

/// What is wrong with a server's name, and what would be right.
pub(super) fn name_fault(name: &str) -> Option<(Cow<'static, str>, String)> {
    let fault = |message: &'static str, hint: &str| Some((Cow::Borrowed(message), hint.to_owned()));
    let length = name.chars().count();
    if name.trim().is_empty() {
        return fault("a server's name cannot be empty", "tools are called by it: `name:tool`");
    }
    if length > LONGEST_NAME {
        let message =
            format!("a server's name has at most {LONGEST_NAME} characters, this one has {length}");
        return Some((Cow::Owned(message), "shorten it".to_owned()));
    }
    if name.contains(':') {
        return fault(
            "a server's name cannot hold a colon",
            "a tool's id is `server:tool`, split at the first colon",
        );
    }
    if name.contains(is_invisible) {
        return fault(
            "a server's name cannot hold control or invisible characters",
            "type the name anew",
        );
    }
    if name.trim() != name {
        return fault("a server's name cannot begin or end with a space", "remove the space");
    }
    if name.starts_with('@') {
        return fault(
            "a server's name cannot begin with `@`",
            "names with `@` belong to the gateway itself",
        );
    }
    if name.starts_with("mcp.")
        || RESERVED_NAMES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
    {
        return fault("this name is reserved", "give the server another name");
    }
    None
}

/// Characters that cannot be seen, or that turn the text around them.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}
