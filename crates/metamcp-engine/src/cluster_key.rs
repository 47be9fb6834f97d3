//! The key that all gateways of a fleet share, as this one has it now.
//! Owns: where it is read from, reading it again when its file changes, the randomness of seals.      Never: prints or stores it, takes it from a command line.
//! In: the setting `cluster-key`.  Out: a [`Keyring`], or why there is none.
//! Tests: below; `metamcp_wire::cluster_key`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metamcp_config::settings::ClusterSettings;
use metamcp_tools::cursor::CursorKey;
use metamcp_types::secret::{Reference, Secret};
use metamcp_wire::cluster_key::{ClusterKeyError, ClusterKeys, Purpose, RANDOM, Sealer};
use metamcp_wire::seal;
use parking_lot::RwLock;
use tokio::time::sleep;

use crate::{secrets, task};

/// What the key is called where it cannot be resolved.
const NAME: &str = "--cluster-key";
/// How often its file is read again. A step of a rotation takes a person longer.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// Why there is no key. The setting's text is repeated only where it is surely a place.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    #[error(
        "--cluster-key is the key itself, which other users of this machine can read there; write it into a file and give its path, or a reference such as secretref:env:NAME"
    )]
    Exposed,
    #[error(transparent)]
    Unresolved(#[from] secrets::Unresolved),
    #[error("what --cluster-key refers to cannot be used: {0}")]
    Key(#[from] ClusterKeyError),
}

/// See the module.
pub struct Keyring {
    /// This process among those that have the key: drawn at random, so that nobody takes it for the one before.
    gateway: u64,
    place: Secret,
    keys: RwLock<Arc<ClusterKeys>>,
    generation: AtomicU64,
}

impl Keyring {
    /// The key of these settings; `None` where there is no fleet.
    pub async fn load(settings: &ClusterSettings) -> Result<Option<Arc<Keyring>>, KeyringError> {
        let written = settings.key.trim();
        if written.is_empty() {
            return Ok(None);
        }
        let is_reference = Reference::is_one(written) || Reference::is_plainly_one(written);
        // A path may look like base64, and base64 like a path: it is a key where there is no such file.
        if ClusterKeys::parse(written).is_ok() && !std::path::Path::new(written).exists() {
            return Err(KeyringError::Exposed);
        }
        let place =
            if is_reference { written.to_owned() } else { format!("secretref:file:{written}") };
        let place = Secret::reference(NAME, place);
        let keys = read(&place).await?;
        Ok(Some(Keyring::of(place, keys)))
    }

    fn of(place: Secret, keys: ClusterKeys) -> Arc<Keyring> {
        let gateway = getrandom::u64().expect("the system has randomness");
        let (keys, generation) = (RwLock::new(Arc::new(keys)), AtomicU64::new(0));
        Arc::new(Keyring { gateway, place, keys, generation })
    }

    /// A key that is not read from anywhere.
    #[cfg(test)]
    pub fn fixed(text: &str) -> Arc<Keyring> {
        let keys = ClusterKeys::parse(text).expect("a test's key is one");
        Keyring::of(Secret::reference(NAME, "literal:"), keys)
    }

    /// Which process this is.
    pub fn gateway(&self) -> u64 {
        self.gateway
    }

    /// The keys of now.
    pub fn keys(&self) -> Arc<ClusterKeys> {
        Arc::clone(&self.keys.read())
    }

    /// Seals and opens for a purpose, with the keys of now. Who keeps it looks at [`Keyring::generation`].
    pub fn sealer(&self, purpose: Purpose) -> Sealer {
        self.keys.read().sealer(purpose)
    }

    /// How often the keys have changed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The key of resume tokens.
    pub fn resume_key(&self) -> seal::Key {
        let (key, other) = self.keys.read().derived(Purpose::ResumeTokens);
        seal::Key::with_other(key.expose(), other.map(|other| other.expose()))
    }

    /// The key of cursors.
    pub fn cursor_key(&self) -> CursorKey {
        let (key, other) = self.keys.read().derived(Purpose::Cursors);
        CursorKey::with_other(key.expose(), other.map(|other| other.expose()))
    }

    /// Seals for a purpose.
    pub fn seal(&self, purpose: Purpose, context: &[u8], plain: &[u8]) -> Vec<u8> {
        self.sealer(purpose).seal(random(), context, plain)
    }

    /// Reads the file again whenever it may have changed, until the keyring is dropped. References to anything but a file
    /// are looked up once: a program that asks a person must not do so every few seconds.
    pub fn keep_reading(self: &Arc<Keyring>) {
        if !matches!(Reference::parse(self.place.expose()), Ok(Reference::File(_))) {
            return;
        }
        let keyring = Arc::downgrade(self);
        task::spawn("cluster key", async move {
            let mut told = String::new();
            loop {
                sleep(READ_AGAIN).await;
                let Some(keyring) = keyring.upgrade() else { return };
                match keyring.refresh().await {
                    Ok(()) => told.clear(),
                    Err(error) => {
                        let error = error.to_string();
                        if error != told {
                            tracing::warn!("the cluster key stays as it was: {error}");
                            told = error;
                        }
                    }
                }
            }
        });
    }

    async fn refresh(&self) -> Result<(), KeyringError> {
        let read = read(&self.place).await?;
        let mut keys = self.keys.write();
        let names = |keys: &ClusterKeys| (keys.name(), keys.other_name());
        if names(&read) != names(&keys) {
            let other = read
                .other_name()
                .map_or_else(String::new, |name| format!(", also accepting {name}"));
            let told = format!("cluster key: sealing with {}{other}", read.name());
            tracing::info!("{told}");
            *keys = Arc::new(read);
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

async fn read(place: &Secret) -> Result<ClusterKeys, KeyringError> {
    let text = secrets::one(NAME, place).await?;
    Ok(ClusterKeys::parse(text.expose())?)
}

/// Randomness for one seal.
pub fn random() -> [u8; RANDOM] {
    let mut random = [0; RANDOM];
    // Sealing twice with the same randomness would give the key away.
    getrandom::fill(&mut random).expect("the system has randomness");
    random
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const ONE: &str = "u8uBlFpHbYuV6J1m0bD2cQ3nS8X7kZ5yTqWvEo4fGhI=";
    const OTHER: &str = "3a7f0c91d4e852b6af13c0de9972461b58ee0f7da4c3b21966850a4fd1e7c39b";

    async fn load(key: &str) -> Result<Option<Arc<Keyring>>, KeyringError> {
        Keyring::load(&ClusterSettings { key: key.to_owned(), ..ClusterSettings::default() }).await
    }

    #[tokio::test]
    async fn a_key_is_in_a_file_or_behind_a_reference_and_never_the_setting_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, format!("{ONE}\n")).unwrap();
        let path = path.display().to_string();
        for place in [path.clone(), format!("file:{path}"), format!("cmd:cat {path}")] {
            let keyring = load(&place).await.unwrap().unwrap();
            assert_eq!(keyring.keys().name(), ClusterKeys::parse(ONE).unwrap().name(), "{place}");
        }
        assert!(load("").await.unwrap().is_none());
        let why = |key: String| async move { load(&key).await.err().unwrap().to_string() };
        for key in [ONE, OTHER] {
            let told = why(key.to_owned()).await;
            assert!(told.contains("the key itself") && !told.contains(&key[..8]), "{told}");
        }
        assert!(why("/nonexistent/key".to_owned()).await.contains("No such file"));
        assert!(why("secretref:env:METAMCP_NOT_SET".to_owned()).await.contains("is not set"));
        std::fs::write(&path, "hunter2").unwrap();
        let told = why(path).await;
        assert!(told.contains("openssl rand") && !told.contains("hunter2"), "{told}");
    }

    #[tokio::test]
    async fn a_file_that_changed_is_read_and_one_that_broke_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, ONE).unwrap();
        let keyring = load(&path.display().to_string()).await.unwrap().unwrap();
        let old = keyring.seal(Purpose::AtRest, b"", b"x");
        std::fs::write(&path, format!("{OTHER}\n{ONE}")).unwrap();
        keyring.refresh().await.unwrap();
        assert_eq!(keyring.generation(), 1);
        assert_eq!(keyring.sealer(Purpose::AtRest).open(b"", &old), Ok(b"x".to_vec()));
        std::fs::write(&path, "").unwrap();
        assert!(keyring.refresh().await.is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(keyring.refresh().await.is_err());
        assert_eq!(keyring.sealer(Purpose::AtRest).open(b"", &old), Ok(b"x".to_vec()));
        assert_eq!(keyring.generation(), 1);
    }
}
