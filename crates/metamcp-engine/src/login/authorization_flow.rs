//! The authorization code flow: the authorization URL, the callback listener on the loopback interface, the code exchange.

use std::sync::Arc;
use std::time::Duration;

use crate::login::oauth::{self, Callback, Client, OAuthError};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::credential_store::Terms;
use super::discover::{Challenge, Found, only_by};
use super::grant::{config, refused};
use super::http_client::HttpClientAdapter;
use super::{Login, LoginError};
use crate::observe::LoginChange;

/// How long the user may take to authorize.
const AUTHORIZATION_TIMEOUT: Duration = Duration::from_mins(10);
/// How long a browser may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest request read from a browser.
const MAX_REQUEST_BYTES: usize = 32 * 1024;
/// Concurrent callback connections.
const MAX_CONNECTIONS: usize = 32;
/// The page shown when authorization was refused.
const REFUSED: &str = "The login was refused. You can close this window.";
/// The path of the redirect URI.
const PATH: &str = "/callback";

/// A pending authorization.
pub(super) struct AuthorizationFlow {
    listener: TcpListener,
    manager: AuthorizationManager,
    http_client: Arc<HttpClientAdapter>,
    state: String,
}

impl Login {
    /// Prepares a flow: discovers the authorization server, registers there, listens for the callback.
    pub(super) async fn prepare(
        &self,
        challenge: &Challenge,
    ) -> Result<(AuthorizationFlow, String), LoginError> {
        let found = self.discover(challenge).await?;
        let port = self.options.callback_port.unwrap_or(0);
        let listening = TcpListener::bind(("127.0.0.1", port)).await;
        let listener = listening.map_err(|error| {
            LoginError::user_needed(format!(
                "cannot listen on port {port} for the authorization callback: {error}"
            ))
        })?;
        let port = listener.local_addr().map_or(port, |address| address.port());
        let redirect = format!("http://127.0.0.1:{port}{PATH}");
        let granted = self.known().record.as_ref().map(|record| record.scopes.clone());
        let granted = granted.filter(|_| challenge.wants_more).unwrap_or_default();
        let offered = found.manager.select_initial_scopes(&[]).await;
        let scopes = oauth::scopes(challenge.scope.is_some(), &granted, &offered, &self.options);
        let ask = AuthorizationRequest::new(&redirect)
            .with_client_name("metamcp")
            .with_initial_scope_selection()
            .with_scopes(scopes);
        self.ask(found, ask, listener).await
    }

    /// Builds the authorization URL.
    async fn ask(
        &self,
        found: Found,
        mut ask: AuthorizationRequest,
        listener: TcpListener,
    ) -> Result<(AuthorizationFlow, String), LoginError> {
        let document = self.options.metadata_url.as_deref().filter(|_| found.takes_documents());
        let written = Client::written(&self.options, &found.methods());
        let described = document.map(Client::described);
        let Found { manager, http_client, metadata, issuer, .. } = found;
        match (&written, document) {
            (Some(client), _) => {
                ask = ask.with_preregistered_client(&client.id);
                ask.client_secret.clone_from(&client.secret);
            }
            (None, Some(document)) => ask = ask.with_client_metadata_url(document),
            (None, None) if metadata.registration_endpoint.is_none() => {
                return Err(OAuthError::Unregistered { issuer }.into());
            }
            (None, None) => {}
        }
        let redirect = ask.redirect_uri.clone();
        let session = AuthorizationSession::new(manager, ask).await;
        let session = session.map_err(|(_, error)| match http_client.refusal() {
            Some(why) => OAuthError::NotRegistered { issuer: issuer.clone(), why }.into(),
            None => http_client.explain(&error),
        })?;
        let (mut manager, mut address) = (session.auth_manager, session.auth_url);
        let client = written.or(described).or_else(|| http_client.registered());
        let client = client.ok_or_else(|| OAuthError::Unregistered { issuer: issuer.clone() })?;
        let query = address.split_once('?').map_or("", |(_, query)| query);
        let said = oauth::fields(query, ["state", "resource", "scope"]);
        let [Some(state), Some(resource), scope] = said.unwrap_or_default() else {
            // Its authorization endpoint already sets one of our parameters to another value.
            let why = "its authorization_endpoint already sets a parameter of the request";
            return Err(OAuthError::document("authorization server metadata", why).into());
        };
        let scopes: Vec<String> =
            scope.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        if scopes.iter().any(|scope| scope == "offline_access") {
            // Some servers issue a refresh token only after an explicit consent prompt.
            address.push_str("&prompt=consent");
        }
        self.prove(&client, &issuer, &http_client);
        let token_endpoint = metadata.token_endpoint.clone();
        // The authentication method given at registration takes precedence over the server's general list.
        manager.set_metadata(only_by(client.method, metadata));
        let configured = manager.configure_client(config(&client, &redirect));
        configured.map_err(|error| http_client.explain(&error))?;
        let terms = Terms { issuer, resource, token_endpoint, client, scopes };
        manager.set_credential_store(self.credential_store(&http_client, terms, None));
        Ok((AuthorizationFlow { listener, manager, http_client, state }, address))
    }

    /// Waits for the callback in the background; the next request finds the token.
    pub(super) fn await_callback(&self, authorization_flow: AuthorizationFlow, address: String) {
        let Some(login) = self.me.upgrade() else { return };
        crate::task::spawn("login", async move {
            // Nobody waits for this result; the next request reports the state.
            if login.finish(authorization_flow).await.is_err() {
                login.publish(LoginChange::Failed);
            }
            {
                let mut known = login.known();
                if known.pending_flow.as_ref().is_some_and(|(_, pending)| *pending == address) {
                    known.pending_flow = None;
                }
            }
            login.finished_flows.notify_waiters();
        });
    }

    /// Waits for the callback and exchanges the code for tokens.
    pub(super) async fn finish(
        self: &Arc<Self>,
        authorization_flow: AuthorizationFlow,
    ) -> Result<(), LoginError> {
        let (code, issuer, mut browser) =
            match timeout(AUTHORIZATION_TIMEOUT, authorization_flow.code()).await {
                Ok(code) => code?,
                Err(_) => return Err(LoginError::user_needed("the authorization timed out")),
            };
        let exchanged = self.exchange(&authorization_flow, &code, issuer.as_deref()).await;
        // The page is sent only after the exchange: its reader may call a tool at once.
        let (status, words) = match &exchanged {
            Ok(()) => (200, "You are logged in. You can close this window."),
            Err(Unexchanged::Refused(_)) => (400, REFUSED),
            Err(Unexchanged::Failed(_)) => {
                (502, "The login did not succeed. You can close this window.")
            }
        };
        show(&mut browser, status, words).await;
        exchanged.map_err(|(Unexchanged::Refused(error) | Unexchanged::Failed(error))| error)
    }

    async fn exchange(
        &self,
        authorization_flow: &AuthorizationFlow,
        code: &str,
        issuer: Option<&str>,
    ) -> Result<(), Unexchanged> {
        let _lock = self.store.lock().await.map_err(Unexchanged::Failed)?;
        let exchange = authorization_flow.manager.exchange_code_for_token_with_issuer(
            code,
            &authorization_flow.state,
            issuer,
        );
        let Err(error) = exchange.await else { return Ok(()) };
        let refusal = |why: &str| {
            Unexchanged::Refused(LoginError::user_needed(format!(
                "authorization was refused: {why}"
            )))
        };
        Err(match (authorization_flow.http_client.grant_error(), error) {
            (Some(error), _) => Unexchanged::Failed(refused(&error)),
            (_, AuthError::AuthorizationServerMismatch { .. }) => {
                refusal("the response comes from another issuer")
            }
            (_, AuthError::AuthorizationServerMissingIssuer { .. }) => {
                refusal("the response names no issuer")
            }
            (_, error) => Unexchanged::Failed(authorization_flow.http_client.explain(&error)),
        })
    }
}

/// Why a code was not exchanged.
enum Unexchanged {
    /// The response is not for this flow.
    Refused(LoginError),
    Failed(LoginError),
}

impl AuthorizationFlow {
    /// The code, its issuer and the browser's connection, from the first callback with the right state. Any other request
    /// gets an error page, and the wait goes on.
    async fn code(&self) -> Result<(String, Option<String>, TcpStream), LoginError> {
        let (sender, mut visitors) = mpsc::channel(MAX_CONNECTIONS);
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let (query, mut socket) = tokio::select! {
                accepted = self.listener.accept() => {
                    // Each connection has its own task, so that a silent one blocks no other.
                    let place = Arc::clone(&places).try_acquire_owned();
                    if let (Ok((mut socket, _)), Ok(place)) = (accepted, place) {
                        let sender = sender.clone();
                        crate::task::spawn("visitor", async move {
                            let _place = place;
                            if let Ok(Some(query)) = timeout(REQUEST_TIMEOUT, asked(&mut socket)).await {
                                drop(sender.send((query, socket)).await);
                            }
                        });
                    }
                    continue;
                }
                Some(visitor) = visitors.recv() => visitor,
            };
            match oauth::callback(&query, &self.state) {
                Callback::Stray => {
                    let words = "This is not the login that was waited for.";
                    show(&mut socket, 400, words).await;
                }
                Callback::Code { code, issuer } => return Ok((code, issuer, socket)),
                Callback::Refused(why) => {
                    show(&mut socket, 400, REFUSED).await;
                    return Err(LoginError::user_needed(format!(
                        "authorization was refused: {why}"
                    )));
                }
            }
        }
    }
}

/// The query of a request to the callback path.
async fn asked(socket: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > MAX_REQUEST_BYTES || socket.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
    let line = std::str::from_utf8(request.split(|&byte| byte == b'\r').next()?).ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    match target.split_once('?') {
        Some((PATH, query)) => Some(query.to_owned()),
        _ => {
            show(socket, 404, "There is nothing here.").await;
            None
        }
    }
}

/// Sends a page of fixed text: nothing from the request is ever repeated in it.
async fn show(socket: &mut TcpStream, status: u16, words: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>metamcp</title><p>{words}</p>\n");
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nContent-Security-Policy: default-src 'none'\r\n\
         Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        page.len()
    );
    // A browser that disconnected only misses the page.
    drop(socket.write_all(format!("{head}{page}").as_bytes()).await);
    drop(socket.shutdown().await);
}
