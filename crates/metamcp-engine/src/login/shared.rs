//! Logins that many gateways share: where they are besides this machine's files, and who of all gateways refreshes one.

use async_trait::async_trait;

/// Held while a token is requested; released when dropped.
pub type Lease = Box<dyn Send + Sync + 'static>;

/// Why the logins of a fleet cannot be had now.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct SharedError(pub String);

/// What all gateways of a fleet have of a login. Whoever implements it encrypts what it keeps.
#[async_trait]
pub trait SharedLogins: std::fmt::Debug + Send + Sync {
    /// `None` if no gateway has ever kept anything under this name.
    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SharedError>;

    async fn write(&self, name: &str, plain: &[u8]) -> Result<(), SharedError>;

    /// Waits until no other gateway requests this token. `None` if that takes too long.
    async fn lease(&self, name: &str) -> Result<Option<Lease>, SharedError>;
}
