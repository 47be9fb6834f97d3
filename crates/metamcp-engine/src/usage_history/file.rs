//! The file of the usage history. Gateways that share a home lock it: each adds only what it recorded itself to the
//! current content. One that does not get the lock in time checks before its write whether another one wrote meanwhile.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use metamcp_search::usage_history::{MAX_BYTES, Unreadable, UsageHistory};

use crate::files::{Directory, FileError, Opened, temporary_prefix};

const FILE: &str = "habits.json";

/// A damaged file is renamed to this; one is enough to see what happened.
const ASIDE: &str = "habits.json.corrupt";

/// How often a write by another process between our read and our write is accepted before it is overwritten.
const ATTEMPTS: usize = 4;

/// How often, and at which intervals, the lock is tried. A write takes milliseconds, so this is enough for dozens of
/// gateways that stop together; one that is suspended in the middle of a write blocks no other.
const TURN_ATTEMPTS: u32 = 100;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Temporary files older than this were left by a crash.
const ABANDONED_MS: u64 = 60 * 60 * 1_000;

/// Most entries of the home that are read.
const MAX_ENTRIES: usize = 10_000;

/// Why the usage history cannot be read or written. The gateway continues without it.
#[derive(Debug, thiserror::Error)]
pub enum UsageFileError {
    /// The file or its directory is not usable.
    #[error("the usage history cannot be read or written")]
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

    /// Its content: empty if it does not exist or another version wrote it. A damaged one is renamed.
    pub fn read(&self) -> Result<UsageHistory, UsageFileError> {
        match Directory::home(&self.home)? {
            Some(home) => Ok(load(&home)?.0),
            None => Ok(UsageHistory::default()),
        }
    }

    /// Adds to its content, and returns all of it.
    pub fn add(&self, fresh: &UsageHistory, now_ms: u64) -> Result<UsageHistory, UsageFileError> {
        let home = Directory::home_or_create(&self.home)?;
        sweep(&home, now_ms);
        let _lock = lock(&home);
        let mut attempt = 1;
        loop {
            let (mut history, seen) = load(&home)?;
            history.merge(fresh);
            let text = history.to_json();
            if attempt == ATTEMPTS || is_still(&home, seen.as_ref()) {
                home.replace(FILE, text.as_bytes())?;
                return Ok(history);
            }
            attempt += 1;
        }
    }

    /// Removes it, its damaged copy and temporary files.
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

/// The file's content, and the open file: while it is open, its inode is not reused.
fn load(home: &Directory) -> Result<(UsageHistory, Option<Opened>), FileError> {
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
            // Unless another gateway has replaced it meanwhile.
            if home.still_holds(FILE, &opened) {
                home.rename(FILE, ASIDE)?;
            }
            Ok((UsageHistory::default(), None))
        }
    }
}

/// The lock, until it is dropped; `None` if it is not free in time. The home itself is locked, which needs no lock file.
fn lock(home: &Directory) -> Option<File> {
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
