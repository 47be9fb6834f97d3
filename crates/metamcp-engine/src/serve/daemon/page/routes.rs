//! The routes of the page: files, the way in, and the admin API.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::StatusCode;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, HeaderMap,
    HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use serde_json::{Value, json};

use super::super::Daemon;
use super::super::admin::AdminError;
use super::super::admin::contextual::{self, Asking, Opener};
use super::access::{Token, Wrong};
use super::assets::{ASSETS, CLOSED, ENTER, INDEX};
use super::guard::{self, Head, Stranger};

/// Longest request: the arguments of a tool that somebody typed or pasted.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How long a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);
/// The half of a session that only our own pages have.
const KEY: HeaderName = HeaderName::from_static("x-metamcp-key");

/// What the page may do: run its own files and ask its own address. The last line keeps text from becoming markup or
/// code anywhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    form-action 'none'; frame-ancestors 'none'; base-uri 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 8] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

#[derive(Clone)]
struct Site {
    daemon: Arc<Daemon>,
    port: u16,
    cookie: Arc<str>,
}

pub(super) fn router(daemon: Arc<Daemon>, port: u16) -> Router {
    // Cookies are shared by all ports of a host, so each has a name of its own.
    let site = Site { daemon, port, cookie: format!("metamcp-{port}").into() };
    Router::new()
        .route("/", get(index))
        .route("/enter", get(async || document(StatusCode::OK, ENTER)).post(enter))
        .route("/leave", post(leave))
        .route("/assets/{name}", get(asset))
        .route("/api/{name}", post(api))
        .fallback(async || closed(StatusCode::NOT_FOUND))
        .layer(middleware::from_fn_with_state(site.clone(), guarded))
        .with_state(site)
}

/// Turns away what does not come from the page itself, and puts the headers on every answer.
async fn guarded(State(site): State<Site>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let head = Head {
        method: request.method().as_str(),
        is_absolute: request.uri().authority().is_some(),
        host: single(headers, &HOST),
        origin: single(headers, &ORIGIN),
        site: single(headers, &HeaderName::from_static("sec-fetch-site")),
        mode: single(headers, &HeaderName::from_static("sec-fetch-mode")),
        content_type: single(headers, &CONTENT_TYPE),
    };
    let mut response = match guard::admit(&head, site.port) {
        Ok(()) => next.run(request).await,
        Err(stranger) => turned_away(stranger),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A header that is given once, as text.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?;
    Some(if all.next().is_some() { "" } else { first.to_str().unwrap_or("") })
}

fn turned_away(stranger: Stranger) -> Response {
    let status = match stranger {
        Stranger::Host => StatusCode::MISDIRECTED_REQUEST,
        Stranger::Origin => StatusCode::FORBIDDEN,
        Stranger::Method => StatusCode::METHOD_NOT_ALLOWED,
        Stranger::Type => StatusCode::UNSUPPORTED_MEDIA_TYPE,
    };
    let mut response = answer(status, "text/plain; charset=utf-8", stranger.to_string());
    if stranger == Stranger::Method {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
    }
    response
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn document(status: StatusCode, body: &'static str) -> Response {
    answer(status, "text/html; charset=utf-8", body)
}

fn told(status: StatusCode, body: &Value) -> Response {
    answer(status, "application/json", body.to_string())
}

/// For who was not let in: how to be.
fn closed(status: StatusCode) -> Response {
    document(status, CLOSED)
}

impl Site {
    /// The cookie of a request.
    fn cookie<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let all = headers.get_all(COOKIE).iter().filter_map(|one| one.to_str().ok());
        let mut pairs =
            all.flat_map(|one| one.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == &*self.cookie).map(|(_, value)| value)
    }

    fn is_known(&self, headers: &HeaderMap) -> bool {
        let now = self.daemon.now();
        self.cookie(headers).is_some_and(|cookie| self.daemon.page.access.lock().knows(cookie, now))
    }

    fn opener(&self, headers: &HeaderMap) -> Option<Arc<Opener>> {
        let (cookie, key) = (self.cookie(headers)?, single(headers, &KEY)?);
        self.daemon.page.access.lock().opener(cookie, key, self.daemon.now())
    }
}

async fn index(State(site): State<Site>, headers: HeaderMap) -> Response {
    if site.is_known(&headers) {
        document(StatusCode::OK, INDEX)
    } else {
        closed(StatusCode::UNAUTHORIZED)
    }
}

async fn asset(State(site): State<Site>, headers: HeaderMap, Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) if asset.is_open || site.is_known(&headers) => {
            answer(StatusCode::OK, asset.kind, asset.body)
        }
        _ => closed(StatusCode::NOT_FOUND),
    }
}

/// Exchanges a link for the cookie and the key.
async fn enter(State(site): State<Site>, request: Request) -> Response {
    let body = match body_of(request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let link = body["token"].as_str().unwrap_or_default();
    let (Ok(cookie), Ok(key)) = (Token::random(), Token::random()) else {
        return told(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({ "error": "there is no randomness" }),
        );
    };
    let entered = site.daemon.page.access.lock().enter(link, (&cookie, &key), site.daemon.now());
    match entered {
        Ok(()) => {
            let set =
                format!("{}={}; Path=/; HttpOnly; SameSite=Strict", site.cookie, cookie.text());
            let mut response = told(StatusCode::OK, &json!({ "key": key.text() }));
            if let Ok(set) = HeaderValue::from_str(&set) {
                response.headers_mut().insert(SET_COOKIE, set);
            }
            response
        }
        Err(wrong) => {
            let (status, words) = match wrong {
                Wrong::Link => (
                    StatusCode::FORBIDDEN,
                    "this link was used already or is older than a minute; run `metamcp ui` again",
                ),
                Wrong::TooMany => {
                    tracing::warn!("somebody tries links of the page that are none");
                    (
                        StatusCode::TOO_MANY_REQUESTS,
                        "too many wrong links; run `metamcp ui` for a right one",
                    )
                }
            };
            told(status, &json!({ "error": words }))
        }
    }
}

/// Forgets the browser.
async fn leave(State(site): State<Site>, headers: HeaderMap) -> Response {
    if site.opener(&headers).is_some()
        && let Some(cookie) = site.cookie(&headers)
    {
        site.daemon.page.access.lock().leave(cookie);
    }
    told(StatusCode::OK, &json!({}))
}

/// One request of the admin API.
async fn api(State(site): State<Site>, Path(name): Path<String>, request: Request) -> Response {
    let Some(opener) = site.opener(request.headers()) else {
        let words =
            json!({ "error": "this browser was not let in; run `metamcp ui`", "code": "closed" });
        return told(StatusCode::UNAUTHORIZED, &words);
    };
    let body = match body_of(request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let Ok(params) = serde_json::from_slice::<Value>(&body) else {
        return failed(&AdminError::wanted("body"));
    };
    let daemon = Arc::clone(&site.daemon);
    // Found anew for each request: the configuration may be another one by now.
    let context = match daemon.context(opener.client.clone()).await {
        Ok(context) => context,
        Err(refusal) => return failed(&AdminError::failed(refusal.error)),
    };
    let asking = Asking { daemon, context, opener };
    let answered = contextual::answer(&asking, &name, &params).await;
    match answered {
        Ok(value) => {
            let text = value.to_string();
            let clean = asking.context.gateway.view.surface.clean(text.as_bytes()).into_owned();
            answer(StatusCode::OK, "application/json", clean)
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &AdminError) -> Response {
    let status = match error.code {
        "bad_params" => StatusCode::BAD_REQUEST,
        "not_found" | "unknown_request" => StatusCode::NOT_FOUND,
        "refused" => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    told(status, &json!({ "error": error.message, "hint": error.hint, "code": error.code }))
}

/// The whole body of a request, which comes in time and is not too long.
async fn body_of(request: Request) -> Result<Bytes, Response> {
    let read = Limited::new(request.into_body(), MAX_BODY).collect();
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(_)) => Err(failed(&AdminError::wanted("body"))),
        Err(_) => Err(told(
            StatusCode::REQUEST_TIMEOUT,
            &json!({ "error": "the request did not arrive" }),
        )),
    }
}
