//! One call: its request, redirects, what the answer means.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, HeaderMap,
    HeaderName, HeaderValue, LOCATION, USER_AGENT, WWW_AUTHENTICATE,
};
use hyper::{Method, Response};
use metamcp_calls::failure::Fact;
use metamcp_calls::replay::Delivery;
use metamcp_openapi::request::escape;
use metamcp_openapi::security::{Form, Placement};
use metamcp_openapi::{Answer, Operation, Request, answer};
use metamcp_types::text;
use metamcp_types::web::Address;
use metamcp_wire::object;
use serde_json::{Map, Value};

use super::Shared;
use crate::upstream::Reply;
use crate::upstream::remote::{Broken, Credentials};
use crate::web::{self, BodyError, Outgoing};

const MAX_REDIRECTS: usize = 3;
/// How much of the answer to a failed call is read.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Longest name of a tool or header that is quoted.
const MAX_QUOTED: usize = 120;

/// A call, ready to be sent as often as it takes.
struct Ready<'a> {
    operation: &'a Operation,
    arguments: &'a Map<String, Value>,
    address: Address,
    method: Method,
    headers: HeaderMap,
    body: Option<Bytes>,
}

impl Shared {
    pub(super) async fn call(&self, params: &[u8]) -> Reply {
        let [name, arguments] = object::pick(params, ["name", "arguments"]).unwrap_or([None, None]);
        let name = name.and_then(object::text).unwrap_or_default();
        let Some(operation) = self.api.operation(&name) else {
            let name = text::clean_line(&name, MAX_QUOTED);
            return refused(&format!("the API has no operation {name:?}"));
        };
        let arguments = arguments.map_or(Ok(Value::Object(Map::new())), serde_json::from_slice);
        let Ok(Value::Object(arguments)) = arguments else {
            return refused("the arguments are no object");
        };
        let ready = match self.ready(operation, &arguments) {
            Ok(ready) => ready,
            Err(why) => return refused(&why),
        };
        let mut signed_in = false;
        loop {
            let token = match &self.site.credentials {
                Credentials::Login(_) if operation.is_home => self.site.credentials.token().await,
                _ => None,
            };
            let mut headers = ready.headers.clone();
            if let Some(token) = &token {
                headers.insert(AUTHORIZATION, token.header());
            }
            let response = match self.sent(&ready, headers).await {
                Ok(response) => response,
                Err(Broken { fact, delivery }) => return Reply::Broke { fact, delivery },
            };
            let may_sign_in = operation.is_home && !signed_in && self.signs_in();
            if response.status().as_u16() == 401 && may_sign_in {
                signed_in = true;
                let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
                let challenges: Vec<String> =
                    challenges.filter_map(|value| Some(value.to_str().ok()?.to_owned())).collect();
                match self.site.credentials.refused(&challenges, token.as_ref()).await {
                    Ok(()) => continue,
                    Err(fact) => return Reply::Broke { fact, delivery: Delivery::Refused },
                }
            }
            return self.answer(&ready, response).await;
        }
    }

    fn signs_in(&self) -> bool {
        self.site.is_login_wanted && matches!(self.site.credentials, Credentials::Login(_))
    }

    /// Everything of the request that does not change when it is sent again.
    fn ready<'a>(
        &self,
        operation: &'a Operation,
        arguments: &'a Map<String, Value>,
    ) -> Result<Ready<'a>, String> {
        let Request { method, mut target, headers: own, mut cookies, body } =
            operation.request(arguments).map_err(|error| error.to_string())?;
        let mut headers =
            if operation.is_home { self.site.headers.clone() } else { HeaderMap::new() };
        for (name, value) in own {
            put(&mut headers, &name, &value, false)?;
        }
        for placement in &operation.placements {
            self.place(placement, &mut target, &mut headers, &mut cookies)?;
        }
        if !cookies.is_empty() {
            put(&mut headers, COOKIE.as_str(), &cookies.join("; "), true)?;
        }
        headers.entry(ACCEPT).or_insert(
            HeaderValue::from_str(&operation.accept)
                .unwrap_or_else(|_| HeaderValue::from_static("application/json, */*;q=0.1")),
        );
        // No compression: a small body could expand to a huge one.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let body = match body {
            Some((media, bytes)) => {
                put(&mut headers, CONTENT_TYPE.as_str(), &media, false)?;
                Some(Bytes::from(bytes))
            }
            None => None,
        };
        let address = Address::parse(&format!("{}{target}", operation.base.origin()))
            .map_err(|_| "its arguments make an address that is too long".to_owned())?;
        let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
        Ok(Ready { operation, arguments, address, method, headers, body })
    }

    /// Puts a credential where its scheme says.
    fn place(
        &self,
        placement: &Placement,
        target: &mut String,
        headers: &mut HeaderMap,
        cookies: &mut Vec<String>,
    ) -> Result<(), String> {
        let own = self.credentials.iter().find(|(name, _)| *name == placement.scheme);
        let Some((_, secret)) = own else { return Ok(()) };
        let secret = secret.expose();
        match &placement.form {
            Form::Header(name) => put(headers, name, secret, true),
            Form::Bearer => {
                let bare = secret.strip_prefix("Bearer ").unwrap_or(secret);
                put(headers, AUTHORIZATION.as_str(), &format!("Bearer {bare}"), true)
            }
            Form::Basic => {
                let pair = STANDARD.encode(secret);
                put(headers, AUTHORIZATION.as_str(), &format!("Basic {pair}"), true)
            }
            Form::Query(name) => {
                let begin = if target.contains('?') { '&' } else { '?' };
                target.push_str(&format!(
                    "{begin}{}={}",
                    escape(name, false),
                    escape(secret, false)
                ));
                Ok(())
            }
            Form::Cookie(name) => {
                cookies.push(format!("{name}={}", escape(secret, false)));
                Ok(())
            }
        }
    }

    /// Sends it and follows redirects, but not those of a call that may have changed something.
    async fn sent(
        &self,
        ready: &Ready<'_>,
        mut headers: HeaderMap,
    ) -> Result<Response<Incoming>, Broken> {
        let home = &self.api.base;
        let mut place = ready.address.clone();
        for hop in 0..=MAX_REDIRECTS {
            let web = if place.is_same_origin(home) {
                self.web.clone()
            } else {
                let guarded = self.guarded.client(home, &self.site.client_options);
                guarded.map_err(|error| {
                    Broken::refused(Fact::Unreachable { reason: error.to_string() })
                })?
            };
            let body = ready.body.clone().map_or_else(Outgoing::default, Outgoing::of);
            let request = web::request(ready.method.clone(), &place, headers.clone(), body)?;
            let response = web.send(request).await.map_err(|error| {
                let broken = Broken::from(error);
                if hop > 0 { Broken { delivery: Delivery::Sent, ..broken } } else { broken }
            })?;
            let status = response.status().as_u16();
            if !matches!(status, 301 | 302 | 303 | 307 | 308) || !ready.operation.is_harmless() {
                return Ok(response);
            }
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let Some(next) = target.and_then(|target| place.join(target).ok()) else {
                let reason = "by a redirect without an address".to_owned();
                return Err(Broken::refused(Fact::Astray { reason }));
            };
            if place.is_secure() && !next.is_secure() {
                let reason = format!("to {}, which is not encrypted", next.origin());
                return Err(Broken::refused(Fact::Astray { reason }));
            }
            if !next.is_same_origin(&place) {
                headers = public(&headers);
            }
            place = next;
        }
        let reason = format!("more than {MAX_REDIRECTS} times");
        Err(Broken::refused(Fact::Astray { reason }))
    }

    async fn answer(&self, ready: &Ready<'_>, response: Response<Incoming>) -> Reply {
        let status = response.status().as_u16();
        let retry_after = web::retry_after(response.headers());
        let broke = |fact| Reply::Broke { fact, delivery: Delivery::Refused };
        match (status, retry_after) {
            // The server asks for a pause, which is then kept for all its calls.
            (429, Some(_)) => return broke(Fact::Limited { retry_after }),
            (503, Some(retry_after)) => return broke(Fact::Busy { retry_after }),
            // What is in front of the API answers, not the API.
            (502..=504, _) => {
                return Reply::Broke {
                    fact: Fact::HttpStatus { status },
                    delivery: Delivery::Sent,
                };
            }
            _ => {}
        }
        let encoding = response.headers().get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
            return refused("the API sent a compressed body, which was not asked for");
        }
        let headers: Vec<(String, String)> = response
            .headers()
            .iter()
            .map(|(name, value)| {
                (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect();
        let is_failed = !response.status().is_success();
        // JSON is in the result twice, as text and as a value.
        let most = if is_failed { MAX_ERROR_BODY } else { self.site.line_bytes / 2 };
        let body = match web::read_body(response.into_body(), most).await {
            Ok(body) => body,
            Err(BodyError::TooLarge) if is_failed => Bytes::new(),
            Err(BodyError::TooLarge) => return Reply::Oversize(most as u64 + 1),
            Err(BodyError::Closed) => {
                return Reply::Broke { fact: Fact::StreamDropped, delivery: Delivery::Sent };
            }
        };
        let hint = self.hint(status, ready.operation);
        let place = ready.address.without_query().to_string();
        let answer = Answer {
            status,
            headers: &headers,
            body: &body,
            place: &place,
            arguments: ready.arguments,
        };
        let result = answer::result(ready.operation, &answer, hint.as_deref());
        if result.len() > self.site.line_bytes {
            return Reply::Oversize(result.len() as u64);
        }
        Reply::Result(Bytes::from(result))
    }

    /// What may be wrong where the API does not let us in.
    fn hint(&self, status: u16, operation: &Operation) -> Option<String> {
        if status != 401 {
            return None;
        }
        if !operation.is_home {
            return Some(format!(
                "no credentials were sent: {} is not the API's own origin",
                operation.base.origin()
            ));
        }
        let mut wanted: Vec<String> =
            operation.wanted.names().map(|name| format!("{name:?}")).collect();
        wanted.dedup();
        let name = &self.name;
        Some(match (wanted.is_empty(), operation.placements.is_empty()) {
            (_, false) => format!("it refused the `credentials` in the entry of {name:?}"),
            (true, true) => {
                format!("set `bearerToken`, `headers` or `credentials` in the entry of {name:?}")
            }
            (false, true) => {
                format!("set `credentials` for {} in the entry of {name:?}", wanted.join(" or "))
            }
        })
    }
}

fn refused(words: &str) -> Reply {
    Reply::Result(Bytes::from(answer::refused(words)))
}

fn put(headers: &mut HeaderMap, name: &str, value: &str, is_secret: bool) -> Result<(), String> {
    let named = HeaderName::from_bytes(name.as_bytes());
    let (Ok(named), Ok(mut value)) = (named, HeaderValue::from_str(value)) else {
        let name = text::clean_line(name, MAX_QUOTED);
        return Err(format!("the header {name:?} cannot be sent"));
    };
    value.set_sensitive(is_secret);
    headers.insert(named, value);
    Ok(())
}

/// What another origin may see of a request.
fn public(headers: &HeaderMap) -> HeaderMap {
    let names = [ACCEPT, ACCEPT_ENCODING, USER_AGENT];
    names.into_iter().filter_map(|name| Some((name.clone(), headers.get(&name)?.clone()))).collect()
}
