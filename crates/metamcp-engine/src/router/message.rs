//! A call as it is written to a server, in either era.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem;
use metamcp_wire::modern::meta;
use metamcp_wire::{object, write};

use super::Request;

/// What only requests to a stateless server carry.
pub(super) struct Stateless<'a> {
    /// What the client behind the call can do, an object.
    pub capabilities: &'a [u8],
    /// The level from which on it wants logs, as a JSON string.
    pub level: Option<&'a [u8]>,
}

/// Answers to what a server asked, for a call that is made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// `inputResponses`, an object.
    pub responses: Bytes,
    /// `requestState`, a JSON string.
    pub state: Option<Bytes>,
}

/// A request of a client that goes to a server as it was written, but for what is the gateway's own business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbatim {
    /// Its method.
    pub method: &'static str,
    /// Its params without `_meta` and without answers to questions: an object that is still open at its end.
    pub(super) params: Bytes,
}

impl Verbatim {
    /// Takes a request apart. Params that are no object count as none.
    pub fn new(method: &'static str, params: Option<&[u8]>) -> Verbatim {
        let params = params.filter(|params| params.starts_with(b"{")).unwrap_or(b"{}");
        let mut open = Cow::Borrowed(params);
        for own in ["_meta", "inputResponses", "requestState"] {
            if object::members(&open).any(|(name, _)| name == own) {
                open = Cow::Owned(object::without_member(&open, own));
            }
        }
        let close = memchr::memrchr(b'}', &open).unwrap_or(0);
        Verbatim { method, params: Bytes::copy_from_slice(open[..close].trim_ascii_end()) }
    }

    fn is_empty(&self) -> bool {
        self.params.len() <= 1
    }
}

/// A request up to its body.
pub(super) fn head(out: &mut BytesMut, number: u64, request: &Request) {
    out.put_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    write::number(out, number);
    if let Some(verbatim) = &request.verbatim {
        out.put_slice(b",\"method\":\"");
        out.put_slice(verbatim.method.as_bytes());
        return out.put_slice(b"\",\"params\":");
    }
    out.put_slice(b",\"method\":\"tools/call\",\"params\":{\"name\":");
    write::json_string(out, &request.tool);
    out.put_slice(b",\"arguments\":");
}

/// What follows the body.
pub(super) fn tail(
    out: &mut BytesMut,
    number: u64,
    request: &Request,
    key: (u64, u64),
    stateless: Option<&Stateless<'_>>,
) {
    if !request.verbatim.as_ref().is_some_and(Verbatim::is_empty) {
        out.put_u8(b',');
    }
    out.put_slice(b"\"_meta\":");
    let own = call_key(key);
    match (&request.meta, stateless) {
        (None, None) => {
            out.put_slice(b"{\"org.metamcp/callKey\":\"");
            out.put_slice(&own);
            out.put_slice(b"\"}");
        }
        (meta, stateless) => {
            let mut quoted = Vec::with_capacity(own.len() + 2);
            quoted.put_u8(b'"');
            quoted.put_slice(&own);
            quoted.put_u8(b'"');
            let mut meta = object::set_member(
                &without_our_words(meta.as_deref().unwrap_or(b"{}")),
                "org.metamcp/callKey",
                &quoted,
            );
            if request.progress.is_some() {
                meta =
                    object::replace_member(&meta, "progressToken", number.to_string().as_bytes());
            }
            if let Some(with) = stateless {
                meta = meta::ours(&meta, with.capabilities, with.level, env!("CARGO_PKG_VERSION"));
            }
            out.put_slice(&meta);
        }
    }
    if let (Some(_), Some(input)) = (stateless, &request.input) {
        out.put_slice(b",\"inputResponses\":");
        out.put_slice(&input.responses);
        if let Some(state) = &input.state {
            out.put_slice(b",\"requestState\":");
            out.put_slice(state);
        }
    }
    out.put_slice(b"}}\n");
}

/// `_meta` of a client without what it told us about itself.
fn without_our_words(meta: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if memmem::find(meta, b"io.modelcontextprotocol/").is_none() {
        return meta.into();
    }
    meta::stripped(meta).into()
}

/// A key that stays the same when a call is replayed, in the form of a UUID, so that a willing server can tell.
fn call_key((process, call): (u64, u64)) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let value = (u128::from(process) << 64) | u128::from(call);
    let mut text = [b'-'; 36];
    let mut nibble = 0;
    for (at, digit) in text.iter_mut().enumerate() {
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
    use super::*;

    fn written(method: &'static str, params: Option<&[u8]>) -> String {
        let request = Request {
            server: metamcp_core::ledger::ServerId(0),
            tool: "x".into(),
            arguments: None,
            meta: None,
            progress: None,
            harmless: true,
            input: None,
            verbatim: Some(Verbatim::new(method, params)),
            dress: None,
        };
        let mut out = BytesMut::new();
        head(&mut out, 7, &request);
        out.put_slice(request.body().unwrap());
        tail(&mut out, 7, &request, (0, 1), None);
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
