//! Reading a request's head for the handler, and the errors it responds with before there is a session.

use hyper::StatusCode;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName,
    HeaderValue, ORIGIN,
};
use hyper::http::request::Parts;
use metamcp_wire::era::{Era, UnknownVersion, VersionHeader};
use metamcp_wire::scan::Defect;

use super::{ErrorResponse, LAST_EVENT, VERSION};
use crate::serve::http::guard::{Head, Refusal};
use crate::serve::http::reply::{self, INVALID, NO_SESSION, REFUSED, SESSION_ID, UNPARSED};
use crate::serve::http::sessions::SessionId;

/// Whether `Accept` lists events before documents. All SDKs list documents first.
pub(in crate::serve::http) fn prefers_events(headers: &HeaderMap) -> bool {
    let Some(accept) = joined(headers, &ACCEPT) else { return false };
    let place = |kind: &str| accept.to_ascii_lowercase().find(kind);
    matches!(
        (place("text/event-stream"), place("application/json")),
        (Some(events), Some(document)) if events < document
    )
}

/// What a request's header says of its version.
pub(super) fn version(headers: &HeaderMap) -> VersionHeader {
    VersionHeader::read(headers.get(VERSION).map(HeaderValue::as_bytes))
}

/// The error for a version that is not spoken here.
pub(super) fn unknown_version(_: UnknownVersion) -> ErrorResponse {
    let known = Era::supported().collect::<Vec<_>>().join(", ");
    let message =
        format!("the MCP-Protocol-Version is not one this gateway speaks; it speaks {known}");
    Box::new(reply::refusal(StatusCode::BAD_REQUEST, REFUSED, &message))
}

/// Headers that must not be repeated. `read_head` takes the first three by position.
static SINGLE: [HeaderName; 7] =
    [HOST, ORIGIN, CONTENT_TYPE, AUTHORIZATION, SESSION_ID, VERSION, LAST_EVENT];

/// What the guard needs of a head, in one pass.
pub(super) fn read_head<'a>(parts: &'a Parts, accept: Option<&'a str>) -> Head<'a> {
    let mut values = [None; 7];
    let mut doubtful = None;
    for (name, value) in &parts.headers {
        let Some(place) = SINGLE.iter().position(|single| single == name) else { continue };
        let text = value.to_str().ok();
        if text.is_none() || values[place].is_some() {
            doubtful = doubtful.or(Some(name.as_str()));
        }
        values[place] = values[place].or(text);
    }
    let [host, origin, content_type, ..] = values;
    Head {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        authority: parts.uri.authority().map(hyper::http::uri::Authority::as_str),
        host,
        origin,
        content_type,
        is_encoded: parts.headers.get_all(CONTENT_ENCODING).iter().any(|how| how != "identity"),
        accept,
        doubtful,
    }
}

/// All values of a list header, joined.
pub(super) fn joined<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Option<std::borrow::Cow<'a, str>> {
    let mut all = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    let first = all.next()?;
    let rest: Vec<&str> = all.collect();
    if rest.is_empty() {
        return Some(first.into());
    }
    Some([&[first], &rest[..]].concat().join(",").into())
}

/// A random session id.
pub(in crate::serve::http) fn fresh_id() -> Result<SessionId, ErrorResponse> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| {
        busy(StatusCode::SERVICE_UNAVAILABLE, "no randomness for a session's id; try again later")
    })?;
    Ok(SessionId::new(random))
}

/// One error whether a session never existed, is over, or belongs to another principal.
pub(in crate::serve::http) fn no_session() -> ErrorResponse {
    let message = "there is no such session; begin anew with initialize";
    Box::new(reply::refusal(StatusCode::NOT_FOUND, NO_SESSION, message))
}

/// With the same messages and codes as over stdio.
pub(in crate::serve::http) fn unreadable(defect: &Defect) -> ErrorResponse {
    if !defect.kind.is_syntax() {
        return bad_message(&defect.to_string());
    }
    let message = format!("parse error: {defect}");
    Box::new(reply::refusal(StatusCode::BAD_REQUEST, UNPARSED, &message))
}

pub(in crate::serve::http) fn bad_message(why: &str) -> ErrorResponse {
    Box::new(reply::refusal(StatusCode::BAD_REQUEST, INVALID, &format!("invalid request: {why}")))
}

pub(in crate::serve::http) fn busy(status: StatusCode, message: &str) -> ErrorResponse {
    Box::new(reply::refusal(status, REFUSED, message))
}

pub(super) fn refused(refusal: &Refusal) -> ErrorResponse {
    tracing::debug!("refused a request: {refusal}");
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = reply::refusal(status, REFUSED, &refusal.to_string());
    if let Refusal::Method { allowed } = refusal {
        reply::allow(&mut response, allowed);
    }
    Box::new(response)
}
