//! What the settings say of this node, as the fleet needs it.
//! Owns: the name of a node that was given none, and that credentials are references.      Never: keeps a secret longer than the connection.
//! In: `cluster.*`, the keyring.  Out: a `FleetConfig`, or what is wrong.
//! Tests: below.

use std::path::PathBuf;
use std::sync::Arc;

use metamcp_config::config::TlsFiles;
use metamcp_config::settings::ClusterSettings;
use metamcp_fleet::directory::Labels;
use metamcp_types::secret::{Reference, Secret};

use super::bus::{BusConfig, Credentials};
use super::{FleetConfig, NodeName};
use crate::cluster_key::{Keyring, KeyringError};
use crate::secrets;

/// Why this gateway cannot be part of a fleet.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error(
        "--cluster needs --cluster-key, the secret that all gateways of the fleet share; make one with `openssl rand -base64 32`"
    )]
    NoKey,
    #[error(
        "the name of this gateway, {0:?}, has to be 1 to 64 letters, digits, - and _; set --node-name"
    )]
    Name(String),
    #[error(
        "the label {0:?} has to be NAME=VALUE, with at most 128 bytes; a gateway has at most 32 of them"
    )]
    Label(String),
    #[error(
        "{0} has to be a reference, such as secretref:env:NAME or secretref:file:PATH: other users of this machine can read command lines"
    )]
    Exposed(&'static str),
    #[error(
        "more than one of cluster-credentials, cluster-user, cluster-nkey and cluster-token is set"
    )]
    Credentials,
    #[error(transparent)]
    Unresolved(#[from] secrets::Unresolved),
    #[error(transparent)]
    Key(#[from] KeyringError),
    #[error(transparent)]
    Bus(#[from] super::bus::BusError),
}

impl FleetConfig {
    /// Of these settings; `None` where there is no bus.
    ///
    /// # Errors
    /// What is wrong with them.
    pub async fn of(
        settings: &ClusterSettings,
        keyring: Option<Arc<Keyring>>,
    ) -> Result<Option<FleetConfig>, FleetError> {
        if settings.servers.trim().is_empty() {
            return Ok(None);
        }
        let keyring = keyring.ok_or(FleetError::NoKey)?;
        let written = if settings.node.is_empty() { host_name() } else { settings.node.clone() };
        let node = NodeName::parse(&written).ok_or(FleetError::Name(written))?;
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let bus = BusConfig {
            servers: settings.servers.split(',').map(|one| one.trim().to_owned()).collect(),
            credentials: credentials(settings).await?,
            tls: TlsFiles {
                ca: path(&settings.ca),
                cert: path(&settings.cert),
                key: path(&settings.cert_key),
            },
            node,
            prefix: settings.prefix.clone(),
            replicas: settings.replicas as usize,
            keyring,
        };
        let labels = labels(&settings.labels)?;
        Ok(Some(FleetConfig { bus, labels, capacity: settings.capacity, lease: settings.lease }))
    }
}

async fn credentials(settings: &ClusterSettings) -> Result<Credentials, FleetError> {
    let given = [&settings.credentials, &settings.user, &settings.nkey, &settings.token];
    if given.iter().filter(|text| !text.is_empty()).count() > 1 {
        return Err(FleetError::Credentials);
    }
    Ok(if !settings.credentials.is_empty() {
        Credentials::File(PathBuf::from(&settings.credentials))
    } else if !settings.user.is_empty() {
        let password = secret("--cluster-password", &settings.password).await?;
        Credentials::User { name: settings.user.clone(), password }
    } else if !settings.nkey.is_empty() {
        Credentials::Nkey(secret("--cluster-nkey", &settings.nkey).await?)
    } else if !settings.token.is_empty() {
        Credentials::Token(secret("--cluster-token", &settings.token).await?)
    } else {
        Credentials::None
    })
}

async fn secret(name: &'static str, written: &str) -> Result<Secret, FleetError> {
    if !(Reference::is_one(written) || Reference::is_plainly_one(written)) {
        return Err(FleetError::Exposed(name));
    }
    let found = secrets::one(name, &Secret::reference(name, written)).await?;
    // A file ends with a line break, which is no part of it.
    Ok(Secret::new(name, found.expose().trim()))
}

fn labels(written: &str) -> Result<Labels, FleetError> {
    let mut labels = Labels::new();
    for one in written.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let wrong = || FleetError::Label(one.to_owned());
        let (name, value) = one.split_once('=').ok_or_else(wrong)?;
        if name.is_empty() || name.len() + value.len() > 128 || labels.len() == 32 {
            return Err(wrong());
        }
        labels.insert(name.into(), value.into());
    }
    Ok(labels)
}

/// The host's name up to its first dot.
fn host_name() -> String {
    let name = crate::env::host_name().unwrap_or_default();
    let name = name.trim().split('.').next().unwrap_or_default();
    name.chars().take(64).map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names_with_values() {
        let read = labels("gpu=true, zone=eu-1,,empty=").unwrap();
        let read: Vec<_> = read.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(read, [("empty", ""), ("gpu", "true"), ("zone", "eu-1")]);
        for wrong in ["gpu", "=x", &format!("a={}", "x".repeat(128))] {
            assert!(labels(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_password_is_never_the_setting_itself() {
        let settings = ClusterSettings {
            user: "a".to_owned(),
            password: "hunter2".to_owned(),
            ..ClusterSettings::default()
        };
        let error = credentials(&settings).await.unwrap_err().to_string();
        assert!(error.contains("--cluster-password") && !error.contains("hunter2"), "{error}");
        let both = ClusterSettings { token: "cmd:echo x".to_owned(), ..settings };
        assert!(matches!(credentials(&both).await, Err(FleetError::Credentials)));
    }
}
