//! Toolsets: named subsets of servers and tools that a session is restricted to.

use std::collections::HashSet;

use jsonc_parser::common::Range;

use super::names::LONGEST_NAME;
use super::read::{Fields, Key, Node, properties};
use super::report::Report;
use super::{Pattern, ServerConfig};

/// The keys of a toolset, with what they mean.
pub(super) const KEYS: [(&str, &str); 5] = [
    ("description", "What it is for, in your words."),
    ("servers", "Servers that belong to it, by name; `*` matches anything."),
    ("tags", "Servers that belong to it because they have one of these `tags`."),
    (
        "allow",
        "Only these tools: `server:tool`, or a tool's name for every server; `*` matches anything.",
    ),
    ("deny", "Never these tools, written the same way. `deny` wins."),
];

/// A named part of the catalog. It holds rules, not tools: a tool that appears later belongs to it or not by the same
/// rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toolset {
    pub name: String,
    /// The operator's description.
    pub description: Option<String>,
    /// Servers by name. With neither these nor tags, every server.
    pub servers: Option<Vec<Pattern>>,
    /// Servers by what they are tagged with.
    pub tags: Vec<String>,
    /// `None` lets every tool pass.
    pub allow: Option<Vec<Pattern>>,
    /// Tools that never pass.
    pub deny: Vec<Pattern>,
}

impl Toolset {
    /// One in which there is nothing.
    pub(super) fn closed(name: &str) -> Toolset {
        Toolset {
            name: name.to_owned(),
            servers: Some(Vec::new()),
            allow: Some(Vec::new()),
            ..Toolset::default()
        }
    }

    /// Whether a server belongs to it, in part or whole.
    pub fn has_server(&self, server: &ServerConfig) -> bool {
        let is_named = self
            .servers
            .as_ref()
            .is_some_and(|servers| servers.iter().any(|pattern| pattern.matches(&server.name)));
        let is_tagged = self.tags.iter().any(|tag| server.tags.contains(tag));
        let is_open = self.servers.is_none() && self.tags.is_empty();
        let may_have_tools = self.allow.as_ref().is_none_or(|allow| {
            allow.iter().any(|pattern| match pattern.as_str().split_once(':') {
                Some((part, _)) => Pattern::new(part).matches(&server.name),
                None => true,
            })
        });
        (is_named || is_tagged || is_open) && may_have_tools
    }

    /// Whether all of a server belongs to it, what it has beside tools included. A rule about tools says nothing of
    /// resources and prompts, so whoever wrote one did not mean to open them.
    pub fn has_all_of(&self, server: &ServerConfig) -> bool {
        let is_of = |part: &str| Pattern::new(part).matches(&server.name);
        let opens_all = |pattern: &Pattern| match pattern.as_str().split_once(':') {
            Some((part, tools)) => tools == "*" && is_of(part),
            None => pattern.as_str() == "*",
        };
        let closes_some = |pattern: &Pattern| {
            pattern.as_str().split_once(':').is_none_or(|(part, _)| is_of(part))
        };
        self.has_server(server)
            && self.allow.as_ref().is_none_or(|allow| allow.iter().any(opens_all))
            && !self.deny.iter().any(closes_some)
    }

    /// Whether a tool belongs to it, by either of its names where an override shows another.
    pub fn has_tool(&self, server: &ServerConfig, tool: &str) -> bool {
        let original = server.overrides.original(tool);
        let names = [tool, original].map(|name| (name, format!("{}:{name}", server.name)));
        let any = |patterns: &[Pattern]| {
            patterns.iter().any(|pattern| {
                names.iter().any(|(name, id)| {
                    pattern.matches(id)
                        || (!pattern.as_str().contains(':') && pattern.matches(name))
                })
            })
        };
        self.has_server(server) && !any(&self.deny) && self.allow.as_deref().is_none_or(any)
    }
}

/// Reads all toolsets of a file.
pub(super) fn read_toolsets(report: &mut Report<'_>, node: &Node<'_, '_>) -> Vec<Toolset> {
    let Some(object) = node.object(report) else { return Vec::new() };
    let mut toolsets = Vec::new();
    let mut seen = HashSet::new();
    let twice: HashSet<&str> = object
        .properties
        .iter()
        .map(|property| property.name.as_str())
        .filter(|name| !seen.insert(*name))
        .collect();
    for (name, property, node) in properties(report, object, &node.path) {
        if let Some(fault) = name_fault(name) {
            report.problem(jsonc_parser::common::Ranged::range(&property.name), &node.path, fault);
            continue;
        }
        let before = report.problems.len();
        let read = read_toolset(report, name, &node);
        let is_sound = report.problems.len() == before && !twice.contains(name);
        // Rules of which one cannot be read would let in what that one keeps out.
        toolsets.push(read.filter(|_| is_sound).unwrap_or_else(|| Toolset::closed(name)));
    }
    toolsets
}

fn read_toolset(report: &mut Report<'_>, name: &str, node: &Node<'_, '_>) -> Option<Toolset> {
    let object = node.object(report)?;
    let keys = KEYS.map(|(name, _)| Key { name, aliases: &[] });
    let mut fields = Fields::read_rules(report, object, &node.path, &keys);
    let description = fields.take("description").and_then(|field| field.node.string(report));
    let mut patterns = |report: &mut Report<'_>, key: &str| {
        let field = fields.take(key)?;
        let texts = field.node.strings(report)?;
        Some(texts.into_iter().map(|(text, _)| Pattern::new(text)).collect::<Vec<_>>())
    };
    let servers = patterns(report, "servers");
    let tags = patterns(report, "tags").unwrap_or_default();
    let allow = patterns(report, "allow");
    let deny = patterns(report, "deny").unwrap_or_default();
    Some(Toolset {
        name: name.to_owned(),
        description: description.map(str::to_owned),
        servers,
        tags: tags.iter().map(|tag| tag.as_str().to_owned()).collect(),
        allow,
        deny,
    })
}

/// A toolset is named on the command line and in addresses.
fn name_fault(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(is_plain);
    (!fits).then(|| {
        format!("a toolset's name has 1 to {LONGEST_NAME} letters, digits, `-`, `_` or `.`")
    })
}

/// Reads words, such as a server's tags.
pub(super) fn read_words(report: &mut Report<'_>, node: &Node<'_, '_>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (text, node) in node.strings(report).unwrap_or_default() {
        let range: Range = node.range();
        if text.trim().is_empty() {
            report.problem(range, &node.path, "is empty: expected a word");
        } else if !words.iter().any(|known| known == text) {
            words.push(text.to_owned());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, tags: &[&str]) -> ServerConfig {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        ServerConfig { tags, ..ServerConfig::stdio(name, "x", &[]) }
    }

    fn patterns(list: &[&str]) -> Vec<Pattern> {
        list.iter().map(|text| Pattern::new(*text)).collect()
    }

    #[test]
    fn servers_belong_by_name_or_by_tag() {
        let set = Toolset {
            servers: Some(patterns(&["git*"])),
            tags: vec!["docs".into()],
            ..Toolset::default()
        };
        assert!(set.has_server(&server("github", &[])));
        assert!(set.has_server(&server("wiki", &["docs"])));
        assert!(!set.has_server(&server("mail", &["team"])));
        assert!(Toolset::default().has_server(&server("mail", &[])));
        let none = Toolset { servers: Some(Vec::new()), ..Toolset::default() };
        assert!(!none.has_server(&server("mail", &[])));
    }

    #[test]
    fn a_server_belongs_whole_unless_a_rule_is_about_its_tools() {
        let files = server("files", &[]);
        for (allow, deny, is_whole) in [
            (None, &[][..], true),
            (Some(&["files:*"][..]), &[], true),
            (Some(&["fi*:*"]), &[], true),
            (Some(&["*"]), &[], true),
            (Some(&["files:read_*", "files:*"]), &["web:*"], true),
            (Some(&["files:read_*"]), &[], false),
            (Some(&["read_*"]), &[], false),
            (Some(&["web:*"]), &[], false),
            (Some(&[]), &[], false),
            (None, &["files:write"], false),
            (None, &["write"], false),
            (None, &["*:write"], false),
            (Some(&["files:*"]), &["f*:write"], false),
        ] {
            let set =
                Toolset { allow: allow.map(patterns), deny: patterns(deny), ..Toolset::default() };
            assert_eq!(set.has_all_of(&files), is_whole, "{allow:?} {deny:?}");
        }
        let other = Toolset { servers: Some(patterns(&["web"])), ..Toolset::default() };
        assert!(!other.has_all_of(&files));
    }

    #[test]
    fn tools_are_allowed_and_denied_by_id_or_by_name() {
        let set = Toolset {
            allow: Some(patterns(&["files:read_*", "search"])),
            deny: patterns(&["files:read_secret", "*_all"]),
            ..Toolset::default()
        };
        let (files, web) = (server("files", &[]), server("web", &[]));
        assert!(set.has_tool(&files, "read_text") && set.has_tool(&web, "search"));
        assert!(!set.has_tool(&files, "read_secret") && !set.has_tool(&files, "read_all"));
        assert!(!set.has_tool(&files, "write") && !set.has_tool(&web, "read_text"));
        let narrow = Toolset { allow: Some(patterns(&["files:*"])), ..Toolset::default() };
        assert!(narrow.has_server(&files) && !narrow.has_server(&web));
    }
}
