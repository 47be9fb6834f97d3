//! Authorization server discovery: the server's challenge, then the SDK's walk through the metadata documents.

use std::sync::Arc;

use crate::login::oauth::{self, OAuthError};
use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use metamcp_config::config::{Grant, OAuthEndpoints};
use metamcp_types::web::Address;
use rmcp::transport::auth::{
    AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource, OAuthHttpClient,
    WWWAuthenticateParams,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::http_client::{AuthTarget, HttpClientAdapter, REQUEST_TIMEOUT, confidential, slow};
use super::{Login, LoginError};
use crate::web::{self, Outgoing, Web};

/// The `WWW-Authenticate` challenge of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// As received.
    header: Option<String>,
    /// The scopes it requires.
    pub(super) scope: Option<String>,
    /// Whether the token is valid but its scopes do not suffice.
    pub(super) wants_more: bool,
    /// Whether its metadata address fails the SSRF guard.
    misleads: bool,
}

impl Challenge {
    /// Reads the bearer challenges of a response.
    pub(super) fn read<'a>(
        server: &Address,
        headers: impl IntoIterator<Item = &'a str>,
    ) -> Challenge {
        let bearer = |header: &&str| header.to_ascii_lowercase().contains("bearer");
        let header = headers.into_iter().filter(bearer).collect::<Vec<_>>().join(", ");
        let Ok(base) = server.to_string().parse() else { return Challenge::default() };
        let read = WWWAuthenticateParams::parse(&header, &base);
        let told = header.to_ascii_lowercase().contains("resource_metadata=");
        Challenge {
            wants_more: read.is_insufficient_scope(),
            misleads: told && read.resource_metadata_url.is_none(),
            scope: read.scope,
            header: Some(header).filter(|header| !header.is_empty()),
        }
    }
}

/// The authorization server that was found.
pub(super) struct Found {
    pub(super) manager: AuthorizationManager,
    pub(super) http_client: Arc<HttpClientAdapter>,
    pub(super) metadata: AuthorizationMetadata,
    pub(super) issuer: String,
    /// The resource identifier, as the server spells it.
    pub(super) resource: String,
}

impl Found {
    /// Whether it accepts client ID metadata documents.
    pub(super) fn takes_documents(&self) -> bool {
        let said = self.metadata.additional_fields.get("client_id_metadata_document_supported");
        said.and_then(Value::as_bool).unwrap_or(false)
    }

    /// The client authentication methods it supports.
    pub(super) fn methods(&self) -> Vec<&str> {
        let said = self.metadata.additional_fields.get(METHODS).and_then(Value::as_array);
        said.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// The metadata field that lists client authentication methods.
const METHODS: &str = "token_endpoint_auth_methods_supported";

/// The metadata with only this authentication method: the SDK would choose another.
pub(super) fn only_by(
    method: oauth::Method,
    mut metadata: AuthorizationMetadata,
) -> AuthorizationMetadata {
    metadata.additional_fields.insert(METHODS.to_owned(), json!([method.word()]));
    metadata
}

impl Login {
    /// Sends a request without a token, to get the challenge.
    pub(super) async fn probe(&self) -> Result<Challenge, LoginError> {
        confidential(&self.server)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let types = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, types);
        let body = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let place = &self.server;
        let request = web::request(Method::POST, place, headers, Outgoing::of(body))
            .map_err(|error| LoginError::unreachable(place, error))?;
        // The operator configured this address, so the SSRF guard does not apply.
        let web = Web::new(self.client_options.clone())?;
        let sent = timeout(REQUEST_TIMEOUT, web.send(request)).await;
        let response = sent.map_err(|_| slow(place))?;
        let response = response.map_err(|error| LoginError::unreachable(place, error))?;
        let challenges = response.headers().get_all(WWW_AUTHENTICATE);
        let challenges = challenges.iter().filter_map(|value| value.to_str().ok());
        Ok(Challenge::read(&self.server, challenges))
    }

    /// Finds the authorization server.
    pub(super) async fn discover(&self, challenge: &Challenge) -> Result<Found, LoginError> {
        if challenge.misleads {
            let why = "its address is not one that a server may redirect to";
            return Err(OAuthError::document("protected resource metadata", why).into());
        }
        // The query may contain secrets.
        let server = self.server.without_query();
        let name = server.to_string();
        let target = match self.options.grant {
            Grant::Machine => AuthTarget::Machine(server),
            Grant::Person => AuthTarget::User(server),
        };
        let http_client = Arc::new(HttpClientAdapter::new(self.web()?, target));
        let mut manager = sdk(&name, &http_client).await?;
        if let Some(endpoints) = &self.options.endpoints {
            // Said by the operator, so there is nothing to look for.
            let metadata = written(endpoints);
            oauth::endpoint("authorizationUrl", &metadata.authorization_endpoint)?;
            oauth::endpoint("tokenUrl", &metadata.token_endpoint)?;
            manager.set_metadata(metadata.clone());
            let issuer = Address::parse(&endpoints.token_url).map(|token| token.origin());
            let issuer = issuer.unwrap_or_else(|_| self.server.origin());
            return Ok(Found { manager, http_client, metadata, issuer, resource: name });
        }
        let found = manager.resolve_metadata_from_challenge(challenge.header.as_deref()).await;
        let found = found.map_err(|error| http_client.explain(&error))?;
        let (metadata, source) = (found.metadata, found.source);
        oauth::endpoint("authorization_endpoint", &metadata.authorization_endpoint)?;
        oauth::endpoint("token_endpoint", &metadata.token_endpoint)?;
        if let Some(register) = &metadata.registration_endpoint {
            oauth::endpoint("registration_endpoint", register)?;
        }
        manager.set_metadata(metadata.clone());
        let said = http_client.resource();
        let said =
            said.filter(|_| source == AuthorizationMetadataSource::ProtectedResourceMetadata);
        let resource = said.unwrap_or(name);
        // Servers of the 2025-03-26 revision have no issuer in their metadata.
        let issuer = metadata.issuer.clone().unwrap_or_else(|| self.server.origin());
        Ok(Found { manager, http_client, metadata, issuer, resource })
    }

    /// An SSRF-guarded client: these addresses come from the server.
    pub(super) fn web(&self) -> Result<Web, LoginError> {
        Ok(self.guarded.client(&self.server, &self.client_options)?)
    }
}

/// The metadata of an authorization server whose addresses are in the configuration.
fn written(endpoints: &OAuthEndpoints) -> AuthorizationMetadata {
    let mut metadata = AuthorizationMetadata::default();
    metadata.token_endpoint.clone_from(&endpoints.token_url);
    // The SDK requires one; where there is none, nobody is sent there.
    let authorization = endpoints.authorization_url.as_ref().unwrap_or(&endpoints.token_url);
    metadata.authorization_endpoint.clone_from(authorization);
    // What every server of today takes, and the SDK does not go on without.
    metadata.code_challenge_methods_supported = Some(vec!["S256".to_owned()]);
    metadata
}

pub(super) async fn sdk(
    resource: &str,
    http_client: &Arc<HttpClientAdapter>,
) -> Result<AuthorizationManager, LoginError> {
    let carried: Arc<dyn OAuthHttpClient> = Arc::<HttpClientAdapter>::clone(http_client);
    let made = AuthorizationManager::new_with_oauth_http_client(resource, carried).await;
    made.map_err(|error| http_client.explain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_challenges_are_parsed() {
        let server = Address::parse("https://a/mcp").unwrap();
        let read = |headers: &[&str]| Challenge::read(&server, headers.iter().copied());
        let step_up = read(&[
            r#"Basic realm="x, y=z""#,
            r#"Bearer realm="r", error="insufficient_scope", scope="a b""#,
        ]);
        assert_eq!((step_up.scope.as_deref(), step_up.wants_more), (Some("a b"), true));
        let plain = read(&[r"bearer scope=one,error=invalid_token"]);
        assert_eq!((plain.scope.as_deref(), plain.wants_more), (Some("one"), false));
        assert_eq!(read(&[r#"Digest scope="x""#]), Challenge::default());
        assert!(!read(&[r#"Bearer resource_metadata="https://b/prm""#]).misleads);
        assert!(!read(&[r#"Bearer resource_metadata="/prm""#]).misleads);
        for place in ["http://169.254.169.254/", "https://10.0.0.1/", "file:///etc/passwd"] {
            assert!(read(&[&format!("Bearer resource_metadata=\"{place}\"")]).misleads, "{place}");
        }
        for odd in
            ["\"", "Bearer \"", "Bearer a=\"\\", "Bearer ü=\"ü", "Bearer scope=", ",,,", "=="]
        {
            read(&[odd, odd]);
        }
    }
}
