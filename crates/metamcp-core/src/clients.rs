//! The MCP clients people use: where each keeps its servers, and how it writes one.
//! Owns: the table of clients, their dialects.      Never: looks whether a file is there, changes one (`edit` does).
//! In: where a user's directories are; an entry as a client wrote it.  Out: paths; entries as our own file takes them.
//! Tests: `clients/tests.rs`.

mod dialect;
mod table;

use std::path::PathBuf;

use serde_json::Value;

pub use self::dialect::Dialect;
pub use self::table::CLIENTS;
use crate::config;
use crate::edit::Format;

/// Which system the paths are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Linux and the like.
    Linux,
    /// macOS.
    Mac,
    /// Windows.
    Windows,
}

/// Where a user's directories are.
#[derive(Debug, Clone)]
pub struct Places {
    /// Which system.
    pub system: System,
    /// The user's home.
    pub home: PathBuf,
    /// What `XDG_CONFIG_HOME` says, or `~/.config`.
    pub config: PathBuf,
    /// What `APPDATA` says, or where it usually is.
    pub app_data: PathBuf,
    /// What `CLAUDE_CONFIG_DIR` says, if anything.
    pub claude: Option<PathBuf>,
}

impl Places {
    /// Where desktop programs keep what belongs to them.
    fn desktop(&self) -> PathBuf {
        match self.system {
            System::Linux => self.config.clone(),
            System::Mac => self.home.join("Library/Application Support"),
            System::Windows => self.app_data.clone(),
        }
    }
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// The word by which commands name it.
    pub id: &'static str,
    /// Its name, as people know it.
    pub name: &'static str,
    /// What its file is written in.
    pub format: Format,
    /// The keys that lead to its servers.
    pub key: &'static [&'static str],
    /// How it writes one.
    pub dialect: Dialect,
    /// Whether a file that is missing is made where its folder is there: the folder belongs to this client alone.
    pub made: bool,
    /// Its file, the first that exists of several; the last is the one to make.
    pub files: fn(&Places) -> Vec<PathBuf>,
}

/// The client of that id or name.
pub fn named(word: &str) -> Option<&'static Client> {
    let folded = |text: &str| text.to_ascii_lowercase().replace([' ', '_'], "-");
    CLIENTS
        .iter()
        .find(|client| folded(client.id) == folded(word) || folded(client.name) == folded(word))
}

/// A server as a client wrote it, made ready for our own file.
#[derive(Debug, Clone, PartialEq)]
pub enum Imported {
    /// It can be taken over.
    Server(Value),
    /// It is this gateway, under whatever name.
    Itself,
    /// It cannot; why, as a fragment.
    Left(String),
}

/// What becomes of an entry of a client's file; `own` is the path of this program, which may have any name.
pub fn import(dialect: Dialect, name: &str, entry: &Value, own: &str) -> Imported {
    let entry = match dialect.to_standard(entry) {
        Ok(entry) => entry,
        Err(why) => return Imported::Left(why),
    };
    if is_the_gateway(&entry, own) {
        return Imported::Itself;
    }
    if let Some(reference) = foreign_reference(&entry.to_string()) {
        return Imported::Left(format!("uses {reference}, which only that client can answer"));
    }
    let mut servers = serde_json::Map::new();
    servers.insert(name.to_owned(), entry.clone());
    let mut file = serde_json::Map::new();
    file.insert("mcpServers".to_owned(), Value::Object(servers));
    // Variables are asked for when the server is used; here only the shape counts.
    let known = |_: &str| Some("x".to_owned());
    match config::parse(&Value::Object(file).to_string(), &known) {
        Ok(_) => Imported::Server(entry),
        Err(error) => {
            let problem = error.problems.first();
            Imported::Left(problem.map_or_else(String::new, |problem| problem.message.to_string()))
        }
    }
}

/// The first reference that only the client itself could answer.
fn foreign_reference(text: &str) -> Option<String> {
    const KINDS: [&str; 6] =
        ["input:", "workspaceFolder", "userHome", "pathSeparator", "command:", "{"];
    text.match_indices("${").find_map(|(at, _)| {
        let inside = text[at + 2..].split('}').next()?;
        let foreign = KINDS.iter().any(|kind| inside.starts_with(kind));
        let close = if inside.starts_with('{') { "}}" } else { "}" };
        foreign.then(|| format!("${{{inside}{close}"))
    })
}

/// Whether an entry starts this program, directly or through a package runner, whatever its arguments. The program is
/// called `metamcp`, or as the file at `own` is: a download may keep its version or platform in its name.
pub fn is_the_gateway(entry: &Value, own: &str) -> bool {
    let words: Vec<&str> = match &entry["command"] {
        Value::String(command) => vec![command.as_str()],
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let args = entry["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut words = words.into_iter().chain(args);
    let base = |word: &str| {
        let name = word.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
        name.strip_suffix(".exe").unwrap_or(&name).to_owned()
    };
    let Some(program) = words.next().map(base) else { return false };
    let runs = ["npx", "bunx", "pnpm", "uvx", "pipx", "docker", "cmd"].contains(&program.as_str());
    let is_package = |word: &str| {
        let word = base(word);
        word == "metamcp" || word.starts_with("metamcp@") || word.starts_with("metamcp:")
    };
    let own = base(own);
    // The names of runners stay theirs, whatever somebody calls a copy of us.
    (!runs && !own.is_empty() && program == own)
        || program == "metamcp"
        || (runs && words.any(is_package))
}

#[cfg(test)]
mod tests;
