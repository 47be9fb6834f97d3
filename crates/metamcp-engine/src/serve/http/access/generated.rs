//! The token generated where none is configured: one file in the home, readable by its user only.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::files::{Directory, FileError};

/// What a generated token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Everything.
    Clients,
    /// Metrics only.
    Metrics,
}

impl Purpose {
    /// Its file in the home of metamcp.
    fn file(self) -> &'static str {
        match self {
            Purpose::Clients => "http-token",
            Purpose::Metrics => "metrics-token",
        }
    }

    /// Lock file: processes that start at the same time all use the token of the first.
    fn turn(self) -> &'static str {
        match self {
            Purpose::Clients => "http-token.lock",
            Purpose::Metrics => "metrics-token.lock",
        }
    }
}

/// Prefix of generated tokens, by which secret scanners and people recognise them.
const PREFIX: &str = "metamcp_";
/// 256 bits of randomness.
const RANDOM_BYTES: usize = 32;
/// A shorter token has less than 128 bits, so it was not generated here.
const SHORTEST: usize = 22;
/// No file with one token is longer.
const LARGEST: u64 = 4096;

/// Why there is no generated token.
#[derive(Debug, thiserror::Error)]
pub enum GeneratedError {
    /// The file cannot be trusted or used.
    #[error("{source}; `metamcp token --rotate` writes a new one")]
    File {
        /// Why.
        #[source]
        source: FileError,
    },
    /// The home cannot be trusted or used.
    #[error(transparent)]
    Home(FileError),
    /// What is in it is no token.
    #[error(
        "{} does not hold a token of at least {SHORTEST} characters without spaces; `metamcp token --rotate` writes a new one",
        path.display()
    )]
    Unusable {
        /// Which file.
        path: PathBuf,
    },
    /// The system has none.
    #[error("the system gave no randomness for a token")]
    NoRandomness,
}

/// The token and its file. Redacted in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Generated {
    /// Its file.
    pub path: PathBuf,
    token: String,
}

impl fmt::Debug for Generated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generated").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Generated {
    /// Where it is kept.
    pub fn path_in(home: &Path) -> PathBuf {
        home.join(Purpose::Clients.file())
    }

    /// The token of this home, generated if there is none yet.
    pub fn of(home: &Path, purpose: Purpose) -> Result<Generated, GeneratedError> {
        let folder = Directory::home_or_create(home).map_err(GeneratedError::Home)?;
        if let Some(found) = read(&folder, purpose)? {
            return Ok(found);
        }
        let _turn = turn(&folder, purpose)?;
        match read(&folder, purpose)? {
            Some(found) => Ok(found),
            None => write(&folder, purpose),
        }
    }

    /// The token of this home, if there is one.
    pub fn found(home: &Path, purpose: Purpose) -> Result<Option<Generated>, GeneratedError> {
        match Directory::home(home).map_err(GeneratedError::Home)? {
            Some(folder) => read(&folder, purpose),
            None => Ok(None),
        }
    }

    /// Replaces the token by a new one.
    pub fn rotated(home: &Path, purpose: Purpose) -> Result<Generated, GeneratedError> {
        let folder = Directory::home_or_create(home).map_err(GeneratedError::Home)?;
        let _turn = turn(&folder, purpose)?;
        write(&folder, purpose)
    }

    /// The token itself, to send or compare.
    pub fn expose(&self) -> &str {
        &self.token
    }
}

fn turn(folder: &Directory, purpose: Purpose) -> Result<std::fs::File, GeneratedError> {
    let file = folder.open_lock(purpose.turn()).map_err(GeneratedError::Home)?;
    let path = folder.path().join(purpose.turn());
    let failed = |source| GeneratedError::Home(FileError::Io { action: "lock", path, source });
    file.lock().map_err(failed)?;
    Ok(file)
}

fn read(folder: &Directory, purpose: Purpose) -> Result<Option<Generated>, GeneratedError> {
    let failed = |source| GeneratedError::File { source };
    let Some(mut file) = folder.open_private(purpose.file()).map_err(failed)? else {
        return Ok(None);
    };
    let path = folder.path().join(purpose.file());
    let text = String::from_utf8(file.read(LARGEST).map_err(failed)?).ok();
    let token = text.map(|text| text.trim().to_owned()).filter(|token| is_token(token));
    match token {
        Some(token) => Ok(Some(Generated { path, token })),
        None => Err(GeneratedError::Unusable { path }),
    }
}

fn is_token(text: &str) -> bool {
    text.len() >= SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn write(folder: &Directory, purpose: Purpose) -> Result<Generated, GeneratedError> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|_| GeneratedError::NoRandomness)?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    folder
        .replace_for_good(purpose.file(), format!("{token}\n").as_bytes())
        .map_err(|source| GeneratedError::File { source })?;
    Ok(Generated { path: folder.path().join(purpose.file()), token })
}

#[cfg(all(test, unix))]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn home() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn it_is_made_once_for_the_owner_alone_and_found_again() {
        let home = home();
        assert_eq!(Generated::found(home.path(), Purpose::Clients).unwrap(), None);
        let first = Generated::of(home.path(), Purpose::Clients).unwrap();
        assert_eq!(Generated::of(home.path(), Purpose::Clients).unwrap(), first);
        assert_eq!(Generated::found(home.path(), Purpose::Clients).unwrap(), Some(first.clone()));
        let mode = fs::metadata(&first.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(first.expose().starts_with(PREFIX) && first.expose().len() == PREFIX.len() + 43);
        assert!(!format!("{first:?}").contains(first.expose()));
        let second = Generated::rotated(home.path(), Purpose::Clients).unwrap();
        assert_ne!(second, first);
        assert_eq!(Generated::of(home.path(), Purpose::Clients).unwrap(), second);
    }

    #[test]
    fn those_who_start_together_use_the_same() {
        let home = home();
        let all: HashSet<String> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        Generated::of(home.path(), Purpose::Clients).unwrap().expose().to_owned()
                    })
                })
                .collect();
            starting.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn what_others_could_have_read_or_written_is_not_used_until_it_is_replaced() {
        let home = home();
        let token = Generated::of(home.path(), Purpose::Clients).unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o602, 0o666] {
            fs::set_permissions(&token.path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Generated::of(home.path(), Purpose::Clients).unwrap_err();
            assert!(error.to_string().contains("metamcp token --rotate"), "{error}");
            assert!(
                matches!(error, GeneratedError::File { source: FileError::Exposed { .. } }),
                "{mode:o}"
            );
        }
        let fresh = Generated::rotated(home.path(), Purpose::Clients).unwrap();
        assert_eq!(Generated::of(home.path(), Purpose::Clients).unwrap(), fresh);
        assert_ne!(fresh, token);
    }

    #[test]
    fn links_and_texts_that_are_no_tokens_are_not_used() {
        let home = home();
        let path = Generated::path_in(home.path());
        let private = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        for text in ["", "\n", "short", "twenty two characters but spaces", "ééééééééééééééé"]
        {
            private(text);
            let error = Generated::of(home.path(), Purpose::Clients).unwrap_err();
            assert!(matches!(error, GeneratedError::Unusable { .. }), "{text:?}: {error}");
        }
        private(&"x".repeat(5000));
        assert!(Generated::of(home.path(), Purpose::Clients).is_err());
        let elsewhere = home.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(Generated::of(home.path(), Purpose::Clients).is_err());
        // Rotating replaces the link, not what it points to.
        Generated::rotated(home.path(), Purpose::Clients).unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap().len(), 5000);
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
}
