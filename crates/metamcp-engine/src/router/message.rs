//! A `tools/call` as it is written to a server, in either era.

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

/// A `tools/call` up to its arguments.
pub(super) fn head(out: &mut BytesMut, number: u64, request: &Request) {
    out.put_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    write::number(out, number);
    out.put_slice(b",\"method\":\"tools/call\",\"params\":{\"name\":");
    write::json_string(out, &request.tool);
    out.put_slice(b",\"arguments\":");
}

/// What follows the arguments.
pub(super) fn tail(
    out: &mut BytesMut,
    number: u64,
    request: &Request,
    key: (u64, u64),
    stateless: Option<&Stateless<'_>>,
) {
    out.put_slice(b",\"_meta\":");
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
