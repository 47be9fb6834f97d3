//! What an init did, kept for taking it back: copies of the files, and what was moved out of them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use metamcp_engine::files::{Directory, component};
use metamcp_engine::user_file::Changed;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::restored;
use crate::args::InitArgs;
use crate::exit::Exit;
use crate::render::visible;

const RECORD: &str = "init.json";
const BACKUPS: &str = "backups";
/// Clients' files are smaller than this, and so are all records of them.
const LARGEST: u64 = 64 << 20;

/// All inits that were not taken back, the last one last.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Records {
    runs: Vec<Record>,
}

/// One init.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    at: u64,
    files: Vec<Written>,
}

/// One file that was written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) path: PathBuf,
    /// The client it belongs to; none for our own.
    pub(super) client: Option<String>,
    /// The name of the copy in `backups`; none if there was no file.
    copy: Option<String>,
    /// What the file's text amounted to when it was written.
    after: String,
    /// Entries that were taken out.
    pub(super) moved: Value,
}

impl Written {
    /// Whether the text is still what was written.
    pub(super) fn is_untouched(&self, text: &str) -> bool {
        digest(text) == self.after
    }

    /// The copy of what was there before.
    pub(super) fn backup(&self, home: &Path) -> anyhow::Result<Option<String>> {
        let Some(copy) = &self.copy else { return Ok(None) };
        let missing = || format!("the copy {copy} is gone from {}", home.join(BACKUPS).display());
        let folder = Directory::home(home)?.with_context(missing)?;
        let folder = folder.inside(BACKUPS)?.with_context(missing)?;
        let bytes = folder.open(copy)?.with_context(missing)?.read(LARGEST)?;
        Ok(Some(String::from_utf8(bytes)?))
    }
}

impl Record {
    pub(super) fn new() -> Record {
        Record { at: now(), files: Vec::new() }
    }

    /// Notes a change, with a copy of what was there.
    pub(super) fn add(
        &mut self,
        home: &Path,
        changed: &Changed,
        client: Option<&str>,
        moved: Value,
    ) -> anyhow::Result<()> {
        let Some(after) = &changed.after else { return Ok(()) };
        let copy = match &changed.before {
            Some(before) => {
                let folder = Directory::home_or_create(home)?.inside_or_create(BACKUPS)?;
                let path = changed.path.to_string_lossy();
                let name = format!("{}-{}-{}", self.at, self.files.len(), component(&path));
                folder.replace(&name, before.as_bytes())?;
                Some(name)
            }
            None => None,
        };
        self.files.push(Written {
            path: changed.path.clone(),
            client: client.map(str::to_owned),
            copy,
            after: digest(after),
            moved,
        });
        Ok(())
    }

    pub(super) fn save(self, home: &Path) -> anyhow::Result<()> {
        let mut records = Records::read(home)?;
        records.runs.push(self);
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
        Ok(Directory::home_or_create(home)?.replace(RECORD, &bytes)?)
    }
}

/// `metamcp init --undo`: the last init is taken back, the clients before our own file.
pub(super) fn undo(
    home: &Path,
    args: &InitArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut records = Records::read(home)?;
    let Some(last) = records.runs.pop() else {
        writeln!(diagnostics, "There is nothing to take back.")?;
        return Ok(Exit::Failure);
    };
    let mut told = Vec::new();
    let mut failed = false;
    for written in last.files.iter().rev() {
        let outcome = restored(written, home, args.write.dry_run);
        failed |= outcome.is_err();
        let words = outcome.unwrap_or_else(|error| format!("not put back: {error:#}"));
        told.push((written.path.display().to_string(), words));
    }
    if !args.write.dry_run && !failed {
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
    Ok(if failed { Exit::Failure } else { Exit::Success })
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
