//! The vector cache on disk, in SQLite: what was paid for once is not requested again.
//! Owns: `catalog.db` under the home, its schema version, its limits.      Never: fails a search, runs on the runtime's threads.
//! In: vectors with the tool, the model and the digest of the text.  Out: those that still match, or none and why.
//! Tests: `store/tests.rs`.
//!
//! All calls here block. Gateways that share a home share the file: SQLite orders their reads and writes, and a
//! lock file beside it orders what SQLite cannot, which is creating, migrating and replacing the file itself.

mod place;
mod rows;
mod schema;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::files::FileError;
use place::{Identity, Place};

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;

/// Most rows: four times the tools of the largest catalog foreseen, for several models and projects.
const MAX_ROWS: u32 = 200_000;
/// Largest file. Enough for all rows with a thousand dimensions each.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// Enough of the text to see what a row is about.
const MAX_DESCRIPTION_CHARS: usize = 2048;

/// Rows are pruned after this many new ones, or this long.
const PRUNE_AFTER_ROWS: usize = 2000;
const PRUNE_AFTER_MS: u64 = 60 * 60 * 1000;

/// Another gateway's transaction takes milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// A file that could not be used is tried again after this long.
const RETRY_AFTER_MS: u64 = 60 * 1000;

/// The tool, and the digest of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) digest: [u8; 32],
}

#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) key: Key,
    pub(super) text: String,
    pub(super) vector: Arc<[f32]>,
}

/// Why the file is not used. Vectors are then cached in memory only.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("{0}")]
    File(#[from] FileError),
    /// Another gateway holds the lock for too long.
    #[error("{} is locked by another gateway", path.display())]
    Locked { path: PathBuf },
    /// Written by a later version.
    #[error(
        "it has version {found}, which a newer metamcp wrote; this one supports version {}",
        schema::VERSION
    )]
    Future { found: i64 },
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl StoreError {
    /// Whether the file itself is damaged, so that retrying does not help.
    fn is_damage(&self) -> bool {
        let StoreError::Sqlite(error) = self else { return false };
        match error {
            rusqlite::Error::SqliteFailure(cause, _) => matches!(
                cause.code,
                // SQLite reports a wrong table definition as an unknown error.
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown
            ),
            rusqlite::Error::SqlInputError { .. } => true,
            _ => false,
        }
    }

    /// Whether it is temporary.
    fn is_passing(&self) -> bool {
        let StoreError::Sqlite(error) = self else { return false };
        matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
        )
    }
}

/// The file under one home. Opened when first needed.
#[derive(Debug)]
pub(super) struct Store {
    home: PathBuf,
    bounds: Bounds,
    state: Mutex<State>,
    /// Separate from the state, so that reading it never waits for the disk.
    note: Mutex<Option<String>>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    rows: u32,
    bytes: u64,
}

#[derive(Debug)]
enum State {
    Closed,
    Open(Open),
    Unusable { since_ms: u64 },
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    place: Place,
    identity: Identity,
    pruned_ms: u64,
    written: usize,
}

impl Store {
    /// The store under `home`. Touches nothing yet.
    pub(super) fn new(home: &Path) -> Store {
        Store {
            home: home.to_owned(),
            bounds: Bounds { rows: MAX_ROWS, bytes: MAX_BYTES },
            state: Mutex::new(State::Closed),
            note: Mutex::new(None),
        }
    }

    /// Why the file is not used, or what happened to it last.
    pub(super) fn note(&self) -> Option<String> {
        self.note.lock().clone()
    }

    /// The vectors made by `model` from exactly these texts, in their order.
    pub(super) fn read(&self, model: &str, wanted: &[Key], now_ms: u64) -> Vec<Option<Arc<[f32]>>> {
        let found = self.with(now_ms, |open| open.read(model, wanted, signed(now_ms)));
        found.unwrap_or_else(|| vec![None; wanted.len()])
    }

    /// Writes all of these, or none. Returns whether it did.
    pub(super) fn write(&self, model: &str, rows: &[Remembered], now_ms: u64) -> bool {
        let bounds = self.bounds;
        let written = self.with(now_ms, |open| {
            open.write(model, rows, signed(now_ms))?;
            open.written += rows.len();
            if open.written >= PRUNE_AFTER_ROWS || now_ms.abs_diff(open.pruned_ms) >= PRUNE_AFTER_MS
            {
                open.prune(bounds, signed(now_ms))?;
                open.written = 0;
                open.pruned_ms = now_ms;
            }
            Ok(())
        });
        written.is_some()
    }

    /// Runs `work` on the open file; nothing if there is none. A damaged file is moved aside and replaced by a new one.
    fn with<T>(
        &self,
        now_ms: u64,
        mut work: impl FnMut(&mut Open) -> Result<T, StoreError>,
    ) -> Option<T> {
        let mut state = self.state.lock();
        // Twice: a file that opens may turn out to be damaged.
        for _ in 0..2 {
            let open = self.opened(&mut state, now_ms)?;
            match work(open) {
                Ok(done) => return Some(done),
                Err(error) if error.is_damage() => {
                    let State::Open(open) = std::mem::replace(&mut *state, State::Closed) else {
                        return None;
                    };
                    if let Err(error) = self.put_aside(open, &error, now_ms) {
                        return self.give_up(&mut state, &error, now_ms);
                    }
                }
                Err(error) if error.is_passing() => {
                    tracing::debug!("catalog.db: {error}; skipped once");
                    return None;
                }
                Err(error) => return self.give_up(&mut state, &error, now_ms),
            }
        }
        None
    }

    /// The open file, if it is still the one at its path; opened if there is none.
    fn opened<'a>(
        &self,
        state: &'a mut MutexGuard<'_, State>,
        now_ms: u64,
    ) -> Option<&'a mut Open> {
        match &**state {
            State::Unusable { since_ms } if now_ms.abs_diff(*since_ms) < RETRY_AFTER_MS => {
                return None;
            }
            // Deleted or replaced: nobody would read what is written to it.
            State::Open(open) if open.place.identity() != Some(open.identity) => {
                **state = State::Closed;
            }
            _ => {}
        }
        if !matches!(**state, State::Open(_)) {
            match self.open(now_ms) {
                Ok(open) => **state = State::Open(open),
                Err(error) => return self.give_up(state, &error, now_ms),
            }
        }
        match &mut **state {
            State::Open(open) => Some(open),
            State::Closed | State::Unusable { .. } => None,
        }
    }

    fn give_up<T>(
        &self,
        state: &mut MutexGuard<'_, State>,
        error: &StoreError,
        now_ms: u64,
    ) -> Option<T> {
        **state = State::Unusable { since_ms: now_ms };
        let path = self.home.join("catalog.db");
        self.say(format!(
            "embeddings are cached in memory only: {} cannot be used: {error}",
            path.display()
        ));
        None
    }

    fn open(&self, now_ms: u64) -> Result<Open, StoreError> {
        let place = Place::find(&self.home)?;
        let lock = place.lock()?;
        let identity = place.ensure(&lock)?;
        let connection = match connect(&place, now_ms) {
            Err(error) if error.is_damage() => {
                self.tell_aside(place.put_aside(identity, now_ms, &lock)?.as_deref(), &error);
                place.ensure(&lock)?;
                connect(&place, now_ms)?
            }
            other => other?,
        };
        let identity = place.ensure(&lock)?;
        // Pruned once after opening, so that a home used for moments at a time stays within limits too.
        Ok(Open { connection, place, identity, pruned_ms: 0, written: 0 })
    }

    fn put_aside(&self, open: Open, error: &StoreError, now_ms: u64) -> Result<(), StoreError> {
        let Open { connection, place, identity, .. } = open;
        let lock = place.lock()?;
        // Closed first: otherwise its cleanup would affect the new file.
        drop(connection);
        self.tell_aside(place.put_aside(identity, now_ms, &lock)?.as_deref(), error);
        Ok(())
    }

    fn tell_aside(&self, aside: Option<&Path>, error: &StoreError) {
        if let Some(aside) = aside {
            self.say(format!(
                "catalog.db is damaged ({error}); it was moved to {} and a new one was created",
                aside.display()
            ));
        }
    }

    fn say(&self, note: String) {
        let mut last = self.note.lock();
        // The same line every minute would only fill the log.
        if last.as_ref() != Some(&note) {
            tracing::warn!("{note}");
            *last = Some(note);
        }
    }
}

fn connect(place: &Place, now_ms: u64) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(place.path(), flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let found = schema::version(&connection)?;
    if found > schema::VERSION {
        // A newer version's file is not changed.
        return Err(StoreError::Future { found });
    }
    // Takes effect in an empty file only; an older one keeps its free pages for later rows.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    // On a file system without support SQLite keeps its current mode.
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    // A power cut may lose the last rows, never the file; they can be recomputed.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    schema::migrate(&mut connection, signed(now_ms))?;
    Ok(connection)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
