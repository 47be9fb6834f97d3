//! Folders, locks and sockets as Unix has them.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
use nix::unistd::Uid;

use super::{Candidate, KEY_BYTES, NAME, Parent};

/// Longest path of a socket with its final NUL: 104 bytes on macOS, 108 on Linux.
const MAX_SOCKET_PATH: usize = 104;
/// Longest name in the folder: key, process and suffix.
const MAX_NAME: usize = 2 * KEY_BYTES + 1 + 10 + 5;

pub type Listener = UnixListener;
pub type Stream = UnixStream;

/// A lock that is ours until this is dropped, or until the process ends, however it ends.
#[derive(Debug)]
pub struct Held {
    _file: File,
}

pub(super) fn candidates(home: &Path, said: Option<&str>) -> Vec<Candidate> {
    let below = |parent: PathBuf, parent_is| {
        let folder = parent.join(NAME);
        Candidate { folder, parent, parent_is }
    };
    if let Some(said) = said {
        // Whoever names a folder means that one: another would hide that it does not work.
        return vec![below(PathBuf::from(said), Parent::Named)];
    }
    let user = Uid::effective();
    vec![
        below(PathBuf::from(format!("/run/user/{user}")), Parent::Given),
        below(PathBuf::from(format!("/tmp/metamcp-{user}")), Parent::Private),
        Candidate { folder: home.join("run"), parent: home.to_owned(), parent_is: Parent::Named },
    ]
}

/// Whether a socket in the folder has a path that is short enough.
pub(super) fn fitting(folder: &Path) -> Result<(), String> {
    if folder.as_os_str().len() + 1 + MAX_NAME < MAX_SOCKET_PATH {
        return Ok(());
    }
    Err(format!(
        "the path {} is too long for a socket (the system allows {MAX_SOCKET_PATH} bytes)",
        folder.display()
    ))
}

/// Creates what is missing and refuses what is not safe.
pub(super) fn prepare(candidate: &Candidate) -> Result<(), String> {
    let Candidate { folder, parent, parent_is } = candidate;
    match parent_is {
        Parent::Named if !parent.is_absolute() => {
            return Err(format!("{} is not an absolute path", parent.display()));
        }
        Parent::Named => create(parent, true)?,
        Parent::Given => {
            let found = std::fs::symlink_metadata(parent)
                .map_err(|error| format!("{}: {error}", parent.display()))?;
            owned(parent, &found)?;
        }
        Parent::Private => private(parent)?,
    }
    private(folder)?;
    if is_remote(folder) {
        return Err(format!(
            "{} is on a network disk, where other machines would find it too",
            folder.display()
        ));
    }
    Ok(())
}

/// A folder that only we can enter.
fn private(folder: &Path) -> Result<(), String> {
    create(folder, false)?;
    let found = std::fs::symlink_metadata(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    owned(folder, &found)?;
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "{} is open to others (mode {mode:04o}); `chmod 700` it, or remove it",
            folder.display()
        ));
    }
    Ok(())
}

/// A real folder of this user.
fn owned(folder: &Path, found: &Metadata) -> Result<(), String> {
    if found.file_type().is_symlink() {
        return Err(format!("{} is a symbolic link and is not followed", folder.display()));
    }
    if !found.is_dir() {
        return Err(format!("{} is not a folder", folder.display()));
    }
    if found.uid() != Uid::effective().as_raw() {
        return Err(format!("{} belongs to another user (uid {})", folder.display(), found.uid()));
    }
    Ok(())
}

fn create(folder: &Path, with_parents: bool) -> Result<(), String> {
    match DirBuilder::new().recursive(with_parents).mode(0o700).create(folder) {
        Ok(()) => Ok(()),
        // Whatever it is, it is checked next.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(format!("{} cannot be created: {error}", folder.display())),
    }
}

/// Whether a lock in this folder would be shared, or not be shared, with processes of other machines.
#[cfg(target_os = "linux")]
fn is_remote(folder: &Path) -> bool {
    use nix::sys::statfs::{FsType, NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, statfs};
    /// Of CIFS and its second version, AFS and Ceph.
    const OTHERS: [u32; 4] = [0xff53_4d42, 0xfe53_4d42, 0x5346_414f, 0x00c3_6400];
    let Ok(found) = statfs(folder) else { return false };
    let FsType(number) = found.filesystem_type();
    found.filesystem_type() == NFS_SUPER_MAGIC
        || found.filesystem_type() == SMB_SUPER_MAGIC
        || OTHERS.contains(&(number as u32))
}

#[cfg(not(target_os = "linux"))]
fn is_remote(_folder: &Path) -> bool {
    false
}

pub(super) fn try_lock(path: &Path) -> io::Result<Option<Held>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Held { _file: file })),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

pub(super) fn bind(temporary: &Path, name: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(temporary)?;
    // Connectors find the old name or the new one, never none.
    let placed = std::fs::set_permissions(temporary, Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(temporary, name));
    if let Err(error) = placed {
        std::fs::remove_file(temporary).ok();
        return Err(error);
    }
    Ok(listener)
}

pub(super) fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let fd: OwnedFd = socket::socket(
        AddressFamily::Unix,
        SockType::Stream,
        // macOS cannot set it here; the standard library does it below.
        #[cfg(target_os = "linux")]
        SockFlag::SOCK_CLOEXEC,
        #[cfg(not(target_os = "linux"))]
        SockFlag::empty(),
        None,
    )?;
    #[cfg(not(target_os = "linux"))]
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let stream = UnixStream::from(fd);
    // It limits connecting too, which waits while the queue of a daemon that hangs is full.
    stream.set_write_timeout(Some(limit))?;
    socket::connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    stream.set_write_timeout(None)?;
    if peer_is_us(&stream)? {
        return Ok(stream);
    }
    let words = format!("the socket {} belongs to a process of another user", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
}

/// Whether the process at the other end is of this user.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn peer_is_us(stream: &impl std::os::fd::AsFd) -> io::Result<bool> {
    let peer = socket::getsockopt(stream, socket::sockopt::PeerCredentials)?;
    Ok(peer.uid() == Uid::effective().as_raw())
}

/// Whether the process at the other end is of this user.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn peer_is_us(stream: &impl std::os::fd::AsFd) -> io::Result<bool> {
    let (user, _) = nix::unistd::getpeereid(stream)?;
    Ok(user == Uid::effective())
}
