//! Enterprise-managed authorization: the identity provider's assertion is exchanged for tokens, without a consent page.

use crate::login::oauth::{Method, Tokens};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metamcp_config::config::IdentityProvider;
use metamcp_types::web::Address;
use oauth2::ClientSecret;
use rmcp::transport::auth::enterprise::{
    EmaAuthorizationServer, EmaClientAuthentication, EmaExchangeRequest,
};
use serde_json::Value;

use super::credential_store::Terms;
use super::discover::Found;
use super::grant::refused;
use super::http_client::{AuthTarget, HttpClientAdapter};
use super::{Login, LoginError, chain};
use crate::secrets;
use crate::web::{ClientOptions, SsrfPolicy, Web};

impl Login {
    /// Gets an identity assertion from the provider and exchanges it at the authorization server.
    pub(super) async fn enterprise_tokens(
        &self,
        identity_provider: &IdentityProvider,
        found: &Found,
        terms: &Terms,
    ) -> Result<Tokens, LoginError> {
        let refused_by_provider = |why: String| LoginError::Enterprise { why };
        Address::parse(&identity_provider.token_url)
            .map_err(|why| refused_by_provider(why.to_string()))?;
        let token = secrets::one("idToken", &identity_provider.id_token).await;
        let token = token.map_err(|error| refused_by_provider(chain(&error)))?;
        let issuer = issuer(token.expose())
            .ok_or_else(|| refused_by_provider("`idToken` names no issuer".to_owned()))?;
        // The operator configured this address, so the SSRF guard does not apply.
        let web = Web::new(ClientOptions {
            ssrf_policy: SsrfPolicy::Anywhere,
            ..self.client_options.clone()
        })?;
        let asked = HttpClientAdapter::new(web, AuthTarget::Enterprise);
        let provider = EmaAuthorizationServer::new(
            issuer,
            &identity_provider.token_url,
            &identity_provider.client_id,
        );
        let secret = || ClientSecret::new(terms.client.secret.clone().unwrap_or_default());
        let proof = match terms.client.method {
            Method::Basic => EmaClientAuthentication::ClientSecretBasic(secret()),
            Method::Post => EmaClientAuthentication::ClientSecretPost(secret()),
            // The HTTP client adds the client assertion.
            Method::None | Method::Key => EmaClientAuthentication::None,
        };
        self.prove(&terms.client, &terms.issuer, &found.http_client);
        let server =
            EmaAuthorizationServer::new(&terms.issuer, &terms.token_endpoint, &terms.client.id);
        let word = EmaExchangeRequest::new_with_id_token(
            provider,
            server.with_client_authentication(proof),
            &terms.resource,
            token.expose(),
        );
        let word = word.with_scopes(&terms.scopes).exchange_id_jag(&asked).await;
        let word = word.map_err(|error| {
            let told = asked.trouble().map(|trouble| chain(&trouble));
            refused_by_provider(
                told.or_else(|| asked.refusal()).unwrap_or_else(|| error.to_string()),
            )
        })?;
        let tokens = word.exchange(found.http_client.as_ref()).await;
        let tokens = tokens.map_err(|error| match found.http_client.grant_error() {
            Some(error) => refused(&error),
            None => found
                .http_client
                .trouble()
                .unwrap_or_else(|| refused_by_provider(error.to_string())),
        })?;
        let mut scopes: Vec<String> = tokens.scopes.into_iter().collect();
        scopes.sort();
        Ok(Tokens {
            access: tokens.access_token.secret().clone(),
            refresh: None,
            expires_in: tokens.expires_in.map(|life| life.as_secs()),
            scopes: Some(scopes).filter(|scopes| !scopes.is_empty()),
        })
    }
}

/// The issuer named in a token, unverified: the result has to come from the same issuer.
fn issuer(token: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims.get("iss")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_issuer_is_read_from_a_token() {
        let token = format!("h.{}.s", URL_SAFE_NO_PAD.encode(br#"{"iss":"https://i"}"#));
        assert_eq!(issuer(&token).as_deref(), Some("https://i"));
        for none in ["", "a.b.c", "a..c", "opaque"] {
            assert_eq!(issuer(none), None, "{none}");
        }
    }
}
