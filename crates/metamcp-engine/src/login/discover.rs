//! Finding out who lets us in: the server's own word, then the authorization server's; every address guarded.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use metamcp_core::oauth::{
    AuthServer, Challenge, MAX_DOCUMENT, OAuthError, Resource, resource_places, server_places,
};
use metamcp_core::web::Address;
use tokio::time::timeout;

use super::{Login, LoginError};
use crate::web::{self, Outgoing, Plan, Reach, Web};

/// How long each of them may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Redirects that are followed for one document.
const REDIRECTS: usize = 3;

/// Who lets us in, and what is known of the server.
pub(super) struct Found {
    pub(super) server: AuthServer,
    pub(super) resource: Option<Resource>,
}

impl Login {
    /// Asks the server without a token, to hear what it wants.
    pub(super) async fn knock(&self) -> Result<Challenge, LoginError> {
        self.confidential(&self.server)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let types = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, types);
        let body = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let place = &self.server;
        let request = web::request(Method::POST, place, headers, Outgoing::of(body))
            .map_err(|error| LoginError::unreachable(place, error))?;
        let sent = timeout(PATIENCE, self.web().await?.send(request)).await;
        let response = sent.map_err(|_| slow(place))?;
        let response = response.map_err(|error| LoginError::unreachable(place, error))?;
        let challenges = response.headers().get_all(WWW_AUTHENTICATE);
        Ok(Challenge::read(challenges.iter().filter_map(|value| value.to_str().ok())))
    }

    /// Who lets us in.
    pub(super) async fn discover(&self, challenge: &Challenge) -> Result<Found, LoginError> {
        let mut resource = None;
        for place in resource_places(&self.server, challenge.resource_metadata.as_deref()) {
            if let Some(document) = self.fetch(&place).await? {
                resource = Some(Resource::read(&document, &self.server)?);
                break;
            }
        }
        let named = resource.as_ref().map(|resource| resource.servers.first().cloned());
        let issuer = match named {
            Some(Some(issuer)) => issuer,
            Some(None) => return Err(OAuthError::NoServer.into()),
            None => self.server.origin(),
        };
        let place = Address::parse(&issuer).map_err(|_| OAuthError::NoServer)?;
        for place in server_places(&place) {
            if let Some(document) = self.fetch(&place).await? {
                let server = AuthServer::read(&document, &issuer)?;
                return Ok(Found { server, resource });
            }
        }
        if resource.is_some() {
            return Err(OAuthError::NoServer.into());
        }
        Ok(Found { server: AuthServer::at_root(&self.server), resource })
    }

    /// A document; nothing if there is none.
    async fn fetch(&self, place: &Address) -> Result<Option<Bytes>, LoginError> {
        match timeout(PATIENCE, self.fetch_slowly(place)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(slow(place)),
        }
    }

    async fn fetch_slowly(&self, place: &Address) -> Result<Option<Bytes>, LoginError> {
        let mut place = place.clone();
        for _ in 0..=REDIRECTS {
            self.confidential(&place)?;
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
            let request = web::request(Method::GET, &place, headers, Outgoing::default())
                .map_err(|error| LoginError::unreachable(&place, error))?;
            let sent = self.web().await?.send(request).await;
            let response = sent.map_err(|error| LoginError::unreachable(&place, error))?;
            let status = response.status();
            if status.is_redirection() {
                let next = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
                match next.and_then(|next| place.join(next).ok()) {
                    Some(next) => place = next,
                    None => return Ok(None),
                }
                continue;
            }
            if status.is_server_error() {
                let reason = format!("it answers HTTP {}", status.as_u16());
                return Err(LoginError::Unreachable { place: place.origin(), reason });
            }
            if status != StatusCode::OK {
                return Ok(None);
            }
            return Ok(web::whole(response.into_body(), MAX_DOCUMENT).await.ok());
        }
        Ok(None)
    }

    /// Nothing of a login goes where somebody could listen.
    pub(super) fn confidential(&self, place: &Address) -> Result<(), LoginError> {
        if place.is_confidential() {
            return Ok(());
        }
        let reason = "it is not encrypted".to_owned();
        Err(LoginError::Unreachable { place: place.origin(), reason })
    }

    /// The way there, guarded: all of these addresses are a stranger's word.
    pub(super) async fn web(&self) -> Result<&Web, LoginError> {
        let made = self.web.get_or_try_init(|| async {
            let zone = web::zone_of(&self.server).await;
            Web::new(Plan { reach: Reach::SentFrom(zone), ..self.plan.clone() })
        });
        Ok(made.await?)
    }
}

pub(super) fn slow(place: &Address) -> LoginError {
    LoginError::Unreachable {
        place: place.origin(),
        reason: "it does not answer in time".to_owned(),
    }
}
