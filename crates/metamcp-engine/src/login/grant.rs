//! Token requests: refresh token and client credentials. A refresh happens once, whichever gateway notices first.

use std::sync::Arc;

use crate::login::oauth::{self, Client, GrantError, Method, Tokens};
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadata, ClientCredentialsConfig, OAuthClientConfig,
};

use super::credential_store::{SharedCredentialStore, Terms};
use super::discover::{Challenge, only_by, sdk};
use super::http_client::{AuthTarget, HttpClientAdapter, Signer};
use super::store::Record;
use super::{Login, LoginError};
use crate::clock::unix_millis;

impl Login {
    /// Replaces the token `shown`, by another gateway's or a fresh one. One process at a time requests it, and only if
    /// none did meanwhile: a refresh token is often valid for one use.
    pub(super) async fn refresh(&self, shown: Option<&str>) -> Result<(), LoginError> {
        let _lock = self.token_lock.lock().await;
        if self.has_other_than(shown) {
            return Ok(());
        }
        let Some(record) = self.reload().await? else {
            return Err(LoginError::user_needed("it requires a token"));
        };
        if self.has_other_than(shown) {
            return Ok(());
        }
        let ended = || LoginError::user_needed("its token is no longer valid");
        if record.refresh.is_none() {
            return Err(ended());
        }
        let place =
            oauth::endpoint("token_endpoint", &record.token_endpoint).map_err(|_| ended())?;
        let http_client =
            HttpClientAdapter::new(self.web()?, AuthTarget::User(self.server.clone()));
        let http_client = Arc::new(http_client);
        let terms = Terms::of(&record);
        let mut manager = sdk(&terms.resource, &http_client).await.map_err(|_| ended())?;
        http_client.name_resource(&terms.resource);
        self.prove(&terms.client, &terms.issuer, &http_client);
        manager.set_metadata(only_by(terms.client.method, terms.metadata()));
        let client = config(&terms.client, &terms.token_endpoint);
        manager.configure_client(client).map_err(|error| http_client.explain(&error))?;
        manager.set_credential_store(self.credential_store(&http_client, terms, shown));
        let Err(error) = manager.refresh_token().await else { return Ok(()) };
        if matches!(error, AuthError::CredentialStoreError(_)) && self.has_other_than(shown) {
            return Ok(());
        }
        match http_client.grant_error() {
            Some(GrantError::Later(why)) => {
                Err(LoginError::Unreachable { place: place.origin(), reason: why })
            }
            Some(GrantError::Invalid(why)) => {
                // A gateway that ignores the lock may have been first: use what it wrote, delete nothing.
                self.reload().await?;
                if self.has_other_than(shown) {
                    return Ok(());
                }
                Err(LoginError::user_needed(format!("its login is no longer valid ({why})")))
            }
            Some(GrantError::UnknownClient) => {
                Err(LoginError::user_needed("its authorization server no longer knows this client"))
            }
            // Another process logged out meanwhile, or logged in with another account.
            None if matches!(error, AuthError::AuthorizationRequired) => {
                Err(LoginError::user_needed("it requires a token"))
            }
            None => Err(http_client.explain(&error)),
        }
    }

    /// The client credentials grant.
    pub(super) async fn machine(
        &self,
        challenge: &Challenge,
        shown: Option<&str>,
    ) -> Result<(), LoginError> {
        let _lock = self.token_lock.lock().await;
        let _lock = self.store.lock().await?;
        let before = self.reload().await?;
        if shown.is_some() && self.has_other_than(shown) {
            return Ok(());
        }
        let mut found = self.discover(challenge).await?;
        let client = Client::written(&self.options, &found.methods())
            .ok_or_else(|| LoginError::user_needed("`clientId` is not set"))?;
        let granted = before.map(|record| record.scopes).unwrap_or_default();
        let offered = found.manager.select_initial_scopes(&[]).await;
        let scopes = oauth::scopes(challenge.scope.is_some(), &granted, &offered, &self.options);
        let terms = Terms {
            issuer: found.issuer.clone(),
            resource: found.resource.clone(),
            token_endpoint: found.metadata.token_endpoint.clone(),
            client: client.clone(),
            scopes: scopes.clone(),
        };
        if let Some(company) = &self.options.identity_provider {
            let tokens = self.enterprise_tokens(company, &found, &terms).await?;
            return self.keep(Record::new(terms, tokens)).await;
        }
        let http_client = Arc::clone(&found.http_client);
        let explain = |error: &AuthError| match http_client.grant_error() {
            Some(error) => refused(&error),
            None => http_client.explain(error),
        };
        self.prove(&client, &found.issuer, &http_client);
        let asked = ClientCredentialsConfig::ClientSecret {
            client_id: client.id.clone(),
            client_secret: client.secret.clone().unwrap_or_default(),
            scopes,
            resource: Some(found.resource),
        };
        found.manager.set_metadata(only_by(client.method, found.metadata));
        found.manager.configure_client_credentials(&asked).map_err(|error| explain(&error))?;
        found.manager.set_credential_store(self.credential_store(&http_client, terms, None));
        let made = found.manager.exchange_client_credentials(&asked).await;
        made.map(drop).map_err(|error| explain(&error))
    }

    /// Whether there is another token than the one the server refused.
    fn has_other_than(&self, shown: Option<&str>) -> bool {
        self.known().record.as_ref().is_some_and(|record| Some(record.access.as_str()) != shown)
    }

    /// Makes the HTTP client sign client assertions, if a key is configured.
    pub(super) fn prove(&self, client: &Client, issuer: &str, http_client: &HttpClientAdapter) {
        if let (Method::Key, Some(key)) = (client.method, &self.options.private_key) {
            let (client, issuer) = (client.id.clone(), issuer.to_owned());
            http_client.prove_with(Signer { key: key.clone(), client, issuer });
        }
    }

    pub(super) fn credential_store(
        &self,
        http_client: &Arc<HttpClientAdapter>,
        terms: Terms,
        shown: Option<&str>,
    ) -> SharedCredentialStore {
        let login = self.me.upgrade().expect("a login is only ever made within an `Arc`");
        SharedCredentialStore::new(login, Arc::clone(http_client), terms, shown)
    }
}

impl Terms {
    fn of(record: &Record) -> Terms {
        Terms {
            issuer: record.issuer.clone(),
            resource: record.resource.clone(),
            token_endpoint: record.token_endpoint.clone(),
            client: Client {
                id: record.client_id.clone(),
                secret: record.client_secret.clone(),
                method: Method::named(&record.client_method).unwrap_or(Method::None),
            },
            scopes: record.scopes.clone(),
        }
    }

    /// The part of the server metadata that a refresh needs.
    fn metadata(&self) -> AuthorizationMetadata {
        let mut metadata = AuthorizationMetadata::default();
        metadata.issuer = Some(self.issuer.clone());
        metadata.token_endpoint.clone_from(&self.token_endpoint);
        // The SDK requires one; nobody is sent there.
        metadata.authorization_endpoint.clone_from(&self.token_endpoint);
        metadata
    }
}

impl Record {
    pub(super) fn new(terms: Terms, tokens: Tokens) -> Record {
        let life = tokens.expires_in.map(|seconds| seconds.saturating_mul(1000));
        Record {
            issuer: terms.issuer,
            resource: terms.resource,
            token_endpoint: terms.token_endpoint,
            client_id: terms.client.id,
            client_secret: terms.client.secret,
            client_method: terms.client.method.word().to_owned(),
            access: tokens.access,
            refresh: tokens.refresh,
            ends_at_ms: life.map(|life| unix_millis().saturating_add(life)),
            scopes: tokens.scopes.unwrap_or(terms.scopes),
        }
    }
}

/// The client as the SDK configures it.
pub(super) fn config(client: &Client, redirect: &str) -> OAuthClientConfig {
    let config = OAuthClientConfig::new(&client.id, redirect);
    match &client.secret {
        Some(secret) => config.with_client_secret(secret),
        None => config,
    }
}

pub(super) fn refused(error: &GrantError) -> LoginError {
    match error {
        GrantError::Invalid(why) | GrantError::Later(why) => {
            LoginError::user_needed(format!("its authorization server issued no token: {why}"))
        }
        GrantError::UnknownClient => LoginError::user_needed(
            "its authorization server does not know this client; check `clientId`",
        ),
    }
}
