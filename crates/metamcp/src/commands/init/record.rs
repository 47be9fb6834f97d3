//! The record of an init, for `--undo`: backups of the files, and what was imported from them.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use metamcp_engine::clock;
use metamcp_engine::files::{Directory, component};
use metamcp_engine::user_file;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::servers;
use super::undo::{self, UndoReport};
use crate::args::InitArgs;
use crate::exit::Exit;
use crate::render::visible;

const RECORD: &str = "init.json";
const BACKUPS: &str = "backups";
/// Upper bound on the size of a backup and of the record; clients' files and all records of them are smaller.
const LARGEST: u64 = 64 << 20;

/// All inits that were not undone, the newest last.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Records {
    runs: Vec<Record>,
}

/// One init.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    at: u64,
    files: Vec<Written>,
}

/// One file that was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) path: PathBuf,
    /// The client it belongs to; none for our own file.
    pub(super) client: Option<String>,
    /// The name of the backup in `backups`; none if there was no file.
    copy: Option<String>,
    /// Digest of the text that was written.
    after: String,
    /// Removed entries: each with the path of keys to it and its name. Records of older versions have a table by name.
    pub(super) moved: Value,
    /// Added entries, by name; for our own file.
    #[serde(default)]
    pub(super) added: Map<String, Value>,
}

/// What to record about a change.
pub(super) struct Note {
    pub(super) moved: Value,
    pub(super) added: Map<String, Value>,
}

impl Written {
    /// Whether the file is still as it was written.
    pub(super) fn is_untouched(&self, text: &str) -> bool {
        digest(text) == self.after
    }

    /// The removed entries: the path of keys to each, its name and its value.
    pub(super) fn taken(&self, key: &[&str]) -> Vec<(Vec<String>, String, Value)> {
        let here = || key.iter().map(|&key| key.to_owned()).collect::<Vec<_>>();
        match &self.moved {
            Value::Object(table) => {
                table.iter().map(|(name, entry)| (here(), name.clone(), entry.clone())).collect()
            }
            Value::Array(all) => all
                .iter()
                .filter_map(|one| {
                    let at = serde_json::from_value(one["at"].clone()).ok()?;
                    Some((at, one["name"].as_str()?.to_owned(), one["entry"].clone()))
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The path of the backup, if there was a file.
    pub(super) fn copy(&self, home: &Path) -> Option<PathBuf> {
        self.copy.as_ref().map(|copy| home.join(BACKUPS).join(copy))
    }

    /// The text of the backup.
    pub(super) fn backup(&self, home: &Path) -> anyhow::Result<Option<String>> {
        let Some(copy) = &self.copy else { return Ok(None) };
        let missing =
            || format!("the backup {copy} is missing from {}", home.join(BACKUPS).display());
        let folder = Directory::home(home)?.with_context(missing)?;
        let folder = folder.inside(BACKUPS)?.with_context(missing)?;
        let bytes = folder.open(copy)?.with_context(missing)?.read(LARGEST)?;
        Ok(Some(String::from_utf8(bytes)?))
    }
}

impl Record {
    /// The record of an init that begins now. Backups are named by its time, so no two inits share one.
    pub(super) fn begin(home: &Path) -> anyhow::Result<Record> {
        let last = Records::read(home)?.runs.last().map_or(0, |run| run.at);
        Ok(Record { at: now().max(last + 1), files: Vec::new() })
    }

    /// Changes a file by `edit`, which returns the new text and the note to record. The backup and the record are on
    /// disk before the file is touched, so that the change can always be undone.
    pub(super) fn change(
        &mut self,
        home: &Path,
        path: &Path,
        client: Option<&str>,
        edit: impl Fn(&str) -> anyhow::Result<(String, Note)>,
    ) -> anyhow::Result<()> {
        // The absolute path with links resolved, so that undo finds the file.
        let found = user_file::target(path)?;
        let done = self.files.len();
        let changed = user_file::change(path, |text| {
            let before = text.unwrap_or_default();
            let (after, note) = edit(before)?;
            if after == before {
                return Ok(None);
            }
            // The edit is retried after somebody else wrote the file: drop the note of the first attempt.
            self.files.truncate(done);
            let written = Written {
                path: found.clone(),
                client: client.map(str::to_owned),
                copy: text.map(|text| self.copy(home, &found, text)).transpose()?,
                after: digest(&after),
                moved: note.moved,
                added: note.added,
            };
            self.files.push(written);
            self.save(home)?;
            Ok(Some(after))
        });
        let changed = changed.map_err(servers::plain);
        if !matches!(&changed, Ok(changed) if changed.after.is_some()) && self.files.len() > done {
            // The file was not changed. If this fails too, undo finds it as it was.
            self.files.truncate(done);
            self.save(home).ok();
        }
        changed.map(drop)
    }

    /// Backs up the text of a file; returns the backup's name.
    fn copy(&self, home: &Path, path: &Path, text: &str) -> anyhow::Result<String> {
        let folder = Directory::home_or_create(home)?.inside_or_create(BACKUPS)?;
        let name = component(&path.to_string_lossy());
        let name = format!("{}-{}-{name}", self.at, self.files.len());
        folder.replace_for_good(&name, text.as_bytes())?;
        Ok(name)
    }

    fn save(&self, home: &Path) -> anyhow::Result<()> {
        let mut records = Records::read(home)?;
        records.runs.retain(|run| run.at != self.at);
        if !self.files.is_empty() {
            records.runs.push(self.clone());
        }
        records.write(home)
    }
}

impl Records {
    fn read(home: &Path) -> anyhow::Result<Records> {
        let Some(folder) = Directory::home(home)? else { return Ok(Records::default()) };
        let Some(mut file) = folder.open(RECORD)? else { return Ok(Records::default()) };
        let read = file.read(LARGEST)?;
        serde_json::from_slice(&read)
            .with_context(|| format!("{} cannot be read", home.join(RECORD).display()))
    }

    fn write(&self, home: &Path) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec_pretty(self)?;
        Ok(Directory::home_or_create(home)?.replace_for_good(RECORD, &bytes)?)
    }
}

/// `metamcp init --undo`: reverts every init, or only the last one; the clients' files before our own.
pub(crate) fn undo(
    home: &Path,
    args: &InitArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut records = Records::read(home)?;
    let first = if args.last { records.runs.len().saturating_sub(1) } else { 0 };
    let undone: Vec<Record> = records.runs.split_off(first);
    if undone.is_empty() {
        if args.write.json {
            writeln!(out, "{:#}", json!({ "files": [], "dry_run": args.write.dry_run }))?;
        } else {
            writeln!(diagnostics, "There is nothing to undo.")?;
        }
        // Nothing to undo is a success.
        return Ok(Exit::Success);
    }
    // Each file once, with its changes from newest to oldest, the file written last first.
    let mut files: Vec<(PathBuf, Vec<&Written>)> = Vec::new();
    for written in undone.iter().rev().flat_map(|run| run.files.iter().rev()) {
        match files.iter_mut().find(|(path, _)| *path == written.path) {
            Some((_, all)) => all.push(written),
            None => files.push((written.path.clone(), vec![written])),
        }
    }
    files.sort_by_key(|(_, all)| all.iter().any(|written| written.client.is_none()));
    let mut told = Vec::new();
    let mut failed: Vec<PathBuf> = Vec::new();
    for (path, all) in &files {
        let words = match undo::restored(path, all, home, args.write.dry_run) {
            Ok(UndoReport { words }) => words,
            Err(error) => {
                failed.push(path.clone());
                format!("not restored: {error:#}; fix this and run `metamcp init --undo` again")
            }
        };
        told.push((path.display().to_string(), words));
    }
    if !args.write.dry_run {
        // Files that could not be restored stay in the record, so that undo can be retried.
        for mut run in undone {
            run.files.retain(|written| failed.contains(&written.path));
            if !run.files.is_empty() {
                records.runs.push(run);
            }
        }
        records.write(home)?;
    }
    if args.write.json {
        let files: Vec<Value> =
            told.iter().map(|(path, words)| json!({ "file": path, "outcome": words })).collect();
        writeln!(out, "{:#}", json!({ "files": files, "dry_run": args.write.dry_run }))?;
    } else {
        for (path, words) in &told {
            writeln!(out, "{}: {}", visible(path), visible(words))?;
        }
    }
    Ok(if failed.is_empty() { Exit::Success } else { Exit::Failure })
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> u64 {
    clock::unix_millis() / 1000
}
