//! `metamcp add`, `remove`, `enable`, `disable`: one server of a config file, every other byte kept.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use metamcp_core::config;
use metamcp_core::edit::{self, Format};
use metamcp_core::next::quoted;
use metamcp_core::settings::Given;
use metamcp_engine::config::Loaded;
use metamcp_engine::provision::Store;
use metamcp_engine::user_file::{self, UserFileError};
use serde_json::{Map, Value, json};

use super::gallery;
use crate::args::{AddArgs, NameArgs, Scope, ScopeArgs, WriteArgs};
use crate::exit::{Exit, OrMisuse, misuse};
use crate::render::{self, visible};

/// The keys under which a config file may name servers; the first is the one to make.
pub(crate) const SERVER_KEYS: [&str; 2] = ["mcpServers", "servers"];

/// The file a command changes: the one asked for, else the one in force, else the user's own.
pub(crate) fn target(loaded: &Loaded, scope: ScopeArgs) -> anyhow::Result<PathBuf> {
    let user = || {
        let home = &loaded.config.settings.home;
        let other = home.join(".mcp.json");
        if other.exists() && !home.join("mcp.json").exists() {
            other
        } else {
            home.join("mcp.json")
        }
    };
    Ok(match scope.scope {
        Some(Scope::User) => user(),
        Some(Scope::Project) => {
            std::env::current_dir().context("the working directory is not known")?.join(".mcp.json")
        }
        None => loaded.source.path().map_or_else(user, Path::to_owned),
    })
}

/// The key under which `name` stands in the text, or would be put.
pub(crate) fn key_for(text: &str, name: &str) -> anyhow::Result<(&'static str, Option<Value>)> {
    for key in SERVER_KEYS {
        if let Some(entry) = edit::read(Format::Json, text, &[key, name])? {
            return Ok((key, Some(entry)));
        }
    }
    let has = |key: &str| edit::read(Format::Json, text, &[key]).ok().flatten().is_some();
    Ok((if has("servers") && !has("mcpServers") { "servers" } else { "mcpServers" }, None))
}

/// Refuses a text that could not be used as a config file: what is broken is not made worse, and what was sound stays so.
pub(crate) fn checked(path: &Path, text: String) -> anyhow::Result<String> {
    match config::parse(&text, &|_| Some("x".to_owned())) {
        Ok(_) => Ok(text),
        Err(error) => {
            let mut told = Vec::new();
            render::problems(&mut told, path, &error)?;
            let told = anstream::adapter::strip_bytes(&told).into_vec();
            bail!(
                "{} was not changed:\n{}",
                path.display(),
                String::from_utf8_lossy(&told).trim_end()
            )
        }
    }
}

/// Changes a config file, or only tries to. True if something changed, or would.
pub(crate) fn change(
    path: &Path,
    dry_run: bool,
    mut edit: impl FnMut(&str) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<bool> {
    let mut edited = |text: Option<&str>| -> anyhow::Result<Option<String>> {
        match edit(text.unwrap_or_default())? {
            Some(after) => checked(path, after).map(Some),
            None => Ok(None),
        }
    };
    if dry_run {
        let text = user_file::read::<anyhow::Error>(path).map_err(plain)?;
        let after = edited(text.as_deref())?;
        return Ok(after.is_some_and(|after| text.as_deref() != Some(after.as_str())));
    }
    let changed = user_file::change(path, edited).map_err(plain)?;
    Ok(changed.after.is_some())
}

/// The reason alone, where it was ours.
pub(crate) fn plain(error: UserFileError<anyhow::Error>) -> anyhow::Error {
    match error {
        UserFileError::Refused(error) => error,
        other => anyhow::anyhow!("{other}"),
    }
}

/// `metamcp add`.
pub(crate) fn add(
    loaded: &Loaded,
    given: &[Given],
    args: &AddArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if args.command.is_empty() && args.url.is_none() {
        return gallery::add(loaded, args, out);
    }
    if args.yes {
        return Err(misuse(
            "--yes is for a server that is installed by its name; this one is only written down",
        ));
    }
    let entry = entry(args, given)?;
    let path = target(loaded, args.scope)?;
    let mut replaced = false;
    change(&path, args.write.dry_run, |text| {
        let (key, old) = key_for(text, &args.name)?;
        replaced = old.is_some();
        if replaced && !args.force {
            bail!(
                "there is a server `{}` in {} already; --force replaces it",
                visible(&args.name),
                path.display()
            );
        }
        let after = edit::set(Format::Json, text, &[key, &args.name], &entry)?;
        // The file was sound, so whatever is wrong now came with the command line.
        checked(&path, after).or_misuse().map(Some)
    })?;
    let done = if replaced { "replaced" } else { "added" };
    tell(out, args.write, &args.name, done, &path)
}

/// `metamcp remove`.
pub(crate) fn remove(
    loaded: &Loaded,
    args: &NameArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let path = target(loaded, args.scope)?;
    let text = user_file::read::<anyhow::Error>(&path).map_err(plain)?.unwrap_or_default();
    let store = Store::new(&loaded.config.settings.home);
    let installed = store.records().into_iter().find(|record| record.plan.server == args.name);
    // What the file names goes before what was installed, as everywhere.
    if let Some(record) =
        installed.filter(|_| !matches!(key_for(&text, &args.name), Ok((_, Some(_)))))
    {
        if !args.write.dry_run {
            super::provisioned::remove(loaded, &args.name)?;
        }
        return tell(out, args.write, &args.name, "removed", Path::new(&record.plan.prefix));
    }
    change(&path, args.write.dry_run, |text| {
        let (key, _) = found(loaded, text, &args.name, &path, "remove")?;
        Ok(edit::remove(Format::Json, text, &[key, &args.name])?)
    })?;
    tell(out, args.write, &args.name, "removed", &path)
}

/// `metamcp enable` and `metamcp disable`.
pub(crate) fn switch(
    loaded: &Loaded,
    args: &NameArgs,
    on: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let path = target(loaded, args.scope)?;
    let command = if on { "enable" } else { "disable" };
    change(&path, args.write.dry_run, |text| {
        let (key, entry) = found(loaded, text, &args.name, &path, command)?;
        // A file that says `enabled` goes on saying it this way.
        if entry.get("enabled").is_some() {
            let text = edit::set(Format::Json, text, &[key, &args.name, "enabled"], &on.into())?;
            let without = edit::remove(Format::Json, &text, &[key, &args.name, "disabled"])?;
            return Ok(Some(without.unwrap_or(text)));
        }
        if on {
            return Ok(edit::remove(Format::Json, text, &[key, &args.name, "disabled"])?);
        }
        Ok(Some(edit::set(Format::Json, text, &[key, &args.name, "disabled"], &true.into())?))
    })?;
    tell(out, args.write, &args.name, if on { "enabled" } else { "disabled" }, &path)
}

/// The entry of a server in the text of a file; `command` is what is to be done with it.
fn found(
    loaded: &Loaded,
    text: &str,
    name: &str,
    path: &Path,
    command: &str,
) -> anyhow::Result<(&'static str, Value)> {
    let (key, entry) = key_for(text, name)?;
    if let Some(entry) = entry {
        return Ok((key, entry));
    }
    let missing = format!("no server `{}` in {}", visible(name), path.display());
    if let Some(elsewhere) = elsewhere(loaded, name, path, command) {
        return Err(misuse(format!("{missing}; {elsewhere}")));
    }
    let known: Vec<String> = SERVER_KEYS
        .iter()
        .filter_map(|key| edit::read(Format::Json, text, &[key]).ok()??.as_object().cloned())
        .flat_map(|servers| servers.into_iter().map(|(name, _)| name))
        .collect();
    let near = metamcp_core::nearest::nearest(name, known.iter().map(String::as_str), 1);
    let hint = near.first().map(|near| format!("; did you mean `{}`?", visible(near)));
    Err(misuse(missing + &hint.unwrap_or_default()))
}

/// Where a server is that is not in `path`, and how to reach it there.
fn elsewhere(loaded: &Loaded, name: &str, path: &Path, command: &str) -> Option<String> {
    let shown = visible(&quoted(name));
    for (scope, word) in [(Scope::User, "user"), (Scope::Project, "project")] {
        let Ok(other) = target(loaded, ScopeArgs { scope: Some(scope) }) else { continue };
        if other == path {
            continue;
        }
        let text = user_file::read::<anyhow::Error>(&other).ok().flatten().unwrap_or_default();
        if matches!(key_for(&text, name), Ok((_, Some(_)))) {
            return Some(format!(
                "it is in {}: `metamcp {command} {shown} --scope {word}`",
                other.display()
            ));
        }
    }
    let is_installed = Store::new(&loaded.config.settings.home)
        .records()
        .iter()
        .any(|record| record.plan.server == name);
    is_installed
        .then(|| format!("it was installed by metamcp, and `metamcp remove {shown}` takes it away"))
}

fn tell(
    out: &mut dyn Write,
    write: WriteArgs,
    name: &str,
    done: &str,
    path: &Path,
) -> anyhow::Result<Exit> {
    // What was not done is not called done.
    let done = if write.dry_run { format!("would be {done}") } else { done.to_owned() };
    if write.json {
        let told = json!({ "server": name, "done": done, "file": path, "dry_run": write.dry_run });
        writeln!(out, "{told:#}")?;
    } else {
        writeln!(out, "{}: {done}, in {}", visible(name), path.display())?;
    }
    Ok(Exit::Success)
}

/// The entry that the arguments describe.
fn entry(args: &AddArgs, given: &[Given]) -> anyhow::Result<Value> {
    // `--transport` is a setting of the gateway as well; behind `add` it is the server's.
    let transport = given.iter().find(|given| given.setting.flag == "transport");
    let transport = transport.map(|given| given.value.text().into_owned());
    let looks_remote = |word: &str| word.starts_with("http://") || word.starts_with("https://");
    let address = match (&args.url, args.command.as_slice()) {
        (Some(_), [_, ..]) => return Err(misuse("give an address or a command, not both")),
        (Some(url), []) => Some(url),
        (None, [word])
            if looks_remote(word) || matches!(transport.as_deref(), Some("http" | "sse")) =>
        {
            Some(word)
        }
        _ => None,
    };
    let mut entry = Map::new();
    if let Some(url) = address {
        if !args.env.is_empty() {
            return Err(misuse("a remote server takes headers (--header), not variables (-e)"));
        }
        if let Some(kind @ ("sse" | "http")) = transport.as_deref() {
            entry.insert("type".to_owned(), kind.into());
        }
        entry.insert("url".to_owned(), url.as_str().into());
        let headers = pairs(&args.header, ':', "--header 'Name: value'")?;
        if !headers.is_empty() {
            entry.insert("headers".to_owned(), headers.into());
        }
        return Ok(entry.into());
    }
    let Some((program, rest)) = args.command.split_first() else {
        return Err(misuse("give the command behind `--`, or an address with --url"));
    };
    if !args.header.is_empty() {
        return Err(misuse(
            "headers are for remote servers; a local one takes variables (-e KEY=VALUE)",
        ));
    }
    entry.insert("command".to_owned(), program.as_str().into());
    if !rest.is_empty() {
        entry.insert("args".to_owned(), rest.into());
    }
    let env = pairs(&args.env, '=', "-e KEY=VALUE")?;
    if !env.is_empty() {
        entry.insert("env".to_owned(), env.into());
    }
    Ok(entry.into())
}

fn pairs(given: &[String], sign: char, form: &str) -> anyhow::Result<Map<String, Value>> {
    let mut pairs = Map::new();
    for pair in given {
        let Some((name, value)) = pair.split_once(sign) else {
            // The value may be a secret, so only the form is shown.
            return Err(misuse(format!("expected {form}")));
        };
        let value = if sign == ':' { value.trim() } else { value };
        pairs.insert(name.trim().to_owned(), value.into());
    }
    Ok(pairs)
}
