//! `npm search`: the query, and its output as unvetted candidates.

use serde_json::Value;

use super::candidate::{Candidate, Kind, Offer, Source, Status};
use super::facts::npm_error;
use super::names::valid;
use super::unix_millis;
use metamcp_types::text;

/// By these keywords a package says of itself that it is an MCP server.
const KEYWORDS: [&str; 4] = ["mcp", "mcp-server", "modelcontextprotocol", "model-context-protocol"];
/// Words of the query that are searched for; npm requires all of them, so more find less.
const MOST_WORDS: usize = 4;
/// Longest of them.
const MAX_WORD: usize = 40;
/// Words that say nothing about a package.
const EMPTY: [&str; 34] = [
    "a", "an", "and", "another", "any", "by", "can", "do", "find", "for", "from", "get", "i", "in",
    "is", "it", "mcp", "me", "my", "need", "of", "on", "or", "please", "server", "some", "that",
    "the", "this", "to", "tool", "tools", "want", "with",
];
/// Most that is taken of one answer.
pub const MOST_FOUND: usize = 20;
/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 300;

/// The search terms: the keywords of MCP and words of the query. Nothing but letters and digits of the query is in
/// it, so that no word can be an option or a filter of npm's. Nothing where no word is left.
pub fn npm_query(need: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    for word in need.split(|c: char| !c.is_ascii_alphanumeric()) {
        let word = word.to_ascii_lowercase();
        let is_said = !word.is_empty() && word.len() <= MAX_WORD && !EMPTY.contains(&&*word);
        if is_said && !words.contains(&word) && words.len() < MOST_WORDS {
            words.push(word);
        }
    }
    (!words.is_empty()).then(|| {
        words.insert(0, format!("keywords:{}", KEYWORDS.join(",")));
        words
    })
}

/// Why there are no candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSearch {
    /// The registry that npm is set up with has no search.
    NotThere,
    /// npm says why, cleaned.
    Failed(String),
}

/// Reads what `npm search --json` printed.
pub fn npm_search(document: &Value) -> Result<Vec<Candidate>, NoSearch> {
    if let Some((_, said)) = npm_error(document) {
        let code = document["error"]["code"].as_str().unwrap_or_default();
        if matches!(code, "E404" | "E405" | "E501") {
            return Err(NoSearch::NotThere);
        }
        return Err(NoSearch::Failed(text::clean_line(&said, MAX_DESCRIPTION).into_owned()));
    }
    let Some(all) = document.as_array() else {
        return Err(NoSearch::Failed("it printed no list".to_owned()));
    };
    Ok(all.iter().filter_map(candidate).take(MOST_FOUND).collect())
}

fn candidate(one: &Value) -> Option<Candidate> {
    let (name, version) = (one["name"].as_str()?, one["version"].as_str()?);
    valid(Kind::Npm, name, version).ok()?;
    // A mirror may answer with whatever contains the words.
    let keywords = one["keywords"].as_array()?;
    let is_one = |keyword: &Value| {
        keyword
            .as_str()
            .is_some_and(|said| KEYWORDS.iter().any(|own| said.eq_ignore_ascii_case(own)))
    };
    keywords.iter().any(is_one).then(|| Candidate {
        name: name.to_owned(),
        title: None,
        description: text::clean_line(
            one["description"].as_str().unwrap_or_default(),
            MAX_DESCRIPTION,
        )
        .into_owned(),
        source: Source::Npm,
        status: Status::Active,
        published: one["date"].as_str().and_then(unix_millis),
        offer: Offer {
            kind: Kind::Npm,
            identifier: name.to_owned(),
            version: version.to_owned(),
            integrity: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            runtime_arguments: Vec::new(),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_need_becomes_plain_words() {
        let words = |need: &str| npm_query(need).map(|words| words[1..].join(" "));
        assert_eq!(
            words("I need to query a Postgres database").as_deref(),
            Some("query postgres database")
        );
        assert_eq!(
            words("--registry=http://evil -g; rm -rf $HOME").as_deref(),
            Some("registry http evil g")
        );
        assert_eq!(
            words("author:me not:unstable boost-exact:false").as_deref(),
            Some("author not unstable boost")
        );
        assert_eq!(words("an MCP server for the"), None);
        assert_eq!(words("\u{1b}[31m"), Some("31m".to_owned()));
        assert_eq!(words(&"x".repeat(10_000)), None);
        assert!(npm_query("postgres").unwrap()[0].starts_with("keywords:mcp,"));
    }

    #[test]
    fn what_npm_prints_is_data() {
        let good = json!({"name": "@acme/mcp-postgres", "version": "1.2.3", "description": "Ask \u{1b}[31mPostgres\n now",
            "keywords": ["database", "MCP"], "date": "2026-01-02T03:04:05.000Z"});
        let mut all = vec![good.clone()];
        for bad in [
            json!({"name": "left-pad", "version": "1.0.0", "keywords": ["string"]}),
            json!({"name": "no-keywords", "version": "1.0.0"}),
            json!({"name": "../../etc", "version": "1.0.0", "keywords": ["mcp"]}),
            json!({"name": "--global", "version": "1.0.0", "keywords": ["mcp"]}),
            json!({"name": "ranged", "version": "^1.0.0", "keywords": ["mcp"]}),
            json!({"name": "tagged", "version": "latest", "keywords": ["mcp"]}),
            json!({"name": 7, "version": {}, "keywords": "mcp"}),
            json!("text"),
            json!(null),
        ] {
            all.push(bad);
        }
        let found = npm_search(&Value::from(all)).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        let one = &found[0];
        assert_eq!(
            (one.package().as_str(), &one.source),
            ("npm:@acme/mcp-postgres@1.2.3", &Source::Npm)
        );
        assert!(!one.description.contains(char::is_control), "{}", one.description);
        assert!(one.published.is_some() && one.offer.integrity.is_none());
        let many = Value::from(vec![good; 5000]);
        assert_eq!(npm_search(&many).unwrap().len(), MOST_FOUND);
    }

    #[test]
    fn a_registry_without_a_search_is_no_failure() {
        let error = |code: &str| json!({"error": {"code": code, "summary": "\u{7}Not Found", "detail": ""}});
        assert_eq!(npm_search(&error("E404")), Err(NoSearch::NotThere));
        let failed = npm_search(&error("ENOTFOUND")).unwrap_err();
        assert!(matches!(&failed, NoSearch::Failed(why) if !why.contains('\u{7}')), "{failed:?}");
        assert!(npm_search(&json!({"objects": []})).is_err());
        assert!(npm_search(&Value::Null).is_err());
    }
}
