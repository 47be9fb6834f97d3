//! Carries every request of the SDK over our own way out: guarded, bounded, put right on the way, and remembered in our
//! words, because the SDK's errors are text without the facts.

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

/// How long each of them may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Redirects that are followed for one document.
const REDIRECTS: usize = 3;

/// See the module. One is made for each thing that is done.
pub(super) struct HttpClientAdapter {
    web: Web,
    target: AuthTarget,
    /// The resource, exactly as its server writes it.
    resource: OnceLock<String>,
    /// What signs for us, where that is wanted.
    signer: OnceLock<Signer>,
    observed: Mutex<Observed>,
}

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AuthTarget {
    /// Whoever lets people into this server.
    User(Address),
    /// The same for programs, which nobody has to agree to.
    Machine(Address),
    /// A company, for its word: its answers hold what is no token for us.
    Enterprise,
}

/// A key of ours, and for whom it signs.
pub(super) struct Signer {
    pub(super) key: PathBuf,
    pub(super) client: String,
    pub(super) issuer: String,
}

/// What was heard on the way.
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

    /// From now on the resource is named so.
    pub(super) fn name_resource(&self, resource: &str) {
        self.resource.get_or_init(|| resource.to_owned());
    }

    /// From now on we prove ourselves so.
    pub(super) fn prove_with(&self, signer: Signer) {
        self.signer.get_or_init(|| signer);
    }

    /// Remembers what went wrong elsewhere.
    pub(super) fn note(&self, trouble: LoginError) {
        self.observed().trouble = Some(trouble);
    }

    /// What went wrong on the way.
    pub(super) fn trouble(&self) -> Option<LoginError> {
        self.observed().trouble.take()
    }

    /// The name that was given to us.
    pub(super) fn registered(&self) -> Option<Client> {
        self.observed().registered.clone()
    }

    /// What the server called itself.
    pub(super) fn resource(&self) -> Option<String> {
        self.observed().resource.clone()
    }

    /// Why there were no tokens, if the server said so.
    pub(super) fn grant_error(&self) -> Option<GrantError> {
        self.observed().grant.take()
    }

    /// What was refused, in the words of whoever did.
    pub(super) fn refusal(&self) -> Option<String> {
        self.observed().refusal.take()
    }

    /// Why the SDK gave up.
    pub(super) fn explain(&self, error: &AuthError) -> LoginError {
        const SERVER: &str = "authorization server's description";
        if let Some(trouble) = self.trouble() {
            return trouble;
        }
        let document = |what, why: &str| OAuthError::document(what, why).into();
        match error {
            AuthError::PkceUnsupported => document(SERVER, "it does not know PKCE with S256"),
            AuthError::InvalidScope(_) => document(SERVER, "it does not give out codes"),
            AuthError::AuthorizationServerMismatch { .. }
            | AuthError::AuthorizationServerMissingIssuer { .. } => {
                document(SERVER, "it is another's")
            }
            AuthError::NoAuthorizationSupport => OAuthError::NoServer.into(),
            AuthError::MetadataError(why) => {
                document("description of how to log in", &bounded(why))
            }
            other => {
                LoginError::person(format!("its login failed: {}", bounded(&other.to_string())))
            }
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

    /// A document about logins.
    async fn document(
        &self,
        place: &Address,
        headers: HeaderMap,
    ) -> Result<Response<Vec<u8>>, LoginError> {
        if let AuthTarget::User(server) | AuthTarget::Machine(server) = &self.target
            && server == place
        {
            // The server has just refused us, and the SDK has its words; asked again it might begin a stream.
            return Ok(answered(StatusCode::UNAUTHORIZED, Vec::new()));
        }
        let response = self.send(Method::GET, place, headers, Vec::new()).await?;
        let status = response.status();
        let mut observed = self.observed();
        observed.redirects = if status.is_redirection() { observed.redirects + 1 } else { 0 };
        let reason = if observed.redirects > REDIRECTS {
            "it sends us on and on".to_owned()
        } else if status.is_server_error() {
            format!("it answers HTTP {}", status.as_u16())
        } else {
            let (parts, body) = response.into_parts();
            let body =
                if status == StatusCode::OK { self.readable(&mut observed, body) } else { body };
            return Ok(Response::from_parts(parts, body));
        };
        Err(LoginError::Unreachable { place: place.origin(), reason })
    }

    /// The document as the SDK can read it; notes what the SDK keeps to itself.
    fn readable(&self, observed: &mut Observed, body: Vec<u8>) -> Vec<u8> {
        let Ok(mut document) = serde_json::from_slice::<Value>(&body) else { return body };
        if let Some(resource) = document.get("resource").and_then(Value::as_str) {
            observed.resource = Some(resource.to_owned());
        }
        let unopened = document.get("authorization_endpoint").is_none();
        if let (AuthTarget::Machine(_), true, Some(token)) =
            (&self.target, unopened, document.get("token_endpoint").cloned())
        {
            // One that lets only programs in has none, and the SDK does without none. No person ever goes there.
            document["authorization_endpoint"] = token;
            return document.to_string().into_bytes();
        }
        body
    }

    /// What makes us known.
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
            // Some register nobody who names rights that are the server's and not their own.
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

    /// What brings tokens.
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
                // What is wrong with a good answer is known here; the SDK is to see that it is none.
                let status = if status.is_success() { StatusCode::BAD_GATEWAY } else { status };
                Ok(answered(status, response.into_body()))
            }
        }
    }

    /// One request and its whole answer. No redirect is followed here: what is posted is secret.
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
            // What is too long or breaks off is as good as nothing.
            let document = web::whole(response.into_body(), MAX_DOCUMENT).await.unwrap_or_default();
            let mut answer = answered(status, document.to_vec());
            if let Some(location) = location {
                answer.headers_mut().insert(LOCATION, location);
            }
            Ok(answer)
        };
        timeout(PATIENCE, exchange).await.map_err(|_| slow(place))?
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

/// Nothing of a login goes where somebody could listen.
pub(super) fn confidential(place: &Address) -> Result<(), LoginError> {
    if place.is_confidential() {
        return Ok(());
    }
    let reason = "it is not encrypted".to_owned();
    Err(LoginError::Unreachable { place: place.origin(), reason })
}

pub(super) fn slow(place: &Address) -> LoginError {
    LoginError::Unreachable {
        place: place.origin(),
        reason: "it does not answer in time".to_owned(),
    }
}

/// Words that hold a stranger's, on one line.
fn bounded(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

fn answered(status: StatusCode, document: Vec<u8>) -> Response<Vec<u8>> {
    let mut response = Response::new(document);
    *response.status_mut() = status;
    response
}
