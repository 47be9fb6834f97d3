//! Where secrets of installed servers are: in the keyring of the system, or each alone in a file of the user's. What is
//! written down elsewhere says which (`core::provision::secret_ref`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use metamcp_config::settings::TokenStore;
use metamcp_provisioning::provision::secret_ref::{self, FOLDER, KEYRING, SecretRef};
use metamcp_provisioning::provision::{Consent, Input, Plan};

use super::store::Record;
use crate::files::{Directory, FileError};
use crate::secrets;

/// How long a keyring may take: a person who was just asked for the secret is there to unlock it.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct SecretStore {
    home: PathBuf,
    /// Where the user wants such things.
    pub(super) place: TokenStore,
}

/// Why a secret was not put away; nothing is installed without that.
#[derive(Debug, thiserror::Error)]
pub enum SecretStoreError {
    /// The keyring, where the user insists on it.
    #[error("the secret for {name} does not go into the keyring: {why}")]
    Keyring {
        /// What it is for.
        name: String,
        /// The keyring's trouble.
        why: String,
    },
    /// A file of ours.
    #[error(transparent)]
    File(#[from] FileError),
    /// No number for it.
    #[error("this system has no randomness")]
    NoRandomness,
}

impl SecretStore {
    pub(super) fn new(home: &Path) -> SecretStore {
        SecretStore { home: home.to_owned(), place: TokenStore::Auto }
    }

    /// What a person gave for a plan, with what stands for each secret in its place.
    pub(super) async fn values(
        &self,
        plan: &Plan,
        mut values: Vec<(String, String)>,
    ) -> Result<Vec<(String, String)>, SecretStoreError> {
        for (name, value) in &mut values {
            let inputs = plan.asked.iter().chain(&plan.environment);
            let wanted: Vec<&Input> = inputs.filter(|input| input.name == *name).collect();
            self.replace(&wanted, value).await?;
        }
        Ok(values)
    }

    /// The same for a consent.
    pub(super) async fn consent(
        &self,
        plan: &Plan,
        consent: &Consent,
    ) -> Result<Consent, SecretStoreError> {
        let environment = self.values(plan, consent.environment.clone()).await?;
        let mut argv = consent.argv.clone();
        for (at, word) in argv.iter_mut().enumerate() {
            let wanted: Vec<&Input> = plan.asked_at(at).into_iter().collect();
            self.replace(&wanted, word).await?;
        }
        Ok(Consent { argv, environment })
    }

    async fn replace(&self, inputs: &[&Input], value: &mut String) -> Result<(), SecretStoreError> {
        // A path says where something is; it is no secret itself, and opens a door to what it names.
        let is_place = Path::new(&*value).is_absolute() && Path::new(&*value).exists();
        // So does whatever a person writes in place of a secret.
        let is_reference = metamcp_types::secret::Reference::is_one(value);
        let input = inputs.iter().find(|input| input.is_worth_keeping(value));
        if let Some(input) = input.filter(|_| !is_place && !is_reference) {
            *value = self.put(&input.name, value).await?;
        }
        Ok(())
    }

    async fn put(&self, name: &str, secret: &str) -> Result<String, SecretStoreError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|_| SecretStoreError::NoRandomness)?;
        let number: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let in_keyring = match self.place {
            TokenStore::File => false,
            TokenStore::Auto => {
                secrets::has_keyring() && self.hand_to_keyring(&number, secret).await.is_ok()
            }
            TokenStore::Keyring => {
                let handed = self.hand_to_keyring(&number, secret).await;
                handed.map_err(|why| SecretStoreError::Keyring { name: name.to_owned(), why })?;
                true
            }
        };
        if in_keyring {
            return Ok(secret_ref::in_keyring(&number));
        }
        let folder = Directory::home_or_create(&self.home)?
            .inside_or_create(super::store::OWN)?
            .inside_or_create(FOLDER)?;
        folder.replace_for_good(&number, secret.as_bytes())?;
        let path = folder.path().join(&number);
        let path = std::path::absolute(&path).unwrap_or(path);
        Ok(secret_ref::in_file(&path.to_string_lossy()))
    }

    async fn hand_to_keyring(&self, number: &str, secret: &str) -> Result<(), String> {
        // Some keyrings are handed a line of words; what could be read as more than one word is kept elsewhere.
        if !secret.chars().all(|c| c.is_ascii_graphic() && c != '"' && c != '\\') {
            return Err("it holds characters that keyrings are not handed safely".to_owned());
        }
        let account = secret_ref::keyring_account(number);
        secrets::keep(KEYRING, &account, secret, PATIENCE).await?;
        let back = secrets::kept(KEYRING, &account, PATIENCE).await?;
        if back == secret { Ok(()) } else { Err("it gives back something else".to_owned()) }
    }

    /// What belongs to a consent that came to nothing is not kept.
    pub(super) async fn forget_consent(&self, consent: &Consent) {
        let given = consent.environment.iter().map(|(_, value)| value);
        self.forget(given.chain(&consent.argv)).await;
    }

    /// The same for a server that is taken away.
    pub(super) async fn forget_record(&self, record: &Record) {
        let given = record.values.iter().map(|(_, value)| value);
        self.forget(given.chain(&record.argv)).await;
    }

    async fn forget(&self, values: impl Iterator<Item = &String>) {
        for value in values {
            // What cannot be removed is named by nothing any more.
            match secret_ref::secret_ref(value) {
                Some(SecretRef::Keyring(number)) => {
                    let account = secret_ref::keyring_account(number);
                    secrets::forget(KEYRING, &account, PATIENCE).await.ok();
                }
                Some(SecretRef::File(number)) => {
                    let home = Directory::home(&self.home).ok().flatten();
                    let inside = |folder: Directory, name| folder.inside(name).ok().flatten();
                    let folder = home
                        .and_then(|home| inside(home, super::store::OWN))
                        .and_then(|own| inside(own, FOLDER));
                    if let Some(folder) = folder {
                        folder.remove(number).ok();
                    }
                }
                None => {}
            }
        }
    }
}
