//! A request as it is written to a server, in either era.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;
use metamcp_wire::modern::meta;
use metamcp_wire::write::Line;
use metamcp_wire::{object, write};

use super::UpstreamRequest;
use crate::observe::CallTrace;

/// What only requests to a stateless server carry.
pub(super) struct Stateless<'a> {
    /// The capabilities of the client behind the call, an object.
    pub capabilities: &'a [u8],
    /// The least severe log level it wants, as a JSON string.
    pub level: Option<&'a [u8]>,
}

/// Answers to a server's requests, for a call that is retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// `inputResponses`, an object.
    pub responses: Bytes,
    /// `requestState`, a JSON string.
    pub state: Option<Bytes>,
    /// Our own seal says that it continues a call with the same arguments, which came by here.
    pub is_sealed: bool,
}

/// A request of a client that is forwarded as it was written, except for the gateway's own fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbatim {
    /// Its method.
    pub method: &'static str,
    /// Its params without `_meta` and without input responses: an object.
    pub(super) params: Bytes,
}

impl Verbatim {
    /// Takes a request apart. Params that are no object count as none.
    pub fn new(method: &'static str, params: Option<&[u8]>) -> Verbatim {
        let params = params.filter(|params| params.starts_with(b"{")).unwrap_or(b"{}");
        let mut own = Cow::Borrowed(params);
        for ours in ["_meta", "inputResponses", "requestState"] {
            if object::members(&own).any(|(name, _)| name == ours) {
                own = Cow::Owned(object::without_member(&own, ours));
            }
        }
        Verbatim { method, params: Bytes::copy_from_slice(&own) }
    }
}

/// What is written along with a request.
pub(super) struct About<'a> {
    /// Its id, which is its progress token too.
    pub id: u64,
    /// The idempotency key: the gateway's number and the call's.
    pub key: (u64, u64),
    /// What only a stateless server receives.
    pub stateless: Option<&'a Stateless<'a>>,
    /// Its place in a trace that is recorded.
    pub trace: Option<&'a CallTrace>,
}

/// A request up to its body.
pub(super) fn head(line: &mut Line<'_>, about: &About<'_>, request: &UpstreamRequest) {
    line.text("{\"jsonrpc\":\"2.0\",\"id\":");
    line.number(about.id);
    if let Some(verbatim) = &request.verbatim {
        line.text(",\"method\":\"");
        line.text(verbatim.method);
        return line.text("\",\"params\":");
    }
    line.text(",\"method\":\"tools/call\",\"params\":{\"name\":");
    line.string(request.sent_tool());
    line.text(",\"arguments\":");
}

/// The body of a request. True if what follows is the first member of its object.
pub(super) fn body(line: &mut Line<'_>, request: &UpstreamRequest, body: &[u8]) -> bool {
    if request.verbatim.is_some() {
        return line.open_object(body);
    }
    line.json(body);
    false
}

/// What follows the body.
pub(super) fn tail(
    line: &mut Line<'_>,
    about: &About<'_>,
    request: &UpstreamRequest,
    is_first: bool,
) {
    if request.as_task && about.stateless.is_none() {
        line.text(",\"task\":{}");
    }
    line.text(if is_first { "\"_meta\":" } else { ",\"_meta\":" });
    let (own, stateless) = (call_key(about.key), about.stateless);
    match (&request.meta, stateless) {
        (None, None) if about.trace.is_none() => {
            line.text("{\"org.metamcp/callKey\":");
            line.json(&own);
            line.text("}");
        }
        (meta, stateless) => {
            let mut meta = object::set_member(
                &without_own_fields(meta.as_deref().unwrap_or(b"{}")),
                "org.metamcp/callKey",
                &own,
            );
            if request.progress.is_some() {
                let token = about.id.to_string();
                meta = object::replace_member(&meta, "progressToken", token.as_bytes());
            }
            if let Some(trace) = about.trace {
                meta = with_trace(meta, trace);
            }
            if let Some(with) = stateless {
                meta = meta::ours(&meta, with.capabilities, with.level, env!("CARGO_PKG_VERSION"));
            }
            line.json(&meta);
        }
    }
    if let (Some(_), Some(input)) = (stateless, &request.input) {
        line.text(",\"inputResponses\":");
        line.json(&input.responses);
        if let Some(state) = &input.state {
            line.text(",\"requestState\":");
            line.json(state);
        }
    }
    line.text("}}");
}

/// `_meta` of a client without what it declared to the gateway.
fn without_own_fields(meta: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if memmem::find(meta, b"io.modelcontextprotocol/").is_none() {
        return meta.into();
    }
    meta::stripped(meta).into()
}

/// `_meta` with the span of this attempt as the parent of what the server does.
fn with_trace(mut meta: Vec<u8>, trace: &CallTrace) -> Vec<u8> {
    let parent = trace.for_server();
    let members = [
        ("traceparent", parent.as_deref()),
        ("tracestate", trace.state.as_deref()),
        ("baggage", trace.baggage.as_deref()),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            let mut text = Vec::with_capacity(value.len() + 2);
            write::json_string(&mut text, value);
            meta = object::set_member(&meta, name, &text);
        }
    }
    meta
}

/// A key that stays the same when a call is replayed, as a UUID string, so that servers can deduplicate.
fn call_key((process, call): (u64, u64)) -> [u8; 38] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let value = (u128::from(process) << 64) | u128::from(call);
    let mut text = [b'-'; 38];
    (text[0], text[37]) = (b'"', b'"');
    let mut nibble = 0;
    for (at, digit) in text[1..37].iter_mut().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            continue;
        }
        *digit = DIGITS[((value >> (124 - 4 * nibble)) & 15) as usize];
        nibble += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn written(method: &'static str, params: Option<&[u8]>) -> String {
        let request = UpstreamRequest {
            server: metamcp_calls::pool::ServerId(0),
            server_name: "s".into(),
            tool: "x".into(),
            arguments: None,
            meta: None,
            progress: None,
            call_progress: None,
            harmless: true,
            hints: metamcp_tools::tool::Hints::default(),
            input: None,
            verbatim: Some(Verbatim::new(method, params)),
            as_task: false,
            rewritten: None,
            result_mapper: None,
        };
        let about = About { id: 7, key: (0, 1), stateless: None, trace: None };
        let mut out = BytesMut::new();
        Line::append(&mut out, |line| {
            head(line, &about, &request);
            let is_first = body(line, &request, request.body().unwrap());
            tail(line, &about, &request, is_first);
        })
        .unwrap();
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn a_request_keeps_everything_but_what_is_ours() {
        let meta = r#""_meta":{"org.metamcp/callKey":"00000000-0000-0000-0000-000000000001"}}}"#;
        for params in
            [None, Some(&b"{}"[..]), Some(b"{ }"), Some(br#"{"_meta":{"a":1}}"#), Some(b"7")]
        {
            assert_eq!(
                written("resources/list", params).trim_end(),
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"resources/list","params":{{{meta}"#)
            );
        }
        let params =
            br#"{"z": 1.50,"_meta":{},"uri":"a\/b","requestState":"s","inputResponses":{} }"#;
        let written = written("resources/read", Some(params));
        assert_eq!(
            written.trim_end(),
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{{"z": 1.50,"uri":"a\/b",{meta}"#
            )
        );
    }
}
