//! Heads of requests in the usual form. The parser is the one the library uses, so that both read the same.

use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Uri, Version};

/// Headers of one request: clients send about ten.
const MOST_HEADERS: usize = 32;
/// Digits of a length: ten megabytes, and far more than is read here.
const MOST_DIGITS: usize = 8;

/// A head in the usual form. It may hold a token, so it is not printed.
pub struct Head {
    /// What it says; the length of the body is not among its headers.
    pub parts: Parts,
    /// How long it is.
    pub size: usize,
    /// How long its body is.
    pub length: usize,
    /// Its bytes up to the length of the body, and those behind it.
    before: Vec<u8>,
    after: Vec<u8>,
}

/// What was found.
pub enum ParsedHead {
    /// The beginning of a head.
    Partial,
    /// Something else.
    Unsupported,
    /// A head.
    Complete(Box<Head>),
}

/// Looks at what was read.
pub fn look(read: &[u8]) -> ParsedHead {
    if read.is_empty() {
        return ParsedHead::Partial;
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(read) {
        Ok(httparse::Status::Partial) => ParsedHead::Partial,
        Ok(httparse::Status::Complete(size)) => usual(read, size, &request)
            .map_or(ParsedHead::Unsupported, |head| ParsedHead::Complete(Box::new(head))),
        Err(_) => ParsedHead::Unsupported,
    }
}

fn usual(read: &[u8], size: usize, request: &httparse::Request<'_, '_>) -> Option<Head> {
    if request.method != Some("POST") || request.version != Some(1) {
        return None;
    }
    // The parser takes a line feed alone for the end of a line; others may not.
    if read[..size].split(|byte| *byte == b'\n').rev().skip(1).any(|line| !line.ends_with(b"\r")) {
        return None;
    }
    // An address of another form is somebody else's, or a question about us.
    let target = request.path.filter(|path| path.starts_with('/'))?;
    let mut length = None;
    let mut map = HeaderMap::with_capacity(request.headers.len());
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        match name.as_str() {
            "content-length" if length.is_some() => return None,
            "content-length" => length = Some(header.value),
            // What changes how the body is read, or what becomes of the connection.
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
    /// The length of a head that says the same as this one, and of the body it announces.
    pub fn fits(&self, read: &[u8]) -> Option<(usize, usize)> {
        let rest = read.strip_prefix(&self.before[..])?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = number(&rest[..digits])?;
        rest[digits..].starts_with(&self.after).then_some(())?;
        Some((self.before.len() + digits + self.after.len(), length))
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > MOST_DIGITS {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests;
