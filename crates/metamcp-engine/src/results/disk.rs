//! Values on disk: a directory of this process's own, readable by its user alone, removed at the end.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

use crate::clock::unix_millis;
use crate::files::{Directory, FileError};

/// The directory of all processes, below the home.
const FOLDER: &str = "results";
/// Longest value read again; what is kept came in one message.
const MAX_FILE: u64 = 1 << 30;
/// What a process that crashed left behind is removed after this long, when nobody can hold its handles any more.
const LEFT_BEHIND_MS: u64 = 2 * 60 * 60 * 1000;
/// Entries looked at while removing.
const MOST: usize = 100_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Disk {
    home: PathBuf,
    /// Its own name in the directory of all, once it exists.
    own: Mutex<Option<String>>,
}

impl Disk {
    pub(super) fn under(home: &Path) -> Disk {
        Disk { home: home.to_owned(), own: Mutex::default() }
    }

    /// Whether the value is there now.
    pub(super) fn write(&self, handle: &str, bytes: &[u8]) -> bool {
        self.open_or_create().is_ok_and(|directory| directory.replace(handle, bytes).is_ok())
    }

    pub(super) fn read(&self, handle: &str) -> Option<Bytes> {
        let own = self.lock().clone()?;
        let directory = self.all().ok()??.inside(&own).ok()??;
        directory.open(handle).ok()??.read(MAX_FILE).ok().map(Bytes::from)
    }

    pub(super) fn remove(&self, handle: &str) {
        let own = self.lock().clone();
        if let (Some(own), Ok(Some(all))) = (own, self.all())
            && let Ok(Some(directory)) = all.inside(&own)
        {
            // What is gone already needs no removing; anything else is swept by a later process.
            drop(directory.remove(handle));
        }
    }

    /// Removes everything of this process.
    pub(super) fn end(&self) {
        let own = self.lock().take();
        if let (Some(own), Ok(Some(all))) = (own, self.all()) {
            clear(&all, &own);
        }
    }

    fn all(&self) -> Result<Option<Directory>, FileError> {
        match Directory::home(&self.home)? {
            Some(home) => home.inside(FOLDER),
            None => Ok(None),
        }
    }

    fn open_or_create(&self) -> Result<Directory, FileError> {
        let all = Directory::home_or_create(&self.home)?.inside_or_create(FOLDER)?;
        let mut own = self.lock();
        let is_first = own.is_none();
        let name = own.get_or_insert_with(|| {
            format!("{}-{:016x}", std::process::id(), getrandom::u64().unwrap_or_default())
        });
        let directory = all.inside_or_create(name)?;
        if is_first {
            sweep(&all, name);
        }
        Ok(directory)
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.own.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Removes what processes left behind that could not do it themselves.
fn sweep(all: &Directory, own: &str) {
    let now = unix_millis();
    for name in all.names(MOST).unwrap_or_default() {
        let age = all.modified_ms(&name).map_or(0, |at| now.saturating_sub(at));
        if name != own && age > LEFT_BEHIND_MS {
            clear(all, &name);
        }
    }
}

/// Removes one process's directory. What cannot be removed stays for the next sweep.
fn clear(all: &Directory, name: &str) {
    if let Ok(Some(directory)) = all.inside(name) {
        for file in directory.names(MOST).unwrap_or_default() {
            drop(directory.remove(&file));
        }
    }
    drop(all.remove(name));
}
