//! The encryption key of stored logins: in the system keyring, or in a file beside the tokens.
//!
//! Only the key goes into the keyring. Tokens change with every refresh, for all gateways at once, and some are longer
//! than a keyring takes; a key is made once, and read once by each process that needs it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metamcp_config::settings::TokenStore;

use super::LoginError;
use super::store::{FOLDER, blocking, lock_file, random};
use crate::files::{Directory, FileError};
use crate::secrets;

const FILE: &str = "key";
const SERVICE: &str = "metamcp";
/// Timeout of a keyring that nobody configured: calls wait meanwhile.
const KEYRING_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a configured keyring: the user may have to unlock it.
const UNLOCK_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) type Key = [u8; 32];

/// The key of one home, read once.
#[derive(Clone)]
pub(super) struct Keys {
    home: PathBuf,
    place: TokenStore,
    known: Arc<OnceLock<Key>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.place.as_str())
    }
}

impl Keys {
    pub(super) fn new(home: &Path, place: TokenStore) -> Keys {
        Keys { home: home.to_owned(), place, known: Arc::default() }
    }

    /// The key, if there is one.
    pub(super) async fn find(&self) -> Result<Option<Key>, LoginError> {
        if let Some(key) = self.known.get() {
            return Ok(Some(*key));
        }
        let found = match self.in_file().await? {
            Some(key) if self.place == TokenStore::Keyring => {
                self.store_in_keyring(&key).await?;
                let home = self.home.clone();
                blocking(move || match folder(&home)? {
                    Some(folder) => folder.remove(FILE),
                    None => Ok(()),
                })
                .await?;
                Some(key)
            }
            Some(key) => Some(key),
            None => self.in_keyring().await,
        };
        Ok(found.map(|key| *self.known.get_or_init(|| key)))
    }

    /// The key; the first process that needs it creates it.
    pub(super) async fn find_or_make(&self) -> Result<Key, LoginError> {
        if let Some(key) = self.find().await? {
            return Ok(key);
        }
        let _lock = lock_file(&self.home, "key.lock").await?;
        if let Some(key) = self.find().await? {
            return Ok(key);
        }
        let key = random::<32>()
            .ok_or_else(|| LoginError::user_needed("the system has no random numbers"))?;
        let in_keyring = match self.place {
            TokenStore::File => false,
            TokenStore::Keyring => self.store_in_keyring(&key).await.map(|()| true)?,
            TokenStore::Auto => secrets::has_keyring() && self.store_in_keyring(&key).await.is_ok(),
        };
        if !in_keyring {
            let home = self.home.clone();
            blocking(move || {
                let home = Directory::home_or_create(&home)?;
                home.inside_or_create(FOLDER)?.replace_for_good(FILE, &key)
            })
            .await?;
        }
        Ok(*self.known.get_or_init(|| key))
    }

    async fn in_file(&self) -> Result<Option<Key>, LoginError> {
        let home = self.home.clone();
        let read = move || -> Result<Option<Vec<u8>>, FileError> {
            let Some(folder) = folder(&home)? else { return Ok(None) };
            folder.open(FILE)?.map(|mut file| file.read(64)).transpose()
        };
        Ok(blocking(read).await?.and_then(|bytes| bytes.try_into().ok()))
    }

    async fn in_keyring(&self) -> Option<Key> {
        let wanted = match self.place {
            TokenStore::File => false,
            TokenStore::Keyring => true,
            TokenStore::Auto => secrets::has_keyring(),
        };
        if !wanted {
            return None;
        }
        // No entry and no keyring look the same from here.
        let text = secrets::kept(SERVICE, &self.account(), self.timeout()).await.ok()?;
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
    }

    async fn store_in_keyring(&self, key: &Key) -> Result<(), LoginError> {
        let (account, text) = (self.account(), URL_SAFE_NO_PAD.encode(key));
        let keyring = |why| LoginError::Keyring { why };
        secrets::keep(SERVICE, &account, &text, self.timeout()).await.map_err(keyring)?;
        let back = secrets::kept(SERVICE, &account, self.timeout()).await.map_err(keyring)?;
        if back != text {
            return Err(keyring("it returned another value than was stored".to_owned()));
        }
        Ok(())
    }

    /// Each home has a key of its own.
    fn account(&self) -> String {
        self.home.display().to_string()
    }

    fn timeout(&self) -> Duration {
        if self.place == TokenStore::Keyring { UNLOCK_TIMEOUT } else { KEYRING_TIMEOUT }
    }
}

fn folder(home: &Path) -> Result<Option<Directory>, FileError> {
    match Directory::home(home)? {
        Some(home) => home.inside(FOLDER),
        None => Ok(None),
    }
}
