//! Tokens for what we have: a code, a refresh token, a secret. Refreshing happens once, whoever notices first.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use metamcp_core::oauth::{
    self, Challenge, Client, Form, GrantError, MAX_DOCUMENT, Tokens, machine_form, refresh_form,
    vouched_form,
};
use metamcp_core::web::Address;
use metamcp_wire::base64;
use tokio::time::timeout;

use super::discover::{PATIENCE, slow};
use super::store::Record;
use super::{Login, LoginError};
use crate::clock::unix_millis;
use crate::web::{self, Outgoing, Web};

impl Login {
    /// A token other than the one that was shown: another gateway's, or a fresh one. One process at a time asks for
    /// it, and only if nobody did meanwhile: a refresh token is often good for one use.
    pub(super) async fn refresh(&self, shown: Option<&str>) -> Result<(), LoginError> {
        let _turn = self.turn.lock().await;
        {
            let known = self.known();
            if known.record.as_ref().is_some_and(|record| Some(record.access.as_str()) != shown) {
                return Ok(());
            }
        }
        let before = self.read_again().await?;
        match &before {
            None => return Err(LoginError::person("it wants a token")),
            Some(record) if Some(record.access.as_str()) != shown => return Ok(()),
            Some(record) if record.refresh.is_none() => {
                return Err(LoginError::person("its token is not good any more"));
            }
            Some(_) => {}
        }
        let _lock = self.store.lock().await?;
        let Some(record) = self.read_again().await? else {
            return Err(LoginError::person("it wants a token"));
        };
        if Some(record.access.as_str()) != shown {
            return Ok(());
        }
        let Some(refresh) = record.refresh.clone() else {
            return Err(LoginError::person("its token is not good any more"));
        };
        let place = Address::parse(&record.token_endpoint)
            .map_err(|_| LoginError::person("its token is not good any more"))?;
        let client = self.proven(client_of(&record), &record.issuer).await?;
        let form = refresh_form(&client, &refresh, &record.resource);
        match self.post_form(&place, &form).await? {
            Ok(tokens) => self.keep(record.renewed(tokens)).await,
            Err(GrantError::Later(why)) => {
                Err(LoginError::Unreachable { place: place.origin(), reason: why })
            }
            Err(GrantError::Invalid(why)) => {
                // One that does not take turns may have been first; what it wrote is used, and nothing is deleted.
                let now = self.read_again().await?;
                if now.is_some_and(|now| now.refresh.as_deref() != Some(&*refresh)) {
                    return Ok(());
                }
                Err(LoginError::person(format!("its login has ended ({why})")))
            }
            Err(GrantError::UnknownClient) => {
                Err(LoginError::person("its authorization server does not know us any more"))
            }
        }
    }

    /// Tokens for our own secret.
    pub(super) async fn machine(
        &self,
        challenge: &Challenge,
        shown: Option<&str>,
    ) -> Result<(), LoginError> {
        let _turn = self.turn.lock().await;
        let _lock = self.store.lock().await?;
        let before = self.read_again().await?;
        if before.as_ref().is_some_and(|record| Some(record.access.as_str()) != shown)
            && shown.is_some()
        {
            return Ok(());
        }
        let found = self.discover(challenge).await?;
        let client = Client::without_asking(&self.wishes, &found.server)
            .ok_or_else(|| LoginError::person("it has no `clientId`"))?;
        let granted = before.map(|record| record.scopes).unwrap_or_default();
        let (scope, resource) = (challenge.scope.as_deref(), found.resource.as_ref());
        let scopes = oauth::scopes(scope, &granted, resource, &found.server, &self.wishes);
        let name = self.resource_name(resource);
        let client = self.proven(client, &found.server.issuer).await?;
        let form = match &self.wishes.company {
            None => machine_form(&client, &scopes, &name),
            Some(company) => {
                let voucher = self.voucher(company, &found.server.issuer, &name).await?;
                vouched_form(&client, &voucher, &scopes, &name)
            }
        };
        match self.post_form(&found.server.token, &form).await? {
            Ok(tokens) => {
                let record = Record::new(&found.server, &client, name, scopes, tokens);
                self.keep(record).await
            }
            Err(error) => Err(refused(&error)),
        }
    }

    /// What the server is called in requests for tokens.
    pub(super) fn resource_name(&self, resource: Option<&oauth::Resource>) -> String {
        let own =
            || format!("{}{}", self.server.origin(), self.server.path().trim_end_matches('/'));
        resource.map_or_else(own, |resource| resource.resource.clone())
    }

    pub(super) async fn post_form(
        &self,
        place: &Address,
        form: &Form,
    ) -> Result<Result<Tokens, GrantError>, LoginError> {
        self.confidential(place)?;
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, kind);
        if let Some(basic) = &form.basic {
            let text = format!("Basic {}", base64::encode(basic.as_bytes()));
            if let Ok(mut value) = HeaderValue::from_str(&text) {
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
        }
        let (status, document) = self.post(place, headers, form.body.clone().into()).await?;
        Ok(oauth::tokens(status, &document))
    }

    /// One post and its whole answer. No redirect is followed: what is posted is secret.
    pub(super) async fn post(
        &self,
        place: &Address,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(u16, Bytes), LoginError> {
        Self::post_by(self.web().await?, place, headers, body).await
    }

    /// The same by another way out.
    pub(super) async fn post_by(
        web: &Web,
        place: &Address,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<(u16, Bytes), LoginError> {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let request = web::request(Method::POST, place, headers, Outgoing::of(body))
            .map_err(|error| LoginError::unreachable(place, error))?;
        let exchange = async {
            let response = web.send(request).await;
            let response = response.map_err(|error| LoginError::unreachable(place, error))?;
            let status = response.status().as_u16();
            let document = web::whole(response.into_body(), MAX_DOCUMENT).await;
            Ok((status, document.unwrap_or_default()))
        };
        timeout(PATIENCE, exchange).await.map_err(|_| slow(place))?
    }
}

impl Record {
    pub(super) fn new(
        server: &oauth::AuthServer,
        client: &Client,
        resource: String,
        asked: Vec<String>,
        tokens: Tokens,
    ) -> Record {
        let record = Record {
            issuer: server.issuer.clone(),
            resource,
            token_endpoint: server.token.to_string(),
            client_id: client.id.clone(),
            // A proof is good once.
            client_secret: client.secret.clone().filter(|_| client.method != oauth::Method::Key),
            client_method: client.method.word().to_owned(),
            access: String::new(),
            refresh: None,
            ends_at_ms: None,
            scopes: asked,
        };
        record.renewed(tokens)
    }

    /// The same login with other tokens. A refresh token that is not replaced stays good.
    fn renewed(mut self, tokens: Tokens) -> Record {
        let life = tokens.expires_in.map(|seconds| seconds.saturating_mul(1000));
        self.ends_at_ms = life.map(|life| unix_millis().saturating_add(life));
        self.access = tokens.access;
        if tokens.refresh.is_some() {
            self.refresh = tokens.refresh;
        }
        if let Some(scopes) = tokens.scopes {
            self.scopes = scopes;
        }
        self
    }
}

fn client_of(record: &Record) -> Client {
    Client {
        id: record.client_id.clone(),
        secret: record.client_secret.clone(),
        method: oauth::Method::named(&record.client_method).unwrap_or(oauth::Method::None),
    }
}

pub(super) fn refused(error: &GrantError) -> LoginError {
    match error {
        GrantError::Invalid(why) | GrantError::Later(why) => {
            LoginError::person(format!("its authorization server gives no token: {why}"))
        }
        GrantError::UnknownClient => {
            LoginError::person("its authorization server does not know us; check `clientId`")
        }
    }
}
