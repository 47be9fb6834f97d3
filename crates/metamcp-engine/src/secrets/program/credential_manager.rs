//! Entries of the Credential Manager: generic credentials whose target is `service/account`, as `cmdkey
//! /generic:service/account` makes them too.

use std::collections::HashMap;
use std::time::Duration;

use keyring_core::api::CredentialStoreApi as _;
use keyring_core::{Entry, Error};
use windows_native_keyring_store::Store;

/// Longest secret of an entry, in bytes of UTF-16.
const MAX_BYTES: usize = 2560;

/// Reads a secret from the system keyring.
pub async fn kept(service: &str, account: &str, patience: Duration) -> Result<String, String> {
    at_entry(service, account, patience, |entry| entry.get_password()).await
}

/// Stores a secret in the system keyring, replacing an existing one.
pub async fn keep(
    service: &str,
    account: &str,
    secret: &str,
    patience: Duration,
) -> Result<(), String> {
    if secret.encode_utf16().count() * 2 > MAX_BYTES {
        let most = MAX_BYTES / 2;
        return Err(format!("it has more than the {most} characters that an entry may have"));
    }
    let secret = secret.to_owned();
    at_entry(service, account, patience, move |entry| entry.set_password(&secret)).await
}

/// Deletes a secret from the system keyring.
pub async fn forget(service: &str, account: &str, patience: Duration) -> Result<(), String> {
    at_entry(service, account, patience, |entry| entry.delete_credential()).await
}

async fn at_entry<T: Send + 'static>(
    service: &str,
    account: &str,
    patience: Duration,
    act: impl FnOnce(&Entry) -> keyring_core::Result<T> + Send + 'static,
) -> Result<T, String> {
    let target = format!("{service}/{account}");
    let (service, account) = (service.to_owned(), account.to_owned());
    let name = target.clone();
    let acted = tokio::task::spawn_blocking(move || {
        // Of this machine: a secret that roams is more than what was asked for.
        let kind = HashMap::from([("target", &*name), ("persistence", "Local")]);
        act(&Store::new()?.build(&service, &account, Some(&kind))?)
    });
    let acted = tokio::time::timeout(patience, acted).await;
    let acted = acted.map_err(|_| {
        format!("the Credential Manager did not answer within {} s", patience.as_secs())
    })?;
    let acted = acted.unwrap_or(Err(Error::NoDefaultStore));
    acted.map_err(|error| match error {
        Error::NoEntry => format!("the Credential Manager has no entry {target}"),
        // Its text may repeat what the entry holds.
        Error::BadEncoding(_) => format!("the entry {target} is not text"),
        error => format!("the Credential Manager failed: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_secret_comes_back_until_it_is_forgotten() {
        let account = format!("test-{}", std::process::id());
        let at = |secret: &'static str| {
            let account = account.clone();
            async move { keep("metamcp-test", &account, secret, PATIENCE).await }
        };
        at("hunter2").await.unwrap();
        at("zwölf 🗝").await.unwrap();
        let read = kept("metamcp-test", &account, PATIENCE).await;
        assert_eq!(read.as_deref(), Ok("zwölf 🗝"));
        forget("metamcp-test", &account, PATIENCE).await.unwrap();
        let gone = kept("metamcp-test", &account, PATIENCE).await.unwrap_err();
        assert!(gone.contains("has no entry metamcp-test/test-"), "{gone}");
    }

    #[tokio::test]
    async fn what_is_too_long_is_refused_in_words() {
        let long = "x".repeat(2000);
        let refused = keep("metamcp-test", "long", &long, PATIENCE).await.unwrap_err();
        assert!(refused.contains("1280 characters"), "{refused}");
    }
}
