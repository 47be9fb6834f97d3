//! Tools of servers that are listed beside the gateway's own, with their own schemas.
//! Owns: which of them there is room for, and in which order they stand.      Never: reads a catalog or a history.
//! In: candidates, a budget.  Out: those that are listed, and those that are not.
//! Tests: below.

use metamcp_tools::tool::Tool;
use serde_json::{Value, json};

/// Most tools that are chosen by use.
pub const MOST_BY_USE: usize = 5;
/// A tool that was hardly ever used is no habit.
pub const LEAST_USED: f32 = 3.0;
/// Characters of a definition that make a token, on the safe side for JSON.
const CHARS_PER_TOKEN: usize = 3;

/// A tool that may be listed.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The name it would have in the list.
    pub name: String,
    pub server: String,
    pub tool: String,
    /// Its definition under that name.
    pub definition: Value,
    /// How much it is used, where that decides; none where the user wants it listed.
    pub used: Option<f32>,
}

impl Candidate {
    pub fn new(name: String, server: &str, tool: &Tool, used: Option<f32>) -> Candidate {
        let schema = tool.input_schema().and_then(|raw| serde_json::from_str::<Value>(raw).ok());
        let schema = schema.filter(Value::is_object);
        let mut definition = json!({
            "name": name,
            "description": format!("{} (server {server:?})", tool.description),
            "inputSchema": schema.unwrap_or_else(|| json!({ "type": "object" })),
        });
        if let Some(title) = &tool.title {
            definition["title"] = (**title).into();
        }
        let hints = [
            ("readOnlyHint", tool.hints.read_only),
            ("destructiveHint", tool.hints.destructive),
            ("idempotentHint", tool.hints.idempotent),
            ("openWorldHint", tool.hints.open_world),
        ];
        for (hint, value) in hints {
            if let Some(value) = value {
                definition["annotations"][hint] = value.into();
            }
        }
        let (server, tool) = (server.to_owned(), tool.name.to_string());
        Candidate { name, server, tool, definition, used }
    }

    /// About how many tokens its definition costs a model.
    pub fn tokens(&self) -> usize {
        self.definition.to_string().chars().count().div_ceil(CHARS_PER_TOKEN)
    }
}

/// What is listed, and what there is no room for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// By server and name, whatever chose them: the order of a list is part of what a model has cached.
    pub listed: Vec<Candidate>,
    /// Tools that the user wants listed, and their tokens.
    pub left_out: Vec<(String, usize)>,
    /// Of those that are listed.
    pub tokens: usize,
}

/// Chooses what is listed: first what the user wants, in the order given, then the most used.
pub fn choose(mut candidates: Vec<Candidate>, most_tokens: usize) -> Choice {
    let mut choice = Choice::default();
    let is_used = |one: &Candidate| one.used.is_none_or(|used| used >= LEAST_USED);
    candidates.retain(is_used);
    candidates.sort_by(|one, other| match (one.used, other.used) {
        (Some(one), Some(other)) => other.total_cmp(&one),
        (one, other) => one.is_some().cmp(&other.is_some()),
    });
    let mut by_use = 0;
    for candidate in candidates {
        if choice.listed.iter().any(|known| known.name == candidate.name)
            || candidate.used.is_some() && by_use == MOST_BY_USE
        {
            continue;
        }
        let tokens = candidate.tokens();
        if choice.tokens + tokens > most_tokens {
            if candidate.used.is_none() {
                choice.left_out.push((candidate.name, tokens));
            }
            continue;
        }
        choice.tokens += tokens;
        by_use += usize::from(candidate.used.is_some());
        choice.listed.push(candidate);
    }
    choice.listed.sort_by(|one, other| (&one.server, &one.tool).cmp(&(&other.server, &other.tool)));
    choice
}

#[cfg(test)]
mod tests {
    use metamcp_tools::tool::Listing;

    use super::*;

    fn candidate(name: &str, length: usize, used: Option<f32>) -> Candidate {
        let raw = json!({ "tools": [{
            "name": name,
            "description": "x".repeat(length),
            "inputSchema": { "type": "object", "properties": { "a": { "type": "string" } } },
            "annotations": { "readOnlyHint": true },
        }] });
        let mut listing = Listing::new();
        listing.page(raw.to_string().as_bytes()).unwrap();
        let tools = listing.finish(None, None);
        Candidate::new(format!("s__{name}"), "s", tools.tool(name).unwrap(), used)
    }

    #[test]
    fn a_definition_has_the_schema_and_the_name_it_is_called_by() {
        let one = candidate("a", 3, None);
        assert_eq!(one.definition["name"], "s__a");
        assert_eq!(one.definition["inputSchema"]["properties"]["a"]["type"], "string");
        assert_eq!(one.definition["annotations"], json!({ "readOnlyHint": true }));
        assert!(one.tokens() > 20);
    }

    #[test]
    fn what_the_user_wants_comes_first_and_nothing_exceeds_the_budget() {
        let all = vec![
            candidate("often", 10, Some(90.0)),
            candidate("long", 3_000, None),
            candidate("wanted", 10, None),
            candidate("rare", 10, Some(1.0)),
            candidate("more", 10, Some(100.0)),
        ];
        let choice = choose(all.clone(), 10_000);
        let names: Vec<&str> = choice.listed.iter().map(|one| one.tool.as_str()).collect();
        assert_eq!(names, ["long", "more", "often", "wanted"]);
        assert!(choice.left_out.is_empty());
        let choice = choose(all.clone(), 180);
        let names: Vec<&str> = choice.listed.iter().map(|one| one.tool.as_str()).collect();
        assert!(names.contains(&"wanted") && names.contains(&"more") && !names.contains(&"long"));
        assert_eq!(choice.left_out.len(), 1);
        assert_eq!(choice.left_out[0].0, "s__long");
        assert!(choice.tokens <= 180);
        let nothing = choose(all, 0);
        assert!(nothing.listed.is_empty() && nothing.left_out.len() == 2);
    }

    #[test]
    fn only_a_few_are_chosen_by_use() {
        let all: Vec<Candidate> =
            (0..20_u8).map(|n| candidate(&format!("t{n}"), 1, Some(f32::from(n) + 5.0))).collect();
        let choice = choose(all, 100_000);
        assert_eq!(choice.listed.len(), MOST_BY_USE);
        assert!(choice.listed.iter().all(|one| one.used >= Some(20.0)));
    }
}
