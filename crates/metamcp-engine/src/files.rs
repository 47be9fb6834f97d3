//! Files under the user's home that survive crashes, concurrent gateways and planted traps such as symlinks.
//! Owns: private directories, atomic writes, bounded reads, names made safe for paths.      Never: knows what is in a file.
//! In: a directory, a name, bytes.  Out: all of the bytes or none, and never a hang.
//! Tests: `files/tests.rs`.

#[cfg(unix)]
#[path = "files/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "files/windows.rs"]
mod system;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

#[cfg(test)]
#[cfg(unix)]
mod tests;
#[cfg(test)]
#[cfg(windows)]
mod windows_tests;

#[cfg(windows)]
pub(crate) use system::identity_of;

/// Longest readable part of a component; with the digest and a suffix it stays far below the 255 bytes
/// that file systems allow.
const MAX_READABLE: usize = 64;

/// Why a file or directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{} is a symbolic link and is not followed", path.display())]
    Symlink { path: PathBuf },
    #[error("{} belongs to another user (uid {owner})", path.display())]
    ForeignOwner { path: PathBuf, owner: u32 },
    #[error("{} is open to others (mode {mode:04o})", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{} is not a {expected}", path.display())]
    WrongKind { path: PathBuf, expected: &'static str },
    #[error("{} is larger than {cap} bytes", path.display())]
    TooLarge { path: PathBuf, cap: u64 },
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FileError {
    fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.to_owned(), source: source.into() }
    }
}

/// Does what another program may prevent for a moment by having the file open: on Windows a file that others read cannot
/// always be replaced or removed. There it is tried again within a bound; elsewhere once is enough.
pub fn patiently<T>(act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    system::patiently(act)
}

/// Whether a path still leads to this file, rather than to one that took its place.
pub fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    system::is_named(file, path)
}

/// `name` as one path component: readable, and unique also on file systems that ignore case.
pub fn component(name: &str) -> String {
    let mut safe = String::new();
    for c in name.chars().take(MAX_READABLE) {
        safe.push(if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' });
    }
    safe.push('-');
    for byte in &Sha256::digest(name.as_bytes())[..4] {
        safe.push_str(&format!("{byte:02x}"));
    }
    safe
}

/// An open regular file and its size when it was opened.
#[derive(Debug)]
pub struct Opened {
    file: File,
    path: PathBuf,
    pub size: u64,
    identity: system::Identity,
}

impl Opened {
    /// The whole content, up to `cap`.
    pub fn read(&mut self, cap: u64) -> Result<Vec<u8>, FileError> {
        if self.size > cap {
            return Err(FileError::TooLarge { path: self.path.clone(), cap });
        }
        let bytes = self.read_start(cap + 1)?;
        // The file may have grown since it was opened.
        if bytes.len() as u64 > cap {
            return Err(FileError::TooLarge { path: self.path.clone(), cap });
        }
        Ok(bytes)
    }

    /// The file itself, to read from any place.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Continues after the last read, at most `most` bytes.
    pub fn read_start(&mut self, most: u64) -> Result<Vec<u8>, FileError> {
        let mut bytes = Vec::with_capacity(usize::try_from(most.min(self.size)).unwrap_or(0));
        (&self.file)
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(|source| FileError::io("read", &self.path, source))?;
        Ok(bytes)
    }
}

/// A directory of ours: not a symlink, not another user's. Entries are accessed relative to the open directory, so that
/// replacing it by a symlink after the check has no effect.
#[derive(Debug)]
pub struct Directory {
    inner: system::Handle,
    path: PathBuf,
}

impl Directory {
    /// The user's own directory, which may itself be a symlink, such as to another disk.
    pub fn home(path: &Path) -> Result<Option<Self>, FileError> {
        system::open_home(path)
            .map(|found| found.map(|inner| Self { inner, path: path.to_owned() }))
    }

    /// The same, created with mode 0700 if missing.
    pub fn home_or_create(path: &Path) -> Result<Self, FileError> {
        if let Some(found) = Self::home(path)? {
            return Ok(found);
        }
        system::create_home(path)?;
        Self::home(path)?.ok_or_else(|| FileError::io("open", path, io::ErrorKind::NotFound))
    }

    pub fn inside(&self, name: &str) -> Result<Option<Self>, FileError> {
        let path = self.path.join(name);
        let found = system::open_directory(&self.inner, name, &path)?;
        Ok(found.map(|inner| Self { inner, path }))
    }

    /// The same, created with mode 0700 if missing.
    pub fn inside_or_create(&self, name: &str) -> Result<Self, FileError> {
        if let Some(found) = self.inside(name)? {
            return Ok(found);
        }
        let path = self.path.join(name);
        system::create_directory(&self.inner, name, &path)?;
        self.inside(name)?.ok_or_else(|| FileError::io("open", &path, io::ErrorKind::NotFound))
    }

    /// A regular file inside. Never blocks, whatever is in its place.
    pub fn open(&self, name: &str) -> Result<Option<Opened>, FileError> {
        let path = self.path.join(name);
        let Some((file, identity, size)) = system::open_file(&self.inner, name, &path)? else {
            return Ok(None);
        };
        Ok(Some(Opened { file, path, size, identity }))
    }

    /// The same for a file with a secret: it must belong to this user, and nobody else may read or write it.
    pub fn open_private(&self, name: &str) -> Result<Option<Opened>, FileError> {
        let Some(opened) = self.open(name)? else { return Ok(None) };
        system::check_private(&opened.file, &opened.path)?;
        Ok(Some(opened))
    }

    /// Replaces `name` atomically: readers see the old file or the new one, complete.
    /// Not synced to disk: for files whose loss costs nothing and whose damage is detected.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.put(name, bytes, false)
    }

    /// The same for what cannot be recreated: synced to disk when this returns.
    pub fn replace_for_good(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.put(name, bytes, true)
    }

    /// An empty file for locking between processes.
    pub fn open_lock(&self, name: &str) -> Result<File, FileError> {
        system::open_lock(&self.inner, name, &self.path.join(name))
    }

    /// A private file to read and to append to, created if missing.
    pub fn open_to_append(&self, name: &str) -> Result<File, FileError> {
        let path = self.path.join(name);
        let file = system::open_to_append(&self.inner, name, &path)?;
        let metadata = file.metadata().map_err(|source| FileError::io("examine", &path, source))?;
        if !metadata.is_file() {
            return Err(FileError::WrongKind { path, expected: "regular file" });
        }
        system::check_private(&file, &path)?;
        Ok(file)
    }

    /// Whether `name` is still this file, where the system can tell.
    pub fn is_still(&self, name: &str, file: &File) -> bool {
        system::is_still(&self.inner, name, file)
    }

    /// Whether its path still leads to it, where the system can tell.
    pub fn is_in_place(&self) -> bool {
        system::is_in_place(&self.inner, &self.path)
    }

    fn put(&self, name: &str, bytes: &[u8], for_good: bool) -> Result<(), FileError> {
        let temporary = temporary_name(name)?;
        let path = self.path.join(&temporary);
        let mut file = system::create_file(&self.inner, &temporary, &path)?;
        let written = file
            .write_all(bytes)
            .and_then(|()| if for_good { file.sync_all() } else { Ok(()) })
            .map_err(|source| FileError::io("write", &path, source));
        drop(file);
        let moved = written.and_then(|()| self.rename(&temporary, name));
        if for_good && moved.is_ok() {
            // Syncs the directory, which makes the new name durable; systems that cannot do that lose nothing by it.
            File::open(&self.path).and_then(|folder| folder.sync_all()).ok();
        }
        if moved.is_err() {
            // The error is reported; a leftover temporary file is swept later.
            self.remove(&temporary).ok();
        }
        moved
    }

    /// Moves an entry, whatever it is, over another.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        system::rename(&self.inner, from, to, &self.path.join(from))
    }

    /// Removes a file, a symlink or an empty directory. A missing entry is no error.
    pub fn remove(&self, name: &str) -> Result<(), FileError> {
        system::remove(&self.inner, name, &self.path.join(name))
    }

    /// The names inside, at most `most`, sorted. Names that are not UTF-8 are skipped.
    pub fn names(&self, most: usize) -> Result<Vec<String>, FileError> {
        let listing = std::fs::read_dir(&self.path)
            .map_err(|source| FileError::io("list", &self.path, source))?;
        let named = listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = named.take(most).collect();
        names.sort();
        Ok(names)
    }

    /// When the entry itself was last changed, in milliseconds since 1970.
    pub fn modified_ms(&self, name: &str) -> Option<u64> {
        system::modified_ms(&self.inner, name, &self.path.join(name))
    }

    /// Whether `name` is still the file that was opened.
    pub fn still_holds(&self, name: &str, opened: &Opened) -> bool {
        system::identity(&self.inner, name, &self.path.join(name)) == Some(opened.identity)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The prefix of temporary files, by which those left by a crash are recognized.
pub fn temporary_prefix(name: &str) -> String {
    format!(".{name}.")
}

fn temporary_name(name: &str) -> Result<String, FileError> {
    let random = getrandom::u64().map_err(|error| {
        FileError::io(
            "name a temporary file for",
            Path::new(name),
            io::Error::other(error.to_string()),
        )
    })?;
    Ok(format!("{}{}.{random:016x}", temporary_prefix(name), std::process::id()))
}
