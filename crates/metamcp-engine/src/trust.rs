//! Approvals of project files: by path and content hash, in one private file.
//! Owns: the file of decisions.      Never: decides, reads a project's file.
//! In: a path and the hash of the file there.  Out: a `Decision`; a file of mode 0600, replaced atomically under a lock.
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

const FILE: &str = "trusted.json";
/// Largest file read: some thousand decisions.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Most decisions stored; the oldest are dropped first.
const MAX_RECORDS: usize = 1_000;

/// The decision about a file's current content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// None, and no earlier content of it was approved.
    None,
    /// None, but another content was approved.
    Changed,
    Trusted,
    Declined,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The canonical folder and the file's name.
    pub path: String,
    pub sha256: String,
    pub trusted: bool,
    /// When that was decided, in milliseconds since 1970.
    pub at: u64,
}

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    files: Vec<Record>,
}

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Change(#[from] UserFileError<Infallible>),
    /// Others can write it, so it cannot be trusted.
    #[error("{} can be changed by other users; remove their write permission", .0.display())]
    Exposed(PathBuf),
    #[error("the path {} is not UTF-8, so its approval cannot be stored", .0.display())]
    NotText(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    home: PathBuf,
}

impl TrustStore {
    pub fn new(home: &Path) -> TrustStore {
        TrustStore { home: home.to_owned() }
    }

    /// The file, to watch it.
    pub fn file(&self) -> PathBuf {
        self.home.join(FILE)
    }

    /// The decision about the file at `path` with this content hash.
    ///
    /// # Errors
    /// The file of decisions cannot be trusted; then nothing is.
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
    /// The file of decisions cannot be trusted.
    pub fn records(&self) -> Result<Vec<Record>, TrustError> {
        let Some(home) = Directory::home(&self.home)? else { return Ok(Vec::new()) };
        let Some(mut file) = home.open(FILE)? else { return Ok(Vec::new()) };
        if is_exposed(&self.file()) {
            return Err(TrustError::Exposed(self.file()));
        }
        Ok(decoded(&file.read(MAX_FILE_BYTES)?))
    }

    /// Approves exactly this content, instead of any earlier one.
    ///
    /// # Errors
    /// It could not be stored.
    pub fn approve(&self, path: &Path, sha256: &str) -> Result<(), TrustError> {
        self.decide(path, sha256, true)
    }

    /// Declines exactly this content, so that nobody is asked again.
    ///
    /// # Errors
    /// It could not be stored.
    pub fn decline(&self, path: &Path, sha256: &str) -> Result<(), TrustError> {
        self.decide(path, sha256, false)
    }

    /// Deletes all decisions about a file. True if there were any.
    ///
    /// # Errors
    /// It could not be stored.
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
            // One content of a file is approved at a time: an older one counts as a change too.
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
            let over = records.len().saturating_sub(MAX_RECORDS);
            records.drain(..over);
        })
    }

    fn change(&self, mut change: impl FnMut(&mut Vec<Record>)) -> Result<(), TrustError> {
        let file = self.file();
        // Entries that others may have written are dropped.
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

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Invalid content counts as no decision.
fn decoded(bytes: &[u8]) -> Vec<Record> {
    serde_json::from_slice::<Stored>(bytes).unwrap_or_default().files
}

#[cfg(unix)]
pub(crate) fn is_exposed(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let Ok(found) = std::fs::symlink_metadata(file) else { return false };
    let is_ours = found.uid() == nix::unistd::Uid::effective().as_raw();
    !found.is_file() || !is_ours || found.mode() & WRITABLE_BY_OTHERS != 0
}

#[cfg(unix)]
fn make_private(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // Created with this mode; if somebody changed it, the file is not trusted.
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).ok();
}

/// Who may write it is inherited from the user's profile; a link would lead out of that.
#[cfg(windows)]
pub(crate) fn is_exposed(file: &Path) -> bool {
    std::fs::symlink_metadata(file).is_ok_and(|found| !found.is_file())
}

#[cfg(windows)]
fn make_private(_file: &Path) {}
