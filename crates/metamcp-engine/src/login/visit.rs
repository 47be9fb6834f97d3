//! A person's visit: where they have to go, the one place on this machine they come back to, and what they bring.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use metamcp_core::oauth::{
    self, Authorization, Callback, Challenge, Client, OAuthError, authorization, code_form,
};
use metamcp_wire::base64;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::discover::Found;
use super::grant::refused;
use super::store::{Record, random};
use super::{Login, LoginError};

/// How long a person may take.
const PERSON: Duration = Duration::from_secs(600);
/// How long a browser may take to say what it wants.
const BROWSER: Duration = Duration::from_secs(5);
/// Longest request of a browser that is looked at.
const MAX_REQUEST: usize = 32 * 1024;
/// Visitors that are heard at once.
const VISITORS: usize = 32;
/// The path people come back to.
const PATH: &str = "/callback";

/// A visit that is waited for.
pub(super) struct Visit {
    listener: TcpListener,
    found: Found,
    client: Client,
    scopes: Vec<String>,
    resource: String,
    redirect: String,
    state: String,
    verifier: String,
}

impl Login {
    /// Prepares a visit: finds out who lets us in, becomes known there, listens for the person to come back.
    pub(super) async fn prepare(
        &self,
        challenge: &Challenge,
    ) -> Result<(Visit, String), LoginError> {
        let found = self.discover(challenge).await?;
        let port = self.wishes.callback_port.unwrap_or(0);
        let listening = TcpListener::bind(("127.0.0.1", port)).await;
        let listener = listening.map_err(|error| {
            LoginError::person(format!(
                "nobody can come back to port {port} of this machine: {error}"
            ))
        })?;
        let port = listener.local_addr().map_or(port, |address| address.port());
        let redirect = format!("http://127.0.0.1:{port}{PATH}");
        let granted = self.known().record.as_ref().map(|record| record.scopes.clone());
        let granted = granted.filter(|_| challenge.wants_more()).unwrap_or_default();
        let (scope, about) = (challenge.scope.as_deref(), found.resource.as_ref());
        let scopes = oauth::scopes(scope, &granted, about, &found.server, &self.wishes);
        let client = match Client::without_asking(&self.wishes, &found.server) {
            Some(client) => client,
            None => self.register(&found, &redirect, &scopes).await?,
        };
        let random = random::<64>().ok_or_else(|| LoginError::person("there is no randomness"))?;
        let (state, verifier) = random.split_at(24);
        let (state, verifier) = (base64::encode_url(state), base64::encode_url(verifier));
        let proof = base64::encode_url(&Sha256::digest(verifier.as_bytes()));
        let resource = self.resource_name(found.resource.as_ref());
        let ask = Authorization {
            client: &client,
            redirect: &redirect,
            state: &state,
            challenge: &proof,
            resource: &resource,
            scopes: &scopes,
        };
        let address = authorization(&found.server, &ask)?.to_string();
        let visit = Visit { listener, found, client, scopes, resource, redirect, state, verifier };
        Ok((visit, address))
    }

    /// Waits for the person beside everything else; the next request finds the token.
    pub(super) fn await_visit(&self, visit: Visit, address: String) {
        let Some(login) = self.me.upgrade() else { return };
        crate::task::spawn("login", async move {
            // Whoever asks next hears how it stands; there is nobody here to tell.
            drop(login.finish(visit).await);
            {
                let mut known = login.known();
                if known.waiting.as_ref().is_some_and(|(_, waiting)| *waiting == address) {
                    known.waiting = None;
                }
            }
            login.visits.notify_waiters();
        });
    }

    /// Waits for the person, and makes a token of what they bring.
    pub(super) async fn finish(self: &Arc<Self>, visit: Visit) -> Result<(), LoginError> {
        let (code, mut browser) = match timeout(PERSON, visit.code()).await {
            Ok(code) => code?,
            Err(_) => return Err(LoginError::person("nobody came back in time")),
        };
        let exchanged = self.exchange(visit, &code).await;
        // Only now it is true, and whoever reads it may call at once.
        match &exchanged {
            Ok(()) => {
                show(&mut browser, 200, "You are logged in. You can close this window.").await;
            }
            Err(_) => {
                let words = "The login did not succeed. You can close this window.";
                show(&mut browser, 502, words).await;
            }
        }
        exchanged
    }

    /// Tokens for the code.
    async fn exchange(&self, visit: Visit, code: &str) -> Result<(), LoginError> {
        let Visit { found, client, scopes, resource, redirect, verifier, .. } = visit;
        let client = self.proven(client, &found.server.issuer).await?;
        let form = code_form(&client, code, &verifier, &redirect, &resource);
        match self.post_form(&found.server.token, &form).await? {
            Ok(tokens) => {
                let _lock = self.store.lock().await?;
                self.keep(Record::new(&found.server, &client, resource, scopes, tokens)).await
            }
            Err(error) => Err(refused(&error)),
        }
    }

    /// Becomes known to an authorization server that takes anybody.
    async fn register(
        &self,
        found: &Found,
        redirect: &str,
        scopes: &[String],
    ) -> Result<Client, LoginError> {
        let unregistered = || OAuthError::Unregistered { issuer: found.server.issuer.clone() };
        let place = found.server.register.as_ref().ok_or_else(unregistered)?;
        self.confidential(place)?;
        let ask = async |scopes: &[String]| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let body = oauth::registration(redirect, scopes).to_string();
            self.post(place, headers, body.into()).await
        };
        let (mut status, mut document) = ask(scopes).await?;
        if status == 400 && !scopes.is_empty() {
            // Some register nobody who names rights that are the server's and not their own.
            (status, document) = ask(&[]).await?;
        }
        if status != 200 && status != 201 {
            let why = oauth::refusal(status, &document);
            return Err(
                OAuthError::NotRegistered { issuer: found.server.issuer.clone(), why }.into()
            );
        }
        Ok(oauth::registered(&document)?)
    }
}

impl Visit {
    /// The code and the browser that brought it, from the first visit that knows the state; all others are shown the door and the wait goes on.
    async fn code(&self) -> Result<(String, TcpStream), LoginError> {
        let (sender, mut visitors) = mpsc::channel(VISITORS);
        let places = Arc::new(Semaphore::new(VISITORS));
        loop {
            let (query, mut socket) = tokio::select! {
                accepted = self.listener.accept() => {
                    // Each is heard on its own, so that one who says nothing keeps nobody waiting.
                    let place = Arc::clone(&places).try_acquire_owned();
                    if let (Ok((mut socket, _)), Ok(place)) = (accepted, place) {
                        let sender = sender.clone();
                        crate::task::spawn("visitor", async move {
                            let _place = place;
                            if let Ok(Some(query)) = timeout(BROWSER, asked(&mut socket)).await {
                                drop(sender.send((query, socket)).await);
                            }
                        });
                    }
                    continue;
                }
                Some(visitor) = visitors.recv() => visitor,
            };
            match oauth::callback(&query, &self.state, &self.found.server) {
                Callback::Stray => {
                    let words = "This is not the login that was waited for.";
                    show(&mut socket, 400, words).await;
                }
                Callback::Code(code) => return Ok((code, socket)),
                Callback::Refused(why) => {
                    let words = "The login was refused. You can close this window.";
                    show(&mut socket, 400, words).await;
                    return Err(LoginError::person(format!("the login was refused: {why}")));
                }
            }
        }
    }
}

/// The query of a browser's request to our one path.
async fn asked(socket: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > MAX_REQUEST || socket.read_buf(&mut request).await.ok()? == 0 {
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

/// A page with fixed words: nothing of what came is ever repeated in it.
async fn show(socket: &mut TcpStream, status: u16, words: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>metamcp</title><p>{words}</p>\n");
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nContent-Security-Policy: default-src 'none'\r\n\
         Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        page.len()
    );
    // A browser that went away misses a page and nothing else.
    drop(socket.write_all(format!("{head}{page}").as_bytes()).await);
    drop(socket.shutdown().await);
}
