//! Serializes messages straight into the outgoing bytes, one line each.
//! Owns: the text around ids, params and results.      Never: parses, or changes what it passes on beyond keeping it on one line.
//! In: the parts, raw.  Out: bytes appended, ending in one newline.
//! Tests: `write/tests.rs`, and in `write/line.rs`, the only writer of messages to servers.

mod line;

use std::borrow::Cow;

use bytes::BufMut;

pub use line::{Json, Line};

/// What follows a result that was sent in slices after [`result_head`].
pub const RESULT_TAIL: &[u8] = b"}\n";

const OPEN: &[u8] = b"{\"jsonrpc\":\"2.0\"";

/// Appends a request with an id of ours.
pub fn request(out: &mut impl BufMut, id: u64, method: &str, params: Option<&[u8]>) {
    out.put_slice(OPEN);
    out.put_slice(b",\"id\":");
    number(out, id);
    call(out, method, params);
}

/// Appends a notification.
pub fn notification(out: &mut impl BufMut, method: &str, params: Option<&[u8]>) {
    out.put_slice(OPEN);
    call(out, method, params);
}

/// Appends the response to the request whose id was written as `id_raw`.
pub fn result(out: &mut impl BufMut, id_raw: &[u8], result: &[u8]) {
    open_result(out, id_raw);
    raw(out, result);
    out.put_slice(RESULT_TAIL);
}

/// What comes before a result, so that a large one can be sent as three slices: this, the result
/// (through [`one_line`]), [`RESULT_TAIL`].
pub fn result_head(id_raw: &[u8]) -> Vec<u8> {
    let mut head = Vec::with_capacity(OPEN.len() + id_raw.len() + 16);
    open_result(&mut head, id_raw);
    head
}

/// Appends an error response. Without an id the request could not be parsed, which is written as `null`.
pub fn error(
    out: &mut impl BufMut,
    id_raw: Option<&[u8]>,
    code: i64,
    message: &str,
    data: Option<&[u8]>,
) {
    open_error(out, id_raw);
    error_object(out, code, message, data);
    out.put_slice(b"}\n");
}

/// Appends the error object alone.
pub fn error_object(out: &mut impl BufMut, code: i64, message: &str, data: Option<&[u8]>) {
    out.put_slice(b"{\"code\":");
    if code < 0 {
        out.put_u8(b'-');
    }
    number(out, code.unsigned_abs());
    out.put_slice(b",\"message\":");
    json_string(out, message);
    if let Some(data) = data {
        out.put_slice(b",\"data\":");
        raw(out, data);
    }
    out.put_u8(b'}');
}

/// Appends an error response with an error object from elsewhere.
pub fn error_raw(out: &mut impl BufMut, id_raw: Option<&[u8]>, error: &[u8]) {
    open_error(out, id_raw);
    raw(out, error);
    out.put_slice(b"}\n");
}

/// Appends `text` as a JSON string.
pub fn json_string(out: &mut impl BufMut, text: &str) {
    out.put_u8(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&b| b < 0x20 || b == b'"' || b == b'\\') {
        let (plain, special) = rest.split_at(at);
        out.put_slice(plain);
        match special[0] {
            b'"' => out.put_slice(b"\\\""),
            b'\\' => out.put_slice(b"\\\\"),
            0x08 => out.put_slice(b"\\b"),
            0x0c => out.put_slice(b"\\f"),
            b'\n' => out.put_slice(b"\\n"),
            b'\r' => out.put_slice(b"\\r"),
            b'\t' => out.put_slice(b"\\t"),
            control => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble & 15)];
                out.put_slice(&[b'\\', b'u', b'0', b'0', digit(control >> 4), digit(control)]);
            }
        }
        rest = &special[1..];
    }
    out.put_slice(rest);
    out.put_u8(b'"');
}

/// `raw` without line breaks. In valid JSON they occur only between tokens, so a space does as well.
pub fn one_line(raw: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr2(b'\n', b'\r', raw) {
        None => Cow::Borrowed(raw),
        Some(_) => Cow::Owned(
            raw.iter().map(|&b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }).collect(),
        ),
    }
}

/// Appends a whole number.
pub fn number(out: &mut impl BufMut, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&digits[start..]);
}

fn call(out: &mut impl BufMut, method: &str, params: Option<&[u8]>) {
    out.put_slice(b",\"method\":");
    json_string(out, method);
    if let Some(params) = params {
        out.put_slice(b",\"params\":");
        raw(out, params);
    }
    out.put_slice(b"}\n");
}

fn open_result(out: &mut impl BufMut, id_raw: &[u8]) {
    out.put_slice(OPEN);
    out.put_slice(b",\"id\":");
    raw(out, id_raw);
    out.put_slice(b",\"result\":");
}

fn open_error(out: &mut impl BufMut, id_raw: Option<&[u8]>) {
    out.put_slice(OPEN);
    out.put_slice(b",\"id\":");
    raw(out, id_raw.unwrap_or(b"null"));
    out.put_slice(b",\"error\":");
}

fn raw(out: &mut impl BufMut, raw: &[u8]) {
    out.put_slice(&one_line(raw));
}

#[cfg(test)]
mod tests;
