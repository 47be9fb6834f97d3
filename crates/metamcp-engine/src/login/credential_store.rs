//! The credential store behind the SDK: ours, so that all gateways share it. It also decides whether a refresh is still
//! needed once this gateway has the lock.

use std::sync::Arc;

use crate::login::oauth::{Client, Tokens};
use async_trait::async_trait;
use oauth2::TokenResponse;
use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, OAuthTokenResponse, StoredCredentials,
};

use super::http_client::HttpClientAdapter;
use super::store::Record;
use super::{Login, LoginError};

/// What belongs to a login besides its tokens.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) issuer: String,
    /// The resource identifier, as the server spells it.
    pub(super) resource: String,
    pub(super) token_endpoint: String,
    pub(super) client: Client,
    /// The requested scopes.
    pub(super) scopes: Vec<String>,
}

pub(super) struct SharedCredentialStore {
    login: Arc<Login>,
    http_client: Arc<HttpClientAdapter>,
    terms: Terms,
    /// The token that the server refused, if one is to be refreshed.
    shown: Option<String>,
}

impl SharedCredentialStore {
    pub(super) fn new(
        login: Arc<Login>,
        http_client: Arc<HttpClientAdapter>,
        terms: Terms,
        shown: Option<&str>,
    ) -> SharedCredentialStore {
        SharedCredentialStore { login, http_client, terms, shown: shown.map(str::to_owned) }
    }

    /// Records the error: the SDK passes on only its text.
    fn failed(&self, error: LoginError) -> AuthError {
        self.http_client.note(error);
        AuthError::CredentialStoreError(String::new())
    }
}

#[async_trait]
impl CredentialStore for SharedCredentialStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let record = self.login.reload().await.map_err(|error| self.failed(error))?;
        let Some(record) = record else { return Ok(None) };
        if self.shown.as_ref().is_some_and(|shown| *shown != record.access) {
            // Another gateway was first. Another refresh would use up the refresh token it just got.
            return Err(AuthError::CredentialStoreError("there is a fresh token".to_owned()));
        }
        let tokens = Tokens {
            access: record.access,
            refresh: record.refresh,
            expires_in: None,
            scopes: None,
        };
        let tokens: Option<OAuthTokenResponse> = serde_json::from_value(tokens.document()).ok();
        // No scopes in the refresh request: they stay as granted, and some servers refuse to see them again.
        let stored = StoredCredentials::new(record.client_id, tokens, Vec::new(), None);
        Ok(Some(stored.with_issuer(Some(record.issuer))))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let Some(tokens) = credentials.token_response else { return Ok(()) };
        let tokens = Tokens {
            access: tokens.access_token().secret().clone(),
            refresh: tokens.refresh_token().map(|token| token.secret().clone()),
            expires_in: tokens.expires_in().map(|life| life.as_secs()),
            scopes: tokens.scopes().map(|all| all.iter().map(|one| (**one).clone()).collect()),
        };
        let record = Record::new(self.terms.clone(), tokens);
        self.login.keep(record).await.map_err(|error| self.failed(error))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        // Only an explicit logout deletes a login.
        Ok(())
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = self.login.store.lock().await.map_err(|error| self.failed(error))?;
        Ok(Some(CredentialRefreshGuard::new(lock)))
    }
}
