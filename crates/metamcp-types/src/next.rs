//! Hints: what to do next, in terms of the tool surface or command line the reader uses.
//! Owns: every step that a hint can name, for each audience.      Never: decides which step helps.
//! In: `Advice` made of text and steps, and an `Audience`.  Out: text.
//! Tests: below.

use std::borrow::Cow;

use serde_json::json;

/// Who reads an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Audience {
    /// A model with `mcp_discover`, `mcp_call` and the others.
    #[default]
    Compact,
    /// A model with `search_tools`, `run_tool` and the others.
    Full,
    /// A person at a command line.
    Shell,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Listing the servers.
    Servers,
    /// Listing the tools of a server.
    ToolsOf(String),
    /// Looking for a tool by what it does.
    Search,
    /// Looking at what a tool of a server takes.
    Schema(String),
    /// Calling one tool.
    Call,
    /// Calling exactly this tool, `server:tool`.
    CallOf(String),
    /// Letting a server be used that is switched off, which only a person can.
    Enable(String),
    /// Listing what servers, or one of them, have beside tools.
    Offers {
        /// Prompts, else resources.
        of_prompts: bool,
        server: Option<String>,
    },
    /// Waiting for a call that goes on as a task, or another tool for tasks.
    Task { tool: &'static str, id: String },
    /// Reading a resource, or getting a prompt.
    Offer {
        /// A prompt, else a resource.
        of_prompts: bool,
    },
}

impl Next {
    /// The step as a part of a sentence.
    pub fn words(&self, audience: Audience) -> String {
        match audience {
            Audience::Compact => self.compact(),
            Audience::Full => self.full(),
            Audience::Shell => format!("`{}`", self.shell()),
        }
    }

    fn compact(&self) -> String {
        match self {
            Next::Servers => "mcp_discover without arguments".to_owned(),
            Next::ToolsOf(server) => format!("mcp_discover {{\"server\": {}}}", json!(server)),
            Next::Search => "mcp_discover {\"query\": …}".to_owned(),
            Next::Schema(_) => "mcp_discover {\"tool\": …, \"detail\": \"schema\"}".to_owned(),
            Next::Call => "mcp_call".to_owned(),
            Next::CallOf(id) => format!("mcp_call {{\"tool\": {}, \"args\": {{…}}}}", json!(id)),
            Next::Enable(_) => format!("`{}` in a terminal", self.shell()),
            Next::Offers { of_prompts, server } => {
                let args = server.as_ref().map(|server| {
                    format!(", \"args\": {{\"server\": {}}}", json!(server))
                });
                let (at, args) = (beside(*of_prompts), args.unwrap_or_default());
                format!("mcp_call {{\"server\": \"{at}\", \"tool\": \"list\"{args}}}")
            }
            Next::Task { tool, id } => format!(
                "mcp_call {{\"tool\": \"@tasks:{tool}\", \"args\": {{\"id\": {}}}}}",
                json!(id)
            ),
            Next::Offer { of_prompts: true } => {
                "mcp_call {\"server\": \"@prompts\", \"tool\": \"get\", \"args\": {\"server\", \"name\", \"arguments\"}}".to_owned()
            }
            Next::Offer { of_prompts: false } => {
                "mcp_call {\"server\": \"@resources\", \"tool\": \"read\", \"args\": {\"server\", \"uri\"}}".to_owned()
            }
        }
    }

    /// What only the compact surface has is named in its terms: both can be called, listed or not.
    fn full(&self) -> String {
        match self {
            Next::Servers => "list_namespaces".to_owned(),
            Next::ToolsOf(server) => format!("list_tools {{\"namespace\": {}}}", json!(server)),
            Next::Search => "search_tools {\"query\": …}".to_owned(),
            Next::Schema(_) => "describe_tool {\"tool_id\": …}".to_owned(),
            Next::Call => "run_tool".to_owned(),
            Next::CallOf(id) => {
                format!("run_tool {{\"tool_id\": {}, \"args\": {{…}}}}", json!(id))
            }
            Next::Task { tool, id } => format!(
                "run_tool {{\"tool_id\": \"@tasks:{tool}\", \"args\": {{\"id\": {}}}}}",
                json!(id)
            ),
            Next::Enable(_) | Next::Offers { .. } | Next::Offer { .. } => self.compact(),
        }
    }

    fn shell(&self) -> String {
        match self {
            Next::Servers => "metamcp list".to_owned(),
            Next::ToolsOf(server) | Next::Schema(server) => {
                format!("metamcp list {}", quoted(server))
            }
            Next::Search => "metamcp search 'what it should do'".to_owned(),
            Next::Call => "metamcp call SERVER:TOOL".to_owned(),
            Next::CallOf(id) => format!("metamcp call {}", quoted(id)),
            Next::Enable(server) => format!("metamcp enable {}", quoted(server)),
            Next::Offers { of_prompts, server } => {
                let args = server.as_ref().map(|server| {
                    format!(" --args {}", quoted(&json!({ "server": server }).to_string()))
                });
                format!("metamcp call {}:list{}", beside(*of_prompts), args.unwrap_or_default())
            }
            Next::Task { tool, id } => {
                let args = json!({ "id": id }).to_string();
                format!("metamcp call @tasks:{tool} --args {}", quoted(&args))
            }
            Next::Offer { of_prompts: true } => {
                "metamcp call @prompts:get --args '{\"server\": …, \"name\": …, \"arguments\": {…}}'".to_owned()
            }
            Next::Offer { of_prompts: false } => {
                "metamcp call @resources:read --args '{\"server\": …, \"uri\": …}'".to_owned()
            }
        }
    }
}

fn beside(of_prompts: bool) -> &'static str {
    if of_prompts { "@prompts" } else { "@resources" }
}

/// A word as a shell takes it for one.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.:@/".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

/// What to do about something: sentences, with steps in them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advice {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Words(Cow<'static, str>),
    Step(Next),
}

impl Advice {
    /// A step, and how the sentence goes on.
    #[must_use]
    pub fn step(mut self, next: Next, rest: impl Into<Cow<'static, str>>) -> Advice {
        self.pieces.push(Piece::Step(next));
        self.pieces.push(Piece::Words(rest.into()));
        self
    }

    /// Whether one of these tools was meant, each written as the call to make.
    pub fn did_you_mean(ids: impl IntoIterator<Item = String>) -> Advice {
        let mut advice = Advice::from("Did you mean ");
        let mut ids = ids.into_iter().peekable();
        while let Some(id) = ids.next() {
            advice = advice.step(Next::CallOf(id), if ids.peek().is_some() { " or " } else { "?" });
        }
        advice
    }

    /// More words at the end.
    #[must_use]
    pub fn and(mut self, words: impl Into<Cow<'static, str>>) -> Advice {
        self.pieces.push(Piece::Words(words.into()));
        self
    }

    /// All of it for one reader.
    pub fn words(&self, audience: Audience) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Words(words) => words.to_string(),
            Piece::Step(next) => next.words(audience),
        };
        self.pieces.iter().map(piece).collect()
    }
}

impl From<&'static str> for Advice {
    fn from(words: &'static str) -> Advice {
        Advice { pieces: vec![Piece::Words(words.into())] }
    }
}

impl From<String> for Advice {
    fn from(words: String) -> Advice {
        Advice { pieces: vec![Piece::Words(words.into())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<Next> {
        let both = [false, true];
        let mut all = vec![
            Next::Servers,
            Next::ToolsOf("a b".into()),
            Next::Search,
            Next::Schema("github".into()),
            Next::Call,
            Next::CallOf("github:it".into()),
            Next::Enable("github".into()),
            Next::Task { tool: "wait", id: "t1".into() },
        ];
        for of_prompts in both {
            all.push(Next::Offers { of_prompts, server: None });
            all.push(Next::Offers { of_prompts, server: Some("it's".into()) });
            all.push(Next::Offer { of_prompts });
        }
        all
    }

    #[test]
    fn a_person_is_given_command_lines_and_a_model_its_tools() {
        for next in every() {
            let shell = next.words(Audience::Shell);
            assert!(shell.starts_with("`metamcp ") && !shell.contains("mcp_"), "{shell}");
            // Only a person can do that, so that is what a model passes on.
            let is_for_the_user = matches!(next, Next::Enable(_));
            for audience in [Audience::Compact, Audience::Full] {
                assert_eq!(next.words(audience).contains("metamcp "), is_for_the_user, "{next:?}");
            }
        }
        let of = |next: Next| next.words(Audience::Shell);
        assert_eq!(of(Next::ToolsOf("a b".into())), "`metamcp list 'a b'`");
        assert_eq!(
            of(Next::Offers { of_prompts: false, server: Some("it's".into()) }),
            r#"`metamcp call @resources:list --args '{"server":"it'\''s"}'`"#
        );
    }

    #[test]
    fn advice_is_put_together_for_its_reader() {
        let advice = Advice::from("Not sent. ").step(Next::Servers, " lists the servers.");
        let words = [Audience::Compact, Audience::Full, Audience::Shell].map(|it| advice.words(it));
        assert_eq!(
            words,
            [
                "Not sent. mcp_discover without arguments lists the servers.",
                "Not sent. list_namespaces lists the servers.",
                "Not sent. `metamcp list` lists the servers.",
            ]
        );
    }
}
