//! The token file: one token a line, optionally followed by `name=`, `toolset=` and `role=metrics`. Pure.

/// A static token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token itself.
    pub text: String,
    /// Its name in `approvers`, as `token:NAME`.
    pub name: Option<String>,
    /// The one toolset it is bound to, if any.
    pub toolset: Option<String>,
    /// What it is for.
    pub role: Role,
}

/// What a token opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Tools.
    #[default]
    Tools,
    /// Metrics, and nothing else.
    Metrics,
    /// Both: it is the owner's.
    Owner,
}

impl Token {
    /// A token that is not bound to a toolset.
    pub fn named(name: &str, text: impl Into<String>) -> Token {
        let name = Some(name.to_owned());
        Token { text: text.into(), name, toolset: None, role: Role::default() }
    }
}

impl std::fmt::Debug for Token {
    /// Redacts the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Token { name, toolset, role, .. } = self;
        let mut shown = f.debug_struct("Token");
        shown.field("name", name).field("toolset", toolset).field("role", role).finish()
    }
}

/// An error in a token file. Does not quote the line: it may hold a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct LineError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: LineProblem,
}

/// See [`LineError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// Something else stands behind the token.
    #[error("behind a token only `name=…`, `toolset=…` and `role=metrics` are known")]
    Unknown,
    /// One stands twice.
    #[error("`{0}=` is given twice")]
    Twice(&'static str),
    /// It names nothing.
    #[error("`{0}=` is empty, or holds something else than letters, digits and `-_.@`")]
    Value(&'static str),
    /// A role that does not exist, or that a toolset makes no sense with.
    #[error("the only role is `role=metrics`: such a token reads metrics and opens no toolset")]
    Role,
    /// Two tokens would be one client.
    #[error("the name {0:?} is taken by another token")]
    Taken(String),
    /// One of two would decide what the other opens.
    #[error("the same token stands in line {0} too; each may stand once, with what it is bound to")]
    Again(usize),
}

/// The tokens of a file. Lines that are empty or begin with `#` do not count.
pub fn tokens_of(file: &str) -> Result<Vec<Token>, LineError> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut lines: Vec<usize> = Vec::new();
    for (at, line) in file.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let token = token_of(line).and_then(|token| {
            if let Some(at) = tokens.iter().position(|other| other.text == token.text) {
                return Err(LineProblem::Again(lines[at]));
            }
            match tokens.iter().find(|other| token.name.is_some() && other.name == token.name) {
                Some(_) => Err(LineProblem::Taken(token.name.unwrap_or_default())),
                None => Ok(token),
            }
        });
        lines.push(at + 1);
        tokens.push(token.map_err(|problem| LineError { line: at + 1, problem })?);
    }
    Ok(tokens)
}

/// Tokens may hold spaces: an attribute is a `word=…` after the first space.
fn token_of(line: &str) -> Result<Token, LineProblem> {
    let mut token =
        Token { text: line.to_owned(), name: None, toolset: None, role: Role::default() };
    while let Some((rest, word)) = token.text.rsplit_once(char::is_whitespace) {
        let Some((key, value)) = word.split_once('=').filter(|(key, _)| is_key(key)) else { break };
        let (place, key) = match key {
            "role" if token.role != Role::Tools => return Err(LineProblem::Twice("role")),
            "role" if value == "metrics" => {
                token.role = Role::Metrics;
                token.text = rest.trim_end().to_owned();
                continue;
            }
            "role" => return Err(LineProblem::Role),
            "name" => (&mut token.name, "name"),
            "toolset" => (&mut token.toolset, "toolset"),
            _ => return Err(LineProblem::Unknown),
        };
        if place.is_some() {
            return Err(LineProblem::Twice(key));
        }
        if !is_name(value) {
            return Err(LineProblem::Value(key));
        }
        *place = Some(value.to_owned());
        token.text = rest.trim_end().to_owned();
    }
    if token.role == Role::Metrics && token.toolset.is_some() {
        return Err(LineProblem::Role);
    }
    Ok(token)
}

fn is_key(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

    #[test]
    fn a_file_holds_a_token_a_line_and_whose_it_is() {
        let file = "# for the laptop\n  one \n\ntwo\r\nthree name=ada\nfour toolset=docs name=bob@work\nfirst token\nMDEy==  toolset=docs";
        let read = tokens_of(file).unwrap();
        let read: Vec<Read<'_>> = read
            .iter()
            .map(|token| (&*token.text, token.name.as_deref(), token.toolset.as_deref()))
            .collect();
        let expected: [Read<'_>; 6] = [
            ("one", None, None),
            ("two", None, None),
            ("three", Some("ada"), None),
            ("four", Some("bob@work"), Some("docs")),
            ("first token", None, None),
            ("MDEy==", None, Some("docs")),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_repeating_it() {
        for (file, line, words) in [
            ("x\nsecret toolsets=docs", 2, "only `name=…`"),
            ("secret role=admin", 1, "only role"),
            ("secret role=metrics toolset=docs", 1, "opens no toolset"),
            ("secret role=metrics role=metrics", 1, "given twice"),
            ("secret toolset=docs toolset=web", 1, "given twice"),
            ("secret toolset=", 1, "is empty"),
            ("secret name=a,b", 1, "something else"),
            ("secret name=a\nother name=a", 2, "taken"),
            ("# one\nsecret toolset=docs\n\nsecret", 4, "in line 2 too"),
            ("secret name=a\nsecret name=b", 2, "in line 1 too"),
        ] {
            let error = tokens_of(file).unwrap_err();
            assert_eq!(error.line, line, "{file}");
            let told = error.to_string();
            assert!(told.contains(words) && !told.contains("secret"), "{told}");
        }
    }
}
