//! The ground truth of what a child really did: one line per event in a file that outlives it.
//! Owns: the record, appending it, reading it back.  Never: buffers; a line is in the file before the child continues.
//! In: a path.  Out: records in order, executions per key.
//! Tests: below.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What happened in a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The process started; counting these counts the spawns.
    Start,
    /// `initialize` arrived; `detail` holds its params.
    Initialize,
    /// `server/discover` arrived; `detail` holds its params.
    Discover,
    /// `tools/list` arrived; `detail` holds the cursor.
    List,
    /// A tool was executed; must not appear twice for one call. `detail` holds the request id.
    Execute,
    /// `notifications/cancelled` arrived; `detail` holds its params.
    Cancelled,
    /// `logging/setLevel` arrived; `detail` holds its params.
    Level,
    /// A descendant process is up; `pid` is the descendant's.
    Descendant,
    /// The environment and open files the process started with, in `detail`.
    Surroundings,
    /// A request that no call explained was answered; `detail` holds the answer.
    Told,
    /// Standard input ended.
    EndOfInput,
}

/// One line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub what: EventKind,
    pub pid: u32,
    /// What its standard input is, as `/proc` names it: who has a process namespace of its own is known by this outside
    /// of it, see [`crate::census::input`]. Of executions only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The tool that was executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The caller's own key: the argument `key`, else `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The gateway's idempotency key of the call, which stays the same on a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// `traceparent`, `tracestate` and `baggage` of the call, those that it has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trace: BTreeMap<String, String>,
    /// Additional data.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

impl Record {
    /// A record about this process.
    pub fn new(what: EventKind) -> Self {
        Self {
            what,
            pid: std::process::id(),
            input: None,
            tool: None,
            key: None,
            call: None,
            trace: BTreeMap::new(),
            detail: Value::Null,
        }
    }
}

/// The write end, used by a child.
#[derive(Debug)]
pub struct JournalWriter {
    file: File,
}

impl JournalWriter {
    /// Opens `path` for appending, creating it if needed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().append(true).create(true).open(path)? })
    }

    /// Writes one record with a single `write`, so that lines of several processes never interleave.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }
}

/// The read end, used by a test.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
}

impl Journal {
    /// The journal at `path`, which need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every record so far, oldest first; none if no child has started.
    pub fn records(&self) -> Result<Vec<Record>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", self.path.display()));
            }
        };
        text.lines()
            .map(|line| {
                serde_json::from_str(line).with_context(|| format!("journal line {line:?}"))
            })
            .collect()
    }

    pub fn of(&self, what: EventKind) -> Result<Vec<Record>> {
        Ok(self.records()?.into_iter().filter(|record| record.what == what).collect())
    }

    pub fn count(&self, what: EventKind) -> Result<usize> {
        Ok(self.of(what)?.len())
    }

    /// How often the call with this key was executed.
    pub fn executions(&self, key: &str) -> Result<usize> {
        Ok(self.executions_by_key()?.get(key).copied().unwrap_or(0))
    }

    /// Executions per key; keys that were never executed are absent.
    pub fn executions_by_key(&self) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for record in self.of(EventKind::Execute)? {
            *counts.entry(record.key.unwrap_or_default()).or_insert(0) += 1;
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_counted_per_key() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::at(dir.path().join("journal"));
        assert_eq!(journal.executions("a").unwrap(), 0, "a journal nobody wrote yet is empty");

        let journal_writer = JournalWriter::open(journal.path()).unwrap();
        journal_writer.write(&Record::new(EventKind::Start)).unwrap();
        for key in ["a", "b\n\"\u{0}", "a"] {
            let record = Record { key: Some(key.to_owned()), ..Record::new(EventKind::Execute) };
            journal_writer.write(&record).unwrap();
        }
        assert_eq!(journal.executions("a").unwrap(), 2);
        assert_eq!(journal.executions("b\n\"\u{0}").unwrap(), 1);
        assert_eq!(journal.count(EventKind::Start).unwrap(), 1);
    }
}
