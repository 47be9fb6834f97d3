//! Every operation relative to an open directory, without following symlinks or blocking.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

use super::FileError;

pub(super) type Handle = OwnedFd;

/// Device and inode.
pub(super) type Identity = (u64, u64);

pub(super) fn patiently<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    act()
}

pub(super) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let (own, now) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((own.dev(), own.ino()) == (now.dev(), now.ino()))
}

pub(super) fn open_home(path: &Path) -> Result<Option<Handle>, FileError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    match nix::fcntl::open(path, flags, Mode::empty()) {
        Ok(handle) => checked(handle, path).map(Some),
        Err(Errno::ENOENT) => Ok(None),
        Err(Errno::ENOTDIR) => {
            Err(FileError::WrongKind { path: path.to_owned(), expected: "directory" })
        }
        Err(error) => Err(FileError::io("open", path, error)),
    }
}

pub(super) fn create_home(path: &Path) -> Result<(), FileError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| FileError::io("create", path, source))
}

pub(super) fn open_directory(
    parent: &Handle,
    name: &str,
    path: &Path,
) -> Result<Option<Handle>, FileError> {
    let flags = OFlag::O_RDONLY
        | OFlag::O_DIRECTORY
        | OFlag::O_NOFOLLOW
        | OFlag::O_CLOEXEC
        | OFlag::O_NONBLOCK;
    match openat(parent, name, flags, Mode::empty()) {
        Ok(handle) => checked(handle, path).map(Some),
        Err(Errno::ENOENT) => Ok(None),
        Err(Errno::ENOTDIR | Errno::ELOOP) => Err(not_a_directory(parent, name, path)),
        Err(error) => Err(FileError::io("open", path, error)),
    }
}

pub(super) fn create_directory(parent: &Handle, name: &str, path: &Path) -> Result<(), FileError> {
    match mkdirat(parent, name, Mode::S_IRWXU) {
        // Another gateway may have been first.
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(FileError::io("create", path, error)),
    }
}

pub(super) fn open_file(
    parent: &Handle,
    name: &str,
    path: &Path,
) -> Result<Option<(File, Identity, u64)>, FileError> {
    // Without O_NONBLOCK, opening a pipe waits for a writer that never comes.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let handle = match openat(parent, name, flags, Mode::empty()) {
        Ok(handle) => handle,
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP | Errno::ENXIO) => {
            return Err(FileError::WrongKind { path: path.to_owned(), expected: "regular file" });
        }
        Err(error) => return Err(FileError::io("open", path, error)),
    };
    let stat = fstat(&handle).map_err(|error| FileError::io("examine", path, error))?;
    if kind(&stat) != SFlag::S_IFREG {
        return Err(FileError::WrongKind { path: path.to_owned(), expected: "regular file" });
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    Ok(Some((File::from(handle), identity_of(&stat), size)))
}

pub(super) fn create_file(parent: &Handle, name: &str, path: &Path) -> Result<File, FileError> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
        .map(File::from)
        .map_err(|error| FileError::io("create", path, error))
}

pub(super) fn open_lock(parent: &Handle, name: &str, path: &Path) -> Result<File, FileError> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
        .map(File::from)
        .map_err(|error| FileError::io("open", path, error))
}

pub(super) fn open_to_append(parent: &Handle, name: &str, path: &Path) -> Result<File, FileError> {
    let flags = OFlag::O_RDWR
        | OFlag::O_APPEND
        | OFlag::O_CREAT
        | OFlag::O_NOFOLLOW
        | OFlag::O_CLOEXEC
        | OFlag::O_NONBLOCK;
    match openat(parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(handle) => Ok(File::from(handle)),
        Err(Errno::ELOOP) => Err(FileError::Symlink { path: path.to_owned() }),
        Err(Errno::ENXIO | Errno::EISDIR) => {
            Err(FileError::WrongKind { path: path.to_owned(), expected: "regular file" })
        }
        Err(error) => Err(FileError::io("open", path, error)),
    }
}

pub(super) fn is_still(parent: &Handle, name: &str, file: &File) -> bool {
    let there = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    there.is_ok_and(|there| fstat(file).is_ok_and(|own| identity_of(&own) == identity_of(&there)))
}

pub(super) fn is_in_place(handle: &Handle, path: &Path) -> bool {
    let there = nix::sys::stat::stat(path);
    there.is_ok_and(|there| fstat(handle).is_ok_and(|own| identity_of(&own) == identity_of(&there)))
}

pub(super) fn rename(parent: &Handle, from: &str, to: &str, path: &Path) -> Result<(), FileError> {
    renameat(parent, from, parent, to).map_err(|error| FileError::io("rename", path, error))
}

pub(super) fn remove(parent: &Handle, name: &str, path: &Path) -> Result<(), FileError> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(Errno::EISDIR | Errno::EPERM) => unlinkat(parent, name, UnlinkatFlags::RemoveDir)
            .map_err(|error| FileError::io("remove", path, error)),
        Err(error) => Err(FileError::io("remove", path, error)),
    }
}

pub(super) fn modified_ms(parent: &Handle, name: &str, _path: &Path) -> Option<u64> {
    let stat = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    u64::try_from(stat.st_mtime).ok()?.checked_mul(1_000)
}

pub(super) fn identity(parent: &Handle, name: &str, _path: &Path) -> Option<Identity> {
    fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok().map(|stat| identity_of(&stat))
}

/// Checked on the open file, so that what is checked is what is read.
pub(super) fn check_private(file: &File, path: &Path) -> Result<(), FileError> {
    let stat = fstat(file).map_err(|error| FileError::io("examine", path, error))?;
    if stat.st_uid != Uid::effective().as_raw() {
        return Err(FileError::ForeignOwner { path: path.to_owned(), owner: stat.st_uid });
    }
    // The standard library's number is of the same width on every system.
    let metadata = file.metadata().map_err(|error| FileError::io("examine", path, error))?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(FileError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

fn checked(handle: Handle, path: &Path) -> Result<Handle, FileError> {
    let stat = fstat(&handle).map_err(|error| FileError::io("examine", path, error))?;
    if stat.st_uid != Uid::effective().as_raw() {
        return Err(FileError::ForeignOwner { path: path.to_owned(), owner: stat.st_uid });
    }
    Ok(handle)
}

fn not_a_directory(parent: &Handle, name: &str, path: &Path) -> FileError {
    match fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) if kind(&stat) == SFlag::S_IFLNK => FileError::Symlink { path: path.to_owned() },
        Ok(_) => FileError::WrongKind { path: path.to_owned(), expected: "directory" },
        Err(error) => FileError::io("examine", path, io::Error::from(error)),
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

#[cfg_attr(
    target_os = "linux",
    expect(clippy::useless_conversion, reason = "the types differ between systems")
)]
fn identity_of(stat: &FileStat) -> Identity {
    (u64::try_from(stat.st_dev).unwrap_or(0), stat.st_ino.into())
}
