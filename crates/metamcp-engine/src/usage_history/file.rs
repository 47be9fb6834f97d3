//! The file of habits. Gateways that share a home take turns: each adds only what it learnt itself to what the file
//! holds at that moment. One that does not get its turn in time looks again whether somebody was faster.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use metamcp_search::usage_history::{MAX_BYTES, Unreadable, UsageHistory};

use crate::files::{Directory, FileError, Opened, temporary_prefix};

const FILE: &str = "habits.json";

/// A damaged file is kept under this name; one is enough to see what happened.
const ASIDE: &str = "habits.json.corrupt";

/// Somebody else wrote between our reading and our writing: how often that is accepted before theirs is overwritten.
const ATTEMPTS: usize = 4;

/// How often, and between which pauses, a turn is asked for. A write takes milliseconds, so this does for dozens that
/// close together; a gateway that was stopped in the middle of one keeps nobody.
const TURN_ATTEMPTS: u32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Temporary files older than this were left by a crash.
const ABANDONED_MS: u64 = 60 * 60 * 1_000;

/// Entries of the home that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// Why habits cannot be read or written. The gateway goes on without them.
#[derive(Debug, thiserror::Error)]
pub enum UsageFileError {
    /// The file or its directory is not usable.
    #[error("what was learnt from use cannot be read or kept")]
    File {
        /// What is wrong.
        #[from]
        source: FileError,
    },
}

/// What `forget` did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forgotten {
    /// Pairs of a query and a tool that were in the file.
    pub history: usize,
    /// The files that are gone.
    pub removed: Vec<PathBuf>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct UsageFile {
    home: PathBuf,
}

impl UsageFile {
    /// The file under `home`, such as `~/.metamcp`. Touches nothing yet.
    pub fn new(home: &Path) -> UsageFile {
        UsageFile { home: home.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.home.join(FILE)
    }

    /// What it holds: nothing if it is not there or another version wrote it. A damaged one is put aside.
    pub fn read(&self) -> Result<UsageHistory, UsageFileError> {
        match Directory::home(&self.home)? {
            Some(home) => Ok(look(&home)?.0),
            None => Ok(UsageHistory::default()),
        }
    }

    /// Adds to what it holds, and returns all of it.
    pub fn add(&self, fresh: &UsageHistory, now_ms: u64) -> Result<UsageHistory, UsageFileError> {
        let home = Directory::home_or_create(&self.home)?;
        sweep(&home, now_ms);
        let _turn = turn(&home);
        let mut attempt = 1;
        loop {
            let (mut history, seen) = look(&home)?;
            history.merge(fresh);
            let text = history.to_json();
            if attempt == ATTEMPTS || is_still(&home, seen.as_ref()) {
                home.replace(FILE, text.as_bytes())?;
                return Ok(history);
            }
            attempt += 1;
        }
    }

    /// Removes it and whatever was left of it by damage or crashes.
    pub fn forget(&self) -> Result<Forgotten, UsageFileError> {
        let mut forgotten = Forgotten::default();
        let Some(home) = Directory::home(&self.home)? else { return Ok(forgotten) };
        if let Ok(Some(mut opened)) = home.open(FILE)
            && let Ok(bytes) = opened.read(MAX_BYTES as u64)
        {
            forgotten.history = UsageHistory::from_json(&String::from_utf8_lossy(&bytes)).len();
        }
        for name in home.names(MAX_ENTRIES)? {
            if name == FILE || name == ASIDE || name.starts_with(&temporary_prefix(FILE)) {
                home.remove(&name)?;
                forgotten.removed.push(home.path().join(name));
            }
        }
        Ok(forgotten)
    }
}

/// What the file holds, and the file itself: as long as it is open, no other can be taken for it.
fn look(home: &Directory) -> Result<(UsageHistory, Option<Opened>), FileError> {
    let mut opened = match home.open(FILE) {
        Ok(Some(opened)) => opened,
        Ok(None) => return Ok((UsageHistory::default(), None)),
        Err(FileError::WrongKind { .. }) => {
            home.rename(FILE, ASIDE)?;
            return Ok((UsageHistory::default(), None));
        }
        Err(error) => return Err(error),
    };
    let read = match opened.read(MAX_BYTES as u64) {
        Ok(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => UsageHistory::parse(text),
            Err(_) => Err(Unreadable::Damaged),
        },
        Err(FileError::TooLarge { .. }) => Err(Unreadable::Damaged),
        Err(error) => return Err(error),
    };
    match read {
        Ok(history) => Ok((history, Some(opened))),
        Err(Unreadable::Version) => Ok((UsageHistory::default(), Some(opened))),
        Err(Unreadable::Damaged) => {
            // Unless another gateway has mended it in the meantime.
            if home.still_holds(FILE, &opened) {
                home.rename(FILE, ASIDE)?;
            }
            Ok((UsageHistory::default(), None))
        }
    }
}

/// Held until it is dropped; nothing if it does not come in time. The home itself is locked, so that no file lies beside
/// the one it is for.
fn turn(home: &Directory) -> Option<File> {
    let file = File::open(home.path()).ok()?;
    for _ in 0..TURN_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN_ATTEMPTS),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

fn is_still(home: &Directory, seen: Option<&Opened>) -> bool {
    match seen {
        Some(opened) => home.still_holds(FILE, opened),
        None => home.modified_ms(FILE).is_none(),
    }
}

fn sweep(home: &Directory, now_ms: u64) {
    for name in home.names(MAX_ENTRIES).unwrap_or_default() {
        let old = |ms: u64| now_ms.saturating_sub(ms) > ABANDONED_MS;
        if name.starts_with(&temporary_prefix(FILE)) && home.modified_ms(&name).is_some_and(old) {
            // The next write tries again.
            home.remove(&name).ok();
        }
    }
}
