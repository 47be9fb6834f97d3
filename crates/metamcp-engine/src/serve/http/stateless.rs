//! Requests of the stateless era over HTTP: each is a session of its own, and its headers must match its body.

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use metamcp_wire::envelope::Envelope;
use metamcp_wire::modern::headers::{self, Mirror};
use metamcp_wire::modern::{Fault, meta};
use metamcp_wire::{object, write};

use super::connection_timer::ConnectionTimer;
use super::handler::{
    Admission, ErrorResponse, Handler, ResponseFormat, bad_message, prefers_events,
};
use super::post_body::PostBody;
use super::reply::{self, Answer, Content, REFUSED};
use crate::serve::response_streams::{RequestStreams, ResponseMode, ResponseStreams};
use crate::serve::stateless;
use crate::surface::View;

/// A longer response is not a protocol error.
const MAX_ERROR: usize = 16 * 1024;

/// GET and DELETE need a session.
pub(super) fn not_here() -> ErrorResponse {
    let message = "revision 2026-07-28 has no sessions: send requests with POST, and listen with subscriptions/listen";
    let mut response = reply::refusal(StatusCode::METHOD_NOT_ALLOWED, REFUSED, message);
    reply::allow(&mut response, "POST");
    Box::new(response)
}

impl Handler {
    pub(super) async fn post_stateless(
        &self,
        admission: &Admission,
        parts: &Parts,
        line: &Bytes,
        mut post_body: PostBody<'_>,
        connection_timer: &ConnectionTimer,
    ) -> Result<Response<Answer>, ErrorResponse> {
        let owner = admission.owner;
        if post_body.batch {
            return Err(bad_message("several messages at once are not part of this revision"));
        }
        let Some(message) = post_body.messages.pop() else {
            return Err(bad_message("there is no message"));
        };
        let (id, method, params) = match &message {
            Envelope::Request { id, method, params } => {
                (Bytes::copy_from_slice(id.raw()), method.as_ref(), *params)
            }
            // Notifications and responses mean nothing without a session, and are no errors.
            Envelope::Notification { .. } => return Ok(reply::empty(StatusCode::ACCEPTED)),
            _ => return Err(bad_message("a client of this revision sends no answers")),
        };
        let view = self.view(owner);
        check(&view, &parts.headers, method, params).map_err(|fault| refused(&id, &fault))?;
        // A subscription is a stream even where documents are configured.
        let listens = method == "subscriptions/listen";
        let json = self.http_config.rules.json && !listens;
        let response_streams = ResponseStreams::PerRequest(RequestStreams::new(ResponseMode {
            json,
            stateless: true,
            fleet: false,
        }));
        let session = self.start_alone(owner, response_streams);
        // There is no session to resume the stream in.
        session.stateless.belongs_to(admission.binding(&self.http_config.rules).into());
        let reader = self.open(owner.principal, &session, &[id])?;
        session.take_traced(message, line, self.trace_of(&parts.headers));
        drop(session);
        if listens {
            return Ok(reply::counted(reader.ticket(), reply::events(reader)));
        }
        let response_format =
            ResponseFormat { events: prefers_events(&parts.headers), ..ResponseFormat::default() };
        let mut response = self.respond(reader, response_format, connection_timer).await;
        if let Content::Document(Some(document)) = &response.body().content
            && let Some(status) = status_of(document)
        {
            *response.status_mut() = status;
        }
        Ok(response)
    }
}

/// Checks the headers against the body, and the body against what is served here.
fn check(view: &View, all: &HeaderMap, method: &str, params: Option<&[u8]>) -> Result<(), Fault> {
    check_headers(all, method, params, &|| view.mirrors(params))?;
    stateless::precheck(view, method, params).map(drop)
}

/// Checks the headers against the body. `mirrors` knows the parameters a tool wants mirrored in headers.
fn check_headers(
    all: &HeaderMap,
    method: &str,
    params: Option<&[u8]>,
    mirrors: &dyn Fn() -> Vec<Mirror>,
) -> Result<(), Fault> {
    let one = |name: &str| {
        let mut values = all.get_all(name).iter();
        let first = values.next()?;
        // A repeated header matches nothing.
        Some(if values.next().is_some() { &b"\0"[..] } else { first.as_bytes() })
    };
    // An ambiguous body has no value to compare headers with.
    let [meta, arguments] = headers::picked(params, ["_meta", "arguments"])?;
    let [said] =
        headers::picked(meta.filter(|meta| meta.starts_with(b"{")), [meta::PROTOCOL_VERSION])?;
    if let Some(said) = said.and_then(object::text) {
        // A mismatch of two versions is reported before an unsupported one.
        headers::check(one, method, params, &said)?;
        if method == "tools/call" {
            headers::check_parameters(one, &mirrors(), arguments)?;
        }
    }
    Ok(())
}

fn refused(id: &[u8], fault: &Fault) -> ErrorResponse {
    let mut body = Vec::with_capacity(256);
    write::error(&mut body, Some(id), fault.code, &fault.message, fault.data.as_deref());
    let mut response = reply::document(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::BAD_REQUEST);
    Box::new(response)
}

/// The HTTP status of a protocol error, ours or a server's.
fn status_of(document: &[u8]) -> Option<StatusCode> {
    // Results are not parsed: they may be long, and their status is 200.
    if !document.starts_with(b"{\"jsonrpc\":\"2.0\",\"id\":") || document.len() > MAX_ERROR {
        return None;
    }
    let Ok(Envelope::Error { error, .. }) = Envelope::parse(document) else { return None };
    let [code] = object::pick(error, ["code"]).ok()?;
    let code: i64 = std::str::from_utf8(code?).ok()?.parse().ok()?;
    match code {
        -32022..=-32020 => Some(StatusCode::BAD_REQUEST),
        // A server behind us does not know the method.
        -32601 => Some(StatusCode::NOT_FOUND),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn verdict(headers: &[(&'static str, &'static str)], method: &str, params: &str) -> (i64, u16) {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, HeaderValue::from_static(value));
        }
        let mirrors = || vec![Mirror { header: "Region".into(), path: vec!["region".into()] }];
        match check_headers(&all, method, Some(params.as_bytes()), &mirrors) {
            Ok(()) => (0, 200),
            Err(fault) => (fault.code, fault.status),
        }
    }

    #[test]
    fn headers_and_body_must_agree_before_anything_runs() {
        let version = ("mcp-protocol-version", "2026-07-28");
        let list = ("mcp-method", "tools/list");
        let body = format!("{{{META}}}");
        assert_eq!(verdict(&[version, list], "tools/list", &body), (0, 200));
        assert_eq!(verdict(&[version], "tools/list", &body), (-32020, 400));
        assert_eq!(verdict(&[list], "tools/list", &body), (-32020, 400));
        assert_eq!(verdict(&[version, list, list], "tools/list", &body), (-32020, 400));
        let old = ("mcp-protocol-version", "2025-11-25");
        assert_eq!(verdict(&[old, list], "tools/list", &body), (-32020, 400));
        let call = format!(r#"{{"name":"mcp_call",{META}}}"#);
        let method = ("mcp-method", "tools/call");
        assert_eq!(verdict(&[version, method], "tools/call", &call), (-32020, 400));
        let name = ("mcp-name", "mcp_call");
        assert_eq!(verdict(&[version, method, name], "tools/call", &call), (0, 200));
        let call = format!(r#"{{"name":"mcp_call","arguments":{{"region":"eu"}},{META}}}"#);
        let all = [version, method, name];
        assert_eq!(verdict(&all, "tools/call", &call), (-32020, 400), "a parameter is missing");
        let with = |value| [version, method, name, ("mcp-param-region", value)];
        assert_eq!(verdict(&with("eu"), "tools/call", &call), (0, 200));
        assert_eq!(verdict(&with("us"), "tools/call", &call), (-32020, 400));
        // What is written twice is neither there nor absent.
        for doubled in [
            format!(r#"{{"name":"mcp_call","name":"x",{META}}}"#),
            format!(r#"{{"name":"mcp_call",{META},{META}}}"#),
            format!(
                r#"{{"name":"mcp_call","arguments":{{}},"arguments":{{"region":"eu"}},{META}}}"#
            ),
            format!(r#"{{"name":"mcp_call","arguments":{{"region":"eu","region":"us"}},{META}}}"#),
        ] {
            assert_eq!(verdict(&with("eu"), "tools/call", &doubled), (-32602, 400), "{doubled}");
        }
        let read = format!(r#"{{"uri":"a:b","uri":"a:c",{META}}}"#);
        let method = ("mcp-method", "resources/read");
        assert_eq!(verdict(&[version, method], "resources/read", &read), (-32020, 400));
        let named = [version, method, ("mcp-name", "a:b")];
        assert_eq!(verdict(&named, "resources/read", &read), (-32602, 400));
    }

    #[test]
    fn errors_of_the_protocol_have_their_status() {
        let error = |code: i64| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"m"}}}}"#)
        };
        assert_eq!(status_of(error(-32021).as_bytes()), Some(StatusCode::BAD_REQUEST));
        assert_eq!(status_of(error(-32601).as_bytes()), Some(StatusCode::NOT_FOUND));
        assert_eq!(status_of(error(-32602).as_bytes()), None);
        assert_eq!(
            status_of(br#"{"jsonrpc":"2.0","id":1,"result":{"error":{"code":-32021}}}"#),
            None
        );
    }
}
