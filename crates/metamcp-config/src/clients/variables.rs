//! Variable syntax of each client, translated into ours.

use std::cell::RefCell;
use std::path::Path;

use serde_json::Value;

use super::Dialect;
use metamcp_types::secret::Reference;

/// How a client writes variables. What it does not expand is text to it, and stays text here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// As our own file does, references to secrets included.
    Ours,
    /// `${NAME}` and `${NAME:-default}`.
    Braces,
    /// None at all.
    Plain,
    /// `$NAME` and `${NAME}`; one that is not set stays as it is written.
    Dollar,
    /// `$NAME`, `${NAME}` and `$(command)`, as a shell does.
    Shell,
    /// `${env:NAME}`, `${input:id}`, `${userHome}` and the editor's own.
    VsCode,
    /// The same without inputs; `${NAME}` is taken for a variable too, `${file:/path}` for what is in a file.
    Editor,
    /// `${env:NAME}` alone.
    Env,
    /// `{env:NAME}` and `{file:path}`.
    Curly,
    /// `${{ secrets.NAME }}`.
    Secrets,
}

/// What has to be known of the world to read a client's variables.
pub struct World<'w> {
    /// Whether a variable is set now.
    pub is_set: &'w dyn Fn(&str) -> bool,
    /// The folder that relative paths of the file start from.
    pub folder: Option<&'w Path>,
}

/// Variables that the client itself has to fill in when it starts the gateway: ours, and how the client writes it.
pub type ClientVariables = Vec<(String, String)>;

/// Where a text stands: only values may say where a secret is instead of holding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The program, its arguments, an address, a folder.
    Word,
    /// The value of a variable or a header.
    Value,
}

/// Keys whose strings are arguments, a URL or a folder.
const WORDS: [&str; 10] = [
    "command",
    "cmd",
    "args",
    "url",
    "uri",
    "httpUrl",
    "serverUrl",
    "cwd",
    "workingDirectory",
    "working_directory",
];
/// What editors fill in by themselves: no variable of anybody is called so.
const EDITORS: [&str; 4] =
    ["workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"];
/// Keys that hold named values.
const VALUES: [&str; 6] = ["env", "envs", "environment", "headers", "http_headers", "httpHeaders"];

/// Keys that say how to log in.
const LOGINS: [&str; 2] = ["oauth", "auth"];

/// An entry with its variables as our own file writes them.
pub(super) fn translated(
    syntax: Syntax,
    entry: &mut Value,
    world: &World<'_>,
) -> Result<ClientVariables, String> {
    let reader = Reader { syntax, world, asked: RefCell::default() };
    let Value::Object(entry) = entry else { return Ok(Vec::new()) };
    for (key, value) in entry.iter_mut() {
        if WORDS.contains(&key.as_str()) {
            reader.walk(value, Place::Word)?;
        } else if VALUES.contains(&key.as_str()) {
            reader.walk(value, Place::Value)?;
        } else if key == "requestOptions" {
            reader.walk(&mut value["headers"], Place::Value)?;
        } else if LOGINS.contains(&key.as_str()) {
            // OAuth settings are strings too, but our own file takes no secret references there.
            reader.walk(value, Place::Word)?;
        }
    }
    if entry.contains_key("envFile") {
        return Err("reads variables from a file (`envFile`), which only that client does".into());
    }
    Ok(reader.asked.into_inner())
}

/// The variables that a client has to pass on to the gateway, so that the servers behind it get what they use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Nothing: it passes on all that it has, or there is no way to say it.
    Everything,
    /// A list of names under this key.
    Names(&'static str),
    /// Values of `env`, with what stands around the name of a variable.
    Env(&'static str, &'static str),
}

impl Passes {
    /// Adds variables to the gateway's own entry; the keys that changed, each with its new value.
    pub fn added(
        self,
        dialect: Dialect,
        own: &Value,
        names: &[String],
        asked: &ClientVariables,
    ) -> Vec<(&'static str, Value)> {
        let mut changed = Vec::new();
        let mut env: ClientVariables = asked.clone();
        match self {
            Passes::Everything => {}
            Passes::Env(before, after) => {
                env.extend(
                    names.iter().map(|name| (name.clone(), format!("{before}{name}{after}"))),
                );
            }
            Passes::Names(key) => {
                let mut list = own[key].as_array().cloned().unwrap_or_default();
                let there = list.len();
                for name in names {
                    let is_it = |one: &Value| one == name.as_str() || one["name"] == name.as_str();
                    if !list.iter().any(is_it) {
                        list.push(name.as_str().into());
                    }
                }
                if list.len() > there {
                    changed.push((key, list.into()));
                }
            }
        }
        let key = dialect.env_key();
        let mut table = own[key].as_object().cloned().unwrap_or_default();
        let there = table.len();
        for (name, value) in env {
            table.entry(name).or_insert_with(|| value.into());
        }
        if table.len() > there {
            changed.push((key, table.into()));
        }
        changed
    }
}

/// A text taken apart.
enum Piece {
    Text(String),
    /// What stands between `${` and `}`.
    Variable(String),
}

struct Reader<'w> {
    syntax: Syntax,
    world: &'w World<'w>,
    asked: RefCell<ClientVariables>,
}

impl Reader<'_> {
    fn walk(&self, value: &mut Value, place: Place) -> Result<(), String> {
        match value {
            Value::String(text) => *text = self.text(text, place)?,
            Value::Array(values) => values.iter_mut().try_for_each(|one| self.walk(one, place))?,
            Value::Object(all) => all.values_mut().try_for_each(|one| self.walk(one, place))?,
            _ => {}
        }
        Ok(())
    }

    fn text(&self, text: &str, place: Place) -> Result<String, String> {
        if self.syntax == Syntax::Ours {
            return match foreign(text) {
                Some(reference) => Err(only_there(&reference)),
                None => Ok(text.to_owned()),
            };
        }
        if let Some(reference) = self.reference(text, place)? {
            return Ok(reference);
        }
        let written = joined(self.pieces(text)?)?;
        // A value that only looks as if it said where a secret is.
        if place == Place::Value && Reference::is_one(&written) {
            return Ok(format!("literal:{written}"));
        }
        Ok(written)
    }

    /// A secret reference in the client's syntax.
    fn reference(&self, text: &str, place: Place) -> Result<Option<String>, String> {
        let (open, close) = match self.syntax {
            Syntax::Curly => ("{file:", "}"),
            Syntax::Editor => ("${file:", "}"),
            Syntax::Shell if text.contains("$(") => return printed(text, place).map(Some),
            _ => return Ok(None),
        };
        let Some((before, behind)) = text.split_once(open) else { return Ok(None) };
        let path = behind.split(close).next().unwrap_or_default();
        let refused = || Err(only_there(&format!("{open}{path}{close}")));
        let is_whole = before.is_empty() && behind.len() == path.len() + close.len();
        if !is_whole || place == Place::Word {
            return refused();
        }
        if path.starts_with('/') || path.starts_with("~/") {
            return Ok(Some(format!("file:{path}")));
        }
        match self.world.folder.filter(|folder| folder.is_absolute()) {
            Some(folder) if !path.contains('$') => {
                let path = folder.join(path.trim_start_matches("./"));
                Ok(Some(format!("file:{}", path.display())))
            }
            _ => refused(),
        }
    }

    fn pieces(&self, text: &str) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let open = match self.syntax {
            Syntax::Plain | Syntax::Ours => return Ok(vec![Piece::Text(text.to_owned())]),
            Syntax::Curly => "{env:",
            _ => "$",
        };
        while let Some(at) = rest.find(open) {
            pieces.push(Piece::Text(rest[..at].to_owned()));
            let (piece, length) = self.one(&rest[at..])?;
            pieces.push(piece);
            rest = &rest[at + length..];
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(pieces)
    }

    /// What stands at the beginning of a text, and how long it is.
    fn one(&self, text: &str) -> Result<(Piece, usize), String> {
        let plain = || Ok((Piece::Text(text[..1].to_owned()), 1));
        let variable = |inside: &str, length| Ok((Piece::Variable(inside.to_owned()), length));
        if self.syntax == Syntax::Curly {
            let Some((name, _)) = text[5..].split_once('}') else { return plain() };
            return if is_name(name) { variable(name, name.len() + 6) } else { plain() };
        }
        if self.syntax == Syntax::Secrets {
            let Some((inside, _)) = text.strip_prefix("${{").and_then(|rest| rest.split_once("}}"))
            else {
                return plain();
            };
            let name = inside.trim().strip_prefix("secrets.").filter(|name| is_name(name));
            let Some(name) = name else { return Err(only_there(&format!("${{{{{inside}}}}}"))) };
            return variable(name, inside.len() + 5);
        }
        let Some((inside, _)) = text.strip_prefix("${").and_then(|rest| rest.split_once('}'))
        else {
            return self.bare(&text[1..]).map_or_else(plain, |name| variable(name, name.len() + 1));
        };
        let length = inside.len() + 3;
        let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
        let is_editors = EDITORS.contains(&name);
        let is_variable = is_name(name) && !inside.contains("${") && !is_editors;
        match self.syntax {
            Syntax::Braces if is_variable => variable(inside, length),
            Syntax::Braces | Syntax::VsCode | Syntax::Editor | Syntax::Env => {
                if let Some(name) = inside.strip_prefix("env:").filter(|name| is_name(name)) {
                    return variable(name, length);
                }
                self.editors_own(inside, length)
            }
            Syntax::Dollar if is_variable && self.is_meant(name) => variable(inside, length),
            Syntax::Shell if is_variable => variable(inside, length),
            Syntax::Shell => Err(only_there(&format!("${{{inside}}}"))),
            _ => plain(),
        }
    }

    /// The name behind a `$` without braces, where that is a variable to the client.
    fn bare<'t>(&self, behind: &'t str) -> Option<&'t str> {
        let end = behind.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let name = &behind[..end.unwrap_or(behind.len())];
        let is_one = match self.syntax {
            Syntax::Dollar => self.is_meant(name),
            Syntax::Shell => true,
            _ => false,
        };
        (is_one && is_name(name)).then_some(name)
    }

    /// Where a variable that is not set stays as it is, `pa$$word` is a password: only what is set, or is written like a
    /// variable, is one.
    fn is_meant(&self, name: &str) -> bool {
        (self.world.is_set)(name) || !name.contains(|c: char| c.is_ascii_lowercase())
    }

    /// What an editor puts in by itself.
    fn editors_own(&self, inside: &str, length: usize) -> Result<(Piece, usize), String> {
        let text = |text: &str| Ok((Piece::Text(text.to_owned()), length));
        let variable = |name: &str| Ok((Piece::Variable(name.to_owned()), length));
        let kind = inside.split(':').next().unwrap_or_default();
        match kind {
            "userHome" if self.syntax != Syntax::Env => variable("HOME"),
            "pathSeparator" | "/" => text("/"),
            "input" if self.syntax == Syntax::VsCode => {
                let written = format!("${{{inside}}}");
                let name = asked_name(inside.strip_prefix("input:").unwrap_or_default());
                let mut asked = self.asked.borrow_mut();
                match asked.iter().find(|(known, _)| *known == name) {
                    Some((_, other)) if *other != written => return Err(only_there(&written)),
                    Some(_) => {}
                    None => asked.push((name.clone(), written)),
                }
                variable(&name)
            }
            "input"
            | "command"
            | "config"
            | "workspaceFolder"
            | "workspaceFolderBasename"
            | "workspaceRoot"
            | "cwd"
            | "execPath"
            | "{" => Err(only_there(&format!("${{{inside}}}"))),
            _ if inside.starts_with('{') => Err(only_there(&format!("${{{inside}}}}}"))),
            _ if self.syntax == Syntax::Editor && is_name(inside) => variable(inside),
            _ => text(&format!("${{{inside}}}")),
        }
    }
}

/// The variable in which VS Code passes us the answer to a prompt.
fn asked_name(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("VSCODE_INPUT_{}", id.chars().map(plain).collect::<String>())
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The pieces as our own file writes them: what is no variable must not become one.
fn joined(pieces: Vec<Piece>) -> Result<String, String> {
    let mut written = String::new();
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(more) => text.push_str(&more),
            Piece::Variable(inside) => {
                if text.ends_with('$') {
                    return Err("has a `$` right before a variable, which cannot be written here"
                        .to_owned());
                }
                written.push_str(&std::mem::take(&mut text).replace("${", "$${"));
                written.push_str(&format!("${{{inside}}}"));
            }
        }
    }
    written.push_str(&text.replace("${", "$${"));
    Ok(written)
}

/// A value that a shell makes, made by a shell here too.
fn printed(text: &str, place: Place) -> Result<String, String> {
    if place == Place::Word || text.contains(['\'', '\\', '`']) {
        return Err(only_there("$(…)"));
    }
    Ok(format!("cmd:sh -c 'printf %s \"{text}\"'"))
}

/// The first reference in a text of our own syntax that only another program could answer.
fn foreign(text: &str) -> Option<String> {
    const KINDS: [&str; 6] =
        ["input:", "workspaceFolder", "userHome", "pathSeparator", "command:", "{"];
    text.match_indices("${").find_map(|(at, _)| {
        let inside = text[at + 2..].split('}').next()?;
        let foreign = KINDS.iter().any(|kind| inside.starts_with(kind));
        let close = if inside.starts_with('{') { "}}" } else { "}" };
        foreign.then(|| format!("${{{inside}{close}"))
    })
}

fn only_there(reference: &str) -> String {
    format!("uses {reference}, which only that client can resolve")
}
