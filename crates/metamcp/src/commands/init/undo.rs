//! Restores one file to its state before init, as far as possible.

use std::path::Path;

use metamcp_config::clients::{self, Client};
use metamcp_config::edit::{self, Format};
use metamcp_engine::user_file;
use serde_json::{Map, Value};

use super::plan;
use super::record::Written;
use super::servers;
use crate::commands::import;
use crate::commands::servers::SERVER_KEYS;

/// What was done to a file.
pub(super) struct UndoReport {
    pub(super) words: String,
}

/// The effect of undoing one change; for a file with several changes, the greatest of these is reported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum UndoStatus {
    Gone,
    AsItWas,
    PutBack,
    Removed,
    Cleaned,
    Parted,
    Kept(String),
}

impl UndoStatus {
    fn words(&self) -> String {
        match self {
            UndoStatus::Gone => "no longer exists".to_owned(),
            UndoStatus::AsItWas => "is unchanged".to_owned(),
            UndoStatus::PutBack => "restored".to_owned(),
            UndoStatus::Removed => "removed: it did not exist before".to_owned(),
            UndoStatus::Cleaned => {
                "changed since: the servers that init imported are removed, the rest stays"
                    .to_owned()
            }
            UndoStatus::Parted => {
                "changed since: metamcp is removed and the servers are put back, the rest stays"
                    .to_owned()
            }
            UndoStatus::Kept(words) => words.clone(),
        }
    }
}

/// Servers by name, in the order of a file.
type Entries = Vec<(String, Value)>;

/// Undoes the changes of one file, the newest first.
pub(super) fn restored(
    path: &Path,
    changes: &[&Written],
    home: &Path,
    dry_run: bool,
) -> anyhow::Result<UndoReport> {
    let mut told = UndoStatus::Gone;
    let mut gone = false;
    let mut back = |text: Option<&str>| -> anyhow::Result<Option<String>> {
        told = UndoStatus::Gone;
        let mut now = text.map(str::to_owned);
        for written in changes {
            let Some(text) = &now else { break };
            let backup = written.backup(home);
            let (before, what) = one(written, text, backup, home)?;
            now = before;
            told = told.clone().max(what);
        }
        gone = now.is_none() && text.is_some();
        Ok(now)
    };
    if dry_run {
        back(user_file::read::<anyhow::Error>(path).map_err(servers::plain)?.as_deref())?;
    } else {
        user_file::change(path, &mut back).map_err(servers::plain)?;
    }
    // A link was not created by init.
    if gone && !dry_run && !path.is_symlink() {
        std::fs::remove_file(path)?;
    }
    Ok(UndoReport { words: told.words() })
}

/// The state before one change: no file, or a text.
fn one(
    written: &Written,
    text: &str,
    backup: anyhow::Result<Option<String>>,
    home: &Path,
) -> anyhow::Result<(Option<String>, UndoStatus)> {
    if written.is_untouched(text) {
        let backup = backup?;
        let told = if backup.is_some() { UndoStatus::PutBack } else { UndoStatus::Removed };
        return Ok((backup, told));
    }
    if let Ok(Some(backup)) = &backup
        && backup == text
    {
        return Ok((Some(text.to_owned()), UndoStatus::AsItWas));
    }
    match written.client.as_deref().and_then(clients::named) {
        Some(client) => {
            let before = backup.ok().flatten().unwrap_or_default();
            Ok((Some(parted(client, written, text, &before)?), UndoStatus::Parted))
        }
        None if !written.added.is_empty() => {
            Ok((Some(cleaned(&written.added, text)?), UndoStatus::Cleaned))
        }
        None => {
            let copy = written.copy(home).filter(|copy| copy.is_file());
            let copy = copy.map(|copy| format!("; its backup is {}", copy.display()));
            let words = format!("changed since, so it stays as it is{}", copy.unwrap_or_default());
            Ok((Some(text.to_owned()), UndoStatus::Kept(words)))
        }
    }
}

/// A client's file without the gateway, and with its removed servers put back. An entry for the gateway that was there
/// before is restored: an older init added it, or the user.
fn parted(client: &Client, written: &Written, text: &str, before: &str) -> anyhow::Result<String> {
    let format = import::format(client, &written.path);
    let own = [client.key, &[plan::OWN_NAME]].concat();
    let mut text = match edit::read(format, before, &own).ok().flatten() {
        Some(entry) => edit::set(format, text, &own, &entry)?,
        None => edit::remove(format, text, &own)?.unwrap_or_else(|| text.to_owned()),
    };
    let mut groups: Vec<(Vec<String>, Entries)> = Vec::new();
    for (at, name, entry) in written.taken(client.key) {
        match groups.last_mut() {
            Some((known, all)) if *known == at => all.push((name, entry)),
            _ => groups.push((at, vec![(name, entry)])),
        }
    }
    for (at, all) in groups {
        let path: Vec<&str> = at.iter().map(String::as_str).collect();
        let there = edit::read(format, &text, &path)?.unwrap_or_default();
        let missing: Vec<(String, Value)> =
            all.into_iter().filter(|(name, _)| there.get(name).is_none()).collect();
        text = edit::set_all(format, &text, &path, &missing)?;
    }
    Ok(text)
}

/// Our own file without the added servers, as far as they are unchanged.
fn cleaned(added: &Map<String, Value>, text: &str) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    for key in SERVER_KEYS {
        let Some(there) = edit::read(Format::Json, &text, &[key])? else { continue };
        let is_same = |(name, entry): &(&String, &Value)| there.get(name.as_str()) == Some(entry);
        let names: Vec<&str> =
            added.iter().filter(is_same).map(|(name, _)| name.as_str()).collect();
        text = edit::remove_all(Format::Json, &text, &[key], &names)?;
    }
    Ok(text)
}
