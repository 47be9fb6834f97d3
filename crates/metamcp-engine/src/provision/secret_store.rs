//! Secrets of installed servers: in the system keyring, or each in a private file. Records contain only references to them
//! (`core::provision::secret_ref`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use metamcp_config::settings::TokenStore;
use metamcp_provisioning::provision::secret_ref::{self, FOLDER, KEYRING, SecretRef};
use metamcp_provisioning::provision::{Consent, Input, Plan};

use super::store::Record;
use crate::files::{Directory, FileError};
use crate::secrets;

/// Keyring timeout: the person who just entered the secret is there to unlock it.
const KEYRING_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct SecretStore {
    home: PathBuf,
    pub(super) place: TokenStore,
}

/// Why a secret was not stored; nothing is installed then.
#[derive(Debug, thiserror::Error)]
pub enum SecretStoreError {
    /// The configured keyring does not work.
    #[error("the secret for {name} cannot be stored in the keyring: {why}")]
    Keyring { name: String, why: String },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("this system has no random numbers")]
    NoRandomness,
}

impl SecretStore {
    pub(super) fn new(home: &Path) -> SecretStore {
        SecretStore { home: home.to_owned(), place: TokenStore::Auto }
    }

    /// Stores the secrets among the values for a plan; returns the values with references in their place.
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

    /// The same for an approval.
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
        // A path is not a secret itself; the server gets access to the file it names.
        let is_place = Path::new(&*value).is_absolute() && Path::new(&*value).exists();
        // Neither is a reference to a secret.
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
        // Some keyrings are passed a command line of words; what could be parsed as more than one word goes into a file.
        if !secret.chars().all(|c| c.is_ascii_graphic() && c != '"' && c != '\\') {
            return Err("it contains characters that are unsafe for the keyring".to_owned());
        }
        let account = secret_ref::keyring_account(number);
        secrets::keep(KEYRING, &account, secret, KEYRING_TIMEOUT).await?;
        let back = secrets::kept(KEYRING, &account, KEYRING_TIMEOUT).await?;
        if back == secret { Ok(()) } else { Err("it returned another value".to_owned()) }
    }

    /// Deletes the secrets of an unused approval.
    pub(super) async fn forget_consent(&self, consent: &Consent) {
        let given = consent.environment.iter().map(|(_, value)| value);
        self.forget(given.chain(&consent.argv)).await;
    }

    /// The same for a removed server.
    pub(super) async fn forget_record(&self, record: &Record) {
        let given = record.values.iter().map(|(_, value)| value);
        self.forget(given.chain(&record.argv)).await;
    }

    async fn forget(&self, values: impl Iterator<Item = &String>) {
        for value in values {
            // If this fails, the secret remains, but nothing refers to it.
            match secret_ref::secret_ref(value) {
                Some(SecretRef::Keyring(number)) => {
                    let account = secret_ref::keyring_account(number);
                    secrets::forget(KEYRING, &account, KEYRING_TIMEOUT).await.ok();
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
