//! Which operations become tools: by tag, method, path or name.
//! Owns: how a rule is written.      Never: makes a tool.
//! In: rules as an entry of the configuration has them.  Out: whether an operation is wanted.
//! Tests: below.

use metamcp_types::pattern::Pattern;

pub(crate) const METHODS: [&str; 8] =
    ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// One rule of `include` or `exclude`; `*` stands for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// `tag:issues`.
    Tag(Pattern),
    /// `GET`, `GET /repos/*`, `/repos/*`.
    Place { method: Option<&'static str>, path: Option<Pattern> },
    /// The name of a tool or operation.
    Name(Pattern),
}

impl Rule {
    /// Reads a rule as written.
    pub fn read(written: &str) -> Rule {
        let written = written.trim();
        if let Some(tag) = written.strip_prefix("tag:") {
            return Rule::Tag(Pattern::new(tag.trim()));
        }
        let (first, rest) = written.split_once(char::is_whitespace).unwrap_or((written, ""));
        let method = METHODS.into_iter().find(|method| method.eq_ignore_ascii_case(first));
        let path = if method.is_some() { rest.trim() } else { written };
        if path.starts_with('/') || path.starts_with('*') && method.is_some() {
            return Rule::Place { method, path: Some(Pattern::new(path)) };
        }
        match method {
            Some(_) if path.is_empty() => Rule::Place { method, path: None },
            _ => Rule::Name(Pattern::new(written)),
        }
    }

    pub(crate) fn fits(&self, operation: &Candidate<'_>) -> bool {
        match self {
            Rule::Tag(tag) => operation.tags.iter().any(|own| tag.matches(own)),
            Rule::Place { method, path } => {
                method.is_none_or(|method| method == operation.method)
                    && path.as_ref().is_none_or(|path| path.matches(operation.path))
            }
            Rule::Name(name) => {
                name.matches(operation.name) || operation.id.is_some_and(|id| name.matches(id))
            }
        }
    }
}

/// What is asked about an operation.
pub(crate) struct Candidate<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) name: &'a str,
    pub(crate) id: Option<&'a str>,
    pub(crate) tags: &'a [String],
}

/// Without `include` all are wanted; `exclude` wins.
pub(crate) fn is_wanted(operation: &Candidate<'_>, include: &[Rule], exclude: &[Rule]) -> bool {
    let fits = |rules: &[Rule]| rules.iter().any(|rule| rule.fits(operation));
    (include.is_empty() || fits(include)) && !fits(exclude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_as_people_write_them() {
        let tags = ["issues".to_owned(), "beta things".to_owned()];
        let operation = Candidate {
            method: "get",
            path: "/repos/{owner}/issues",
            name: "issues_list",
            id: Some("issues/list"),
            tags: &tags,
        };
        for (rule, fits) in [
            ("tag:issues", true),
            ("tag: beta *", true),
            ("tag:pulls", false),
            ("GET", true),
            ("get", true),
            ("POST", false),
            ("GET /repos/*", true),
            ("POST /repos/*", false),
            ("GET *issues", true),
            ("/repos/*/issues", true),
            ("/users/*", false),
            ("issues_list", true),
            ("issues/*", true),
            ("*list", true),
            ("issues", false),
            ("getting", false),
        ] {
            assert_eq!(Rule::read(rule).fits(&operation), fits, "{rule}");
        }
        let rules = |all: &[&str]| all.iter().map(|one| Rule::read(one)).collect::<Vec<_>>();
        for (include, exclude, wanted) in [
            (&[][..], &[][..], true),
            (&["POST"], &[], false),
            (&["POST", "GET"], &[], true),
            (&["GET"], &["tag:beta*"], false),
        ] {
            assert_eq!(is_wanted(&operation, &rules(include), &rules(exclude)), wanted);
        }
    }
}
