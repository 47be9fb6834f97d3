//! Where the file is: one who may open or replace it at a time, nothing followed that leads elsewhere.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::StoreError;
use crate::files::{Directory, FileError};

const FILE: &str = "catalog.db";
const LOCK: &str = "catalog.lock";
/// Files SQLite keeps beside its own.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Opening takes milliseconds; migrating the largest file there can be takes a few seconds.
const LOCK_ATTEMPTS: u32 = 150;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Damaged files kept for whoever wants to know what happened.
const MAX_ASIDE: usize = 3;
/// Names looked at when older ones are cleared away.
const MAX_ENTRIES: usize = 10_000;

/// Device and inode: the same file, whatever its name.
pub(super) type Identity = (u64, u64);

/// The home, resolved and checked.
#[derive(Debug)]
pub(super) struct Place {
    directory: Directory,
    path: PathBuf,
}

/// While this lives nobody else opens, migrates, creates or puts aside the file.
#[derive(Debug)]
pub(super) struct LockGuard {
    _file: File,
}

impl Place {
    /// The home as it is now, made if it is not there.
    pub(super) fn find(home: &Path) -> Result<Place, StoreError> {
        let directory = Directory::home_or_create(home)?;
        // The home may be a link; below it SQLite is told to follow none.
        let real = fs::canonicalize(home).map_err(|source| failed("resolve", home, source))?;
        Ok(Place { directory, path: real.join(FILE) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the others, not for long.
    pub(super) fn turn(&self) -> Result<LockGuard, StoreError> {
        let path = self.path.with_file_name(LOCK);
        let file = private(OpenOptions::new().read(true).write(true).create(true))
            .open(&path)
            .map_err(|source| failed("open", &path, source))?;
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(LockGuard { _file: file }),
                Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN_ATTEMPTS),
                Err(TryLockError::Error(source)) => return Err(failed("lock", &path, source)),
            }
        }
        Err(StoreError::Locked { path })
    }

    /// Which file stands there, if any.
    pub(super) fn identity(&self) -> Option<Identity> {
        fs::symlink_metadata(&self.path).ok().map(|found| identity_of(&found))
    }

    /// A private regular file stands there afterwards, empty if there was none.
    pub(super) fn ensure(&self, _turn: &LockGuard) -> Result<Identity, StoreError> {
        let found = match fs::symlink_metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Others may still write to the files beside one that was deleted. A new one must not
                // share them.
                self.remove_beside();
                let created = private(OpenOptions::new().write(true).create_new(true))
                    .open(&self.path)
                    .and_then(|file| file.metadata());
                created.map_err(|source| failed("create", &self.path, source))?
            }
            Err(source) => return Err(failed("examine", &self.path, source)),
        };
        if !found.is_file() {
            let path = self.path.clone();
            return Err(FileError::WrongKind { path, expected: "regular file" }.into());
        }
        self.make_private(&found)?;
        Ok(identity_of(&found))
    }

    /// Moves a damaged file out of the way, unless another gateway has done so: then another file stands there.
    pub(super) fn put_aside(
        &self,
        damaged: Identity,
        now_ms: u64,
        _turn: &LockGuard,
    ) -> Result<Option<PathBuf>, StoreError> {
        if self.identity() != Some(damaged) {
            return Ok(None);
        }
        let prefix = format!("{FILE}.damaged-");
        let aside = format!("{prefix}{now_ms:013}");
        self.directory.rename(FILE, &aside)?;
        self.remove_beside();
        let names = self.directory.names(MAX_ENTRIES).unwrap_or_default();
        let mut old: Vec<&String> = names.iter().filter(|name| name.starts_with(&prefix)).collect();
        old.truncate(old.len().saturating_sub(MAX_ASIDE));
        for name in old {
            // One too many does no harm; it is tried again next time.
            self.directory.remove(name).ok();
        }
        Ok(Some(self.path.with_file_name(aside)))
    }

    fn remove_beside(&self) {
        for suffix in BESIDE {
            // Usually there is none.
            self.directory.remove(&format!("{FILE}{suffix}")).ok();
        }
    }

    #[cfg(unix)]
    fn make_private(&self, found: &fs::Metadata) -> Result<(), StoreError> {
        use std::os::unix::fs::PermissionsExt;
        // By its name: to open and close the file would drop the locks SQLite holds on it in this process.
        if found.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&self.path, fs::Permissions::from_mode(0o600))
                .map_err(|source| failed("make private", &self.path, source))?;
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn make_private(&self, _found: &fs::Metadata) -> Result<(), StoreError> {
        Ok(())
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::File(FileError::Io { action, path: path.to_owned(), source })
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600).custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn identity_of(found: &fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino())
}

/// Elsewhere a file that is open cannot be deleted, so that it is always the same.
#[cfg(not(unix))]
fn identity_of(_found: &fs::Metadata) -> Identity {
    (0, 0)
}
