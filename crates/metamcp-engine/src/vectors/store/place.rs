//! The path of the file: opened or replaced by one process at a time, without following symlinks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::StoreError;
#[cfg(windows)]
use crate::files;
use crate::files::{Directory, FileError};

const FILE: &str = "catalog.db";
const LOCK: &str = "catalog.lock";
/// Files that SQLite creates beside its own.
const SIDE_FILES: [&str; 2] = ["-wal", "-shm"];

/// Opening takes milliseconds; migrating the largest file a few seconds.
const LOCK_ATTEMPTS: u32 = 150;
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Damaged files kept for diagnosis.
const MAX_ASIDE: usize = 3;
/// Entries read when older ones are removed.
const MAX_ENTRIES: usize = 10_000;

/// Device and inode, or volume and number: the same file, whatever its name.
pub(super) type Identity = (u64, u64);

/// The home, resolved and checked.
#[derive(Debug)]
pub(super) struct Place {
    directory: Directory,
    path: PathBuf,
}

/// While it lives no other process opens, migrates, creates or moves the file.
#[derive(Debug)]
pub(super) struct LockGuard {
    _file: File,
}

impl Place {
    /// Resolves the home; creates it if missing.
    pub(super) fn find(home: &Path) -> Result<Place, StoreError> {
        let directory = Directory::home_or_create(home)?;
        // The home may be a symlink; below it SQLite follows none.
        let real = fs::canonicalize(home).map_err(|source| failed("resolve", home, source))?;
        Ok(Place { directory, path: real.join(FILE) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the file against other processes, with a timeout.
    pub(super) fn lock(&self) -> Result<LockGuard, StoreError> {
        let path = self.path.with_file_name(LOCK);
        let file = private(OpenOptions::new().read(true).write(true).create(true))
            .open(&path)
            .map_err(|source| failed("open", &path, source))?;
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(LockGuard { _file: file }),
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_INTERVAL),
                Err(TryLockError::Error(source)) => return Err(failed("lock", &path, source)),
            }
        }
        Err(StoreError::Locked { path })
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        let found = fs::symlink_metadata(&self.path).ok()?;
        self.identity_of(&found).ok()
    }

    /// Makes sure that there is a private regular file; an empty one is created if there was none.
    pub(super) fn ensure(&self, _lock: &LockGuard) -> Result<Identity, StoreError> {
        let found = match fs::symlink_metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Other processes may still write to the side files of a deleted file. A new one must not
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
        self.identity_of(&found).map_err(|source| failed("examine", &self.path, source))
    }

    /// Moves a damaged file aside, unless another gateway has replaced it already.
    pub(super) fn put_aside(
        &self,
        damaged: Identity,
        now_ms: u64,
        _lock: &LockGuard,
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
            // One too many is harmless; the next time tries again.
            self.directory.remove(name).ok();
        }
        Ok(Some(self.path.with_file_name(aside)))
    }

    fn remove_beside(&self) {
        for suffix in SIDE_FILES {
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

    /// Who may open it is inherited from the user's profile.
    #[cfg(windows)]
    #[expect(clippy::unnecessary_wraps, reason = "where there is a mode, it is changed")]
    fn make_private(&self, _found: &fs::Metadata) -> Result<(), StoreError> {
        Ok(())
    }

    #[cfg(unix)]
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it is asked of the system")]
    fn identity_of(&self, found: &fs::Metadata) -> io::Result<Identity> {
        use std::os::unix::fs::MetadataExt;
        Ok((found.dev(), found.ino()))
    }

    #[cfg(windows)]
    fn identity_of(&self, _found: &fs::Metadata) -> io::Result<Identity> {
        files::identity_of(&File::open(&self.path)?)
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

#[cfg(windows)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}
