//! Values on disk, in files that end with this process, however it ends: unlinked ones, and on Windows such as the system
//! deletes when they are closed. Named files of older versions are removed once their gateways have ended.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::clock::unix_millis;
use crate::files::Directory;

/// The directory below the home in which the files are made.
const FOLDER: &str = "results";
/// From this size on a file takes no further values: its space is freed with its last value, so a larger one would
/// occupy more for longer.
const FULL: u64 = 32 * 1024 * 1024;
/// Files of an older gateway are removed after this long even if a process has its PID, which was reused then.
const LEFT_BEHIND_MS: u64 = 2 * 60 * 60 * 1000;
/// Most directory entries read while removing.
const MOST: usize = 100_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Disk {
    home: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The file that takes the next value, and its end.
    filling: Option<(Arc<File>, u64)>,
    /// Where each value is. A file is closed, and with that freed, when no value is left in it.
    values: HashMap<String, Place>,
}

#[derive(Debug, Clone)]
struct Place {
    file: Arc<File>,
    start: u64,
    length: usize,
}

impl Disk {
    pub(super) fn under(home: &Path) -> Disk {
        Disk { home: home.to_owned(), state: Mutex::default() }
    }

    /// Writes a value; false if that failed.
    pub(super) fn write(&self, handle: &str, bytes: &[u8]) -> bool {
        let taken = self.lock().filling.take();
        let (file, start) = match taken {
            Some(filling) => filling,
            None => match passing(&self.home) {
                Ok(file) => (Arc::new(file), 0),
                Err(_) => return false,
            },
        };
        // One writer per file: a concurrent one creates a file of its own.
        let written = system::write_all_at(&file, bytes, start).is_ok();
        let end = start + bytes.len() as u64;
        let mut state = self.lock();
        if written {
            let place = Place { file: Arc::clone(&file), start, length: bytes.len() };
            state.values.insert(handle.to_owned(), place);
        }
        let end = if written { end } else { start };
        if end < FULL && state.filling.is_none() {
            state.filling = Some((file, end));
        }
        written
    }

    pub(super) fn read(&self, handle: &str) -> Option<Bytes> {
        let place = self.lock().values.get(handle)?.clone();
        let mut bytes = vec![0; place.length];
        system::read_exact_at(&place.file, &mut bytes, place.start).ok()?;
        Some(Bytes::from(bytes))
    }

    pub(super) fn remove(&self, handle: &str) {
        let mut state = self.lock();
        state.values.remove(handle);
        if state.values.is_empty() {
            state.filling = None;
        }
    }

    /// Frees everything.
    pub(super) fn end(&self) {
        *self.lock() = State::default();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A file that no other process can open, and whose space is freed when it is closed.
fn passing(home: &Path) -> io::Result<File> {
    let folder = Directory::home_or_create(home)
        .and_then(|home| home.inside_or_create(FOLDER))
        .map_err(io::Error::other)?;
    let name = format!("{:016x}", getrandom::u64().unwrap_or_default());
    system::passing(&folder.path().join(name))
}

/// Files below a home of gateways that ended before they could remove them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LeftBehind {
    /// Files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Finds such files, and removes them if `remove` says so.
pub fn left_behind(home: &Path, remove: bool) -> LeftBehind {
    let mut found = LeftBehind::default();
    let Ok(Some(all)) = Directory::home(home).and_then(|home| match home {
        Some(home) => home.inside(FOLDER),
        None => Ok(None),
    }) else {
        return found;
    };
    let now = unix_millis();
    for name in all.names(MOST).unwrap_or_default() {
        let age = all.modified_ms(&name).map_or(0, |at| now.saturating_sub(at));
        if is_in_use(&name) && age <= LEFT_BEHIND_MS {
            continue;
        }
        if let Ok(Some(directory)) = all.inside(&name) {
            for file in directory.names(MOST).unwrap_or_default() {
                found.files += 1;
                found.bytes +=
                    std::fs::metadata(directory.path().join(&file)).map_or(0, |about| about.len());
                if remove {
                    // A failed removal is retried by the next gateway.
                    drop(directory.remove(&file));
                }
            }
        } else {
            // A file has a name only for a moment, unless its process ended in it.
            found.files += 1;
            found.bytes += std::fs::metadata(all.path().join(&name)).map_or(0, |about| about.len());
        }
        if remove {
            drop(all.remove(&name));
        }
    }
    found
}

/// Whether the gateway that an entry belongs to may still run: older ones start the name with their PID; a file without
/// one is unlinked at once.
fn is_in_use(name: &str) -> bool {
    let Some((number, _)) = name.split_once('-') else { return true };
    let Ok(number) = number.parse::<i32>() else { return true };
    number > 0 && system::is_alive(number)
}

#[cfg(unix)]
mod system {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;

    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    pub(super) fn passing(path: &Path) -> io::Result<File> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        std::fs::remove_file(path)?;
        Ok(file)
    }

    pub(super) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
        file.read_exact_at(bytes, at)
    }

    /// A process that we may not signal is alive too.
    pub(super) fn is_alive(pid: i32) -> bool {
        kill(Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH)
    }
}

#[cfg(windows)]
mod system {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::windows::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;

    /// The system deletes the file with its last handle, which it closes when the process ends.
    const FILE_FLAG_DELETE_ON_CLOSE: u32 = 0x0400_0000;
    /// Shared with nobody while it is open.
    const ALONE: u32 = 0;

    pub(super) fn passing(path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .share_mode(ALONE)
            .custom_flags(FILE_FLAG_DELETE_ON_CLOSE)
            .open(path)
    }

    pub(super) fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = file.seek_write(bytes, at)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            (bytes, at) = (&bytes[written..], at + written as u64);
        }
        Ok(())
    }

    pub(super) fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match file.seek_read(&mut bytes[done..], at + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read,
            }
        }
        Ok(())
    }

    /// No version that named its files ran here, so what has such a name goes by its age.
    pub(super) fn is_alive(_pid: i32) -> bool {
        true
    }
}

#[cfg(all(test, unix))]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use super::*;

    #[test]
    fn files_are_unlinked_and_space_is_freed() {
        let home = tempfile::tempdir().unwrap();
        let disk = Disk::under(home.path());
        assert!(disk.write("a", b"first") && disk.write("b", b"second"));
        let folder = home.path().join(FOLDER);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "whatever ends us, it is gone");
        assert_eq!(disk.read("a").unwrap(), "first");
        assert_eq!(disk.read("b").unwrap(), "second");
        disk.remove("a");
        assert_eq!(disk.read("a"), None);
        assert_eq!(disk.read("b").unwrap(), "second");
        disk.remove("b");
        assert!(disk.lock().filling.is_none(), "the file is closed");
        assert!(disk.write("c", &vec![b'c'; 1000]));
        disk.end();
        assert_eq!(disk.read("c"), None);
    }

    #[test]
    fn files_of_ended_gateways_are_removed_and_those_of_running_ones_are_not() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(FOLDER);
        let dead = {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            child.id()
        };
        let (theirs, ours) = (format!("{dead}-00ff"), format!("{}-00ff", std::process::id()));
        for name in [&theirs, &ours] {
            let own = folder.join(name);
            std::fs::create_dir_all(&own).unwrap();
            std::fs::write(own.join("r1"), "0123456789").unwrap();
        }
        use std::os::unix::fs::PermissionsExt;
        for path in [home.path(), &folder, &folder.join(&theirs), &folder.join(&ours)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let expected = LeftBehind { files: 1, bytes: 10 };
        assert_eq!(left_behind(home.path(), false), expected);
        assert_eq!(left_behind(home.path(), true), expected);
        assert_eq!(left_behind(home.path(), true), LeftBehind::default());
        assert!(folder.join(ours).join("r1").exists() && !folder.join(theirs).exists());
    }
}
