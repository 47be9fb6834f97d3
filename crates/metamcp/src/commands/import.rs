//! `metamcp import`: copies the servers of a client or of a file into our own.
//! Owns: reading clients' files, the status of each server, start checks.      Never: changes a client's file.
//! In: the name of a client, or a file.  Out: servers in our own file, and a status for each.
//! Tests: beside the parts; `tests/config/first.rs` and `tests/config/import_fidelity.rs`.

mod merge;
mod ready;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use metamcp_config::clients::{
    self, Client, ClientVariables, Dialect, Imported, Places, Syntax, System, World,
};
use metamcp_config::edit::{self, EditError, Format};
use metamcp_engine::config::Loaded;
use metamcp_engine::user_file;
use serde_json::{Map, Value, json};

pub(crate) use self::merge::Merger;
pub(crate) use self::ready::against;
use super::servers::{self, SERVER_KEYS};
use crate::args::ImportArgs;
use crate::env;
use crate::exit::{Exit, OrMisuse, misuse};
use crate::render::{self, visible};

/// The servers of one client's file.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The client's name, for people.
    pub(crate) from: String,
    /// Appended to a name that is taken.
    suffix: String,
    shape: (Dialect, Syntax),
    /// The folder of the file, which its relative paths are relative to.
    folder: Option<PathBuf>,
    pub(crate) servers: Vec<Server>,
}

#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// The path of keys to its table.
    pub(crate) at: Vec<String>,
    pub(crate) name: String,
    /// The project it belongs to, if it is not global.
    pub(crate) project: Option<String>,
    pub(crate) entry: Value,
}

/// The outcome for one server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ImportStatus {
    /// Added under this name.
    Added(String),
    /// Already there, under this name.
    Same(String),
    /// This gateway.
    Itself,
    /// Skipped; why.
    Skipped(String),
    /// It could be imported, but would not start here; why.
    Unready(String),
    /// Deselected by the user.
    NotChosen,
}

/// Where the user's directories are on this machine.
pub(crate) fn places() -> anyhow::Result<Places> {
    let home = env::lookup(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
    let home = PathBuf::from(home.context("your home directory is not known; set HOME")?);
    let folder = |name: &str| env::lookup(name).map(PathBuf::from).filter(|at| at.is_absolute());
    let system = match std::env::consts::OS {
        "macos" => System::Mac,
        "windows" => System::Windows,
        _ => System::Linux,
    };
    Ok(Places {
        system,
        config: folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
        app_data: folder("APPDATA").unwrap_or_else(|| home.join("AppData/Roaming")),
        claude: folder("CLAUDE_CONFIG_DIR"),
        codex: folder("CODEX_HOME"),
        home,
    })
}

/// The existing files of a client: its own, then those in its folder, by name.
pub(crate) fn files(client: &Client, places: &Places) -> Vec<PathBuf> {
    let own = client.files(places).into_iter().find(|path| path.exists());
    let folder = client.folder(places);
    let listed = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let is_one = |path: &PathBuf| {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        path.is_file() && ["yaml", "yml", "json"].contains(&end)
    };
    let mut more: Vec<PathBuf> =
        listed.into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_one).collect();
    more.sort();
    own.into_iter().chain(more).collect()
}

/// The format of a client's file.
pub(crate) fn format(client: &Client, path: &Path) -> Format {
    match client.format {
        // Continue accepts other clients' files in its folder.
        Format::YamlList if path.extension().is_some_and(|end| end == "json") => Format::Json,
        format => format,
    }
}

/// The servers of a client's file.
pub(crate) fn of_client(client: &Client, path: &Path, text: &str) -> Result<Found, EditError> {
    let format = format(client, path);
    let mut servers = Vec::new();
    let at: Vec<String> = client.key.iter().map(|&key| key.to_owned()).collect();
    let table = match edit::read(format, text, client.key)? {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(servers)) => servers,
        Some(_) => {
            let path = client.key.join(".");
            return Err(EditError::NotAnObject { path, expected: "an object" });
        }
    };
    let one = |at: &Vec<String>, project: Option<&String>, name: String, entry: Value| Server {
        at: at.clone(),
        name,
        project: project.cloned(),
        entry,
    };
    servers.extend(table.into_iter().map(|(name, entry)| one(&at, None, name, entry)));
    if let Some(key) = client.projects
        && let Some(Value::Object(projects)) = edit::read(format, text, &[key])?
    {
        for (project, mut inner) in projects {
            let table = client.key.iter().try_fold(&mut inner, |inner, key| inner.get_mut(*key));
            let Some(Value::Object(table)) = table else { continue };
            let keys = client.key.iter().map(|&key| key.to_owned());
            let at: Vec<String> =
                [key.to_owned(), project.clone()].into_iter().chain(keys).collect();
            let of_it = |(name, entry)| one(&at, Some(&project), name, entry);
            servers.extend(std::mem::take(table).into_iter().map(of_it));
        }
    }
    let dialect = if format == client.format { client.dialect } else { Dialect::Standard };
    Ok(Found {
        from: client.name.to_owned(),
        suffix: client.id.to_owned(),
        shape: (dialect, client.variables),
        folder: path.parent().map(Path::to_owned),
        servers,
    })
}

/// Programs that run something from their working directory.
const FOLDER_RUNNERS: [&str; 8] = ["npm", "pnpm", "yarn", "bun", "uv", "cargo", "go", "make"];
/// Their subcommands that do so.
const RUNS: [&str; 3] = ["run", "run-script", "start"];

/// Sets the working directory of a project's server to the project, if it relies on that.
fn at_home(project: &str, entry: &mut Value) {
    let args: Vec<&str> =
        entry["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let command = entry["command"].as_str().unwrap_or_default();
    let is_relative = |word: &str| {
        matches!(word, "." | "..") || word.starts_with("./") || word.starts_with("../")
    };
    let is_inside = |word: &str| {
        let word = word.split_once('=').map_or(word, |(_, value)| value);
        !word.is_empty()
            && !word.starts_with(['/', '@', '-', '~'])
            && Path::new(project).join(word).exists()
    };
    // A program without a folder is looked up in PATH, whatever is in the project.
    let of_command = is_relative(command) || (command.contains('/') && is_inside(command));
    let of_args = args.iter().any(|word| is_relative(word) || is_inside(word));
    let runner = Path::new(command).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let first = args.iter().find(|word| !word.starts_with('-'));
    let runs = FOLDER_RUNNERS.contains(&runner)
        && (runner == "make" || first.is_some_and(|word| RUNS.contains(word)));
    if (of_command || of_args || runs)
        && let Value::Object(entry) = entry
    {
        entry.entry("cwd").or_insert_with(|| project.into());
    }
}

impl Found {
    /// The entry of one of its servers for our own file.
    pub(crate) fn imported(&self, server: &Server) -> Imported {
        let is_set = |name: &str| env::lookup(name).is_some();
        let world = World { is_set: &is_set, folder: self.folder.as_deref() };
        let mut entry = server.entry.clone();
        if let Some(project) = &server.project {
            at_home(project, &mut entry);
        }
        clients::import(self.shape, &server.name, &entry, &own_program(), &world)
    }

    /// Appended to a server's name that is taken.
    pub(crate) fn suffix(&self, server: &Server) -> String {
        let folder = server.project.as_deref().and_then(|project| Path::new(project).file_name());
        let folder = folder.map(|name| name.to_string_lossy().into_owned());
        let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        folder.filter(is_plain).unwrap_or_else(|| self.suffix.clone())
    }
}

/// Merges servers into the text of a config file. Existing entries stay; the reports are in the order of the servers,
/// each with a warning if it would not start here.
fn merge(text: &str, found: &Found) -> anyhow::Result<(String, Vec<ServerReport>)> {
    let mut merger = Merger::new(text)?;
    let mut told = Vec::new();
    for server in &found.servers {
        let (status, warning) = match found.imported(server) {
            Imported::Itself => (ImportStatus::Itself, None),
            Imported::Left(why) => (ImportStatus::Skipped(why), None),
            Imported::Wrong { key, why } => {
                (ImportStatus::Skipped(wrong(key.as_deref(), &why)), None)
            }
            Imported::Server(entry, asked) => {
                let status = merger.place(&server.name, &found.suffix(server), &entry);
                let is_new = matches!(status, ImportStatus::Added(_));
                (status, is_new.then(|| lacks(&entry, &asked)).flatten())
            }
        };
        told.push(ServerReport { name: server.name.clone(), status, warning });
    }
    Ok((merger.text()?, told))
}

/// What is wrong with an entry, and with which of its keys.
pub(crate) fn wrong(key: Option<&str>, why: &str) -> String {
    key.map_or_else(|| why.to_owned(), |key| format!("`{key}`: {why}"))
}

/// The report on one server.
struct ServerReport {
    name: String,
    status: ImportStatus,
    warning: Option<String>,
}

/// Why an imported server would not start: nobody else sets the variables that its client fills in.
fn lacks(entry: &Value, asked: &ClientVariables) -> Option<String> {
    match asked.first() {
        Some((name, reference)) if env::lookup(name).is_none() => Some(format!(
            "{name} is not set; it stands for {reference}, which its client prompts for"
        )),
        _ => against(entry, asked),
    }
}

/// The path of this program, by which it recognizes itself in clients' files.
pub(crate) fn own_program() -> String {
    std::env::current_exe().unwrap_or_default().to_string_lossy().into_owned()
}

pub(crate) fn run(loaded: &Loaded, args: &ImportArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let all = find(&args.from)?;
    let path = servers::target(loaded, args.scope)?;
    let mut told = Vec::new();
    servers::change(loaded, &path, args.write.dry_run, |text| {
        told.clear();
        let mut after = text.to_owned();
        for found in &all {
            let (merged, statuses) = merge(&after, found)?;
            after = merged;
            told.extend(statuses);
        }
        Ok((after != text).then_some(after))
    })?;
    if args.write.json {
        let one = |told: &ServerReport| {
            let mut json = status_json(&told.name, &told.status);
            if let Some(why) = &told.warning {
                json["will_not_start"] = why.as_str().into();
            }
            json
        };
        let all: Vec<Value> = told.iter().map(one).collect();
        let told = json!({ "file": path, "servers": all, "dry_run": args.write.dry_run });
        writeln!(out, "{told:#}")?;
        return Ok(Exit::Success);
    }
    let from = all.first().map(|found| found.from.clone()).unwrap_or_default();
    if told.is_empty() {
        writeln!(out, "{from} has no servers.")?;
        return Ok(Exit::Success);
    }
    let into = if args.write.dry_run { "would go into" } else { "into" };
    writeln!(out, "{into} {}, from {}:", path.display(), visible(&from))?;
    let rows: Vec<Vec<String>> = told.iter().map(status_row).collect();
    render::table(out, &rows)?;
    Ok(Exit::Success)
}

pub(crate) fn status_json(name: &str, status: &ImportStatus) -> Value {
    match status {
        ImportStatus::Added(to) => json!({ "server": name, "fate": "added", "as": to }),
        ImportStatus::Same(to) => json!({ "server": name, "fate": "there already", "as": to }),
        ImportStatus::Itself => json!({ "server": name, "fate": "metamcp itself" }),
        ImportStatus::Skipped(why) => json!({ "server": name, "fate": "left", "why": why }),
        ImportStatus::Unready(why) => {
            json!({ "server": name, "fate": "will not start", "why": why })
        }
        ImportStatus::NotChosen => json!({ "server": name, "fate": "not chosen" }),
    }
}

fn status_row(told: &ServerReport) -> Vec<String> {
    let name = &told.name;
    let (sign, mut words) = match &told.status {
        ImportStatus::Added(to) if to == name => ("+", String::new()),
        ImportStatus::Added(to) => ("+", format!("as {to}, since another server has its name")),
        ImportStatus::Same(to) if to == name => ("=", "there already".to_owned()),
        ImportStatus::Same(to) => ("=", format!("exists already, as {to}")),
        ImportStatus::Itself => (" ", "is metamcp itself, skipped".to_owned()),
        ImportStatus::Skipped(why) | ImportStatus::Unready(why) => ("!", format!("skipped: {why}")),
        ImportStatus::NotChosen => (" ", "not chosen".to_owned()),
    };
    if let Some(why) = &told.warning {
        let gap = if words.is_empty() { "" } else { "; " };
        words = format!("{words}{gap}will not start: {why}");
    }
    vec![sign.to_owned(), visible(name), visible(&words)]
}

/// The servers of a client, by its name, or of a file.
fn find(from: &Path) -> anyhow::Result<Vec<Found>> {
    if let Some(client) = from.to_str().and_then(clients::named) {
        let places = places()?;
        let there = files(client, &places);
        if there.is_empty() {
            let looked: Vec<String> =
                client.files(&places).iter().map(|path| path.display().to_string()).collect();
            let looked = looked.join(", ");
            return Err(misuse(format!(
                "{} has no file on this machine; looked for {looked}",
                client.name
            )));
        }
        let one = |path: &PathBuf| {
            let text = read(path)?;
            of_client(client, path, &text).with_context(|| path.display().to_string()).or_misuse()
        };
        return there.iter().map(one).collect();
    }
    if !from.exists() {
        let all: Vec<&str> = clients::CLIENTS.iter().map(|client| client.id).collect();
        return Err(misuse(format!(
            "{} is neither a file nor a known client: {}",
            from.display(),
            all.join(", ")
        )));
    }
    let text = read(from)?;
    // The file's path tells whose file it is, and with that the meaning of a `$` in it.
    let whole = std::path::absolute(from).unwrap_or_else(|_| from.to_owned());
    let of_it = clients::of_file(&whole).and_then(|client| of_client(client, &whole, &text).ok());
    if let Some(found) = of_it.filter(|found| !found.servers.is_empty()) {
        return Ok(vec![Found { from: from.display().to_string(), ..found }]);
    }
    let (format, keys): (_, &[(&str, Dialect, Syntax)]) = match from
        .extension()
        .and_then(|end| end.to_str())
    {
        Some("toml") => (Format::Toml, &[("mcp_servers", Dialect::Codex, Syntax::Plain)]),
        Some("yaml" | "yml") => (Format::Yaml, &[("extensions", Dialect::Goose, Syntax::Plain)]),
        _ => (
            Format::Json,
            &[
                (SERVER_KEYS[0], Dialect::Standard, Syntax::Ours),
                (SERVER_KEYS[1], Dialect::Standard, Syntax::Ours),
                ("mcp", Dialect::OpenCode, Syntax::Curly),
                ("context_servers", Dialect::Zed, Syntax::Plain),
                ("amp.mcpServers", Dialect::Standard, Syntax::Braces),
            ],
        ),
    };
    // Continue's files look like Goose's, with the servers in a list.
    let is_list = || matches!(edit::read(Format::YamlList, &text, &[SERVER_KEYS[0]]), Ok(Some(_)));
    let (format, keys): (_, &[(&str, Dialect, Syntax)]) = match format {
        Format::Yaml if is_list() => {
            (Format::YamlList, &[(SERVER_KEYS[0], Dialect::Continue, Syntax::Secrets)])
        }
        _ => (format, keys),
    };
    let name = from.file_stem().unwrap_or_default().to_string_lossy().replace('.', "");
    for (key, dialect, syntax) in keys {
        let read = edit::read(format, &text, &[key])
            .with_context(|| from.display().to_string())
            .or_misuse()?;
        if let Some(Value::Object(servers)) = read {
            let at = vec![(*key).to_owned()];
            let one = |(name, entry)| Server { at: at.clone(), name, project: None, entry };
            return Ok(vec![Found {
                from: from.display().to_string(),
                suffix: name,
                shape: (*dialect, *syntax),
                folder: std::path::absolute(from).ok().and_then(|at| Some(at.parent()?.to_owned())),
                servers: servers.into_iter().map(one).collect(),
            }]);
        }
    }
    Err(misuse(format!("{} has no servers under a known key", from.display())))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = user_file::read::<anyhow::Error>(path).map_err(servers::plain).or_misuse()?;
    text.with_context(|| format!("{} does not exist", path.display())).or_misuse()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::at_home;

    #[test]
    fn a_server_that_needs_the_folder_of_its_project_is_started_there() {
        let project = tempfile::tempdir().unwrap();
        for file in ["server.js", "conf.json"] {
            std::fs::write(project.path().join(file), "").unwrap();
        }
        std::fs::create_dir(project.path().join("tool")).unwrap();
        let at = project.path().to_str().unwrap();
        for (command, args, is_there) in [
            ("node", &["server.js"][..], true),
            ("node", &["--import", "tsx", "server.js"], true),
            ("python", &["-m", "tool"], true),
            ("some-server", &["--config=conf.json"], true),
            ("./start", &[], true),
            ("uv", &["run", "main"], true),
            ("npm", &["--silent", "run", "mcp"], true),
            ("/usr/bin/pnpm", &["start"], true),
            ("cargo", &["run", "-q"], true),
            ("go", &["run", "."], true),
            ("make", &[], true),
            ("npm", &["exec", "some-server"], false),
            ("npx", &["-y", "@scope/server"], false),
            ("uvx", &["some-server", "--db=other.json"], false),
            ("server.js", &[], false),
            ("node", &["/opt/server.js"], false),
        ] {
            let mut entry = json!({ "command": command, "args": args });
            at_home(at, &mut entry);
            let expected = if is_there { Value::from(at) } else { Value::Null };
            assert_eq!(entry["cwd"], expected, "{command} {args:?}");
        }
        let mut entry = json!({ "command": "make", "cwd": "/srv" });
        at_home(at, &mut entry);
        assert_eq!(entry["cwd"], "/srv");
    }
}
