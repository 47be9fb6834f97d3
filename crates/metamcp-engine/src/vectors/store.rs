//! Vectors on disk, in SQLite: what was paid for once is not asked for again.
//! Owns: `catalog.db` under the home, its versions, its bounds.      Never: fails a search, runs on the runtime's threads.
//! In: vectors with the tool, the model and the digest of the text.  Out: those that still fit, or none and why.
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

/// Rows kept: four times the tools of the largest catalog foreseen, for several models and projects.
const MAX_ROWS: u32 = 200_000;
/// Size of the file. Enough for all rows with a thousand numbers each.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// Enough of the text to see what a row is about.
const MAX_DESCRIPTION_CHARS: usize = 2048;

/// Rows are cleared away after this many new ones, or this long.
const PRUNE_AFTER_ROWS: usize = 2000;
const PRUNE_AFTER_MS: u64 = 60 * 60 * 1000;

/// Another gateway's transaction takes milliseconds.
const BUSY: Duration = Duration::from_secs(2);
/// A file that could not be used is looked at again after this long.
const LOOK_AGAIN_MS: u64 = 60 * 1000;

/// Whose vector, and the text it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) digest: [u8; 32],
}

/// One vector to remember.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) key: Key,
    pub(super) text: String,
    pub(super) vector: Arc<[f32]>,
}

/// Why the file is not used. Vectors are then kept in memory only.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The home or the file in it.
    #[error("{0}")]
    File(#[from] FileError),
    /// Another gateway is opening it and does not finish.
    #[error("{} is held by another gateway", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// Written by a later version.
    #[error(
        "it has version {found}, which a newer metamcp wrote; this one knows version {}",
        schema::VERSION
    )]
    Future {
        /// The version in the file.
        found: i64,
    },
    /// SQLite refused.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl StoreError {
    /// Whether the file itself is broken, and no later attempt will find it whole.
    fn is_damage(&self) -> bool {
        let StoreError::Sqlite(error) = self else { return false };
        match error {
            rusqlite::Error::SqliteFailure(cause, _) => matches!(
                cause.code,
                // A table that is not as it should be is an unknown error to SQLite.
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown
            ),
            rusqlite::Error::SqlInputError { .. } => true,
            _ => false,
        }
    }

    /// Whether it passes by itself.
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
    /// Beside the state, so that asking never waits for the disk.
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

    /// Why the file is not used, if it is not; or what happened to it last.
    pub(super) fn note(&self) -> Option<String> {
        self.note.lock().clone()
    }

    /// The vectors made by `model` from exactly these texts, in their order.
    pub(super) fn read(&self, model: &str, wanted: &[Key], now_ms: u64) -> Vec<Option<Arc<[f32]>>> {
        let found = self.with(now_ms, |open| open.read(model, wanted, signed(now_ms)));
        found.unwrap_or_else(|| vec![None; wanted.len()])
    }

    /// Remembers all of these, or none. Says whether it did.
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

    /// Does something with the open file; nothing where there is none. A damaged file is put aside and a new one begun.
    fn with<T>(
        &self,
        now_ms: u64,
        mut work: impl FnMut(&mut Open) -> Result<T, StoreError>,
    ) -> Option<T> {
        let mut state = self.state.lock();
        // Twice: what opens whole may turn out damaged.
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

    /// The open file: this one if it is still the one in its place, opened if there is none.
    fn opened<'a>(
        &self,
        state: &'a mut MutexGuard<'_, State>,
        now_ms: u64,
    ) -> Option<&'a mut Open> {
        match &**state {
            State::Unusable { since_ms } if now_ms.abs_diff(*since_ms) < LOOK_AGAIN_MS => {
                return None;
            }
            // Deleted or replaced: what is written to it from now on nobody will read.
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
            "embeddings are kept in memory only: {} cannot be used: {error}",
            path.display()
        ));
        None
    }

    fn open(&self, now_ms: u64) -> Result<Open, StoreError> {
        let place = Place::find(&self.home)?;
        let turn = place.turn()?;
        let identity = place.ensure(&turn)?;
        let connection = match connect(&place, now_ms) {
            Err(error) if error.is_damage() => {
                self.tell_aside(place.put_aside(identity, now_ms, &turn)?.as_deref(), &error);
                place.ensure(&turn)?;
                connect(&place, now_ms)?
            }
            other => other?,
        };
        let identity = place.ensure(&turn)?;
        // Once after opening, so that a home used for moments at a time is kept in bounds too.
        Ok(Open { connection, place, identity, pruned_ms: 0, written: 0 })
    }

    fn put_aside(&self, open: Open, error: &StoreError, now_ms: u64) -> Result<(), StoreError> {
        let Open { connection, place, identity, .. } = open;
        let turn = place.turn()?;
        // Closed first: it would otherwise clean up after itself beside the new file.
        drop(connection);
        self.tell_aside(place.put_aside(identity, now_ms, &turn)?.as_deref(), error);
        Ok(())
    }

    fn tell_aside(&self, aside: Option<&Path>, error: &StoreError) {
        if let Some(aside) = aside {
            self.say(format!(
                "catalog.db is damaged ({error}); it is now {} and a new one is begun",
                aside.display()
            ));
        }
    }

    fn say(&self, note: String) {
        let mut last = self.note.lock();
        // The same every minute would only fill the log.
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
    connection.busy_timeout(BUSY)?;
    let found = schema::version(&connection)?;
    if found > schema::VERSION {
        // Nothing is changed in what a newer program owns.
        return Err(StoreError::Future { found });
    }
    // Takes effect in an empty file only; an older one keeps its free pages for later rows.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    // Where a file system cannot do it, SQLite says so and stays with what it can.
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    // A power cut may cost the last rows, never the file; they can be made again.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    schema::migrate(&mut connection, signed(now_ms))?;
    Ok(connection)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
