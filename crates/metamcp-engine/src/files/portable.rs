//! The same by paths, for systems without directory handles: symlinks are refused by checking first.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::FileError;

pub(super) type Handle = PathBuf;

/// Size and modification time, as there is no inode.
pub(super) type Identity = (u64, Option<u64>);

pub(super) fn open_home(path: &Path) -> Result<Option<Handle>, FileError> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(Some(path.to_owned())),
        Ok(_) => Err(FileError::WrongKind { path: path.to_owned(), expected: "directory" }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::io("open", path, error)),
    }
}

pub(super) fn create_home(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|error| FileError::io("create", path, error))
}

pub(super) fn open_directory(
    _parent: &Handle,
    _name: &str,
    path: &Path,
) -> Result<Option<Handle>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(FileError::Symlink { path: path.to_owned() }),
        Ok(found) if found.is_dir() => Ok(Some(path.to_owned())),
        Ok(_) => Err(FileError::WrongKind { path: path.to_owned(), expected: "directory" }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::io("open", path, error)),
    }
}

pub(super) fn create_directory(
    _parent: &Handle,
    _name: &str,
    path: &Path,
) -> Result<(), FileError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FileError::io("create", path, error))
        }
        _ => Ok(()),
    }
}

pub(super) fn open_file(
    _parent: &Handle,
    _name: &str,
    path: &Path,
) -> Result<Option<(File, Identity, u64)>, FileError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::io("examine", path, error)),
    };
    if !found.is_file() {
        return Err(FileError::WrongKind { path: path.to_owned(), expected: "regular file" });
    }
    let file = File::open(path).map_err(|error| FileError::io("open", path, error))?;
    Ok(Some((file, identity_of(&found), found.len())))
}

pub(super) fn create_file(_parent: &Handle, _name: &str, path: &Path) -> Result<File, FileError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| FileError::io("create", path, error))
}

pub(super) fn open_lock(_parent: &Handle, _name: &str, path: &Path) -> Result<File, FileError> {
    let opened =
        std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(|source| FileError::io("open", path, source))
}

pub(super) fn open_to_append(
    _parent: &Handle,
    _name: &str,
    path: &Path,
) -> Result<File, FileError> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(FileError::Symlink { path: path.to_owned() });
    }
    let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
    opened.map_err(|source| FileError::io("open", path, source))
}

/// There is nothing to tell one file from another by.
pub(super) fn is_still(_parent: &Handle, _name: &str, _file: &File) -> bool {
    true
}

pub(super) fn is_in_place(_handle: &Handle, path: &Path) -> bool {
    path.is_dir()
}

pub(super) fn rename(parent: &Handle, from: &str, to: &str, path: &Path) -> Result<(), FileError> {
    fs::rename(parent.join(from), parent.join(to))
        .map_err(|error| FileError::io("rename", path, error))
}

pub(super) fn remove(_parent: &Handle, _name: &str, path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path).or_else(|_| fs::remove_dir(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

pub(super) fn modified_ms(_parent: &Handle, _name: &str, path: &Path) -> Option<u64> {
    changed_ms(&fs::symlink_metadata(path).ok()?)
}

pub(super) fn identity(_parent: &Handle, _name: &str, path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|found| identity_of(&found))
}

fn identity_of(found: &fs::Metadata) -> Identity {
    (found.len(), changed_ms(found))
}

fn changed_ms(found: &fs::Metadata) -> Option<u64> {
    let since = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Permissions are unknown here; the file is below the user's own folder.
pub(super) fn check_private(_file: &File, _path: &Path) -> Result<(), FileError> {
    Ok(())
}
