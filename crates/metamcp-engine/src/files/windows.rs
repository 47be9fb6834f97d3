//! Files as Windows has them: by paths, since there are no directory handles; and others may keep a file from being
//! replaced, by having it open.
//!
//! Whom the system lets into a folder is inherited from the folder around it: what is below the user's profile is open to
//! that user, the system and its administrators. There is no mode to check.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::FileError;

pub(super) type Handle = PathBuf;

/// Volume and number of the file on it.
pub(super) type Identity = (u64, u64);

/// Opens a link itself instead of what it leads to.
const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;

/// Another program has the file open, and does not share it, or a part of it.
const ERROR_ACCESS_DENIED: i32 = 5;
const ERROR_SHARING_VIOLATION: i32 = 32;
const ERROR_LOCK_VIOLATION: i32 = 33;

/// Scanners and indexers let go of a file within milliseconds, other gateways at once.
const ATTEMPTS: u32 = 50;
const INTERVAL: Duration = Duration::from_millis(20);

/// Tries again, for a second, what another program prevents by having the file open.
pub(super) fn patiently<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..ATTEMPTS {
        match act() {
            Err(error) if is_in_use(&error) => std::thread::sleep(INTERVAL),
            done => return done,
        }
    }
    act().map_err(|error| match error.raw_os_error() {
        Some(ERROR_SHARING_VIOLATION | ERROR_LOCK_VIOLATION) => {
            let words = format!("another program has it open ({error}); close that, and try again");
            io::Error::new(io::ErrorKind::ResourceBusy, words)
        }
        _ => error,
    })
}

/// A file that is replaced while others have it open is denied, as one is that we may not touch.
fn is_in_use(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(ERROR_ACCESS_DENIED | ERROR_SHARING_VIOLATION | ERROR_LOCK_VIOLATION)
    )
}

pub(super) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let now = OpenOptions::new().access_mode(0).open(path)?;
    Ok(identity_of(file)? == identity_of(&now)?)
}

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
    let is_wrong = || FileError::WrongKind { path: path.to_owned(), expected: "regular file" };
    // A folder cannot be opened like a file, and the error would not say so.
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(is_wrong()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::io("examine", path, error)),
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    let file = match patiently(|| options.open(path)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::io("open", path, error)),
    };
    let found = file.metadata().map_err(|error| FileError::io("examine", path, error))?;
    // It may have been replaced by a link since.
    if !found.is_file() {
        return Err(is_wrong());
    }
    let identity = identity_of(&file).map_err(|error| FileError::io("examine", path, error))?;
    Ok(Some((file, identity, found.len())))
}

/// There is no mode here; see above.
#[expect(clippy::unnecessary_wraps, reason = "where there is a mode, it is checked")]
pub(super) fn check_private(_file: &File, _path: &Path) -> Result<(), FileError> {
    Ok(())
}

pub(super) fn create_file(_parent: &Handle, _name: &str, path: &Path) -> Result<File, FileError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|error| FileError::io("create", path, error))
}

pub(super) fn open_lock(_parent: &Handle, _name: &str, path: &Path) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    patiently(|| options.open(path)).map_err(|source| FileError::io("open", path, source))
}

pub(super) fn open_to_append(
    _parent: &Handle,
    _name: &str,
    path: &Path,
) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    let file = patiently(|| options.open(path));
    let file = file.map_err(|source| FileError::io("open", path, source))?;
    if file.metadata().is_ok_and(|found| found.is_symlink()) {
        return Err(FileError::Symlink { path: path.to_owned() });
    }
    Ok(file)
}

/// Whether the name still leads to this file.
pub(super) fn is_still(parent: &Handle, name: &str, file: &File) -> bool {
    let named = identity(parent, name, &parent.join(name));
    named.is_some() && identity_of(file).ok() == named
}

pub(super) fn is_in_place(_handle: &Handle, path: &Path) -> bool {
    path.is_dir()
}

pub(super) fn rename(parent: &Handle, from: &str, to: &str, path: &Path) -> Result<(), FileError> {
    patiently(|| fs::rename(parent.join(from), parent.join(to)))
        .map_err(|error| FileError::io("rename", path, error))
}

pub(super) fn remove(_parent: &Handle, _name: &str, path: &Path) -> Result<(), FileError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => patiently(|| fs::remove_dir(path)),
        // A link to a folder is removed like a folder, and a file never is.
        Ok(_) => patiently(|| fs::remove_file(path))
            .or_else(|error| fs::remove_dir(path).map_err(|_| error)),
        Err(error) => Err(error),
    };
    match removed {
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
    let mut options = OpenOptions::new();
    // Nothing of its content is read, so whoever has it open need not share that.
    options.access_mode(0).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    identity_of(&options.open(path).ok()?).ok()
}

pub(crate) fn identity_of(file: &File) -> io::Result<Identity> {
    let found = winapi_util::file::information(file)?;
    Ok((found.volume_serial_number(), found.file_index()))
}

fn changed_ms(found: &Metadata) -> Option<u64> {
    let since = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}
