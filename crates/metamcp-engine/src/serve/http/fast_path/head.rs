//! Parsing of request heads the fast path takes. The parser is httparse, which hyper uses as well, so both read the same.

use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Uri, Version};

/// Headers of one request: clients send about ten.
const MAX_HEADERS: usize = 32;
/// Digits of a Content-Length: far more than the fast path reads.
const MAX_DIGITS: usize = 8;

/// A head that the fast path takes. No `Debug`: it may hold a token.
pub struct Head {
    /// Request line and headers, without Content-Length.
    pub parts: Parts,
    /// Length of the head in bytes.
    pub size: usize,
    /// Content-Length.
    pub length: usize,
    /// The raw bytes before and after the value of Content-Length.
    before: Vec<u8>,
    after: Vec<u8>,
}

/// The result of parsing what was read so far.
pub enum ParsedHead {
    /// The head is incomplete.
    Partial,
    /// Not a request for the fast path.
    Unsupported,
    /// A complete head.
    Complete(Box<Head>),
}

/// Parses the head at the beginning of `read`.
pub fn parse(read: &[u8]) -> ParsedHead {
    if read.is_empty() {
        return ParsedHead::Partial;
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(read) {
        Ok(httparse::Status::Partial) => ParsedHead::Partial,
        Ok(httparse::Status::Complete(size)) => supported(read, size, &request)
            .map_or(ParsedHead::Unsupported, |head| ParsedHead::Complete(Box::new(head))),
        Err(_) => ParsedHead::Unsupported,
    }
}

fn supported(read: &[u8], size: usize, request: &httparse::Request<'_, '_>) -> Option<Head> {
    if request.method != Some("POST") || request.version != Some(1) {
        return None;
    }
    // httparse accepts a bare line feed as a line end; intermediaries may not, which is how requests are smuggled.
    if read[..size].split(|byte| *byte == b'\n').rev().skip(1).any(|line| !line.ends_with(b"\r")) {
        return None;
    }
    // Origin form only: the absolute form is for proxies, `*` is for OPTIONS.
    let target = request.path.filter(|path| path.starts_with('/'))?;
    let mut length = None;
    let mut map = HeaderMap::with_capacity(request.headers.len());
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        match name.as_str() {
            "content-length" if length.is_some() => return None,
            "content-length" => length = Some(header.value),
            // Headers that change the framing of the body or the state of the connection.
            "transfer-encoding" | "expect" | "upgrade" | "te" | "trailer" => return None,
            "connection" if !header.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            _ => {
                map.append(name, HeaderValue::from_bytes(header.value).ok()?);
            }
        }
    }
    let said = length?;
    let start = said.as_ptr().addr() - read.as_ptr().addr();
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.uri = Uri::try_from(target).ok()?;
    parts.version = Version::HTTP_11;
    parts.headers = map;
    Some(Head {
        parts,
        size,
        length: number(said)?,
        before: read[..start].to_vec(),
        after: read[start + said.len()..size].to_vec(),
    })
}

impl Head {
    /// If `read` begins with this head but for the value of Content-Length: the lengths of that head and of its body.
    pub fn fits(&self, read: &[u8]) -> Option<(usize, usize)> {
        let rest = read.strip_prefix(&self.before[..])?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = number(&rest[..digits])?;
        rest[digits..].starts_with(&self.after).then_some(())?;
        Some((self.before.len() + digits + self.after.len(), length))
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests;
