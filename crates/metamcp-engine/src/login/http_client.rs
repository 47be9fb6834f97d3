//! The HTTP client behind the SDK: SSRF-guarded and bounded. It corrects requests and responses on the way, and records
//! errors as types, because the SDK passes on only text.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::login::oauth::{self, Client, GrantError, MAX_DOCUMENT, OAuthError};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use hyper::{Method, Request, Response, StatusCode};
use metamcp_types::web::Address;
use rmcp::transport::auth::{AuthError, OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{LoginError, chain, client_assertion};
use crate::web::{self, Outgoing, Web};

/// Time limit of each request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects followed for one document.
const MAX_REDIRECTS: usize = 3;

/// One is made for each operation.
pub(super) struct HttpClientAdapter {
    web: Web,
    target: AuthTarget,
    /// The resource identifier, exactly as its server spells it.
    resource: OnceLock<String>,
    /// Signs client assertions, if a key is configured.
    signer: OnceLock<Signer>,
    observed: Mutex<Observed>,
}

/// What the requests are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthTarget {
    /// Authorization by a user.
    User(Address),
    /// Client credentials, without a user.
    Machine(Address),
    /// An identity provider: its responses are not tokens for us.
    Enterprise,
}

/// A private key, and the authorization server it signs for.
pub(super) struct Signer {
    pub(super) key: PathBuf,
    pub(super) client: String,
    pub(super) issuer: String,
}

/// What was seen in the responses.
#[derive(Default)]
struct Observed {
    trouble: Option<LoginError>,
    grant: Option<GrantError>,
    refusal: Option<String>,
    registered: Option<Client>,
    resource: Option<String>,
    redirects: usize,
}

impl HttpClientAdapter {
    pub(super) fn new(web: Web, target: AuthTarget) -> HttpClientAdapter {
        HttpClientAdapter {
            web,
            target,
            resource: OnceLock::new(),
            signer: OnceLock::new(),
            observed: Mutex::default(),
        }
    }

    /// Sets the resource identifier for later requests.
    pub(super) fn name_resource(&self, resource: &str) {
        self.resource.get_or_init(|| resource.to_owned());
    }

    /// Signs client assertions in later requests.
    pub(super) fn prove_with(&self, signer: Signer) {
        self.signer.get_or_init(|| signer);
    }

    /// Records an error from elsewhere.
    pub(super) fn note(&self, trouble: LoginError) {
        self.observed().trouble = Some(trouble);
    }

    /// The error that was recorded.
    pub(super) fn trouble(&self) -> Option<LoginError> {
        self.observed().trouble.take()
    }

    /// The client that was registered.
    pub(super) fn registered(&self) -> Option<Client> {
        self.observed().registered.clone()
    }

    /// The resource identifier of the server's metadata.
    pub(super) fn resource(&self) -> Option<String> {
        self.observed().resource.clone()
    }

    /// Why no tokens were issued, if the server said so.
    pub(super) fn grant_error(&self) -> Option<GrantError> {
        self.observed().grant.take()
    }

    /// The server's own text of a refusal.
    pub(super) fn refusal(&self) -> Option<String> {
        self.observed().refusal.take()
    }

    /// The error behind a failure of the SDK.
    pub(super) fn explain(&self, error: &AuthError) -> LoginError {
        const SERVER: &str = "authorization server metadata";
        if let Some(trouble) = self.trouble() {
            return trouble;
        }
        let document = |what, why: &str| OAuthError::document(what, why).into();
        match error {
            AuthError::PkceUnsupported => document(SERVER, "it does not support PKCE with S256"),
            AuthError::InvalidScope(_) => {
                document(SERVER, "it does not support authorization codes")
            }
            AuthError::AuthorizationServerMismatch { .. }
            | AuthError::AuthorizationServerMissingIssuer { .. } => {
                document(SERVER, "its issuer does not match")
            }
            AuthError::NoAuthorizationSupport => OAuthError::NoServer.into(),
            AuthError::MetadataError(why) => document("protected resource metadata", &bounded(why)),
            other => LoginError::user_needed(format!(
                "its login failed: {}",
                bounded(&other.to_string())
            )),
        }
    }

    async fn dispatch(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, LoginError> {
        let (parts, body) = request.into_parts();
        let place =
            Address::parse(&parts.uri.to_string()).map_err(|why| LoginError::Unreachable {
                place: parts.uri.host().unwrap_or_default().to_owned(),
                reason: format!("its address {why}"),
            })?;
        confidential(&place)?;
        if parts.method == Method::GET {
            return self.document(&place, parts.headers).await;
        }
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("application/json")) {
            return self.registration(&place, parts.headers, body).await;
        }
        self.form(&place, parts.headers, body).await
    }

    /// Fetches a metadata document.
    async fn document(
        &self,
        place: &Address,
        headers: HeaderMap,
    ) -> Result<Response<Vec<u8>>, LoginError> {
        if let AuthTarget::User(server) | AuthTarget::Machine(server) = &self.target
            && server == place
        {
            // The server has just refused us, and the SDK has that challenge; a second request might open a stream.
            return Ok(answered(StatusCode::UNAUTHORIZED, Vec::new()));
        }
        let response = self.send(Method::GET, place, headers, Vec::new()).await?;
        let status = response.status();
        let mut observed = self.observed();
        observed.redirects = if status.is_redirection() { observed.redirects + 1 } else { 0 };
        let reason = if observed.redirects > MAX_REDIRECTS {
            "too many redirects".to_owned()
        } else if status.is_server_error() {
            format!("HTTP {}", status.as_u16())
        } else {
            let (parts, body) = response.into_parts();
            let body =
                if status == StatusCode::OK { self.readable(&mut observed, body) } else { body };
            return Ok(Response::from_parts(parts, body));
        };
        Err(LoginError::Unreachable { place: place.origin(), reason })
    }

    /// The document in a form the SDK can read; records what the SDK does not return.
    fn readable(&self, observed: &mut Observed, body: Vec<u8>) -> Vec<u8> {
        let Ok(mut document) = serde_json::from_slice::<Value>(&body) else { return body };
        if let Some(resource) = document.get("resource").and_then(Value::as_str) {
            observed.resource = Some(resource.to_owned());
        }
        let unopened = document.get("authorization_endpoint").is_none();
        if let (AuthTarget::Machine(_), true, Some(token)) =
            (&self.target, unopened, document.get("token_endpoint").cloned())
        {
            // A server for client credentials only has none, but the SDK requires one. No user ever goes there.
            document["authorization_endpoint"] = token;
            return document.to_string().into_bytes();
        }
        body
    }

    /// Dynamic client registration.
    async fn registration(
        &self,
        place: &Address,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response<Vec<u8>>, LoginError> {
        let mut asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut response = self.send(Method::POST, place, headers.clone(), body).await?;
        let rights = asked.as_object_mut().and_then(|asked| asked.remove("scope"));
        if response.status() == StatusCode::BAD_REQUEST && rights.is_some() {
            // Some servers refuse to register a client that names the resource server's scopes.
            let body = asked.to_string().into_bytes();
            response = self.send(Method::POST, place, headers, body).await?;
        }
        let status = response.status();
        if status != StatusCode::OK && status != StatusCode::CREATED {
            self.observed().refusal = Some(oauth::refusal(status.as_u16(), response.body()));
            return Ok(response);
        }
        let client = oauth::registered(response.body())?;
        let document = json!({
            "client_id": client.id, "client_secret": client.secret, "redirect_uris": [],
        });
        self.observed().registered = Some(client);
        Ok(answered(status, document.to_string().into_bytes()))
    }

    /// A token request.
    async fn form(
        &self,
        place: &Address,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response<Vec<u8>>, LoginError> {
        let client_assertion = match self.signer.get() {
            Some(signer) => Some(client_assertion::signed(signer).await?),
            None => None,
        };
        if client_assertion.is_some() {
            headers.remove(hyper::header::AUTHORIZATION);
        }
        let resource = self.resource.get().map(String::as_str);
        let form =
            oauth::amended(&String::from_utf8_lossy(&body), resource, client_assertion.as_deref());
        let response = self.send(Method::POST, place, headers, form.into_bytes()).await?;
        let status = response.status();
        if self.target == AuthTarget::Enterprise {
            if status != StatusCode::OK {
                self.observed().refusal = Some(oauth::refusal(status.as_u16(), response.body()));
            }
            return Ok(response);
        }
        match oauth::tokens(status.as_u16(), response.body()) {
            Ok(tokens) => Ok(answered(StatusCode::OK, tokens.document().to_string().into_bytes())),
            Err(error) => {
                self.observed().grant = Some(error);
                // The response was a success but is unusable: the SDK has to see an error.
                let status = if status.is_success() { StatusCode::BAD_GATEWAY } else { status };
                Ok(answered(status, response.into_body()))
            }
        }
    }

    /// One request and its whole response. No redirect is followed: the body contains secrets.
    async fn send(
        &self,
        method: Method,
        place: &Address,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response<Vec<u8>>, LoginError> {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let request = web::request(method, place, headers, Outgoing::of(body.into()))
            .map_err(|error| LoginError::unreachable(place, error))?;
        let exchange = async {
            let response = self.web.send(request).await;
            let response = response.map_err(|error| LoginError::unreachable(place, error))?;
            let (status, location) = (response.status(), response.headers().get(LOCATION).cloned());
            // A body that is too long or breaks off counts as empty.
            let document =
                web::read_body(response.into_body(), MAX_DOCUMENT).await.unwrap_or_default();
            let mut answer = answered(status, document.to_vec());
            if let Some(location) = location {
                answer.headers_mut().insert(LOCATION, location);
            }
            Ok(answer)
        };
        timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_| slow(place))?
    }

    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock()
    }
}

impl OAuthHttpClient for HttpClientAdapter {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            self.dispatch(request.request).await.map_err(|trouble| {
                let words = chain(&trouble);
                self.note(trouble);
                words.into()
            })
        })
    }
}

/// Refuses addresses over which credentials could be read on the way.
pub(super) fn confidential(place: &Address) -> Result<(), LoginError> {
    if place.is_confidential() {
        return Ok(());
    }
    let reason = "it is not encrypted".to_owned();
    Err(LoginError::Unreachable { place: place.origin(), reason })
}

pub(super) fn slow(place: &Address) -> LoginError {
    LoginError::Unreachable { place: place.origin(), reason: "no response in time".to_owned() }
}

/// A text that quotes a server, bounded and on one line.
fn bounded(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

fn answered(status: StatusCode, document: Vec<u8>) -> Response<Vec<u8>> {
    let mut response = Response::new(document);
    *response.status_mut() = status;
    response
}
