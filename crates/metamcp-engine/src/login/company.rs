//! The word of a company for its person: what they proved there once, nobody has to agree to again.

use metamcp_core::config::Company;
use metamcp_core::oauth::{Method, Tokens};
use metamcp_core::web::Address;
use metamcp_wire::base64;
use oauth2::ClientSecret;
use rmcp::transport::auth::enterprise::{
    EmaAuthorizationServer, EmaClientAuthentication, EmaExchangeRequest,
};
use serde_json::Value;

use super::carrier::{Carrier, Whom};
use super::discover::Found;
use super::grant::refused;
use super::ledger::Terms;
use super::{Login, LoginError, chain};
use crate::secrets;
use crate::web::{Plan, Reach, Web};

impl Login {
    /// Asks the company for its word, and the authorization server for tokens in return.
    pub(super) async fn vouched(
        &self,
        company: &Company,
        found: &Found,
        terms: &Terms,
    ) -> Result<Tokens, LoginError> {
        let unvouched = |why: String| LoginError::Company { why };
        Address::parse(&company.token_url).map_err(|why| unvouched(why.to_string()))?;
        let token = secrets::one("idToken", &company.id_token).await;
        let token = token.map_err(|error| unvouched(chain(&error)))?;
        let issuer = issuer(token.expose())
            .ok_or_else(|| unvouched("`idToken` does not say who issued it".to_owned()))?;
        // The operator wrote this address; a server's word has no part in it.
        let web = Web::new(Plan { reach: Reach::Anywhere, ..self.plan.clone() })?;
        let asked = Carrier::new(web, Whom::Company);
        let provider = EmaAuthorizationServer::new(issuer, &company.token_url, &company.client_id);
        let secret = || ClientSecret::new(terms.client.secret.clone().unwrap_or_default());
        let proof = match terms.client.method {
            Method::Basic => EmaClientAuthentication::ClientSecretBasic(secret()),
            Method::Post => EmaClientAuthentication::ClientSecretPost(secret()),
            // The carrier puts the signed proof in.
            Method::None | Method::Key => EmaClientAuthentication::None,
        };
        self.prove(&terms.client, &terms.issuer, &found.carrier);
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
            unvouched(told.or_else(|| asked.refusal()).unwrap_or_else(|| error.to_string()))
        })?;
        let tokens = word.exchange(found.carrier.as_ref()).await;
        let tokens = tokens.map_err(|error| match found.carrier.grant_error() {
            Some(error) => refused(&error),
            None => found.carrier.trouble().unwrap_or_else(|| unvouched(error.to_string())),
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

/// Who issued a token, by its own word: what comes of it has to be of the same.
fn issuer(token: &str) -> Option<String> {
    let claims = base64::decode_url(token.split('.').nth(1)?.as_bytes())?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims.get("iss")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_who_issued_it() {
        let token = format!("h.{}.s", base64::encode_url(br#"{"iss":"https://i"}"#));
        assert_eq!(issuer(&token).as_deref(), Some("https://i"));
        for none in ["", "a.b.c", "a..c", "opaque"] {
            assert_eq!(issuer(none), None, "{none}");
        }
    }
}
