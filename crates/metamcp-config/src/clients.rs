//! The known MCP clients: the file each has its servers in, and its format.
//! Owns: the table of clients, their dialects.      Never: touches a file, edits text (`edit` does).
//! In: where a user's directories are; an entry as a client wrote it.  Out: paths; entries in our own format.
//! Tests: `clients/tests.rs`.

mod dialect;
mod http;
mod identity;
mod table;
mod variables;

use std::path::{Path, PathBuf};

use serde_json::Value;

pub use self::dialect::Dialect;
pub use self::identity::{identity, is_off, joined};
pub use self::table::CLIENTS;
pub use self::variables::{ClientVariables, Passes, Syntax, World};
use crate::config;
use crate::edit::Format;

/// Which system the paths are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Linux and the like.
    Linux,
    /// macOS.
    Mac,
    Windows,
}

/// Where a user's directories are.
#[derive(Debug, Clone)]
pub struct Places {
    pub system: System,
    /// The user's home.
    pub home: PathBuf,
    /// What `XDG_CONFIG_HOME` says, or `~/.config`.
    pub config: PathBuf,
    /// What `APPDATA` says, or where it usually is.
    pub app_data: PathBuf,
    /// What `CLAUDE_CONFIG_DIR` says, if anything.
    pub claude: Option<PathBuf>,
    /// What `CODEX_HOME` says, if anything.
    pub codex: Option<PathBuf>,
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
    /// How it writes variables.
    pub variables: Syntax,
    /// What its entry needs so that variables reach us.
    pub passes: Passes,
    /// The key of a table whose every value has servers too, under `key`: those of one project each.
    pub projects: Option<&'static str>,
    /// See the method.
    pub folder: Option<fn(&Places) -> PathBuf>,
    /// Whether a file that is missing is made where its folder is there: the folder belongs to this client alone.
    pub made: bool,
    /// See the method.
    pub files: fn(&Places) -> Vec<PathBuf>,
}

impl Client {
    /// Its file, the first that exists of several; the last is the one to make. Written as its system writes paths.
    pub fn files(&self, at: &Places) -> Vec<PathBuf> {
        (self.files)(at).iter().map(|file| file.components().collect()).collect()
    }

    /// A folder with more files, each with servers of its own.
    pub fn folder(&self, at: &Places) -> Option<PathBuf> {
        self.folder.map(|folder| folder(at).components().collect())
    }
}

/// The client of that id or name.
pub fn named(word: &str) -> Option<&'static Client> {
    let folded = |text: &str| text.to_ascii_lowercase().replace([' ', '_'], "-");
    CLIENTS
        .iter()
        .find(|client| folded(client.id) == folded(word) || folded(client.name) == folded(word))
}

/// The client whose file this is, wherever it lies: by the end of its path, on whatever system, or as the client keeps
/// it in a project.
pub fn of_file(path: &Path) -> Option<&'static Client> {
    let ends = |system| {
        let root = || PathBuf::from("/");
        let places = Places {
            system,
            home: root(),
            config: root(),
            app_data: root(),
            claude: None,
            codex: None,
        };
        move |client: &&'static Client| {
            let files = (client.files)(&places);
            files.iter().any(|file| file.strip_prefix("/").is_ok_and(|end| path.ends_with(end)))
        }
    };
    let systems = [System::Linux, System::Mac, System::Windows];
    let user = systems.into_iter().find_map(|system| CLIENTS.iter().find(ends(system)));
    let in_project = || table::IN_PROJECTS.iter().find(|(end, _)| path.ends_with(end));
    // A profile of VS Code is a folder with a name of its own.
    let profile = || {
        let folder = path.parent()?.parent()?;
        let is_one = path.ends_with("mcp.json") && folder.ends_with("User/profiles");
        of_file(&folder.with_file_name("mcp.json")).filter(|_| is_one)
    };
    user.or_else(|| named(in_project()?.1)).or_else(profile)
}

/// A server as a client wrote it, made ready for our own file.
#[derive(Debug, Clone, PartialEq)]
pub enum Imported {
    /// It can be imported; with the variables that its client has to provide.
    Server(Value, ClientVariables),
    /// It is this gateway, under whatever name.
    Itself,
    /// It cannot; why, as a fragment.
    Left(String),
    /// Its entry is wrong.
    Wrong {
        /// The key that is, as our own file calls it; none for the entry as a whole.
        key: Option<String>,
        /// What is wrong, as a fragment.
        why: String,
    },
}

/// What becomes of an entry of a client's file; `own` is the path of this program, which may have any name.
pub fn import(
    (dialect, syntax): (Dialect, Syntax),
    name: &str,
    entry: &Value,
    own: &str,
    world: &World<'_>,
) -> Imported {
    let mut entry = entry.clone();
    // Before anything else: of ourselves nothing has to be understood.
    if dialect.to_standard(&entry).is_ok_and(|entry| is_the_gateway(&entry, own)) {
        return Imported::Itself;
    }
    let asked = match variables::translated(syntax, &mut entry, world) {
        Ok(asked) => asked,
        Err(why) => return Imported::Left(why),
    };
    let entry = match dialect.to_standard(&entry) {
        Ok(entry) => entry,
        Err(why) => return Imported::Left(why),
    };
    let mut servers = serde_json::Map::new();
    servers.insert(name.to_owned(), entry.clone());
    let mut file = serde_json::Map::new();
    file.insert("mcpServers".to_owned(), Value::Object(servers));
    // Variables are resolved when the server is used; here only the structure counts.
    let known = |_: &str| Some("x".to_owned());
    match config::parse(&Value::Object(file).to_string(), &known).and_then(config::Loaded::sound) {
        Ok(_) => Imported::Server(entry, asked),
        Err(error) => {
            let Some(problem) = error.problems.first() else {
                return Imported::Left(String::new());
            };
            let entry = config::under("mcpServers", name);
            let inside = problem.place.path.strip_prefix(&entry);
            let key = inside.and_then(|rest| rest.strip_prefix('.')).map(str::to_owned);
            Imported::Wrong { key, why: problem.message.clone() }
        }
    }
}

/// The variables that a server of our own file uses, each once: those in its values, and those it is passed.
pub fn variables_of(entry: &Value) -> Vec<String> {
    let used = std::cell::RefCell::new(Vec::new());
    let file = serde_json::json!({ "mcpServers": { "x": entry } }).to_string();
    let lookup = |name: &str| {
        used.borrow_mut().push(name.to_owned());
        Some("x".to_owned())
    };
    let loaded = config::parse(&file, &lookup);
    let mut used = used.into_inner();
    for server in loaded.iter().flat_map(|loaded| &loaded.config.servers) {
        if let config::PassEnv::Usual(names) = &server.pass_env {
            let names = names.iter().map(config::Pattern::as_str);
            used.extend(names.filter(|name| !name.contains('*')).map(str::to_owned));
        }
    }
    used.sort();
    used.dedup();
    used
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
