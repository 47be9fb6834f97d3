//! One binary of the gateway, started on a configuration, and what a model sees of it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use metamcp_testkit::Client;
use serde_json::{Map, Value, json};
use tiktoken_rs::CoreBPE;

use super::place::Place;

/// A longer wait means a hang.
const HUNG: Duration = Duration::from_mins(2);

/// Counts cl100k tokens.
pub(super) struct Counter(CoreBPE);

impl Counter {
    pub(super) fn new() -> Result<Counter> {
        Ok(Counter(tiktoken_rs::cl100k_base()?))
    }

    pub(super) fn tokens(&self, text: &str) -> usize {
        self.0.encode_ordinary(text).len()
    }
}

/// A running gateway, and what a client hands its model before the first turn.
pub(super) struct Gateway {
    client: Client,
    /// The result of `tools/list`.
    pub(super) listing: String,
    pub(super) instructions: String,
}

/// The answer to a call of one of the gateway's tools.
pub(super) struct Reply {
    /// What a client that shows text shows; of a protocol error its message.
    pub(super) text: String,
    /// What a client that prefers structured content shows.
    pub(super) structured: Option<String>,
}

impl Gateway {
    pub(super) fn start(
        binary: &Path,
        place: &Place,
        servers: &Map<String, Value>,
        flags: &[&str],
    ) -> Result<Gateway> {
        let config = place.folder().join("mcp.json");
        std::fs::write(&config, json!({ "mcpServers": servers }).to_string())?;
        let mut command = Command::new(binary);
        command.arg("--config").arg(&config).args(flags);
        place.surround(&mut command);
        let client = Client::start(command)?;
        let begun = client.initialize(&json!({}), HUNG)?;
        let instructions = begun["instructions"].as_str().unwrap_or_default().to_owned();
        let mut gateway = Gateway { client, listing: String::new(), instructions };
        gateway.listing = gateway.list()?;
        Ok(gateway)
    }

    /// The result of `tools/list` now.
    pub(super) fn list(&self) -> Result<String> {
        let answer = self.client.ask("tools/list", &json!({}), HUNG)?;
        Ok(answer.raw_result().with_context(|| format!("{}", answer.value))?.to_owned())
    }

    pub(super) fn call(&self, tool: &str, arguments: &Value) -> Result<Reply> {
        let answer = self.client.wait(self.client.call_tool(tool, arguments)?, HUNG)?;
        let Some(result) = answer.result() else {
            let text = answer.value["error"]["message"].as_str().unwrap_or_default().to_owned();
            return Ok(Reply { text, structured: None });
        };
        let parts = result["content"].as_array().into_iter().flatten();
        let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
        let structured = result.get("structuredContent").filter(|value| !value.is_null());
        Ok(Reply { text: texts.join("\n"), structured: structured.map(Value::to_string) })
    }

    /// Asks until every server has been listed, so that the next answers no longer depend on the time.
    pub(super) fn warm_up(&self, query: &str) -> Result<()> {
        for _ in 0..60 {
            if !still_starting(&self.call("mcp_discover", &json!({ "query": query }))?.text) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        anyhow::bail!("some servers were still starting after a minute")
    }
}

impl Drop for Gateway {
    /// As a client ends: its servers are gone before the folder is used again.
    fn drop(&mut self) {
        self.client.close_input();
        // One that hangs is killed with the client.
        drop(self.client.wait_exit(HUNG));
    }
}

impl Reply {
    pub(super) fn tokens(&self, counter: &Counter) -> [usize; 2] {
        let text = counter.tokens(&self.text);
        [text, self.structured.as_ref().map_or(text, |json| counter.tokens(json))]
    }
}

/// Whether an answer says that not every server could be searched yet.
pub(super) fn still_starting(text: &str) -> bool {
    let text = text.to_lowercase();
    ["still starting", "ask again", "ask the same again", "not answered yet"]
        .iter()
        .any(|words| text.contains(words))
}

/// How an answer shows a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// With a signature that can be called.
    InFull,
    ByName,
    No,
}

/// Looks for `server:tool` in an answer; `(` up to its closing parenthesis behind it is a signature.
pub(super) fn shown(text: &str, tool: &str) -> Shown {
    let mut best = Shown::No;
    for (at, _) in text.match_indices(tool) {
        let part_of_a_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let rest = &text[at + tool.len()..];
        let begins = !text[..at].chars().next_back().is_some_and(part_of_a_name);
        if !begins || rest.chars().next().is_some_and(part_of_a_name) {
            continue;
        }
        if signature(rest).is_some() {
            return Shown::InFull;
        }
        best = Shown::ByName;
    }
    if best == Shown::No && text.lines().any(|line| names_of_a_server(line, tool)) {
        best = Shown::ByName;
    }
    best
}

/// Whether a line lists the tool among others of its server, as in `git: git_log, git_show`.
fn names_of_a_server(line: &str, tool: &str) -> bool {
    let Some((server, tool)) = tool.split_once(':') else { return false };
    let listed = line.split_once(&format!("{server}: ")).filter(|(before, _)| {
        let before = before.chars().next_back();
        before.is_none_or(char::is_whitespace)
    });
    // Behind a dash or a colon are words about the server.
    listed.is_some_and(|(_, names)| {
        !names.contains(" - ") && names.split([',', ';', ' ']).any(|name| name == tool)
    })
}

/// What a signature says the tool returns, if it does.
pub(super) fn returns<'a>(text: &'a str, tool: &str) -> Option<&'a str> {
    text.match_indices(tool).find_map(|(at, _)| {
        let rest = &text[at + tool.len()..];
        let line = rest.lines().next()?;
        let after = line[signature(line)?..].trim_start();
        ["→", "->", "=>", ":"].iter().find_map(|arrow| after.strip_prefix(arrow))
    })
}

/// Where the parentheses that `text` begins with end, on the same line.
fn signature(text: &str) -> Option<usize> {
    let line = text.split('\n').next()?;
    if !line.starts_with('(') {
        return None;
    }
    let mut depth = 0_usize;
    for (at, character) in line.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_shown_in_full_by_name_or_not_at_all() {
        let text = "git:git_log(repo_path: string) → {commits: string[]}\n  Shows (all) commits\nalso: git:git_show, my-git:git_diff(a)\nx:cut(a: string, b?:… - what it does";
        assert_eq!(shown(text, "git:git_log"), Shown::InFull);
        assert_eq!(shown(text, "git:git_show"), Shown::ByName);
        assert_eq!(shown(text, "git:git_diff"), Shown::No);
        assert_eq!(shown(text, "git:git_lo"), Shown::No);
        assert_eq!(shown(text, "x:cut"), Shown::ByName);
        assert_eq!(shown("also git: git_log, git_show", "git:git_show"), Shown::ByName);
        assert_eq!(shown("fetch: idle, 1 tool - fetch pages", "fetch:fetch"), Shown::No);
        assert_eq!(returns(text, "git:git_log"), Some(" {commits: string[]}"));
        assert_eq!(returns("a:b(c) - does: this", "a:b"), None);
    }
}
