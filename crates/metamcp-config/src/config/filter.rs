//! Which of a server's tools may be seen and called: allow and deny lists with `*`.

use metamcp_types::pattern::Pattern;

/// The tools of one server that the gateway shows and calls. Deny wins over allow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// `None` lets every tool pass; an empty list lets none pass.
    pub allow: Option<Vec<Pattern>>,
    /// Tools that never pass.
    pub deny: Vec<Pattern>,
}

impl ToolFilter {
    /// Whether the tool may be listed and called.
    pub fn permits(&self, tool: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(tool));
        !any(&self.deny) && self.allow.as_deref().is_none_or(any)
    }

    /// Whether the deny list names the tool.
    pub fn denies(&self, tool: &str) -> bool {
        self.deny.iter().any(|pattern| pattern.matches(tool))
    }

    /// Whether nothing is filtered at all.
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, ToolFilter};

    #[test]
    fn deny_wins_and_an_absent_allow_list_lets_all_pass() {
        let patterns =
            |list: &[&str]| list.iter().map(|text| Pattern::new(*text)).collect::<Vec<_>>();
        let open = ToolFilter::default();
        assert!(open.permits("anything") && open.is_open());
        let filter = ToolFilter {
            allow: Some(patterns(&["read_*", "write_file"])),
            deny: patterns(&["*_secret"]),
        };
        assert!(filter.permits("read_file"));
        assert!(filter.permits("write_file"));
        assert!(!filter.permits("delete_file"));
        assert!(!filter.permits("read_secret"));
        let nothing = ToolFilter { allow: Some(Vec::new()), deny: Vec::new() };
        assert!(!nothing.permits("read_file"));
    }
}
