//! A scripted model: it acts only on what the gateway has shown it, by the same rules with every binary, so a better
//! surface takes it fewer turns and fewer tokens.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use super::gateway::{Counter, Gateway, Reply, Shown, returns, shown, still_starting};

/// How often the same question is asked again while servers start.
const ASKED_AGAIN: usize = 8;
/// What a model takes to read an answer and ask again; servers go on starting meanwhile.
const THINKING: Duration = Duration::from_secs(2);

/// One call of the gateway and its answer.
pub(super) struct Turn {
    pub(super) tool: String,
    pub(super) arguments: Value,
    pub(super) answer: String,
    /// Request plus answer, for a client that shows text and for one that shows structured content.
    pub(super) tokens: [usize; 2],
}

/// A model in the middle of a conversation.
pub(super) struct Model<'a> {
    gateway: &'a Gateway,
    counter: &'a Counter,
    pub(super) turns: Vec<Turn>,
}

impl<'a> Model<'a> {
    pub(super) fn new(gateway: &'a Gateway, counter: &'a Counter) -> Model<'a> {
        Model { gateway, counter, turns: Vec::new() }
    }

    /// One turn.
    pub(super) fn ask(&mut self, tool: &str, arguments: Value) -> Result<String> {
        let reply: Reply = self.gateway.call(tool, &arguments)?;
        let asked = self.counter.tokens(&arguments.to_string());
        let tokens = reply.tokens(self.counter).map(|answer| asked + answer);
        let answer = reply.text.clone();
        self.turns.push(Turn { tool: tool.to_owned(), arguments, answer: reply.text, tokens });
        Ok(answer)
    }

    /// Searches until the signature of `tool` is in sight, in these words, one after the other.
    pub(super) fn find(&mut self, tool: &str, queries: &[&str]) -> Result<()> {
        match self.seen(tool) {
            Shown::InFull => return Ok(()),
            // It was named beside an earlier hit; its name says enough to ask for it.
            Shown::ByName => return self.details(tool),
            Shown::No => {}
        }
        for query in queries {
            match self.discover(query, &[tool])? {
                Shown::InFull => return Ok(()),
                Shown::ByName => return self.details(tool),
                Shown::No => {}
            }
        }
        // No words find it, but the servers' names are known from the beginning.
        let server = tool.split(':').next().unwrap_or_default();
        self.ask("mcp_discover", json!({ "server": server }))?;
        match self.seen(tool) {
            Shown::InFull => Ok(()),
            Shown::ByName => self.details(tool),
            Shown::No => bail!("{tool} was not found by {queries:?}"),
        }
    }

    /// Asks in these words, again and again while servers that could matter are starting; how the best of `tools` is
    /// shown in the last answer.
    pub(super) fn discover(&mut self, query: &str, tools: &[&str]) -> Result<Shown> {
        for _ in 0..ASKED_AGAIN {
            let answer = self.ask("mcp_discover", json!({ "query": query }))?;
            for wanted in [Shown::InFull, Shown::ByName] {
                if tools.iter().any(|tool| shown(&answer, tool) == wanted) {
                    return Ok(wanted);
                }
            }
            if !still_starting(&answer) {
                return Ok(Shown::No);
            }
            std::thread::sleep(THINKING);
        }
        Ok(Shown::No)
    }

    fn details(&mut self, tool: &str) -> Result<()> {
        for _ in 0..ASKED_AGAIN {
            let answer = self.ask("mcp_discover", json!({ "tool": tool }))?;
            if shown(&answer, tool) == Shown::InFull {
                return Ok(());
            }
            std::thread::sleep(THINKING);
        }
        bail!("{tool} is named, but its details are not given")
    }

    /// How `tool` was shown so far, at best.
    fn seen(&self, tool: &str) -> Shown {
        let mut best = Shown::No;
        for turn in self.turns.iter().filter(|turn| turn.tool == "mcp_discover") {
            match shown(&turn.answer, tool) {
                Shown::InFull => return Shown::InFull,
                Shown::ByName => best = Shown::ByName,
                Shown::No => {}
            }
        }
        best
    }

    /// Whether the signature of `tool` said that it returns something with this word in it.
    pub(super) fn knows_it_returns(&self, tool: &str, word: &str) -> bool {
        self.turns
            .iter()
            .any(|turn| returns(&turn.answer, tool).is_some_and(|it| it.contains(word)))
    }

    /// Whether what the client handed over at the beginning contains these words.
    pub(super) fn was_told(&self, words: &str) -> bool {
        self.gateway.listing.contains(words)
    }

    /// Finds a tool and calls it.
    pub(super) fn use_tool(
        &mut self,
        tool: &str,
        queries: &[&str],
        args: &Value,
    ) -> Result<String> {
        self.find(tool, queries)?;
        self.ask("mcp_call", json!({ "tool": tool, "args": args }))
    }

    /// Looks for a line in an answer, and where the answer was cut, in the whole of it.
    pub(super) fn line_with(&mut self, answer: &str, needle: &str) -> Result<String> {
        let found = |text: &str| {
            let line = text.lines().find(|line| line.contains(needle));
            line.map(str::to_owned)
        };
        if let Some(line) = found(answer) {
            return Ok(line);
        }
        let Some(handle) = handle(answer) else {
            bail!("{needle:?} is not in the answer, and no handle is: {}", start_of(answer))
        };
        let rest = self.ask(
            "mcp_call",
            json!({ "tool": "@results:query", "args": { "id": handle, "grep": needle } }),
        )?;
        found(&rest).ok_or_else(|| anyhow::anyhow!("{needle:?} is not in {}", start_of(&rest)))
    }

    pub(super) fn execute(&mut self, code: &str) -> Result<String> {
        self.ask("mcp_execute", json!({ "code": code }))
    }

    /// Runs the first script, and the second where the first failed as expected. A failure that does not tell what
    /// the value was costs a look at it first.
    pub(super) fn execute_and_fix(
        &mut self,
        first: &str,
        look: &str,
        second: &str,
    ) -> Result<String> {
        let answer = self.execute(first)?;
        if !failed(&answer) {
            return Ok(answer);
        }
        let tells = ["starting", "is a string", "is an object", "is a {"];
        if !tells.iter().any(|words| answer.contains(words)) {
            self.execute(look)?;
        }
        let answer = self.execute(second)?;
        ensure!(!failed(&answer), "the script fails in both forms: {answer}");
        Ok(answer)
    }

    pub(super) fn tokens(&self) -> [usize; 2] {
        let fixed = self.counter.tokens(&self.gateway.listing)
            + self.counter.tokens(&self.gateway.instructions);
        self.turns.iter().fold([fixed, fixed], |[text, structured], turn| {
            [text + turn.tokens[0], structured + turn.tokens[1]]
        })
    }
}

/// Whether an answer is an error: they begin with their code.
pub(super) fn failed(answer: &str) -> bool {
    let code = answer.split(':').next().unwrap_or_default();
    !code.is_empty()
        && code.contains('_')
        && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The handle of a cut result: the word after `"id"`, else the first that looks like one.
fn handle(answer: &str) -> Option<&str> {
    let named = answer.split("\"id\"").nth(1).and_then(|rest| rest.split('"').nth(1));
    named.or_else(|| {
        let words = answer.split(|c: char| !c.is_ascii_alphanumeric());
        words.into_iter().find(|word| {
            word.len() >= 5
                && word.starts_with('r')
                && word[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    })
}

/// Enough of an answer for an error message.
pub(super) fn start_of(answer: &str) -> String {
    answer.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_begin_with_their_code() {
        assert!(failed("code_error: TypeError: not a function"));
        assert!(!failed("Error rates by day: 3"));
        assert!(!failed("{\"a_b\": 1}"));
        assert!(!failed(""));
    }

    #[test]
    fn a_handle_is_found_as_it_is_written_in_a_hint_or_alone() {
        assert_eq!(handle(r#"go on: {"id": "r1f", "offset": 3}"#), Some("r1f"));
        assert_eq!(handle("kept as r1022d0a6 (108,890 characters)"), Some("r1022d0a6"));
        assert_eq!(handle("line 1 of the rest"), None);
    }
}
