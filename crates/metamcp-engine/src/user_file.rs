//! Edits files of the user or of another program: under a lock, atomically, and never from a stale read.
//! Owns: the lock, reading before writing, atomic replacement that keeps mode and symlinks.      Never: knows the content of a file, leaves a partial one.
//! In: a path, and a function from the old text to the new.  Out: the text before and after.
//! Tests: below, and `metamcp/tests/config/first.rs` with many processes.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crate::{clock, files};

/// Largest file edited: state files of clients grow, but not beyond this.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Programs without our lock may write between our read and our write; then we start again, this often.
const MAX_ATTEMPTS: usize = 8;

/// An edit takes milliseconds. After this wait the user is told about it.
const QUIET_WAIT: Duration = Duration::from_millis(500);
/// After this the holder of the lock counts as hung.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_INTERVAL: Duration = Duration::from_millis(10);
/// As many symlinks as systems themselves follow.
const MAX_LINKS: usize = 40;

/// Why a file was not changed. It is as before.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError<E> {
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not UTF-8 text", path.display())]
    NotText { path: PathBuf },
    #[error("{} is not a regular file, or too large to edit", path.display())]
    NotAFile { path: PathBuf },
    /// Another program holds the lock.
    #[error("{} is locked by {holder}; nothing was changed: end that program, or try again later", path.display())]
    Held {
        path: PathBuf,
        /// The process that holds it, as far as known.
        holder: String,
    },
    #[error("{} keeps changing; try again when nothing else writes it", path.display())]
    Busy { path: PathBuf },
    /// `change` returned an error.
    #[error("{0}")]
    Refused(E),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The file itself, symlinks followed.
    pub path: PathBuf,
    /// `None` if there was no file.
    pub before: Option<String>,
    /// `None` if nothing had to change.
    pub after: Option<String>,
}

/// The text of a file; `None` if there is none.
pub fn read<E>(path: &Path) -> Result<Option<String>, UserFileError<E>> {
    let fail = |action, source| UserFileError::Io { action, path: path.to_owned(), source };
    let kind = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail("examine", error)),
    };
    // Opening a pipe without a writer would block forever.
    if !kind.is_file() || kind.len() > MAX_FILE_BYTES {
        return Err(UserFileError::NotAFile { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    let file = files::patiently(|| File::open(path)).map_err(|error| fail("open", error))?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| fail("read", error))?;
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| UserFileError::NotText { path: path.to_owned() })
}

/// Changes a file. `change` maps the old text to the new one, or returns `None` to leave it; it may be called again if
/// another program wrote the file in between. Missing directories are created, private to this user.
pub fn change<E>(
    path: &Path,
    mut change: impl FnMut(Option<&str>) -> Result<Option<String>, E>,
) -> Result<Changed, UserFileError<E>> {
    let given = path.to_owned();
    let follow = |source| UserFileError::Io { action: "follow", path: given.clone(), source };
    let path = target(path).map_err(follow)?;
    let fail = |action, source| UserFileError::Io { action, path: path.clone(), source };
    let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
    make(&folder).map_err(|error| fail("make the folder of", error))?;
    let _lock = match lock(&folder, &path) {
        Ok(Some(lock)) => lock,
        Ok(None) => {
            let holder = holder(&folder).unwrap_or_else(|| "another program".to_owned());
            return Err(UserFileError::Held { path, holder });
        }
        Err(error) => return Err(fail("lock", error)),
    };
    for _ in 0..MAX_ATTEMPTS {
        let before = read(&path)?;
        let Some(after) = change(before.as_deref()).map_err(UserFileError::Refused)? else {
            return Ok(Changed { path, before, after: None });
        };
        if before.as_deref() == Some(after.as_str()) {
            return Ok(Changed { path, before, after: None });
        }
        let temporary = written(&folder, &path, &after).map_err(|error| fail("write", error))?;
        let is_same = read::<E>(&path).is_ok_and(|now| now == before);
        let moved = is_same.then(|| files::patiently(|| fs::rename(&temporary, &path)));
        if !matches!(moved, Some(Ok(()))) {
            // The error is reported; a leftover temporary file is the lesser problem.
            fs::remove_file(&temporary).ok();
        }
        match moved {
            Some(Ok(())) => {
                // Syncs the directory, which makes the new name durable; systems that cannot do that lose nothing by it.
                File::open(&folder).and_then(|folder| folder.sync_all()).ok();
                return Ok(Changed { path, before, after: Some(after) });
            }
            Some(Err(error)) => return Err(fail("replace", error)),
            None => {}
        }
    }
    Err(UserFileError::Busy { path })
}

/// The file that a path leads to. A symlink stays one, also if its target does not exist yet, since its owner wants the
/// file to be there. If even the target's folder is missing, as on an unmounted disk, nothing is created.
pub fn target(path: &Path) -> io::Result<PathBuf> {
    if let Ok(found) = dunce::canonicalize(path) {
        return Ok(found);
    }
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&at) else {
            if at == path {
                return std::path::absolute(path);
            }
            let folder = at.parent().and_then(|folder| dunce::canonicalize(folder).ok());
            let (Some(folder), Some(name)) = (folder.filter(|at| at.is_dir()), at.file_name())
            else {
                let why = format!("it is a link to {}, whose folder is not there", at.display());
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            };
            return Ok(folder.join(name));
        };
        at = at.parent().unwrap_or(Path::new(".")).join(next);
    }
    Err(io::Error::other("its symlinks form a loop"))
}

/// Files beside a file of the user, such as copies and tokens, are as private as that file.
fn make(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Called with a sentence when a lock is waited for.
static WAITING: OnceLock<fn(&str)> = OnceLock::new();

/// Sets who is told when a change has to wait for another program. The first call counts.
pub fn tell_of_waiting(tell: fn(&str)) {
    WAITING.set(tell).ok();
}

/// What is locked: the folder itself, so that no lock file is left beside other programs' files.
#[cfg(unix)]
fn lockable(folder: &Path, _path: &Path) -> io::Result<File> {
    File::open(folder)
}

/// Folders cannot be locked here: a file of ours is, one for each file that is edited, in a folder that every program of
/// this user finds.
#[cfg(windows)]
fn lockable(_folder: &Path, path: &Path) -> io::Result<File> {
    // From the system where the variable is kept from us, as some clients do.
    let user = std::env::home_dir().unwrap_or_else(std::env::temp_dir);
    let locks = user.join("AppData").join("Local").join("metamcp").join("locks");
    fs::create_dir_all(&locks)?;
    // The system takes names that differ in case for one.
    let name = files::component(&path.to_string_lossy().to_lowercase());
    File::options().create(true).append(true).open(locks.join(name))
}

/// The lock, held until dropped; nothing if another program holds it for too long.
fn lock(folder: &Path, path: &Path) -> io::Result<Option<File>> {
    let file = lockable(folder, path)?;
    let mut told = false;
    let began = clock::std_instant();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let waited = began.elapsed();
        if waited >= LOCK_TIMEOUT {
            return Ok(None);
        }
        if waited >= QUIET_WAIT && !std::mem::replace(&mut told, true) {
            let holder = holder(folder).unwrap_or_else(|| "another program".to_owned());
            if let Some(tell) = WAITING.get() {
                tell(&format!("waiting for {holder}, which holds the lock of {}", path.display()));
            }
        }
        thread::sleep(LOCK_INTERVAL);
    }
}

/// The process that holds the lock of a folder, where the system shows it.
fn holder(folder: &Path) -> Option<String> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = format!(":{}", fs::metadata(folder).ok()?.ino());
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // `1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF`; a line with an arrow is a waiting process.
        let held = |line: &&str| !line.contains("->") && line.contains("FLOCK");
        let pid = locks.lines().filter(held).find_map(|line| {
            let mut words = line.split_whitespace().skip(4);
            let (pid, place) = (words.next()?, words.next()?);
            place.ends_with(&inode).then(|| pid.to_owned())
        })?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
        Some(format!("{name} (process {pid})"))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = folder;
        None
    }
}

/// A new file beside the old one with its mode; private if there is no old one.
fn written(folder: &Path, path: &Path, text: &str) -> io::Result<PathBuf> {
    let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.{random:016x}", std::process::id()));
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary)?;
    let wrote = file.write_all(text.as_bytes()).and_then(|()| {
        if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()
    });
    if let Err(error) = wrote {
        fs::remove_file(&temporary).ok();
        return Err(error);
    }
    Ok(temporary)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn append(path: &Path, word: &str) -> Changed {
        change::<Infallible>(path, |old| Ok(Some(format!("{}{word}\n", old.unwrap_or_default()))))
            .unwrap()
    }

    #[test]
    fn concurrent_edits_lose_nothing_and_leave_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/file");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for turn in 0..20 {
                        append(path, &format!("{thread}-{turn}"));
                    }
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 160);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_program_that_does_not_lock_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "a").unwrap();
        let mut times = 0;
        let changed = change::<Infallible>(&path, |old| {
            times += 1;
            let old = old.unwrap_or_default().to_owned();
            if times == 1 {
                fs::write(&path, "theirs").unwrap();
            }
            Ok(Some(format!("{old}+ours")))
        });
        assert_eq!(changed.unwrap().before.as_deref(), Some("theirs"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs+ours");
    }

    #[cfg(unix)]
    #[test]
    fn mode_and_symlink_are_preserved() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "a").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        append(&link, "b");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(&path).unwrap(), "ab\n");
        let fresh = append(&folder.path().join("new/fresh"), "x");
        assert_eq!(fs::metadata(&fresh.path).unwrap().permissions().mode() & 0o777, 0o600);
        let made = fs::metadata(folder.path().join("new")).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, 0o700);
    }

    #[cfg(unix)]
    #[test]
    fn a_dangling_symlink_stays_a_symlink() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("dotfiles")).unwrap();
        std::os::unix::fs::symlink("dotfiles/file", at("inner")).unwrap();
        std::os::unix::fs::symlink("inner", at("link")).unwrap();
        append(&at("link"), "a");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert!(fs::symlink_metadata(at("inner")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("dotfiles/file")).unwrap(), "a\n");
        // An unmounted disk, and a loop.
        std::os::unix::fs::symlink("gone/file", at("lost")).unwrap();
        std::os::unix::fs::symlink("circle", at("circle")).unwrap();
        for (link, why) in [("lost", "folder is not there"), ("circle", "loop")] {
            let outcome = change::<Infallible>(&at(link), |_| Ok(Some(String::new())));
            assert!(outcome.unwrap_err().to_string().contains(why), "{link}");
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
        }
        assert!(!at("gone").exists());
    }

    #[test]
    fn a_refused_change_leaves_the_file_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"\xff\xfe").unwrap();
        let outcome = change::<Infallible>(&path, |_| Ok(Some(String::new())));
        assert!(matches!(outcome, Err(UserFileError::NotText { .. })));
        fs::write(&path, "a").unwrap();
        let outcome = change(&path, |_| Err::<Option<String>, _>("no"));
        assert!(matches!(outcome, Err(UserFileError::Refused("no"))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "a");
    }
}
