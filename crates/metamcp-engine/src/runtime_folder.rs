//! Where the user's daemon is found: a private folder with its socket and its locks.
//! Owns: the choice and the checks of that folder, names in it, who may hold them.      Never: speaks on the socket, which is a named pipe on Windows.
//! In: the home of metamcp.  Out: `Places`; the socket bound or connected, with a peer of this user.
//! Tests: `runtime_folder/tests.rs`, `metamcp/tests/daemon/`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::{env, files};

#[cfg(unix)]
#[path = "runtime_folder/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "runtime_folder/windows.rs"]
mod system;

#[cfg(test)]
#[cfg(unix)]
mod tests;
#[cfg(test)]
#[cfg(windows)]
mod windows_tests;

pub use system::{Held, Listener, Stream, peer_is_us};
#[cfg(windows)]
pub use system::{Pipe, clients};

/// The variable that names the folder to use instead.
pub const VARIABLE: &str = "METAMCP_RUNTIME_DIR";

/// The folder of ours in a folder that others use too.
const NAME: &str = "metamcp";
/// Bytes of the key: enough that two homes of one user never meet.
const KEY_BYTES: usize = 8;
/// How long a daemon that does not accept may keep a connector waiting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no folder for a daemon.
#[derive(Debug, thiserror::Error)]
#[error("no folder can hold the daemon's socket: {}", .tried.join("; "))]
pub struct NoFolder {
    /// What was tried, and why it would not do.
    pub tried: Vec<String>,
}

/// The names by which connectors and the daemon of one home find each other.
#[derive(Debug, Clone)]
pub struct Places {
    folder: PathBuf,
    key: String,
    home: PathBuf,
}

impl Places {
    /// The places for a home of metamcp. The folder is created if it is missing.
    pub fn find(home: &Path) -> Result<Places, NoFolder> {
        Self::find_in(home, env::var(VARIABLE).as_deref())
    }

    /// The same, with the value of the variable.
    pub fn find_in(home: &Path, said: Option<&str>) -> Result<Places, NoFolder> {
        // One home has one daemon, by whatever path it is reached.
        let home = canonical(home);
        let mut tried = Vec::new();
        for candidate in system::candidates(&home, said.filter(|said| !said.is_empty())) {
            match system::fitting(&candidate.folder).and_then(|()| system::prepare(&candidate)) {
                Ok(()) => {
                    let key = key(&home);
                    return Ok(Places { folder: candidate.folder, key, home });
                }
                Err(reason) => tried.push(reason),
            }
        }
        Err(NoFolder { tried })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The socket that connectors try first.
    pub fn socket(&self) -> PathBuf {
        self.named("sock")
    }

    /// Locked by the daemon as long as it lives.
    pub fn lock(&self) -> PathBuf {
        self.named("lock")
    }

    /// Locked by the connector that starts a daemon.
    pub fn start_lock(&self) -> PathBuf {
        self.named("start")
    }

    /// The socket of a daemon that was replaced and still has sessions.
    pub fn old_socket(&self, pid: u32) -> PathBuf {
        self.named(&format!("{pid}.sock"))
    }

    /// The daemon's log.
    pub fn log(&self) -> PathBuf {
        self.home.join("daemon.log")
    }

    /// Becomes the daemon of this home; `None` while another one is.
    pub fn hold(&self) -> io::Result<Option<Held>> {
        system::try_lock(&self.lock())
    }

    /// The right to start a daemon, waited for at most `limit`; `None` when that was not enough.
    pub fn hold_start(&self, limit: Duration) -> io::Result<Option<Held>> {
        /// A daemon takes some ten milliseconds to start, so this is soon enough.
        const LOOK: Duration = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        loop {
            if let Some(held) = system::try_lock(&self.start_lock())? {
                return Ok(Some(held));
            }
            if waited >= limit {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }

    /// Listens under the socket's name, in place of whatever a daemon that is gone left there.
    pub fn bind(&self, _held: &Held) -> io::Result<Listener> {
        let pid = std::process::id();
        system::bind(&self.named(&format!("{pid}.new")), &self.socket())
    }

    /// Gives the name to a newer daemon: the socket goes on under another. The lock goes with `held`.
    pub fn step_aside(&self, held: Held) -> io::Result<PathBuf> {
        let old = self.old_socket(std::process::id());
        files::patiently(|| std::fs::rename(self.socket(), &old))?;
        drop(held);
        Ok(old)
    }

    /// Removes the socket's name at the end of the daemon, while it still holds the lock.
    pub fn remove_socket(&self, _held: &Held) {
        // What is left is replaced by the next daemon.
        std::fs::remove_file(self.socket()).ok();
    }

    /// Connects to the daemon, and makes sure that it is this user's.
    pub fn connect(&self) -> io::Result<Stream> {
        system::connect(&self.socket(), CONNECT_TIMEOUT)
    }

    /// The same, to a socket of another name.
    pub fn connect_to(socket: &Path) -> io::Result<Stream> {
        system::connect(socket, CONNECT_TIMEOUT)
    }

    fn named(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}.{suffix}", self.key))
    }
}

/// Whether an error of `connect` means that no daemon runs, rather than that something is wrong.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// A folder that may be used, if its checks succeed.
struct Candidate {
    folder: PathBuf,
    /// The folder around it, and what is required of it.
    parent: PathBuf,
    parent_is: Parent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    /// Named by the user: created if missing, not checked.
    Named,
    /// The system's: must be there and ours.
    Given,
    /// Of our making: created and private.
    #[cfg(unix)]
    Private,
}

/// The path without links, also of a home that is yet to be created.
fn canonical(home: &Path) -> PathBuf {
    let found = home.ancestors().find_map(|above| {
        let real = dunce::canonicalize(above).ok()?;
        Some(real.join(home.strip_prefix(above).unwrap_or(Path::new(""))))
    });
    // A path joined with nothing would end in a slash.
    found.map_or_else(|| home.to_owned(), |path| path.components().collect())
}

fn key(home: &Path) -> String {
    let digest = Sha256::digest(home.as_os_str().as_encoded_bytes());
    digest[..KEY_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}
