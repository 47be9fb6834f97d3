//! A stored login: an encrypted file for each server, readable only by its user.
//!
//! Its name is a hash of the server's address. Each authorization server has its own entry, so that one's tokens are never
//! sent to another. The key (`key.rs`) is in the system keyring, or beside the tokens; there it protects them from backups
//! of single files, from searches and from screens, but not from a process that can read both.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metamcp_types::web::Address;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::LoginError;
use super::key::{Key, Keys};
use super::shared::{Lease, SharedError, SharedLogins};
use crate::clock;
use crate::files::{Directory, FileError, component};

pub(super) const FOLDER: &str = "tokens";
/// Largest file read.
const MAX_FILE: u64 = 1024 * 1024;
/// The file format; other versions are not read.
const FORMAT: u8 = 1;
/// Lock timeout: longer than a refresh may take.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);
/// How often the lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// One stored login.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) issuer: String,
    /// The resource identifier, as the server spells it.
    pub(super) resource: String,
    pub(super) token_endpoint: String,
    pub(super) client_id: String,
    pub(super) client_secret: Option<String>,
    pub(super) client_method: String,
    pub(super) access: String,
    pub(super) refresh: Option<String>,
    pub(super) ends_at_ms: Option<u64>,
    pub(super) scopes: Vec<String>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Record({})", self.issuer)
    }
}

impl Record {
    pub(super) fn ends_within(&self, time: Duration, now_ms: u64) -> bool {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.ends_at_ms.is_some_and(|end| end <= now_ms.saturating_add(time))
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Content {
    /// The issuer whose entry is in use.
    current: String,
    entries: BTreeMap<String, Record>,
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    home: PathBuf,
    name: String,
    keys: Keys,
    /// In a fleet: what all gateways have. The file here is a copy, for when that is out of reach.
    shared: Arc<OnceLock<Arc<dyn SharedLogins>>>,
}

/// The lock; released when dropped, or when the process ends.
pub(super) struct LockGuard {
    _file: File,
    /// The same against the other gateways of a fleet.
    lease: Option<Lease>,
}

impl From<SharedError> for LoginError {
    fn from(error: SharedError) -> LoginError {
        LoginError::Fleet { why: error.0 }
    }
}

impl Store {
    pub(super) fn new(home: &Path, server: &Address, keys: Keys) -> Store {
        let place = format!("{}{}", server.origin(), server.path());
        Store { home: home.to_owned(), name: component(&place), keys, shared: Arc::default() }
    }

    /// The same, which a fleet may share later.
    pub(super) fn shared_by(self, shared: Arc<OnceLock<Arc<dyn SharedLogins>>>) -> Store {
        Store { shared, ..self }
    }

    /// The stored login; a damaged file counts as none.
    pub(super) async fn read(&self) -> Result<Option<Record>, LoginError> {
        let content = match self.shared_content().await {
            Some(content) => Some(content),
            None => self.own_content().await?,
        };
        Ok(content.and_then(|mut content| content.entries.remove(&content.current)))
    }

    /// What all gateways of a fleet have; `None` where there is no fleet, it has nothing of this login yet, or it is out of
    /// reach: then the copy here is used, which may be old, and nobody may refresh it.
    async fn shared_content(&self) -> Option<Content> {
        let shared = self.shared.get()?;
        match shared.read(&self.name).await {
            Ok(Some(plain)) => match serde_json::from_slice(&plain) {
                Ok(content) => Some(content),
                Err(_) => {
                    tracing::warn!("the fleet's login is not one and is not used");
                    None
                }
            },
            Ok(None) => None,
            Err(error) => {
                tracing::debug!("the fleet's logins are out of reach: {error}");
                None
            }
        }
    }

    async fn own_content(&self) -> Result<Option<Content>, LoginError> {
        let Some(sealed) = self.sealed().await? else { return Ok(None) };
        let Some(key) = self.keys.find().await? else { return Ok(None) };
        Ok(self.content(&key, &sealed))
    }

    /// Whether there is a stored login, readable or not.
    pub(super) async fn is_there(&self) -> Result<bool, LoginError> {
        if let Some(content) = self.shared_content().await {
            return Ok(!content.entries.is_empty());
        }
        let store = self.clone();
        blocking(move || {
            let Some(folder) = store.folder()? else { return Ok(false) };
            Ok(folder.open(&store.file())?.is_some())
        })
        .await
    }

    /// Stores a login in place of the one from the same authorization server.
    pub(super) async fn write(&self, record: &Record) -> Result<(), LoginError> {
        let key = self.keys.find_or_make().await?;
        let mut content = match self.shared_content().await {
            Some(content) => content,
            None => self.own_content().await?.unwrap_or_default(),
        };
        content.current.clone_from(&record.issuer);
        content.entries.insert(record.issuer.clone(), record.clone());
        let plain = serde_json::to_vec(&content).unwrap_or_default();
        let sealed = seal(&key, &self.name, plain)
            .ok_or_else(|| LoginError::user_needed("its token cannot be encrypted"))?;
        let store = self.clone();
        blocking(move || {
            let home = Directory::home_or_create(&store.home)?;
            home.inside_or_create(FOLDER)?.replace_for_good(&store.file(), &sealed)
        })
        .await?;
        // A token that only this gateway has would be refreshed by the others in vain, so its request ends with this.
        self.share(&content).await
    }

    /// Deletes all logins at this server.
    pub(super) async fn remove(&self) -> Result<(), LoginError> {
        // Not nothing: a gateway that has a copy would take nothing for a login that was never shared.
        self.share(&Content::default()).await?;
        let store = self.clone();
        blocking(move || match store.folder()? {
            Some(folder) => folder.remove(&store.file()),
            None => Ok(()),
        })
        .await
    }

    /// Locks the login against all other gateways of this user, and of the fleet.
    pub(super) async fn lock(&self) -> Result<LockGuard, LoginError> {
        let mut lock = lock_file(&self.home, &format!("{}.lock", self.name)).await?;
        if let Some(shared) = self.shared.get() {
            let lease = shared.lease(&self.name).await?;
            lock.lease = Some(lease.ok_or(LoginError::Busy)?);
        }
        Ok(lock)
    }

    async fn share(&self, content: &Content) -> Result<(), LoginError> {
        let Some(shared) = self.shared.get() else { return Ok(()) };
        let plain = serde_json::to_vec(content).unwrap_or_default();
        Ok(shared.write(&self.name, &plain).await?)
    }

    fn file(&self) -> String {
        format!("{}.token", self.name)
    }

    fn folder(&self) -> Result<Option<Directory>, FileError> {
        match Directory::home(&self.home)? {
            Some(home) => home.inside(FOLDER),
            None => Ok(None),
        }
    }

    /// The encrypted file.
    async fn sealed(&self) -> Result<Option<Vec<u8>>, LoginError> {
        let store = self.clone();
        blocking(move || {
            let Some(folder) = store.folder()? else { return Ok(None) };
            folder.open(&store.file())?.map(|mut file| file.read(MAX_FILE)).transpose()
        })
        .await
    }

    fn content(&self, key: &Key, sealed: &[u8]) -> Option<Content> {
        serde_json::from_slice(&open(key, &self.name, sealed)?).ok()
    }
}

/// Locks the file of that name.
pub(super) async fn lock_file(home: &Path, name: &str) -> Result<LockGuard, LoginError> {
    let (place, file) = (home.to_owned(), name.to_owned());
    let file = blocking(move || {
        let home = Directory::home_or_create(&place)?;
        home.inside_or_create(FOLDER)?.open_lock(&file)
    })
    .await?;
    let end = clock::instant() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(LockGuard { _file: file, lease: None }),
            Err(TryLockError::WouldBlock) if clock::instant() < end => sleep(LOCK_INTERVAL).await,
            Err(TryLockError::WouldBlock) => return Err(LoginError::Busy),
            Err(TryLockError::Error(source)) => {
                let path = home.join(FOLDER).join(name);
                return Err(FileError::Io { action: "lock", path, source }.into());
            }
        }
    }
}

/// Runs file access on a blocking thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, LoginError> {
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(LoginError::from),
        Err(_) => Err(LoginError::Busy),
    }
}

fn seal(key: &Key, name: &str, mut plain: Vec<u8>) -> Option<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).ok()?);
    let nonce = random::<NONCE_LEN>()?;
    let unique = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(unique, Aad::from(name.as_bytes()), &mut plain).ok()?;
    let mut sealed = vec![FORMAT];
    sealed.extend_from_slice(&nonce);
    sealed.append(&mut plain);
    Some(sealed)
}

fn open(key: &Key, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).ok()?);
    let rest = sealed.strip_prefix(&[FORMAT])?;
    let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>()?;
    let mut rest = rest.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut rest).ok()?;
    Some(plain.to_vec())
}

/// Random bytes; nothing if the system has none.
pub(super) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use metamcp_config::settings::TokenStore;

    use super::*;

    fn record(issuer: &str, access: &str) -> Record {
        Record {
            issuer: issuer.to_owned(),
            resource: "https://r".to_owned(),
            token_endpoint: "https://i/token".to_owned(),
            client_id: "c".to_owned(),
            client_secret: None,
            client_method: "none".to_owned(),
            access: access.to_owned(),
            refresh: Some("refresh-canary".to_owned()),
            ends_at_ms: Some(1000),
            scopes: Vec::new(),
        }
    }

    fn store(home: &Path, server: &str) -> Store {
        let keys = Keys::new(home, TokenStore::File);
        Store::new(home, &Address::parse(server).unwrap(), keys)
    }

    #[tokio::test]
    async fn a_stored_login_is_encrypted_private_and_shared_between_processes() {
        let home = tempfile::tempdir().unwrap();
        let mine = store(home.path(), "https://a/mcp");
        assert_eq!(mine.read().await.unwrap(), None);
        mine.write(&record("https://i", "access-canary")).await.unwrap();
        let again = store(home.path(), "https://a/mcp");
        assert_eq!(again.read().await.unwrap(), Some(record("https://i", "access-canary")));
        assert_eq!(store(home.path(), "https://b/mcp").read().await.unwrap(), None);
        let folder = home.path().join(FOLDER);
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            for canary in ["access-canary", "refresh-canary"] {
                assert!(!bytes.windows(canary.len()).any(|part| part == canary.as_bytes()));
            }
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o077, 0, "{}", path.display());
            }
        }
    }

    #[tokio::test]
    async fn each_authorization_server_has_its_own_entry_and_damage_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let mine = store(home.path(), "https://a/mcp");
        mine.write(&record("https://one", "1")).await.unwrap();
        mine.write(&record("https://two", "2")).await.unwrap();
        assert_eq!(mine.read().await.unwrap().unwrap().access, "2");
        mine.write(&record("https://one", "3")).await.unwrap();
        assert_eq!(mine.read().await.unwrap().unwrap().access, "3");
        let path = home.path().join(FOLDER).join(mine.file());
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(mine.read().await.unwrap(), None);
        mine.write(&record("https://one", "4")).await.unwrap();
        assert_eq!(mine.read().await.unwrap().unwrap().access, "4");
        mine.remove().await.unwrap();
        assert_eq!(mine.read().await.unwrap(), None);
    }

    #[tokio::test]
    async fn the_lock_is_exclusive() {
        let home = tempfile::tempdir().unwrap();
        let mine = store(home.path(), "https://a/mcp");
        let first = mine.lock().await.unwrap();
        let second = mine.clone();
        let waiting = tokio::spawn(async move { second.lock().await.is_ok() });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert!(waiting.await.unwrap());
    }
}
