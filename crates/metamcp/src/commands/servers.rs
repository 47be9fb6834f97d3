//! `metamcp add`, `add-json`, `remove`, `enable`, `disable`: edit the servers of a config file, preserving every other
//! byte.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use metamcp_config::config::{self, ConfigError, ConfigPreview, Problem};
use metamcp_config::edit::{self, Format};
use metamcp_config::settings::Given;
use metamcp_engine::config::{LARGEST_FILE, Loaded, ProjectTrust, Source};
use metamcp_engine::observe::Subject;
use metamcp_engine::provision::Store;
use metamcp_engine::trust::{self, Decision, TrustStore};
use metamcp_engine::user_file::{self, Changed, UserFileError};
use metamcp_types::next::quoted;
use serde_json::{Map, Value, json};

use super::add_listed;
use super::audited::{self, Audited};
use crate::args::{AddArgs, AddJsonArgs, NamesArgs, Scope, ScopeArgs, WriteArgs};
use crate::console;
use crate::exit::{Exit, OrMisuse, misuse};
use crate::render::{self, visible};

/// The keys under which a config file may list servers; the first is the one to create.
pub(crate) const SERVER_KEYS: [&str; 2] = ["mcpServers", "servers"];

/// The file a command changes: the chosen scope, else the file named by `--config`, else the user's own. A project's
/// file is shared with others, so it is changed only on request.
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
    Ok(match scope.wanted() {
        Some(Scope::User) => user(),
        Some(Scope::Project) => {
            console::folder().context("the working directory is not known")?.join(".mcp.json")
        }
        None => match &loaded.source {
            Source::Named(path) => path.clone(),
            Source::Project(_) | Source::User(_) | Source::Nowhere { .. } => user(),
        },
    })
}

/// Keeps a project's file approved if it was approved before one of our commands changed it, or if the command created
/// it. A change never approves a file that was not.
fn keep_approved(loaded: &Loaded, path: &Path, changed: &Changed) -> anyhow::Result<()> {
    let Some(after) = &changed.after else { return Ok(()) };
    let is_projects = path.file_name().is_some_and(|name| name == ".mcp.json")
        && !matches!(&loaded.source, Source::Named(named) if named == path);
    let Some(folder) = path.parent().filter(|_| is_projects) else { return Ok(()) };
    let path = dunce::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()).join(".mcp.json");
    let store = TrustStore::new(&loaded.config.settings.home);
    // Nobody can have smuggled anything into a file without a single entry. A file that names only this gateway is
    // different: what passes for the gateway today may be another program tomorrow.
    let was_empty = loaded.project.as_ref().is_some_and(|project| {
        let before = changed.before.as_deref().unwrap_or_default();
        project.preview == ConfigPreview::default()
            && project.trust == ProjectTrust::Idle
            && project.sha256 == trust::sha256(before.as_bytes())
    });
    let was_approved = match &changed.before {
        None => true,
        Some(before) => {
            let decision = store.decision(&path, &trust::sha256(before.as_bytes()))?;
            was_empty || decision == Decision::Trusted
        }
    };
    if was_approved {
        let (file, sha256) = (path.to_string_lossy(), trust::sha256(after.as_bytes()));
        let subject = Subject::Trust { file: &file, sha256: &sha256 };
        Audited::new(&loaded.config.settings).record(subject, "approved")?;
        store.approve(&path, &trust::sha256(after.as_bytes()))?;
    }
    Ok(())
}

/// The key under which `name` is listed in the text, or would be added.
pub(crate) fn key_for(text: &str, name: &str) -> anyhow::Result<(&'static str, Option<Value>)> {
    for key in SERVER_KEYS {
        if let Some(entry) = edit::read(Format::Json, text, &[key, name])? {
            return Ok((key, Some(entry)));
        }
    }
    let has = |key: &str| edit::read(Format::Json, text, &[key]).ok().flatten().is_some();
    Ok((if has("servers") && !has("mcpServers") { "servers" } else { "mcpServers" }, None))
}

/// Rejects a text that could not be used as a config file at all.
pub(crate) fn checked(path: &Path, text: String) -> anyhow::Result<String> {
    fits(path, &text)?;
    let read = config::parse(&text, &|_| Some("x".to_owned()));
    read.map(|_| ()).or_else(|error| unchanged(path, &error))?;
    Ok(text)
}

/// Rejects a text that is too large for a gateway to read.
fn fits(path: &Path, text: &str) -> anyhow::Result<()> {
    if text.len() as u64 > LARGEST_FILE {
        bail!(
            "{} was not changed: it would have {} bytes, and a config file of more than {LARGEST_FILE} is not read; move or add fewer servers",
            path.display(),
            text.len()
        );
    }
    Ok(())
}

/// The same for a change: only problems that `before` did not have are errors, so that a broken entry does not block
/// changes to others.
fn checked_after(path: &Path, before: &str, text: String) -> anyhow::Result<String> {
    if text.len() > before.len() {
        fits(path, &text)?;
    }
    let read = |text: &str| config::parse(text, &|_| Some("x".to_owned()));
    let known = read(before).map(|read| read.faults).unwrap_or_default();
    let is_new = |fault: &Problem| {
        !known
            .iter()
            .any(|known| known.place.path == fault.place.path && known.message == fault.message)
    };
    let judged = read(&text).and_then(|config::Loaded { faults, warnings, .. }| {
        let problems: Vec<Problem> = faults.into_iter().filter(is_new).collect();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems, warnings }) }
    });
    judged.or_else(|error| unchanged(path, &error))?;
    Ok(text)
}

fn unchanged(path: &Path, error: &ConfigError) -> anyhow::Result<()> {
    let mut told = Vec::new();
    render::problems(&mut told, path, error)?;
    let told = anstream::adapter::strip_bytes(&told).into_vec();
    bail!("{} was not changed:\n{}", path.display(), String::from_utf8_lossy(&told).trim_end())
}

/// Changes a config file, or with `--dry-run` only tries to. True if something changed, or would.
pub(crate) fn change(
    loaded: &Loaded,
    path: &Path,
    dry_run: bool,
    mut edit: impl FnMut(&str) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<bool> {
    let mut edited = |text: Option<&str>| -> anyhow::Result<Option<String>> {
        match edit(text.unwrap_or_default())? {
            Some(after) => checked_after(path, text.unwrap_or_default(), after).map(Some),
            None => Ok(None),
        }
    };
    if dry_run {
        let text = user_file::read::<anyhow::Error>(path).map_err(plain)?;
        let after = edited(text.as_deref())?;
        return Ok(after.is_some_and(|after| text.as_deref() != Some(after.as_str())));
    }
    let changed = user_file::change(path, edited).map_err(plain)?;
    keep_approved(loaded, path, &changed)?;
    if let Some(after) = &changed.after {
        audited::config_changed(&loaded.config.settings, path, changed.before.as_deref(), after)?;
    }
    Ok(changed.after.is_some())
}

/// The reason alone, if it was ours.
pub(crate) fn plain(error: UserFileError<anyhow::Error>) -> anyhow::Error {
    match error {
        UserFileError::Refused(error) => error,
        other => anyhow::anyhow!("{other}"),
    }
}

pub(crate) fn add(
    loaded: &Loaded,
    given: &[Given],
    args: &AddArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if args.command.is_empty() && args.url.is_none() {
        return add_listed::add(loaded, args, out);
    }
    if args.yes {
        return Err(misuse(
            "--yes is for installing a server by its name; this one is only added to the file",
        ));
    }
    let entry = entry(args, given)?;
    let path = target(loaded, args.scope)?;
    put(loaded, &path, &args.name, &entry, args.force, args.write, out)
}

pub(crate) fn add_json(
    loaded: &Loaded,
    args: &AddJsonArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut text = args.entry.clone();
    if text == "-" {
        text = console::read_stdin().context("cannot read the server from stdin")?;
    }
    let entry = one_server(&text)?;
    let path = target(loaded, args.scope)?;
    put(loaded, &path, &args.name, &entry, args.force, args.write, out)
}

/// One server as JSON: its entry alone, or within the file that a README shows. Comments and trailing commas are fine,
/// as in the config file.
fn one_server(text: &str) -> anyhow::Result<Value> {
    const FORM: &str = "a server is an object with `command` or `url`";
    // The config parser accepts comments; what it parses is the value of this one key.
    let file = format!("{{\"server\": {text}\n}}");
    let value =
        edit::read(Format::Json, &file, &["server"]).context("this is not JSON").or_misuse()?;
    let Some(Value::Object(entry)) = value else { return Err(misuse(FORM)) };
    if entry.contains_key("command") || entry.contains_key("url") {
        return Ok(entry.into());
    }
    let inside = SERVER_KEYS.iter().find_map(|key| entry.get(*key)?.as_object());
    let all: Vec<&Value> = inside.unwrap_or(&entry).values().collect();
    match all.as_slice() {
        [one] if one.get("command").is_some() || one.get("url").is_some() => Ok((*one).clone()),
        [_, _, ..] if inside.is_some() => Err(misuse(format!(
            "this has {} servers; give one of them, or save it and use `metamcp import FILE`",
            all.len()
        ))),
        _ => Err(misuse(FORM)),
    }
}

/// Adds a server to a file.
fn put(
    loaded: &Loaded,
    path: &Path,
    name: &str,
    entry: &Value,
    force: bool,
    write: WriteArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut replaced = false;
    change(loaded, path, write.dry_run, |text| {
        let (key, old) = key_for(text, name)?;
        replaced = old.is_some();
        if replaced && !force {
            bail!(
                "there is already a server `{}` in {}; --force replaces it",
                visible(name),
                path.display()
            );
        }
        let after = edit::set(Format::Json, text, &[key, name], entry)?;
        // The file was valid, so any new problem comes from the command line.
        checked_after(path, text, after).or_misuse().map(Some)
    })?;
    let done = if replaced { "replaced" } else { "added" };
    tell(out, write, &[(name.to_owned(), path.to_owned())], done)
}

pub(crate) fn remove(
    loaded: &Loaded,
    args: &NamesArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let path = target(loaded, args.scope)?;
    let text = user_file::read::<anyhow::Error>(&path).map_err(plain)?.unwrap_or_default();
    let records = Store::new(&loaded.config.settings.home).records();
    let (mut named, mut installed, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for name in distinct(&args.names) {
        let record = records.iter().find(|record| record.plan.server == name);
        // An entry in the file takes precedence over an installed server, as everywhere.
        match record.filter(|_| !matches!(key_for(&text, name), Ok((_, Some(_))))) {
            Some(record) => {
                installed.push(name);
                gone.push((name.to_owned(), PathBuf::from(&record.plan.prefix)));
            }
            None => {
                named.push(name);
                gone.push((name.to_owned(), path.clone()));
            }
        }
    }
    // The file first: that is where a name can be wrong, and then nothing has been done yet.
    if !named.is_empty() {
        change(loaded, &path, args.write.dry_run, |text| {
            let mut text = text.to_owned();
            for name in &named {
                let (key, _) = found(loaded, &text, name, &path, "remove")?;
                text = edit::remove(Format::Json, &text, &[key, name])?.unwrap_or(text);
            }
            Ok(Some(text))
        })?;
    }
    for name in installed.into_iter().filter(|_| !args.write.dry_run) {
        super::provisioned::remove(loaded, name)?;
    }
    tell(out, args.write, &gone, "removed")
}

pub(crate) fn switch(
    loaded: &Loaded,
    args: &NamesArgs,
    on: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let path = target(loaded, args.scope)?;
    let command = if on { "enable" } else { "disable" };
    let names = distinct(&args.names);
    change(loaded, &path, args.write.dry_run, |text| {
        names
            .iter()
            .try_fold(text.to_owned(), |text, name| {
                let (key, entry) = found(loaded, &text, name, &path, command)?;
                switched(text, key, name, &entry, on)
            })
            .map(Some)
    })?;
    let all: Vec<_> = names.iter().map(|name| ((*name).to_owned(), path.clone())).collect();
    tell(out, args.write, &all, if on { "enabled" } else { "disabled" })
}

/// The text of a file with a server enabled or disabled.
fn switched(
    text: String,
    key: &str,
    name: &str,
    entry: &Value,
    on: bool,
) -> anyhow::Result<String> {
    // A file that uses `enabled` continues to use it.
    if entry.get("enabled").is_some() {
        let text = edit::set(Format::Json, &text, &[key, name, "enabled"], &on.into())?;
        let without = edit::remove(Format::Json, &text, &[key, name, "disabled"])?;
        return Ok(without.unwrap_or(text));
    }
    if on {
        let without = edit::remove(Format::Json, &text, &[key, name, "disabled"])?;
        return Ok(without.unwrap_or(text));
    }
    Ok(edit::set(Format::Json, &text, &[key, name, "disabled"], &true.into())?)
}

/// Each name once, in the order given.
fn distinct(names: &[String]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name.as_str()) {
            all.push(name);
        }
    }
    all
}

/// The entry of a server in the text of a file; `command` is the command to suggest in errors.
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
    let near = metamcp_types::nearest::nearest(name, known.iter().map(String::as_str), 1);
    let hint = near.first().map(|near| format!("; did you mean `{}`?", visible(near)));
    Err(misuse(missing + &hint.unwrap_or_default()))
}

/// Where a server that is not in `path` is configured, and how to change it there.
fn elsewhere(loaded: &Loaded, name: &str, path: &Path, command: &str) -> Option<String> {
    let shown = visible(&quoted(name));
    for (scope, word) in [(Scope::User, "user"), (Scope::Project, "project")] {
        let Ok(other) = target(loaded, ScopeArgs::of(scope)) else { continue };
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
        .then(|| format!("it was installed by metamcp; `metamcp remove {shown}` removes it"))
}

/// Reports what was done to each server, and where. As JSON, one server is an object and several are a list.
fn tell(
    out: &mut dyn Write,
    write: WriteArgs,
    servers: &[(String, PathBuf)],
    done: &str,
) -> anyhow::Result<Exit> {
    // A dry run is not reported as done.
    let done = if write.dry_run { format!("would be {done}") } else { done.to_owned() };
    if !write.json {
        for (name, path) in servers {
            writeln!(out, "{}: {done}, in {}", visible(name), path.display())?;
        }
        return Ok(Exit::Success);
    }
    let one = |(name, path): &(String, PathBuf)| json!({ "server": name, "done": done, "file": path, "dry_run": write.dry_run });
    let told = match servers {
        [server] => one(server),
        all => all.iter().map(one).collect(),
    };
    writeln!(out, "{told:#}")?;
    Ok(Exit::Success)
}

/// The entry that the arguments describe.
fn entry(args: &AddArgs, given: &[Given]) -> anyhow::Result<Value> {
    // `--transport` is also a setting of the gateway; after `add` it is the server's.
    let transport = given.iter().find(|given| given.setting.flag == "transport");
    let transport = transport.map(|given| given.value.text().into_owned());
    let looks_remote = |word: &str| word.starts_with("http://") || word.starts_with("https://");
    let address = match (&args.url, args.command.as_slice()) {
        (Some(_), [_, ..]) => return Err(misuse("give a URL or a command, not both")),
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
        return Err(misuse("give the command after `--`, or a URL with --url"));
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
            // The value may be a secret, so only the expected form is shown.
            return Err(misuse(format!("expected {form}")));
        };
        let value = if sign == ':' { value.trim() } else { value };
        pairs.insert(name.trim().to_owned(), value.into());
    }
    Ok(pairs)
}
