//! What a user says of a server's tools in the server's place: names, texts, annotations, and what becomes of arguments.
//! Owns: which override a tool has, which tool a shown name means.      Never: knows a tool's definition, looks up a secret.
//! In: what the configuration says.  Out: overrides by tool.
//! Tests: below; applied in `metamcp-tools::overrides`.

use serde_json::{Map, Value};

use crate::pattern::Pattern;
use crate::secret::Secret;

/// The override of one tool, or of several.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOverride {
    /// Another name.
    pub name: Option<String>,
    pub title: Option<String>,
    pub description: Option<String>,
    /// Hints about effects, by their names in the protocol.
    pub annotations: Map<String, Value>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Arguments that are sent where the caller gives none.
    pub defaults: Vec<(String, Value)>,
    /// Arguments that are always sent, and that callers neither see nor give.
    pub hidden: Vec<(String, Hidden)>,
    /// The only values that callers may give.
    pub enums: Vec<(String, Vec<Value>)>,
    /// Whether it is listed beside the gateway's own tools.
    pub pin: Pin,
}

/// Whether a tool is listed beside the gateway's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pin {
    #[default]
    No,
    Yes,
    /// If it is among the most used.
    Auto,
}

/// The value of a hidden argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Hidden {
    Plain(Value),
    /// A text, which may be a secret or say where one is.
    Text(Secret),
}

impl Hidden {
    /// Whether nobody may see it.
    pub fn is_secret(&self) -> bool {
        match self {
            Hidden::Plain(_) => false,
            Hidden::Text(text) => text.is_reference() || text.is_sensitive(),
        }
    }
}

/// The overrides of one server, in file order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOverrides {
    pub by_tool: Vec<(Pattern, ToolOverride)>,
}

impl ToolOverrides {
    pub fn is_empty(&self) -> bool {
        self.by_tool.is_empty()
    }

    /// The override of a tool as its server names it: by its exact name, else the first pattern that fits.
    pub fn for_tool(&self, tool: &str) -> Option<&ToolOverride> {
        let exact = self.by_tool.iter().find(|(pattern, _)| pattern.as_str() == tool);
        let fitting = || self.by_tool.iter().find(|(pattern, _)| pattern.matches(tool));
        exact.or_else(fitting).map(|(_, one)| one)
    }

    /// The server's own name of a tool shown under this one.
    pub fn original<'a>(&'a self, shown: &'a str) -> &'a str {
        let renamed = self.by_tool.iter().find(|(_, one)| one.name.as_deref() == Some(shown));
        renamed.map_or(shown, |(tool, _)| tool.as_str())
    }

    /// The name that a tool of the server is shown under.
    pub fn shown<'a>(&'a self, tool: &'a str) -> &'a str {
        let own = self.by_tool.iter().find(|(pattern, _)| pattern.as_str() == tool);
        own.and_then(|(_, one)| one.name.as_deref()).unwrap_or(tool)
    }

    /// The texts of hidden arguments.
    pub fn texts(&self) -> impl Iterator<Item = &Secret> {
        let hidden = self.by_tool.iter().flat_map(|(_, one)| &one.hidden);
        hidden.filter_map(|(_, value)| match value {
            Hidden::Text(text) => Some(text),
            Hidden::Plain(_) => None,
        })
    }

    /// The same, to put what was looked up into their places.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Secret> {
        let hidden = self.by_tool.iter_mut().flat_map(|(_, one)| &mut one.hidden);
        hidden.filter_map(|(_, value)| match value {
            Hidden::Text(text) => Some(text),
            Hidden::Plain(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ToolOverride {
        ToolOverride { name: Some(name.to_owned()), ..ToolOverride::default() }
    }

    #[test]
    fn names_lead_both_ways_and_exact_ones_first() {
        let titled = ToolOverride { title: Some("any".into()), ..ToolOverride::default() };
        let overrides = ToolOverrides {
            by_tool: vec![
                (Pattern::new("*"), titled),
                (Pattern::new("a"), named("b")),
                (Pattern::new("b"), named("c")),
            ],
        };
        for (tool, shown) in [("a", "b"), ("b", "c"), ("d", "d")] {
            assert_eq!((overrides.shown(tool), overrides.original(shown)), (shown, tool));
        }
        assert_eq!(overrides.for_tool("a").unwrap().name.as_deref(), Some("b"));
        assert_eq!(overrides.for_tool("x").unwrap().title.as_deref(), Some("any"));
    }
}
