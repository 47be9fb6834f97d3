//! `metamcp import`: the servers of a client or of a file, taken over into our own.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use metamcp_core::clients::{self, Client, Dialect, Imported, Places, System};
use metamcp_core::config::{self, Config};
use metamcp_core::edit::{self, EditError, Format};
use metamcp_engine::config::Loaded;
use metamcp_engine::user_file;
use serde_json::{Map, Value, json};

use super::servers::{self, SERVER_KEYS};
use crate::args::ImportArgs;
use crate::env;
use crate::exit::{Exit, OrMisuse, misuse};
use crate::render::{self, visible};

/// Servers as somebody else's file names them.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Who, for people.
    pub(crate) from: String,
    /// What is put behind a name that is taken.
    pub(crate) suffix: String,
    pub(crate) dialect: Dialect,
    pub(crate) servers: Map<String, Value>,
}

/// What became of one server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fate {
    /// Put in under this name.
    Added(String),
    /// There already, under this name.
    Same(String),
    /// This gateway.
    Itself,
    /// Not taken over; why.
    Left(String),
}

/// Where the user's directories are on this machine.
pub(crate) fn places() -> anyhow::Result<Places> {
    let home = env::lookup(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
    let home = PathBuf::from(home.context("cannot tell your home directory; set HOME")?);
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
        home,
    })
}

/// The servers of a client's file.
pub(crate) fn of_client(client: &Client, text: &str) -> Result<Found, EditError> {
    let servers = match edit::read(client.format, text, client.key)? {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(servers)) => servers,
        Some(_) => {
            let path = client.key.join(".");
            return Err(EditError::NotAnObject { path, expected: "an object" });
        }
    };
    let (from, suffix) = (client.name.to_owned(), client.id.to_owned());
    Ok(Found { from, suffix, dialect: client.dialect, servers })
}

/// Puts servers into the text of a config file. What is there already stays; the fates are in the order of the servers.
pub(crate) fn merge(text: &str, found: &Found) -> anyhow::Result<(String, Vec<(String, Fate)>)> {
    let mut text = text.to_owned();
    let mut fates = Vec::new();
    for (name, entry) in &found.servers {
        let fate = match clients::import(found.dialect, name, entry, &own_program()) {
            Imported::Itself => Fate::Itself,
            Imported::Left(why) => Fate::Left(why),
            Imported::Server(entry) => {
                let fate = place(&text, name, &found.suffix, &entry)?;
                if let Fate::Added(name) = &fate {
                    let (key, _) = servers::key_for(&text, name)?;
                    text = edit::set(Format::Json, &text, &[key, name], &entry)?;
                }
                fate
            }
        };
        fates.push((name.clone(), fate));
    }
    Ok((text, fates))
}

/// The path of this program, by which it knows itself in the files of clients.
pub(crate) fn own_program() -> String {
    std::env::current_exe().unwrap_or_default().to_string_lossy().into_owned()
}

/// Under which name a server goes in, if it is not there.
fn place(text: &str, name: &str, suffix: &str, entry: &Value) -> anyhow::Result<Fate> {
    let numbered = (2..=99).map(|number| format!("{name}-{suffix}-{number}"));
    for wanted in [name.to_owned(), format!("{name}-{suffix}")].into_iter().chain(numbered) {
        match servers::key_for(text, &wanted)?.1 {
            None => return Ok(Fate::Added(wanted)),
            Some(there) if same(&there, entry) => return Ok(Fate::Same(wanted)),
            Some(_) => {}
        }
    }
    Ok(Fate::Left("its name is taken".to_owned()))
}

/// Whether two entries mean the same server, however they are written.
fn same(one: &Value, other: &Value) -> bool {
    let config = |entry: &Value| -> Option<Config> {
        let file = json!({ "mcpServers": { "x": entry } }).to_string();
        // Variables stand for themselves: two that hold the same today are not the same.
        config::parse(&file, &|name| Some(format!("${name}"))).ok().map(|loaded| loaded.config)
    };
    match (config(one), config(other)) {
        (Some(one), Some(other)) => config::diff(&one, &other).is_empty(),
        _ => one == other,
    }
}

/// `metamcp import`.
pub(crate) fn run(loaded: &Loaded, args: &ImportArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let found = find(&args.from)?;
    let path = servers::target(loaded, args.scope)?;
    let mut fates = Vec::new();
    servers::change(&path, args.write.dry_run, |text| {
        let (after, all) = merge(text, &found)?;
        fates = all;
        Ok((after != text).then_some(after))
    })?;
    if args.write.json {
        let all: Vec<Value> = fates.iter().map(|(name, fate)| fate_json(name, fate)).collect();
        let told = json!({ "file": path, "servers": all, "dry_run": args.write.dry_run });
        writeln!(out, "{told:#}")?;
        return Ok(Exit::Success);
    }
    if fates.is_empty() {
        writeln!(out, "{} names no servers.", found.from)?;
        return Ok(Exit::Success);
    }
    let into = if args.write.dry_run { "would go into" } else { "into" };
    writeln!(out, "{into} {}, from {}:", path.display(), visible(&found.from))?;
    let rows: Vec<Vec<String>> = fates.iter().map(|(name, fate)| fate_row(name, fate)).collect();
    render::table(out, &rows)?;
    Ok(Exit::Success)
}

pub(crate) fn fate_json(name: &str, fate: &Fate) -> Value {
    match fate {
        Fate::Added(to) => json!({ "server": name, "fate": "added", "as": to }),
        Fate::Same(to) => json!({ "server": name, "fate": "there already", "as": to }),
        Fate::Itself => json!({ "server": name, "fate": "metamcp itself" }),
        Fate::Left(why) => json!({ "server": name, "fate": "left", "why": why }),
    }
}

fn fate_row(name: &str, fate: &Fate) -> Vec<String> {
    let (sign, words) = match fate {
        Fate::Added(to) if to == name => ("+", String::new()),
        Fate::Added(to) => ("+", format!("as {to}: another server has its name")),
        Fate::Same(_) => ("=", "there already".to_owned()),
        Fate::Itself => (" ", "is metamcp itself, left out".to_owned()),
        Fate::Left(why) => ("!", format!("left out: {why}")),
    };
    vec![sign.to_owned(), visible(name), visible(&words)]
}

/// A client by its name, else a file.
fn find(from: &Path) -> anyhow::Result<Found> {
    if let Some(client) = from.to_str().and_then(clients::named) {
        let files = (client.files)(&places()?);
        let Some(path) = files.iter().find(|path| path.exists()) else {
            let looked: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
            let looked = looked.join(", ");
            return Err(misuse(format!(
                "{} has no file on this machine; looked for {looked}",
                client.name
            )));
        };
        let text = read(path)?;
        return of_client(client, &text).with_context(|| path.display().to_string()).or_misuse();
    }
    if !from.exists() {
        let all: Vec<&str> = clients::CLIENTS.iter().map(|client| client.id).collect();
        return Err(misuse(format!(
            "{} is neither a file nor a client that is known: {}",
            from.display(),
            all.join(", ")
        )));
    }
    let text = read(from)?;
    let (format, keys): (_, &[(&str, Dialect)]) =
        match from.extension().and_then(|end| end.to_str()) {
            Some("toml") => (Format::Toml, &[("mcp_servers", Dialect::Codex)]),
            Some("yaml" | "yml") => (Format::Yaml, &[("extensions", Dialect::Goose)]),
            _ => (
                Format::Json,
                &[
                    (SERVER_KEYS[0], Dialect::Standard),
                    (SERVER_KEYS[1], Dialect::Standard),
                    ("mcp", Dialect::OpenCode),
                    ("context_servers", Dialect::Zed),
                    ("amp.mcpServers", Dialect::Standard),
                ],
            ),
        };
    // Continue's files are of the same kind as Goose's, with the servers in a list.
    let is_list = || matches!(edit::read(Format::YamlList, &text, &[SERVER_KEYS[0]]), Ok(Some(_)));
    let (format, keys): (_, &[(&str, Dialect)]) = match format {
        Format::Yaml if is_list() => (Format::YamlList, &[(SERVER_KEYS[0], Dialect::Continue)]),
        _ => (format, keys),
    };
    let name = from.file_stem().unwrap_or_default().to_string_lossy().replace('.', "");
    for (key, dialect) in keys {
        let read = edit::read(format, &text, &[key])
            .with_context(|| from.display().to_string())
            .or_misuse()?;
        if let Some(Value::Object(servers)) = read {
            let from = from.display().to_string();
            return Ok(Found { from, suffix: name, dialect: *dialect, servers });
        }
    }
    Err(misuse(format!("{} names no servers under a key that is known", from.display())))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = user_file::read::<anyhow::Error>(path).map_err(servers::plain).or_misuse()?;
    text.with_context(|| format!("{} does not exist", path.display())).or_misuse()
}
