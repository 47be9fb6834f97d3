//! Which project files a person approved: by path and content, in one private file.
//! Owns: the file, who decided what and about which bytes.      Never: decides, reads a project's file.
//! In: a path and the hash of what lies there.  Out: a `Decision`; a file of mode 0600, changed whole under a lock.
//! Tests: `trust/tests.rs`.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::unix_millis;
use crate::files::{Directory, FileError};
use crate::user_file::{self, UserFileError};

#[cfg(test)]
mod tests;

/// The name of the file, in the home of metamcp.
const FILE: &str = "trusted.json";
/// Largest file that is read: some thousand decisions.
const LARGEST: u64 = 1 << 20;
/// Most decisions that are kept; the oldest go first.
const MOST: usize = 1_000;

/// What was decided about a file as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing, and no earlier content of it was approved.
    None,
    /// Nothing, but another content was approved.
    Changed,
    /// It may be used.
    Trusted,
    /// Somebody was asked and said no.
    Declined,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The file: a folder without links in it, and the file's name.
    pub path: String,
    /// Of its content.
    pub sha256: String,
    /// Whether it may be used.
    pub trusted: bool,
    /// When that was decided, in milliseconds since 1970.
    pub at: u64,
}

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    files: Vec<Record>,
}

/// Why nothing can be decided or looked up.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file is not there for us to read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It could not be changed.
    #[error(transparent)]
    Change(#[from] UserFileError<Infallible>),
    /// Others may write it, so it is nobody's word.
    #[error("{} can be changed by other users; take that right away from them", .0.display())]
    Exposed(PathBuf),
    /// A path that cannot be written down.
    #[error("the path {} is not UTF-8, so it cannot be remembered", .0.display())]
    NotText(PathBuf),
}

/// The decisions of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    home: PathBuf,
}

impl TrustStore {
    /// Those kept in this home.
    pub fn new(home: &Path) -> TrustStore {
        TrustStore { home: home.to_owned() }
    }

    /// The file, for whoever watches it.
    pub fn file(&self) -> PathBuf {
        self.home.join(FILE)
    }

    /// What was decided about the file at `path` whose content has this hash.
    ///
    /// # Errors
    /// The file of decisions cannot be believed; then nothing is trusted.
    pub fn decision(&self, path: &Path, sha256: &str) -> Result<Decision, TrustError> {
        let Some(path) = path.to_str() else { return Ok(Decision::None) };
        let records = self.records()?;
        let of_it = || records.iter().filter(|record| record.path == path);
        Ok(match of_it().find(|record| record.sha256 == sha256) {
            Some(record) if record.trusted => Decision::Trusted,
            Some(_) => Decision::Declined,
            None if of_it().any(|record| record.trusted) => Decision::Changed,
            None => Decision::None,
        })
    }

    /// Every decision, the oldest first.
    ///
    /// # Errors
    /// The file of decisions cannot be believed.
    pub fn records(&self) -> Result<Vec<Record>, TrustError> {
        let Some(home) = Directory::home(&self.home)? else { return Ok(Vec::new()) };
        let Some(mut file) = home.open(FILE)? else { return Ok(Vec::new()) };
        if is_exposed(&self.file()) {
            return Err(TrustError::Exposed(self.file()));
        }
        Ok(decoded(&file.read(LARGEST)?))
    }

    /// Remembers that exactly this content may be used; what was approved of the file before may not any more.
    ///
    /// # Errors
    /// It could not be written down.
    pub fn approve(&self, path: &Path, sha256: &str) -> Result<(), TrustError> {
        self.decide(path, sha256, true)
    }

    /// Remembers that exactly this content may not be used, so that nobody is asked again.
    ///
    /// # Errors
    /// It could not be written down.
    pub fn decline(&self, path: &Path, sha256: &str) -> Result<(), TrustError> {
        self.decide(path, sha256, false)
    }

    /// Forgets all that was decided about a file. True if there was something.
    ///
    /// # Errors
    /// It could not be written down.
    pub fn forget(&self, path: &Path) -> Result<bool, TrustError> {
        let path = path.to_str().ok_or_else(|| TrustError::NotText(path.to_owned()))?;
        let mut is_known = false;
        self.change(|records| {
            let before = records.len();
            records.retain(|record| record.path != path);
            is_known = records.len() < before;
        })?;
        Ok(is_known)
    }

    fn decide(&self, path: &Path, sha256: &str, trusted: bool) -> Result<(), TrustError> {
        let path = path.to_str().ok_or_else(|| TrustError::NotText(path.to_owned()))?;
        self.change(|records| {
            // One content of a file is approved at a time: going back to an older one is a change as well.
            records.retain(|record| {
                record.path != path || (record.sha256 != sha256 && !(trusted && record.trusted))
            });
            let record = Record {
                path: path.to_owned(),
                sha256: sha256.to_owned(),
                trusted,
                at: unix_millis(),
            };
            records.push(record);
            let over = records.len().saturating_sub(MOST);
            records.drain(..over);
        })
    }

    fn change(&self, mut change: impl FnMut(&mut Vec<Record>)) -> Result<(), TrustError> {
        let file = self.file();
        // What others may have written is not carried on.
        let is_believed = !is_exposed(&file);
        user_file::change::<Infallible>(&file, |text| {
            let text = text.filter(|_| is_believed).unwrap_or_default();
            let mut files = decoded(text.as_bytes());
            change(&mut files);
            let text = serde_json::to_string_pretty(&Stored { files }).unwrap_or_default();
            Ok(Some(text + "\n"))
        })?;
        make_private(&file);
        Ok(())
    }
}

/// The hash of a file's content.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What makes no sense is no decision.
fn decoded(bytes: &[u8]) -> Vec<Record> {
    serde_json::from_slice::<Stored>(bytes).unwrap_or_default().files
}

#[cfg(unix)]
fn is_exposed(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let Ok(found) = std::fs::symlink_metadata(file) else { return false };
    let is_ours = found.uid() == nix::unistd::Uid::effective().as_raw();
    !found.is_file() || !is_ours || found.mode() & WRITABLE_BY_OTHERS != 0
}

#[cfg(unix)]
fn make_private(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // It was made with this mode; only one that somebody changed is another, and then it is not believed.
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).ok();
}

#[cfg(not(unix))]
fn is_exposed(_file: &Path) -> bool {
    false
}

#[cfg(not(unix))]
fn make_private(_file: &Path) {}
